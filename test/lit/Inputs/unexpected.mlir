// What is expected and does not come, comes and is not expected, or comes elsewhere, is reported.
// CHECK: unexpected.mlir:9: unexpected error: mir.neg: result is tensor<3xf32>
// CHECK: unexpected.mlir:9: expected error 'another text' was not seen
// CHECK: unexpected.mlir:8: expected error 'mir.neg' was not seen
// CHECK: unexpected.mlir:9: expected warning 'mir.neg' was not seen
func.func @f(%x: tensor<2xf32>) {
  // expected-error@+2 {{another text}}
  // expected-error@+0 {{mir.neg}}
  %0 = "mir.neg"(%x) : (tensor<2xf32>) -> tensor<3xf32>  // expected-warning {{mir.neg}}
  return
}
