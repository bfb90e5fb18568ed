// RUN: %rlx-opt %s --split-input-file --verify-diagnostics
// RUN: not %rlx-opt %s --split-input-file 2>&1 >%t.out | %filecheck %s
// RUN: not %rlx-opt %inputs/unexpected.mlir --verify-diagnostics 2>&1 | %filecheck %inputs/unexpected.mlir

// The line and column are those of the whole file, and the line is shown.
// CHECK: diagnostics.mlir:{{[0-9]+}}:8: error: mir.neg: result is tensor<3xf32>, expected tensor<2xf32>
// CHECK-NEXT: {{^      %0 = "mir.neg"}}
// CHECK-NEXT: {{^           \^$}}

func.func @same_line(%x: tensor<2xf32>) {
  // expected-error@+1 {{mir.neg: result is tensor<3xf32>}}
  %0 = "mir.neg"(%x) : (tensor<2xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @line_above(%x: tensor<2xf32>) {
  %0 = "mir.neg"(%x) : (tensor<2xf32>) -> tensor<3xf32>
  // expected-error@-1 {{mir.neg}}
  return
}

// -----

func.func @above_skips_comments(%x: tensor<2xf32>) {
  %0 = "mir.neg"(%y) : (tensor<2xf32>) -> tensor<3xf32>
  // expected-error@above {{use of undeclared SSA value name}}
  return
}

// -----

func.func @below_skips_comments(%x: tensor<2xf32>) {
  %1 = "mir.neg"(%0) : (tensor<2xf32>) -> tensor<2xf32> // expected-note {{previously used here with type 'tensor<2xf32>'}}
  // expected-error@below {{definition of SSA value '%0#0' has type 'tensor<3xf32>'}}
  %0 = "mir.exp"(%x) : (tensor<2xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @regular_expression(%x: tensor<2xf32>) {
  // expected-error-re@+1 {{mir.neg: result is tensor<{{[0-9]+}}xf32>, expected tensor<2xf32>}}
  %0 = "mir.neg"(%x) : (tensor<2xf32>) -> tensor<3xf32>
  return
}
