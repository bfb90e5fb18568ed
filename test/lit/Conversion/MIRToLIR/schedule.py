"""Kernels, views and memory of the schedule that mir-to-lir writes."""
# RUN: %python %s | %rlx-opt --split-input-file --emit=lir | %filecheck %s
# RUN: %python %s | %rlx-opt --split-input-file --emit=fused | %rlx-opt --split-input-file --mir-to-lir | %filecheck %s

# ruff: noqa: E501 (patterns do not break)

from cases import case


# The weight is packed by the prologue when param 0 is set; main reads the packed one.
# CHECK-LABEL: module attributes
# CHECK: func.func private @pack_0({{.*}}lir.family = "pack"
# CHECK: func.func private @contraction_1({{.*}}lir.family = "contraction"
# CHECK: func.func @prologue(
# CHECK-SAME: %[[PACKED:[a-z0-9]+]]: memref<256xi8> {lir.role = "packed"}
# CHECK-SAME: %[[W:[a-z0-9]+]]: memref<4x2xf32> {lir.name = "w", lir.role = "param"}
# CHECK: %[[FROM:.*]] = "lir.view"(%[[W]]) {offset = 0 : i64, shape = array<i64: 4, 2>, strides = array<i64: 2, 1>}
# CHECK: %[[TO:.*]] = "lir.view"(%[[PACKED]]) {offset = 0 : i64
# CHECK: call @pack_0(%[[FROM]], %[[TO]], {{.*}}lir.when = array<i64: 0>
# CHECK: func.func @main(
# CHECK-SAME: %[[PACKED:[a-z0-9]+]]: memref<256xi8> {lir.role = "packed"}
# CHECK-SAME: %[[X:[a-z0-9]+]]: memref<1x4xf32> {lir.name = "x", lir.role = "input"}
# CHECK-SAME: %[[Y:[a-z0-9]+]]: memref<1x2xf32> {lir.name = "0", lir.role = "output"}
# CHECK-DAG: %[[A:.*]] = "lir.view"(%[[X]])
# CHECK-DAG: %[[B:.*]] = "lir.view"(%[[PACKED]])
# CHECK-DAG: %[[C:.*]] = "lir.view"(%[[Y]])
# CHECK: call @contraction_1(%[[A]], %[[B]], %[[C]],
@case
def hello(g):
    return g.input("x", [1, 4]) @ g.param("w", [4, 2])


# Transposes, slices and broadcasts are strides of a view: one kernel, no copy.
# CHECK-LABEL: module attributes
# CHECK-NOT: func.func private @copy
# CHECK: func.func @main(
# CHECK-SAME: %[[X:[a-z0-9]+]]: memref<64x8xf32> {lir.name = "x"
# CHECK-SAME: %[[B:[a-z0-9]+]]: memref<8xf32> {lir.name = "b"
# CHECK-DAG: "lir.view"(%[[X]]) {offset = 128 : i64, shape = array<i64: 8, 16>, strides = array<i64: 1, 16>}
# CHECK-DAG: "lir.view"(%[[B]]) {offset = 0 : i64, shape = array<i64: 8, 16>, strides = array<i64: 1, 0>}
# CHECK-COUNT-1: call @
@case
def views(g):
    x, b = g.input("x", [64, 8]), g.input("b", [8])
    every_other = g.transpose(x, [1, 0])[:, 4:36:2]
    return every_other * g.reshape(b, [8, 1])


# Buffers whose lives do not overlap share the arena: three sums of 4096 bytes need two places.
# CHECK-LABEL: module attributes
# CHECK: func.func @main(%[[ARENA:[a-z0-9]+]]: memref<8192xi8> {lir.role = "arena"}
@case
def arena(g):
    x = g.input("x", [32, 32])
    for axis in (0, 1, 0, 1):
        x = g.cumsum(x, axis)
    return x


# An output that no kernel wrote is copied to its place: here an input.
# CHECK-LABEL: module attributes
# CHECK: func.func @main(
# CHECK-SAME: %[[X:[a-z0-9]+]]: memref<4xf32> {lir.name = "x"
# CHECK-SAME: %[[Y:[a-z0-9]+]]: memref<4xf32> {lir.name = "0", lir.role = "output"}
# CHECK-DAG: %[[A:.*]] = "lir.view"(%[[X]])
# CHECK-DAG: %[[B:.*]] = "lir.view"(%[[Y]])
# CHECK: call @{{.*}}(%[[A]], %[[B]]
@case
def output_is_an_input(g):
    return g.input("x", [4])


# A literal is a memory of its own; a fault has a site with its message.
# CHECK-LABEL: module attributes
# CHECK-SAME: lir.constant0 = dense<[1, 0]> : tensor<2xi64>
# CHECK-SAME: lir.sites = [{file = "{{.*}}", line = {{[0-9]+}} : i64, message = "gather
# CHECK: func.func @main(
# CHECK-SAME: memref<2xi64> {lir.role = "error"}
# CHECK-SAME: memref<2xi64> {lir.name = "0", lir.role = "constant"}
@case
def literal_and_fault(g):
    return g.gather(g.input("x", [4]), g.constant([1, 0], "i64"), axis=0)
