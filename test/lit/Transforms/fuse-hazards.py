"""What fuse must leave alone, and what it must get right where fusing is easy to get wrong."""
# RUN: %python %s > %t.mlir
# RUN: %rlx-opt %t.mlir --split-input-file --emit=fused | %filecheck %s
# RUN: %rlx-opt %t.mlir --split-input-file --emit=fused --report 2>&1 >%t.out | %filecheck %s --check-prefix=MISS
# RUN: %rlx-opt %t.mlir --split-input-file --emit=fused --no-fuse | %filecheck %s --check-prefix=APART

# APART-NOT: mir.fused

# ruff: noqa: E501 (patterns do not break)

from cases import case, layer


# An intermediate that is a graph output is stored: the epilogue ends before it.
# CHECK-LABEL: "product_is_an_output"
# CHECK: %[[Y:.*]] = "mir.matmul"(%arg0, %{{.*}})
# CHECK-NEXT: %[[R:.*]] = "mir.fused"() ({
# CHECK: "mir.add"(%[[Y]],
# CHECK: "mir.relu"
# CHECK: {kind = "elementwise"}
# CHECK-NEXT: return %[[R]], %[[Y]]
# MISS: contraction of matmul: its result has 2 uses (add, return)
@case
def product_is_an_output(g):
    x = g.input("x", [8, 16])
    w, b = layer(g, x, 32)
    y = x @ w
    return g.relu(y + b), y


# CHECK-LABEL: "biased_product_is_an_output"
# CHECK: %[[Y:.*]] = "mir.fused"() ({
# CHECK: "mir.matmul"
# CHECK: %[[A:.*]] = "mir.add"
# CHECK-NEXT: "mir.yield"(%[[A]])
# CHECK-NEXT: {kind = "contraction"}
# CHECK-NEXT: %[[R:.*]] = "mir.relu"(%[[Y]])
# CHECK-NEXT: return %[[R]], %[[Y]]
# MISS: contraction of add: its result has 2 uses (relu, return)
@case
def biased_product_is_an_output(g):
    x = g.input("x", [8, 16])
    w, b = layer(g, x, 32)
    y = x @ w + b
    return g.relu(y), y


# A sum that is normed and an output, or the next residual, is a second result of the norm's region.
# CHECK-LABEL: "sum_before_a_norm_is_an_output"
# CHECK: %[[R:.*]]:2 = "mir.fused"() ({
# CHECK-NEXT: %[[S:.*]] = "mir.add"(%arg0, %arg1)
# CHECK-NEXT: %[[N:.*]] = "mir.layer_norm"(%[[S]],
# CHECK-NEXT: "mir.yield"(%[[S]], %[[N]])
# CHECK-NEXT: {kind = "rowwise"} : () -> (tensor<8x64xf32>, tensor<8x64xf32>)
# CHECK-NEXT: return %[[R]]#1, %[[R]]#0
@case
def sum_before_a_norm_is_an_output(g):
    x, r = g.input("x", [8, 64]), g.input("r", [8, 64])
    s = x + r
    return g.layer_norm(s, g.param("gamma", [64]), g.param("beta", [64])), s


# The norm's scale is computed from the sum: neither could stand in front of the other.
# CHECK-LABEL: "norm_that_waits_for_a_reader_of_its_sum"
# CHECK: %[[S:.*]] = "mir.add"(%arg0, %arg1)
# CHECK-NEXT: "mir.slice"(%[[S]])
# CHECK: "mir.fused"() ({
# CHECK-NEXT: "mir.rms_norm"(%[[S]],
# CHECK-NEXT: "mir.yield"
@case
def norm_that_waits_for_a_reader_of_its_sum(g):
    x, r = g.input("x", [8, 64]), g.input("r", [8, 64])
    s = x + r
    return g.rms_norm(s, s.slice((0, 0), (1, 64)).reshape((64,)))


# CHECK-LABEL: "several_consumers"
# CHECK: %[[Y:.*]] = "mir.fused"() ({
# CHECK: "mir.matmul"
# CHECK: "mir.add"
# CHECK-NEXT: "mir.yield"
# CHECK-NEXT: {kind = "contraction"}
# CHECK-NEXT: "mir.relu"(%[[Y]])
# CHECK-NEXT: "mir.exp"(%[[Y]])
# MISS: contraction of add: its result has 2 uses (exp, relu)
@case
def several_consumers(g):
    x = g.input("x", [8, 16])
    w, b = layer(g, x, 32)
    y = x @ w + b
    return g.relu(y), g.exp(y)


