"""What depends on params alone is done once, in @prologue."""
# RUN: %python %s > %t.mlir
# RUN: %rlx-opt %t.mlir --split-input-file --simplify --hoist | %filecheck %s
# RUN: %rlx-opt %t.mlir --split-input-file --simplify --hoist --dispatch=common | %filecheck %s --check-prefix=COMMON

# COMMON-NOT: @prologue

# ruff: noqa: E501 (patterns do not break)

from cases import case


# CHECK-LABEL: "work_on_a_param"
# CHECK: func.func @prologue(%[[W:[a-z0-9]+]]: tensor<4x4xf32> {rlx.param = "w"}) -> tensor<4x4xf32>
# CHECK-NEXT: %[[T:.*]] = "mir.transpose"(%[[W]])
# CHECK-NEXT: %[[E:.*]] = "mir.exp"(%[[T]])
# CHECK-NEXT: return %[[E]]
# CHECK: func.func @main(%[[X:[a-z0-9]+]]: {{.*}}, %{{.*}}: tensor<4x4xf32> {rlx.param = "w"}, %[[P:[a-z0-9]+]]: tensor<4x4xf32> {rlx.packed = 0 : i64})
# CHECK-NEXT: %[[Y:.*]] = "mir.matmul"(%[[X]], %[[P]])
# CHECK-NEXT: return %[[Y]]
@case
def work_on_a_param(g):
    w = g.param("w", [4, 4])
    return g.input("x", [2, 4]) @ g.exp(g.transpose(w, [1, 0]))


# A constant that both read is in both; one of its own does not move by itself.
# CHECK-LABEL: "constants"
# CHECK: func.func @prologue
# CHECK: dense<2.000000e+00>
# CHECK: "mir.mul"
# CHECK: func.func @main
# CHECK: dense<2.000000e+00>
# CHECK: "mir.mul"
# CHECK: "mir.add"
@case
def constants(g):
    return g.input("x", [4]) * 2.0 + g.param("w", [4]) * 2.0


# What main and the prologue both need is returned once and used inside.
# CHECK-LABEL: "value_used_by_both"
# CHECK: func.func @prologue
# CHECK-NEXT: %[[E:.*]] = "mir.exp"
# CHECK-NEXT: %[[N:.*]] = "mir.neg"(%[[E]])
# CHECK-NEXT: return %[[E]], %[[N]]
# CHECK: func.func @main
# CHECK-SAME: {rlx.packed = 0 : i64}
# CHECK-SAME: {rlx.packed = 1 : i64}
# CHECK-NOT: "mir.exp"
@case
def value_used_by_both(g):
    x, e = g.input("x", [4]), g.exp(g.param("w", [4]))
    return x * e, x + -e


# A broadcast is an address where it is read, and would be a tensor in the packed memory.
# CHECK-LABEL: "broadcasts_stay"
# CHECK-NOT: @prologue
# CHECK: func.func @main
# CHECK: "mir.expand"
@case
def broadcasts_stay(g):
    return g.input("x", [2, 4]) + g.param("b", [4])


# An output that depends on params alone is an output of main still.
# CHECK-LABEL: "static_output"
# CHECK: func.func @prologue
# CHECK: "mir.exp"
# CHECK: func.func @main
# CHECK-SAME: %[[P:[a-z0-9]+]]: tensor<4xf32> {rlx.packed = 0 : i64}
# CHECK: return %[[P]]
@case
def static_output(g):
    g.input("x", [4])
    return g.exp(g.param("w", [4]))


# CHECK-LABEL: "nothing_to_hoist"
# CHECK-NOT: @prologue
# CHECK: func.func @main
@case
def nothing_to_hoist(g):
    return g.exp(g.input("x", [4])) * g.constant(3.0, "f32")
