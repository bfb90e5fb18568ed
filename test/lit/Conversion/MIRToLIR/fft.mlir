// RUN: %rlx-opt %s --emit=lir --target=cpu:x86-64-v3 | %filecheck %s
// RUN: %rlx-opt %s --legalize --dispatch=common | %filecheck %s --check-prefix=COMMON

// A transform of a length with small factors is one launch of the family, with the roots of unity as
// a constant, one table for both rows of launches that need the same. One of a large prime becomes a
// convolution by transforms of a power of two, which are such launches again.

// CHECK:       lir.constant0 = dense
// CHECK:       func.func private @fft_0(memref<?xcomplex<f32>>, memref<?xf32>, memref<?xcomplex<f32>>, index)
// CHECK-SAME:    lir.family = "fft"
// CHECK-LABEL: func.func @main
// CHECK:       call @fft_0
// CHECK:       call @fft_0
// CHECK:       call @elementwise
// CHECK:       call @fft_
// CHECK:       call @fft_

// By the common way it is products with small matrices of roots.
// COMMON-NOT:   "mir.fft"
// COMMON-NOT:   "mir.ifft"
// COMMON-COUNT-4: "mir.matmul"
func.func @main(%x: tensor<3x64xcomplex<f32>> {rlx.input = "x"}, %p: tensor<67xcomplex<f32>> {rlx.input = "p"})
    -> (tensor<3x64xcomplex<f32>>, tensor<67xcomplex<f32>>) {
  %0 = "mir.fft"(%x) {norm = "backward"} : (tensor<3x64xcomplex<f32>>) -> tensor<3x64xcomplex<f32>>
  %1 = "mir.fft"(%0) {norm = "backward"} : (tensor<3x64xcomplex<f32>>) -> tensor<3x64xcomplex<f32>>
  %2 = "mir.fft"(%p) {norm = "ortho"} : (tensor<67xcomplex<f32>>) -> tensor<67xcomplex<f32>>
  return %1, %2 : tensor<3x64xcomplex<f32>>, tensor<67xcomplex<f32>>
}
