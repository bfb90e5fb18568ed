// RUN: %rlx-opt %s --split-input-file --verify-diagnostics

func.func @wrong_result_shape(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{mir.neg: result is tensor<3x2xf32>, expected tensor<2x3xf32>}}
  %0 = "mir.neg"(%x) : (tensor<2x3xf32>) -> tensor<3x2xf32>
  return
}

// -----

func.func @wrong_result_element(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{mir.lt: result is tensor<2x3xf32>, expected tensor<2x3xbool>}}
  %0 = "mir.lt"(%x, %x) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @wrong_second_result(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{mir.topk: result is tensor<2x1xf32>, tensor<2x1xf32>, expected tensor<2x1xf32>, tensor<2x1xi64>}}
  %0, %1 = "mir.topk"(%x) {k = 1 : i64, axis = -1 : i64, largest = true}
      : (tensor<2x3xf32>) -> (tensor<2x1xf32>, tensor<2x1xf32>)
  return
}

// -----

func.func @too_few_results(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{mir.topk: result is tensor<2x1xf32>, expected tensor<2x1xf32>, tensor<2x1xi64>}}
  %0 = "mir.topk"(%x) {k = 1 : i64, axis = -1 : i64, largest = true}
      : (tensor<2x3xf32>) -> tensor<2x1xf32>
  return
}

// -----

func.func @too_many_operands(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{mir.neg: it takes 1 operands, found 2}}
  %0 = "mir.neg"(%x, %x) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @too_few_operands(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{mir.add: it takes 2 operands, found 1}}
  %0 = "mir.add"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @segments_do_not_add_up(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{mir.layer_norm: it takes 3 operands, found 2}}
  %0 = "mir.layer_norm"(%x, %x) {axis = -1 : i64, eps = 1.0e-5 : f64, operandSegmentSizes = array<i32: 1, 1, 1>}
      : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @no_tensor(%x: f32) {
  // expected-error@+1 {{f32 is no tensor of known rank}}
  %0 = "mir.neg"(%x) : (f32) -> f32
  return
}

// -----

func.func @missing_attribute(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{axis}}
  %0 = "mir.softmax"(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @missing_untyped_attribute(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{perm}}
  %0 = "mir.transpose"(%x) : (tensor<2x3xf32>) -> tensor<3x2xf32>
  return
}

// -----

func.func @attribute_of_a_wrong_kind(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{axis}}
  %0 = "mir.softmax"(%x) {axis = "last"} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @untyped_attribute_of_a_wrong_kind(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{attribute 'perm'}}
  %0 = "mir.transpose"(%x) {perm = "10"} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  return
}

// -----

