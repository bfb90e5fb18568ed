// RUN: %python -m rlx.tools.cli reduce %s -o %t.mlir --force --target=vulkan:vulkan1.1
// RUN: %filecheck %s --input-file=%t.mlir

// Of all this, f64 is what such a device may lack: one op on it is left.

func.func @main(%x: tensor<4x8xf32> {rlx.input = "x"}, %w: tensor<8x8xf32> {rlx.param = "w"}) -> (tensor<4x8xf32>, tensor<8xf64>) {
  %p = "mir.matmul"(%x, %w) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %q = "mir.relu"(%p) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %d = "mir.cast"(%q) {saturate = true, to = f64} : (tensor<4x8xf32>) -> tensor<4x8xf64>
  %s = "mir.reduce_sum"(%d) {axes = array<i64: 0>, keepdims = false} : (tensor<4x8xf64>) -> tensor<8xf64>
  return %q, %s : tensor<4x8xf32>, tensor<8xf64>
}

// CHECK: // RUN: %rlx-opt %s --emit=spirv -o %t --target=vulkan
// CHECK: // UnsupportedError: {{.*}} computes with f64, which vulkan1.1 lacks
// CHECK: %arg0: tensor<1x1xf32> {rlx.input = "v2"}
// CHECK-NEXT: ) -> (tensor<1x1xf64>) {
// CHECK-NEXT: %0 = "mir.cast"(%arg0) {saturate = true, to = f64}
// CHECK-NEXT: return %0