# The gate of a swiglu has another consumer: both products are computed once and read twice.
# CHECK-LABEL: "gate_with_another_consumer"
# CHECK: %[[P:.*]] = "mir.matmul"(%arg0, %{{.*}}) : (tensor<8x64xf32>, tensor<64x256xf32>)
# CHECK: %[[GATE:.*]] = "mir.slice"(%[[P]]) {{.*}}starts = array<i64: 0, 0>
# CHECK: %[[UP:.*]] = "mir.slice"(%[[P]]) {{.*}}starts = array<i64: 0, 128>
# CHECK: "mir.silu"(%[[GATE]])
# CHECK: "mir.tanh"(%[[GATE]])
@case
def gate_with_another_consumer(g):
    x = g.input("x", [8, 64])
    up, gate = x @ g.param("u", [64, 128]), x @ g.param("g", [64, 128])
    return g.silu(gate) * up, g.tanh(gate)


# silu is of the gate, whichever of the two products stands first.
# CHECK-LABEL: "gate_first"
# CHECK: %[[GATE:.*]] = "mir.slice"(%{{.*}}) {{.*}}starts = array<i64: 0, 0>
# CHECK: %[[UP:.*]] = "mir.slice"(%{{.*}}) {{.*}}starts = array<i64: 0, 128>
# CHECK: %[[S:.*]] = "mir.silu"(%[[GATE]])
# CHECK: "mir.mul"(%[[S]], %[[UP]])
@case
def gate_first(g):
    x = g.input("x", [8, 64])
    gate, up = x @ g.param("g", [64, 128]), x @ g.param("u", [64, 128])
    return g.silu(gate) * up


# [M, 1] against [M, N] goes along the columns: it is no bias of a row.
# CHECK-LABEL: "column_against_product"
# CHECK: "mir.fused"
# CHECK: "mir.matmul"
# CHECK: %[[C:.*]] = "mir.expand"(%{{.*}}) {shape = array<i64: 8, 32>} : (tensor<8x1xf32>)
# CHECK: "mir.add"(%{{.*}}, %[[C]])
# CHECK: {kind = "contraction"}
@case
def column_against_product(g):
    x = g.input("x", [8, 16])
    return x @ g.param("w", [16, 32]) + g.param("c", [8, 1])


# CHECK-LABEL: "column_before_softmax"
# CHECK: "mir.fused"
# CHECK: %[[C:.*]] = "mir.expand"(%arg1) {shape = array<i64: 8, 64>} : (tensor<8x1xf32>)
# CHECK: "mir.mul"(%arg0, %[[C]])
# CHECK: "mir.softmax"
# CHECK: {kind = "rowwise"}
@case
def column_before_softmax(g):
    return g.softmax(g.input("x", [8, 64]) * g.input("y", [8, 1]), -1)


# A sum that broadcasts is not the residual of a norm over the wide shape by itself.
# CHECK-LABEL: "broadcast_residual"
# CHECK: "mir.fused"
# CHECK: %[[E:.*]] = "mir.expand"(%arg1) {shape = array<i64: 8, 64>} : (tensor<64xf32>)
# CHECK: %[[S:.*]] = "mir.add"(%arg0, %[[E]])
# CHECK: "mir.layer_norm"(%[[S]],
# CHECK: {kind = "rowwise"}
@case
def broadcast_residual(g):
    x, r = g.input("x", [8, 64]), g.input("r", [64])
    return g.layer_norm(x + r, g.param("gamma", [64]), g.param("beta", [64]))


# A norm along another axis than the last is no row-wise kernel's: it is expanded, over that axis.
# CHECK-LABEL: "norm_of_another_axis"
# CHECK-NOT: "mir.layer_norm"
# CHECK: "mir.reduce_mean"(%{{.*}}) {axes = array<i64: 0>, keepdims = true} : (tensor<8x64xf32>) -> tensor<1x64xf32>
@case
def norm_of_another_axis(g):
    x, r = g.input("x", [8, 64]), g.input("r", [8, 64])
    return g.layer_norm(x + r, g.param("gamma", [8]), None, axis=0)


# Reductions along different axes do not share a region.
# CHECK-LABEL: "sums_along_both_axes"
# CHECK: %[[R:.*]] = "mir.fused"
# CHECK: "mir.reduce_sum"(%{{.*}}) {axes = array<i64: 1>
# CHECK-NOT: array<i64: 0>
# CHECK: "mir.yield"
# CHECK: "mir.reduce_sum"(%{{.*}}) {axes = array<i64: 0>
@case
def sums_along_both_axes(g):
    x = g.input("x", [8, 64])
    return g.reduce_sum(g.exp(x), [1]), g.reduce_sum(g.exp(x), [0])


# A constant and a broadcast that two regions read go into both.
# CHECK-LABEL: "cheap_ops_are_copied"
# CHECK: "mir.fused"
# CHECK: dense<2.000000e+00>
# CHECK: {kind = "elementwise"}
# CHECK: "mir.fused"
# CHECK: dense<2.000000e+00>
# CHECK: {kind = "elementwise"}
# CHECK: return
@case
def cheap_ops_are_copied(g):
    x, y = g.input("x", [8, 64]), g.input("y", [8, 64])
    return g.exp(x * 2.0), g.exp(y * 2.0)
