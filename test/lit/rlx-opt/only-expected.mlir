// --verify-diagnostics=only-expected lets pass what nothing expects, and misses what is expected.
// RUN: %rlx-opt %s --split-input-file --verify-diagnostics=only-expected
// RUN: not %rlx-opt %s --split-input-file --verify-diagnostics=all 2>&1 | %filecheck %s
// RUN: not %rlx-opt %inputs/unexpected.mlir --verify-diagnostics=only-expected 2>&1 | %filecheck %s --check-prefix=MISSED

// CHECK: unexpected error: mir.neg: result is tensor<3xf32>
// CHECK-NOT: was not seen
// MISSED-NOT: unexpected error
// MISSED: expected error 'another text' was not seen

func.func @nothing_expected(%x: tensor<2xf32>) {
  %0 = "mir.neg"(%x) : (tensor<2xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @warning(%x: tensor<2xf32>) { return }
// expected-warning@+4 {{ignoring unknown external resources for 'other'}}

{-#
  external_resources: {
    other: { a: true }
  }
#-}
