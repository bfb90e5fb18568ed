"""Every pattern of fuse, by what its region holds."""
# RUN: %python %s | %rlx-opt --split-input-file --emit=fused | %filecheck %s

from cases import case, layer

WIDTHS = [(64, 128), (64, 128), (128, 64)]


# CHECK-LABEL: "matmul_bias"
# CHECK: %[[F:.*]] = "mir.fused"() ({
# CHECK-NEXT: %[[Y:.*]] = "mir.matmul"(%{{.*}}, %{{.*}})
# CHECK-NEXT: %[[B:.*]] = "mir.expand"(%{{.*}}) {shape = array<i64: 8, 32>} : (tensor<32xf32>)
# CHECK-NEXT: %[[S:.*]] = "mir.add"(%[[Y]], %[[B]])
# CHECK-NEXT: "mir.yield"(%[[S]])
# CHECK-NEXT: {kind = "contraction"}
# CHECK-NEXT: return %[[F]]
@case
def matmul_bias(g):
    x = g.input("x", [8, 16])
    w, b = layer(g, x, 32)
    return x @ w + b


# CHECK-LABEL: "matmul_bias_activation"
# CHECK: "mir.fused"
# CHECK: "mir.matmul"
# CHECK: "mir.add"
# CHECK: %[[A:.*]] = "mir.gelu"
# CHECK-NEXT: "mir.yield"(%[[A]])
# CHECK-NEXT: {kind = "contraction"}
# CHECK-NEXT: return
@case
def matmul_bias_activation(g):
    x = g.input("x", [8, 16])
    w, b = layer(g, x, 32)
    return g.gelu(x @ w + b)


# CHECK-LABEL: "matmul_bias_activation_residual"
# CHECK: "mir.fused"
# CHECK: "mir.matmul"
# CHECK: "mir.add"
# CHECK: %[[A:.*]] = "mir.relu"
# CHECK-NEXT: %[[R:.*]] = "mir.add"(%[[A]], %arg1)
# CHECK-NEXT: "mir.yield"(%[[R]])
# CHECK-NEXT: {kind = "contraction"}
# CHECK-NEXT: return
@case
def matmul_bias_activation_residual(g):
    x, r = g.input("x", [8, 16]), g.input("r", [8, 32])
    w, b = layer(g, x, 32)
    return g.relu(x @ w + b) + r


# CHECK-LABEL: "conv_bias_residual_activation"
# CHECK: "mir.fused"
# CHECK: %[[C:.*]] = "mir.conv"
# CHECK: %[[B:.*]] = "mir.add"(%[[C]],
# CHECK-NEXT: %[[R:.*]] = "mir.add"(%[[B]], %arg1)
# CHECK-NEXT: %[[A:.*]] = "mir.relu"(%[[R]])
# CHECK-NEXT: "mir.yield"(%[[A]])
# CHECK-NEXT: {kind = "conv"}
# CHECK-NEXT: return
@case
def conv_bias_residual_activation(g):
    x, r = g.input("x", [1, 3, 8, 8]), g.input("r", [1, 4, 8, 8])
    w, b = g.param("w", [4, 3, 3, 3]), g.param("b", [4])
    return g.relu(x.conv2d(w, b, padding=1) + r)


# One number a column of the image is no epilogue of a convolution.
# CHECK-LABEL: "conv_and_column"
# CHECK: %[[C:.*]] = "mir.conv"
# CHECK-NOT: "conv"}
# CHECK: return
@case
def conv_and_column(g):
    x, w = g.input("x", [1, 3, 8, 8]), g.param("w", [4, 3, 3, 3])
    return x.conv2d(w, padding=1) + g.input("c", [8])


# CHECK-LABEL: "pool_scale_residual"
# CHECK: "mir.fused"
# CHECK: %[[P:.*]] = "mir.mean_pool"
# CHECK: %[[S:.*]] = "mir.mul"(%[[P]],
# CHECK-NEXT: %[[R:.*]] = "mir.sub"(%[[S]], %arg0)
# CHECK-NEXT: "mir.yield"(%[[R]])
# CHECK-NEXT: {kind = "pool"}
# CHECK-NEXT: return
@case
def pool_scale_residual(g):
    x, scale = g.input("x", [1, 4, 8, 8]), g.param("scale", [4, 1, 1])
    return x.mean_pool([3, 3], padding=1, stride=1) * scale - x


