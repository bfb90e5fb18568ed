// RUN: %rlx-opt %s --fuse | %filecheck %s

// A region that the text has already reads a value twice: it is left as it is.

// CHECK: %[[MOST:.*]] = "mir.fused"()
// CHECK:   "mir.reduce_max"
// CHECK: "mir.fused"()
// CHECK:   "mir.abs"(%[[MOST]])
// CHECK:   "mir.mul"(%{{.*}}, %[[MOST]])
module attributes {rlx.graph = "given"} {
  func.func @main(%arg0: tensor<2x3xf32>) -> tensor<2x3xf32> {
    %0 = "mir.reduce_max"(%arg0) {axes = array<i64: 1>, keepdims = true} : (tensor<2x3xf32>) -> tensor<2x1xf32>
    %1 = "mir.fused"() ({
      %2 = "mir.abs"(%0) : (tensor<2x1xf32>) -> tensor<2x1xf32>
      %3 = "mir.mul"(%2, %0) : (tensor<2x1xf32>, tensor<2x1xf32>) -> tensor<2x1xf32>
      "mir.yield"(%3) : (tensor<2x1xf32>) -> ()
    }) {kind = "elementwise"} : () -> tensor<2x1xf32>
    %4 = "mir.expand"(%1) {shape = array<i64: 2, 3>} : (tensor<2x1xf32>) -> tensor<2x3xf32>
    return %4 : tensor<2x3xf32>
  }
}
