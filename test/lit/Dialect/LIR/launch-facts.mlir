// What a launch is for: the ops of its region, their arithmetic, and the bytes that it moves.
// RUN: %rlx-opt %s --emit=lir --target=cpu:x86-64-v4 --mlir-print-debuginfo | %filecheck %s

// 2 x 4 x 8 x 16 for the product, 64 for the sum and 64 for the relu.
// CHECK-LABEL: func.func @prologue
// CHECK: @pack_{{[0-9]+}}{{.*}} lir.flops = 0 : i64, {{.*}}lir.ops = "pack for matmul+expand+add+relu"
// CHECK-LABEL: func.func @main
// CHECK: @contraction_{{[0-9]+}}{{.*}}lir.flops = 1152 : i64, {{.*}}lir.ops = "matmul+expand+add+relu"
// CHECK: @rowwise_{{[0-9]+}}{{.*}}lir.bytes = 512 : i64, lir.flops = 320 : i64, {{.*}}lir.ops = "softmax"
func.func @main(%x: tensor<4x8xf32> {rlx.input = "x"}, %w: tensor<8x16xf32> {rlx.param = "w"},
                %b: tensor<16xf32> {rlx.param = "b"}) -> (tensor<4x16xf32>, tensor<4x16xf32>) {
  %0 = "mir.matmul"(%x, %w) : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  %1 = "mir.expand"(%b) {shape = array<i64: 4, 16>} : (tensor<16xf32>) -> tensor<4x16xf32>
  %2 = "mir.add"(%0, %1) : (tensor<4x16xf32>, tensor<4x16xf32>) -> tensor<4x16xf32>
  %3 = "mir.relu"(%2) : (tensor<4x16xf32>) -> tensor<4x16xf32>
  %4 = "mir.softmax"(%3) {axis = 1 : i64} : (tensor<4x16xf32>) -> tensor<4x16xf32>
  return %3, %4 : tensor<4x16xf32>, tensor<4x16xf32>
}