# Indices are of another type than what follows them is on.
# CHECK-LABEL: "pool_indices"
# CHECK-NOT: kind = "pool"
# CHECK: return
@case
def pool_indices(g):
    x = g.input("x", [1, 4, 8, 8])
    return x.max_pool_indices([2, 2]).cast("f32") * 0.5


# The same product through the block of hir.
# CHECK-LABEL: "linear_block"
# CHECK: "mir.fused"
# CHECK: "mir.matmul"
# CHECK: "mir.add"
# CHECK: "mir.silu"
# CHECK: {kind = "contraction"}
# CHECK-NEXT: return
@case
def linear_block(g):
    x = g.input("x", [8, 16])
    w, b = layer(g, x, 32)
    return g.linear(x, w, b, activation="silu")


# CHECK-LABEL: "residual_layer_norm"
# CHECK: "mir.fused"
# CHECK-NEXT: %[[S:.*]] = "mir.add"(%arg0, %arg1)
# CHECK-NEXT: %[[N:.*]] = "mir.layer_norm"(%[[S]], %{{.*}}, %{{.*}})
# CHECK-NEXT: "mir.yield"(%[[N]])
# CHECK-NEXT: {kind = "rowwise"}
# CHECK-NEXT: return
@case
def residual_layer_norm(g):
    x, r = g.input("x", [8, 64]), g.input("r", [8, 64])
    return g.layer_norm(x + r, g.param("gamma", [64]), g.param("beta", [64]))


# CHECK-LABEL: "residual_rms_norm"
# CHECK: "mir.fused"
# CHECK-NEXT: %[[S:.*]] = "mir.add"(%arg0, %arg1)
# CHECK: "mir.rms_norm"(%[[S]],
# CHECK: {kind = "rowwise"}
# CHECK-NEXT: return
@case
def residual_rms_norm(g):
    x, r = g.input("x", [8, 64]), g.input("r", [8, 64])
    return g.residual_rms_norm(x, r, g.param("gamma", [64]))


# The gate and the up projection are one product; silu(gate) * up is one pass over it.
# CHECK-LABEL: "swiglu"
# CHECK: %[[P:.*]] = "mir.matmul"(%arg0, %{{.*}}) : (tensor<8x64xf32>, tensor<64x256xf32>)
# CHECK-NEXT: %[[UP:.*]] = "mir.slice"(%[[P]]) {{.*}}starts = array<i64: 0, 0>
# CHECK-NEXT: %[[GATE:.*]] = "mir.slice"(%[[P]]) {{.*}}starts = array<i64: 0, 128>
# CHECK-NEXT: %[[H:.*]] = "mir.fused"
# CHECK-NEXT: %[[S:.*]] = "mir.silu"(%[[GATE]])
# CHECK-NEXT: "mir.mul"(%[[UP]], %[[S]])
# CHECK: {kind = "elementwise"}
# CHECK: "mir.matmul"(%[[H]], %{{.*}})
@case
def swiglu(g):
    x = g.input("x", [8, 64])
    up, gate, down = (g.param(n, s) for n, s in zip("ugd", WIDTHS, strict=True))
    return g.swiglu(x, up, gate, down)


# CHECK-LABEL: "elementwise_chain"
# CHECK: "mir.fused"
# CHECK-NEXT: "mir.neg"(%arg0)
# CHECK: "mir.mul"
# CHECK: "mir.exp"
# CHECK: %[[L:.*]] = "mir.add"
# CHECK-NEXT: "mir.yield"(%[[L]])
# CHECK-NEXT: {kind = "elementwise"}
# CHECK-NEXT: return
@case
def elementwise_chain(g):
    return g.exp(-g.input("x", [8, 64]) * 2.0) + 1.0


# A value used twice within the region is no obstacle.
# CHECK-LABEL: "elementwise_diamond"
# CHECK: "mir.fused"
# CHECK-NEXT: %[[E:.*]] = "mir.exp"
# CHECK-NEXT: %[[N:.*]] = "mir.neg"(%[[E]])
# CHECK-NEXT: "mir.mul"(%[[E]], %[[N]])
# CHECK: {kind = "elementwise"}
@case
def elementwise_diamond(g):
    e = g.exp(g.input("x", [8, 64]))
    return e * -e


# CHECK-LABEL: "elementwise_of_mixed_types"
# CHECK: "mir.fused"
# CHECK: "mir.lt"
# CHECK: "mir.cast"
# CHECK: "mir.where"
# CHECK: {kind = "elementwise"}
# CHECK-NEXT: return
@case
def elementwise_of_mixed_types(g):
    x, y = g.input("x", [8, 64]), g.input("y", [8, 64], "i32")
    return g.where(x < 1.0, x, g.cast(y, "f32"))


