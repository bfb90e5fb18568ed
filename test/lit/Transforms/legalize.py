"""A composite that a kernel family claims stays whole; another becomes what it expands to."""
# RUN: %python %s > %t.mlir
# RUN: %rlx-opt %t.mlir --split-input-file --legalize | %filecheck %s
# RUN: %rlx-opt %t.mlir --split-input-file --legalize --dispatch=common | %filecheck %s --check-prefix=COMMON
# RUN: %rlx-opt %t.mlir --split-input-file --emit=fused | %filecheck %s --check-prefix=FUSED
# RUN: %rlx-opt %t.mlir --split-input-file --legalize --report 2>&1 >%t.out | %filecheck %s --check-prefix=REPORT

# ruff: noqa: E501 (patterns do not break)

from cases import case


# CHECK-LABEL: "claimed"
# CHECK: "mir.softmax"
# CHECK-NEXT: return
# COMMON-LABEL: "claimed"
# COMMON-NOT: "mir.softmax"
# COMMON: "mir.reduce_max"
# COMMON: "mir.exp"
# COMMON: "mir.reduce_sum"
# COMMON: "mir.div"
@case
def claimed(g):
    return g.softmax(g.input("x", [8, 64]), -1)


# CHECK-LABEL: "attention"
# CHECK: "mir.attention"
# CHECK-NEXT: return
# COMMON-LABEL: "attention"
# COMMON-NOT: "mir.attention"
# COMMON-COUNT-2: "mir.matmul"
@case
def attention(g):
    q, k, v = (g.input(n, [1, 2, 8, 16]) for n in "qkv")
    return g.attention(q, k, v, layout="bhsd")


# A product by decoded blocks is one op, which a kernel runs; of a scheme without one the report says
# what its numbers take.
# CHECK-LABEL: "blocks"
# CHECK: mir.dequant_matmul
# CHECK-SAME: scheme = "q4_0"
# CHECK-NOT: mir.dequantize_blocks
# CHECK: return
# COMMON-LABEL: "blocks"
# COMMON-NOT: mir.dequant
# COMMON: "mir.matmul"
@case
def blocks(g):
    return g.input("x", [2, 32]) @ g.param("w", [8, 18], "u8").dequantize_blocks("q4_0").transpose()


# CHECK-LABEL: "other_blocks"
# CHECK-NOT: mir.dequant
# CHECK: "mir.matmul"
# REPORT: decoded q2_k to f32: 0.01 MiB
@case
def other_blocks(g):
    w = g.param("w", [8, 84], "u8").dequantize_blocks("q2_k")
    return g.input("x", [2, 256]) @ w.transpose()


# Along an axis of strided rows there is no kernel.
# CHECK-LABEL: "unclaimed"
# CHECK-NOT: "mir.layer_norm"
# CHECK-COUNT-2: "mir.reduce_mean"
# CHECK: "mir.rsqrt"
# REPORT: rewritten layer_norm x 1
# What it expands to is simplified: with its broadcasts explicit it fuses.
# FUSED-LABEL: "unclaimed"
# FUSED-COUNT-2: "mir.reduce_mean"
# FUSED: "mir.fused"
# FUSED: "mir.add"
# FUSED-NEXT: "mir.rsqrt"
# FUSED: {kind = "elementwise"}
@case
def unclaimed(g):
    return g.layer_norm(g.input("x", [8, 64]), None, None, axis=0)
