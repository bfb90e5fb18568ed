"""Every hir block is replaced by its expansion, down to mir."""
# RUN: %python %s | %rlx-opt --split-input-file --hir-to-mir | %filecheck %s
# RUN: %python %inputs/ops.py samples hir > %t.mlir
# RUN: %rlx-opt %t.mlir --hir-to-mir | %filecheck %s --check-prefix=NONE

# NONE: "mir.matmul"
# NONE-NOT: "hir.

from cases import case, layer


# CHECK-LABEL: "linear"
# CHECK: %[[Y:.*]] = "mir.matmul"(%arg0, %arg1)
# CHECK-NEXT: %[[S:.*]] = "mir.add"(%[[Y]], %arg2)
# CHECK-NEXT: %[[A:.*]] = "mir.gelu"(%[[S]])
# CHECK-NEXT: return %[[A]]
@case
def linear(g):
    x = g.input("x", [8, 16])
    return g.linear(x, *layer(g, x, 32), activation="gelu")


# CHECK-LABEL: "linear_without_bias_or_activation"
# CHECK: %[[Y:.*]] = "mir.matmul"(%arg0, %arg1)
# CHECK-NEXT: return %[[Y]]
@case
def linear_without_bias_or_activation(g):
    return g.linear(g.input("x", [8, 16]), g.param("w", [16, 4]))


# CHECK-LABEL: "swiglu"
# CHECK-DAG: %[[UP:.*]] = "mir.matmul"(%arg0, %arg1)
# CHECK-DAG: %[[GATE:.*]] = "mir.matmul"(%arg0, %arg2)
# CHECK-DAG: %[[S:.*]] = "mir.silu"(%[[GATE]])
# CHECK: %[[H:.*]] = "mir.mul"(%{{.*}}, %{{.*}})
# CHECK-NEXT: "mir.matmul"(%[[H]], %arg3)
@case
def swiglu(g):
    x = g.input("x", [8, 16])
    up, gate, down = g.param("u", [16, 32]), g.param("g", [16, 32]), g.param("d", [32, 16])
    return g.swiglu(x, up, gate, down)


# CHECK-LABEL: "residual_rms_norm"
# CHECK: %[[S:.*]] = "mir.add"(%arg0, %arg1)
# CHECK-NEXT: "mir.rms_norm"(%[[S]], %arg2
@case
def residual_rms_norm(g):
    x, r = g.input("x", [8, 16]), g.input("r", [8, 16])
    return g.residual_rms_norm(x, r, g.param("gamma", [16]))


# Ops of mir among the blocks, and mir composites, are left as they are.
# CHECK-LABEL: "mixed"
# CHECK: "mir.softmax"
# CHECK-NEXT: "mir.matmul"
@case
def mixed(g):
    return g.linear(g.softmax(g.input("x", [8, 16]), -1), g.param("w", [16, 4]))
