// RUN: %rlx-opt %s --verify-roundtrip | %filecheck %s
// RUN: %rlx-opt %s --emit=lir | %filecheck %s --check-prefix=LIR

// A complex literal is the array of its parts in brackets, since the bindings of MLIR know no complex
// elements; its type, and that of everything else, is MLIR's own.

// CHECK-LABEL: func.func @main
// CHECK-SAME:    tensor<3xcomplex<f32>>
func.func @main(%z: tensor<3xcomplex<f32>> {rlx.input = "z"}) -> (tensor<3xcomplex<f32>>, tensor<3xf64>) {
  // CHECK: "mir.constant"() {value = [dense<{{\[\[}}1.000000e+00, -2.000000e+00], {{.*}}]> : tensor<3x2xf32>]} : () -> tensor<3xcomplex<f32>>
  %0 = "mir.constant"() {value = [dense<[[1.0, -2.0], [0.0, 0x7FC00000], [3.0, 4.0]]> : tensor<3x2xf32>]} : () -> tensor<3xcomplex<f32>>
  // CHECK: "mir.mul"
  %1 = "mir.mul"(%z, %0) : (tensor<3xcomplex<f32>>, tensor<3xcomplex<f32>>) -> tensor<3xcomplex<f32>>
  // CHECK: "mir.cast"(%{{.*}}) {saturate = true, to = complex<f64>}
  %2 = "mir.cast"(%1) {saturate = true, to = complex<f64>} : (tensor<3xcomplex<f32>>) -> tensor<3xcomplex<f64>>
  // CHECK: "mir.abs"({{.*}}) : (tensor<3xcomplex<f64>>) -> tensor<3xf64>
  %3 = "mir.abs"(%2) : (tensor<3xcomplex<f64>>) -> tensor<3xf64>
  return %1, %3 : tensor<3xcomplex<f32>>, tensor<3xf64>
}

// The constant is a memory of reals; the kernel of both ops reads and writes pairs.
// LIR: lir.constant0 = dense<{{.*}}> : tensor<3x2xf32>
// LIR: func.func private @elementwise_{{[0-9]+}}(memref<?xcomplex<f32>>
