// RUN: %rlx-opt %s --emit=lir | %filecheck %s

// A barrier moves nothing, and what stands on both its sides is neither merged nor fused: the same
// function of the operand and of the barrier's result are two kernels.

module {
  func.func private @barrier_0(tensor<64x64xf32>) -> tensor<64x64xf32> attributes {rlx.control = "barrier"}
  func.func @main(%x: tensor<64x64xf32> {rlx.input = "x"}) -> (tensor<64x64xf32>, tensor<64x64xf32>) {
    %a = "mir.exp"(%x) : (tensor<64x64xf32>) -> tensor<64x64xf32>
    %b = func.call @barrier_0(%x) : (tensor<64x64xf32>) -> tensor<64x64xf32>
    %c = "mir.exp"(%b) : (tensor<64x64xf32>) -> tensor<64x64xf32>
    return %a, %c : tensor<64x64xf32>, tensor<64x64xf32>
  }
}

// CHECK-LABEL: func.func @main
// CHECK: call @elementwise_0(
// CHECK: call @elementwise_0(
// CHECK-NOT: call @
