"""Products of one tensor with several weights become one."""
# RUN: %python %s > %t.mlir
# RUN: %rlx-opt %t.mlir --split-input-file --hir-to-mir --legalize --simplify --share-inputs --canonicalize --cse | %filecheck %s
# RUN: %rlx-opt %t.mlir --split-input-file --hir-to-mir --legalize --simplify --share-inputs | %filecheck %s --check-prefix=CLEAN
# RUN: %rlx-opt %t.mlir --split-input-file --emit=fused --report 2>&1 >%t.out | %filecheck %s --check-prefix=REPORT

# ruff: noqa: E501 (patterns do not break)

from cases import case, layer


# CHECK-LABEL: "qkv_with_biases"
# CHECK: func.func @main(%[[X:[a-z0-9]+]]:
# CHECK-NEXT: %[[W2:.*]] = "mir.concat"(%arg1, %arg3) {axis = 1 : i64}
# CHECK-NEXT: %[[W3:.*]] = "mir.concat"(%[[W2]], %arg5) {axis = 1 : i64} : {{.*}} -> tensor<64x128xf32>
# CHECK-NEXT: %[[Y:.*]] = "mir.matmul"(%[[X]], %[[W3]])
# CHECK-NEXT: %[[B2:.*]] = "mir.concat"(%arg2, %arg4) {axis = 0 : i64}
# CHECK-NEXT: %[[B3:.*]] = "mir.concat"(%[[B2]], %arg6) {axis = 0 : i64} : {{.*}} -> tensor<128xf32>
# CHECK-NEXT: %[[B:.*]] = "mir.expand"(%[[B3]])
# CHECK-NEXT: %[[S:.*]] = "mir.add"(%[[Y]], %[[B]])
# CHECK-NEXT: %[[Q:.*]] = "mir.slice"(%[[S]]) {sizes = array<i64: 8, 64>, starts = array<i64: 0, 0>
# CHECK-NEXT: %[[K:.*]] = "mir.slice"(%[[S]]) {sizes = array<i64: 8, 32>, starts = array<i64: 0, 64>
# CHECK-NEXT: %[[V:.*]] = "mir.slice"(%[[S]]) {sizes = array<i64: 8, 32>, starts = array<i64: 0, 96>
# CHECK-NEXT: "mir.relu"(%[[Q]])
# CHECK-NEXT: "mir.exp"(%[[K]])
# CHECK-NEXT: "mir.neg"(%[[V]])
# Nothing that the products had for themselves is left.
# CLEAN-LABEL: "qkv_with_biases"
# CLEAN-COUNT-1: "mir.expand"
# CLEAN-NOT: "mir.expand"
# CLEAN: return
# REPORT: shared-input matmuls
@case
def qkv_with_biases(g):
    x = g.input("x", [8, 64])
    q, k, v = (x @ w + b for w, b in (layer(g, x, n, str(i)) for i, n in enumerate((64, 32, 32))))
    return g.relu(q), g.exp(k), g.neg(v)


# CHECK-LABEL: "pair_without_biases"
# CHECK: %[[W:.*]] = "mir.concat"(%arg1, %arg2) {axis = 1 : i64}
# CHECK-NEXT: %[[Y:.*]] = "mir.matmul"(%arg0, %[[W]])
# CHECK-NEXT: "mir.slice"(%[[Y]])
# CHECK-NEXT: "mir.slice"(%[[Y]])
# CHECK-NOT: "mir.matmul"
@case
def pair_without_biases(g):
    x = g.input("x", [8, 64])
    return g.relu(x @ g.param("a", [64, 32])) * g.exp(x @ g.param("b", [64, 32]))


# Where one has a bias and another has none, the products are shared and the biases stay.
# CHECK-LABEL: "one_bias"
# CHECK: %[[Y:.*]] = "mir.matmul"(%arg0, %{{.*}}) : (tensor<8x64xf32>, tensor<64x64xf32>)
# CHECK: %[[P:.*]] = "mir.slice"(%[[Y]])
# CHECK: %[[B:.*]] = "mir.expand"(%arg2)
# CHECK: "mir.add"(%[[P]], %[[B]])
# CHECK-NOT: "mir.matmul"
@case
def one_bias(g):
    x = g.input("x", [8, 64])
    w, b = layer(g, x, 32)
    return g.relu(x @ w + b) * g.exp(x @ g.param("v", [64, 32]))


# A weight that is an input changes with every call: joining it would copy it every time.
# CHECK-LABEL: "weight_is_an_input"
# CHECK-COUNT-2: "mir.matmul"
# CHECK-NOT: "mir.concat"
@case
def weight_is_an_input(g):
    x, w = g.input("x", [8, 64]), g.input("w", [64, 32])
    return g.relu(x @ w) * g.exp(x @ g.param("v", [64, 32]))


# CHECK-LABEL: "other_inputs"
# CHECK-COUNT-2: "mir.matmul"
# CHECK-NOT: "mir.concat"
@case
def other_inputs(g):
    x, y = g.input("x", [8, 64]), g.input("y", [8, 64])
    return g.relu(x @ g.param("w", [64, 32])) * g.exp(y @ g.param("v", [64, 32]))


# A graph output must be dense, which a part of a wider product is not.
# CHECK-LABEL: "a_product_is_an_output"
# CHECK-COUNT-2: "mir.matmul"
# CHECK-NOT: "mir.concat"
# REPORT: missed {{.*}}shared-input matmuls of matmul: its result is a graph output
@case
def a_product_is_an_output(g):
    x = g.input("x", [8, 64])
    return x @ g.param("w", [64, 32]), g.exp(x @ g.param("v", [64, 32]))
