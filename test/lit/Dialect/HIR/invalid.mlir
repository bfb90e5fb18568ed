// RUN: %rlx-opt %s --split-input-file --verify-diagnostics

// What a class refuses by itself is in every-refusal.py; these are the branches around it.

func.func @wrong_result(%x: tensor<8x16xf32>, %w: tensor<16x4xf32>) {
  // expected-error@+1 {{hir.linear: result is tensor<8x5xf32>, expected tensor<8x4xf32>}}
  %0 = "hir.linear"(%x, %w) {activation = "none", transposed = false}
      : (tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x5xf32>
  return
}

// -----

func.func @missing_attribute(%x: tensor<8x16xf32>, %w: tensor<16x4xf32>) {
  // expected-error@+1 {{hir.linear: the attribute 'activation' is missing}}
  %0 = "hir.linear"(%x, %w) {transposed = false}
      : (tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>
  return
}

// -----

func.func @attribute_of_a_wrong_kind(%x: tensor<8x16xf32>, %w: tensor<16x4xf32>) {
  // expected-error@+1 {{hir.linear: attribute 'transposed' is no bool}}
  %0 = "hir.linear"(%x, %w) {activation = "none", transposed = "no"}
      : (tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>
  return
}

// -----

func.func @too_few_operands(%x: tensor<8x16xf32>) {
  // expected-error@+1 {{hir.linear: it takes 3 operands, found 1}}
  %0 = "hir.linear"(%x) {activation = "none", transposed = false} : (tensor<8x16xf32>) -> tensor<8x4xf32>
  return
}

// -----

func.func @op_that_there_is_not(%x: tensor<8x16xf32>) {
  // expected-error@+1 {{hir.lineal}}
  %0 = "hir.lineal"(%x) : (tensor<8x16xf32>) -> tensor<8x16xf32>
  return
}