# CHECK-LABEL: "rowwise_reduction"
# CHECK: "mir.fused"
# CHECK: "mir.exp"
# CHECK: "mir.mul"
# CHECK: %[[R:.*]] = "mir.reduce_sum"
# CHECK-NEXT: "mir.yield"(%[[R]])
# CHECK-NEXT: {kind = "rowwise"}
# CHECK-NEXT: return
@case
def rowwise_reduction(g):
    x, y = g.input("x", [8, 64]), g.input("y", [8, 64])
    return g.reduce_sum(g.exp(x) * y, [1])


# CHECK-LABEL: "rowwise_softmax_and_after"
# CHECK: "mir.fused"
# CHECK: %[[S:.*]] = "mir.softmax"
# CHECK: %[[M:.*]] = "mir.mul"(%[[S]],
# CHECK-NEXT: "mir.yield"(%[[M]])
# CHECK-NEXT: {kind = "rowwise"}
# CHECK-NEXT: return
@case
def rowwise_softmax_and_after(g):
    x = g.input("x", [8, 64])
    return g.softmax(x * 0.5, -1) * 3.0


# A lone reduction is a region too: the row-wise family runs it.
# CHECK-LABEL: "rowwise_alone"
# CHECK: "mir.fused"
# CHECK-NEXT: "mir.reduce_max"
# CHECK: {kind = "rowwise"}
@case
def rowwise_alone(g):
    return g.reduce_max(g.input("x", [8, 64]), [1])


# An iota of integers is a number that the kernel has: it goes in, reshaped and broadcast as it is.
# CHECK-LABEL: "counters"
# CHECK: "mir.fused"
# CHECK: "mir.iota"
# CHECK-NEXT: "mir.reshape"
# CHECK-NEXT: "mir.expand"
# CHECK-NEXT: "mir.threefry2x32"
# CHECK: "mir.mul"
# CHECK: {kind = "elementwise"}
# CHECK-NEXT: return
@case
def counters(g):
    bits = g.random_bits(g.input("keys", [2, 2], "u32"), [4, 8])
    return bits.cast("f32") * 0.5


# One of floats is a tensor like any other.
# CHECK-LABEL: "float_counter"
# CHECK: "mir.iota"
# CHECK: "mir.fused"
# CHECK-NOT: "mir.iota"
# CHECK: {kind = "elementwise"}
@case
def float_counter(g):
    return g.relu(g.iota([8], dtype="f32") + g.input("x", [8]))


# A step of an optimiser: what a param is updated by is kept, and is a result too.
# CHECK-LABEL: "moment_and_update"
# CHECK: %[[R:.*]]:2 = "mir.fused"() ({
# CHECK: %[[M:.*]] = "mir.add"
# CHECK: %[[P:.*]] = "mir.sub"(%arg0,
# CHECK-NEXT: "mir.yield"(%[[M]], %[[P]])
# CHECK-NEXT: {kind = "elementwise"}
# CHECK-NEXT: return %[[R]]#1, %[[R]]#0
@case
def moment_and_update(g):
    p, m, d = (g.input(n, [8, 64]) for n in "pmd")
    moment = m * 0.9 + d
    return p - moment * 0.1, moment


# CHECK-LABEL: "value_and_statistics"
# CHECK: %[[R:.*]]:2 = "mir.fused"() ({
# CHECK: %[[S:.*]] = "mir.add"(%arg0, %arg1)
# CHECK-NEXT: %[[M:.*]] = "mir.reduce_mean"(%[[S]])
# CHECK-NEXT: "mir.yield"(%[[S]], %[[M]])
# CHECK-NEXT: {kind = "rowwise"} : () -> (tensor<8x64xf32>, tensor<8xf32>)
@case
def value_and_statistics(g):
    s = g.input("x", [8, 64]) + g.input("r", [8, 64])
    return g.reduce_mean(s, [1]), s


# Both readers of a value that nothing else reads: it is not stored at all.
# CHECK-LABEL: "siblings"
# CHECK: "mir.fused"() ({
# CHECK-NEXT: %[[E:.*]] = "mir.exp"
# CHECK: %[[A:.*]] = "mir.sqrt"(%[[E]])
# CHECK-NEXT: %[[B:.*]] = "mir.neg"(%[[E]])
# CHECK-NEXT: "mir.yield"(%[[A]], %[[B]])
@case
def siblings(g):
    e = g.exp(g.input("x", [8, 64]))
    return g.sqrt(e), -e