func.func @flag_of_a_wrong_kind(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{attribute 'keepdims'}}
  %0 = "mir.reduce_sum"(%x) {axes = array<i64: 0>, keepdims = "yes"} : (tensor<2x3xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @constant_that_is_no_array() {
  // expected-error@+1 {{attribute 'value'}}
  %0 = "mir.constant"() {value = 3 : i64} : () -> tensor<i64>
  return
}

// -----

func.func @constant_of_another_type() {
  // expected-error@+1 {{result is tensor<3xf32>, expected tensor<2xf32>}}
  %0 = "mir.constant"() {value = dense<0.0> : tensor<2xf32>} : () -> tensor<3xf32>
  return
}

// -----

func.func @element_type_that_there_is_not(%x: tensor<2xi4>) {
  // expected-error@+1 {{element type i4 is none of f16, bf16, f32}}
  %0 = "mir.neg"(%x) : (tensor<2xi4>) -> tensor<2xi4>
  return
}

// -----

func.func @element_type_attribute_that_there_is_not(%x: tensor<2xf32>) {
  // expected-error@+1 {{element type i4 is none of f16, bf16, f32}}
  %0 = "mir.cast"(%x) {saturate = true, to = i4} : (tensor<2xf32>) -> tensor<2xi4>
  return
}

// -----

func.func @dynamic_dim_without_a_name(%x: tensor<?x3xf32>) {
  // expected-error@+1 {{a dynamic dim without a name; write tensor<?xf32, ["n"]>}}
  %0 = "mir.neg"(%x) : (tensor<?x3xf32>) -> tensor<?x3xf32>
  return
}

// -----

func.func @names_of_another_rank(%x: tensor<?x3xf32, ["n"]>) {
  // expected-error@+1 {{a dynamic dim without a name}}
  %0 = "mir.neg"(%x) : (tensor<?x3xf32, ["n"]>) -> tensor<?x3xf32, ["n"]>
  return
}

// -----

func.func @another_symbol(%x: tensor<?x3xf32, ["n", "3"]>) {
  // expected-error@+1 {{result is tensor<mx3xf32>, expected tensor<nx3xf32>}}
  %0 = "mir.neg"(%x) : (tensor<?x3xf32, ["n", "3"]>) -> tensor<?x3xf32, ["m", "3"]>
  return
}

// -----

func.func @symbols_that_do_not_broadcast(%x: tensor<?xf32, ["n"]>, %y: tensor<?xf32, ["m"]>) {
  // expected-error@+1 {{do not broadcast}}
  %0 = "mir.add"(%x, %y) : (tensor<?xf32, ["n"]>, tensor<?xf32, ["m"]>) -> tensor<?xf32, ["n"]>
  return
}

// -----

func.func @no_scalar_products(%x: tensor<f32>) {
  // expected-error@+1 {{matmul takes operands of rank 2 or more}}
  %0 = "mir.matmul"(%x, %x) : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func @region_without_a_yield(%x: tensor<2xf32>) {
  %0 = "mir.fused"() ({
    // expected-error@+1 {{block with no terminator}}
    %1 = "mir.neg"(%x) : (tensor<2xf32>) -> tensor<2xf32>
  }) {kind = "elementwise"} : () -> tensor<2xf32>
  return
}

// -----

func.func @region_that_ends_in_another_terminator(%x: tensor<2xf32>) {
  // expected-error@+1 {{mir.fused: its body must end in mir.yield}}
  %0 = "mir.fused"() ({
    cf.br ^end
  ^end:
    "mir.yield"(%x) : (tensor<2xf32>) -> ()
  }) {kind = "elementwise"} : () -> tensor<2xf32>
  return
}

// -----

func.func @region_without_a_body(%x: tensor<2xf32>) {
  // expected-error@+1 {{mir.fused}}
  %0 = "mir.fused"() ({}) {kind = "elementwise"} : () -> tensor<2xf32>
  return
}

// -----

func.func @region_that_yields_another_type(%x: tensor<2xf32>) {
  // expected-error@+1 {{mir.fused: it must yield its result}}
  %0 = "mir.fused"() ({
    %1 = "mir.neg"(%x) : (tensor<2xf32>) -> tensor<2xf32>
    "mir.yield"(%1) : (tensor<2xf32>) -> ()
  }) {kind = "elementwise"} : () -> tensor<3xf32>
  return
}

// -----

func.func @region_without_a_kind(%x: tensor<2xf32>) {
  // expected-error@+1 {{kind}}
  %0 = "mir.fused"() ({
    %1 = "mir.neg"(%x) : (tensor<2xf32>) -> tensor<2xf32>
    "mir.yield"(%1) : (tensor<2xf32>) -> ()
  }) : () -> tensor<2xf32>
  return
}

// -----

func.func @yield_of_one_too_many(%x: tensor<2xf32>) {
  // expected-error@+1 {{mir.fused: it must yield its results}}
  %0 = "mir.fused"() ({
    %1 = "mir.neg"(%x) : (tensor<2xf32>) -> tensor<2xf32>
    "mir.yield"(%1, %1) : (tensor<2xf32>, tensor<2xf32>) -> ()
  }) {kind = "elementwise"} : () -> tensor<2xf32>
  return
}

// -----

func.func @results_of_three_types(%x: tensor<2xf32>) {
  // expected-error@+1 {{expected 'tensor<2xi32>' but got 'tensor<2xf32>'}}
  %0:3 = "mir.fused"() ({
    %1 = "mir.neg"(%x) : (tensor<2xf32>) -> tensor<2xf32>
    %2 = "mir.cast"(%1) {saturate = true, to = i32} : (tensor<2xf32>) -> tensor<2xi32>
    "mir.yield"(%1, %2, %1) : (tensor<2xf32>, tensor<2xi32>, tensor<2xf32>) -> ()
  }) {kind = "elementwise"} : () -> (tensor<2xf32>, tensor<2xi32>, tensor<2xf32>)
  return
}

// -----

func.func @op_that_there_is_not(%x: tensor<2xf32>) {
  // expected-error@+1 {{mir.ad}}
  %0 = "mir.ad"(%x, %x) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @a_location_as_an_attribute(%x: tensor<2xf32>) {
  // expected-error@+1 {{mir.neg: attribute 'rlx.a' is of a kind that no op here can have}}
  %0 = "mir.neg"(%x) {rlx.a = loc("a")} : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @segments_of_another_kind(%x: tensor<2xf32>) {
  // expected-error@+1 {{mir.layer_norm: operandSegmentSizes is no array of i32}}
  %0 = "mir.layer_norm"(%x, %x, %x) {axis = 0 : i64, eps = 1.0 : f64, operandSegmentSizes = 1 : i32}
      : (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  return
}
