"""Ops by index: their kernels, and the memory that they have beside operands and results."""
# RUN: %python %s | %rlx-opt --split-input-file --emit=lir | %filecheck %s

# ruff: noqa: E501 (patterns do not break)

from cases import case


# A sort of 64-bit elements has a spare pair of values and indices (16 x i64) in the arena, and its
# own values, which nobody asked for.
# CHECK-LABEL: module attributes
# CHECK: func.func private @common_0({{.*}}lir.family = "common"
# CHECK: func.func @main(%[[ARENA:[a-z0-9]+]]: memref<384xi8> {lir.role = "arena"}
# CHECK-COUNT-3: "lir.view"(%[[ARENA]])
# CHECK: call @common_0(
@case
def argsort(g):
    return g.argsort(g.input("x", [16], "i64"))


# A sum of bf16 is kept in f32 until all updates are in.
# CHECK-LABEL: module attributes
# CHECK-SAME: message = "scatter: index out of range for axis 0 of 5 elements"
# CHECK: func.func private @scatter_0({{.*}}lir.family = "scatter"
# CHECK: func.func @main(
# CHECK: "lir.view"(%{{.*}}) {offset = 0 : i64, shape = array<i64: 5, 16>, strides = array<i64: 16, 1>} : (memref<320xi8>) -> memref<?xf32>
# CHECK: call @scatter_0(
@case
def scatter(g):
    x, u = g.input("x", [5, 16], "bf16"), g.input("u", [3, 16], "bf16")
    return g.scatter(x, g.input("i", [3], "i64"), u, reduction="add")


# Coordinates become one index, in one kernel that checks and one that joins them; the rows are
# copied by the family of gathers, which has no more to check.
# CHECK-LABEL: module attributes
# CHECK-SAME: message = "gather_nd: index out of range for axis 0 of 5 elements"
# CHECK-SAME: message = "gather_nd: index out of range for axis 1 of 6 elements"
# CHECK-DAG: func.func private @gather_{{[0-9]}}({{.*}}mode = "clip"
# CHECK: func.func @main(
# CHECK: call @gather_
@case
def gather_nd(g):
    return g.gather_nd(g.input("x", [5, 6, 8]), g.input("i", [3, 2], "i64"))
