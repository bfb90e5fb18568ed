// RUN: %rlx-opt %s --simplify | %filecheck %s

// Rewrites that nan, infinities or the sign of zero forbid, and near misses of rules.

// CHECK-LABEL: func.func @inf_times_zero(
// CHECK: "mir.mul"
// CHECK: return
func.func @inf_times_zero(%x: tensor<4xf32>, %c: tensor<4xi1>) -> tensor<4xf32> {
  %z = "mir.constant"() {value = dense<0.0> : tensor<4xf32>} : () -> tensor<4xf32>
  %r = "mir.mul"(%x, %z) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @zero_times_nan(
// CHECK: "mir.mul"
// CHECK: return
func.func @zero_times_nan(%x: tensor<4xf32>, %c: tensor<4xi1>) -> tensor<4xf32> {
  %z = "mir.constant"() {value = dense<0.0> : tensor<4xf32>} : () -> tensor<4xf32>
  %r = "mir.mul"(%z, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @inf_minus_inf(
// CHECK: "mir.sub"
// CHECK: return
func.func @inf_minus_inf(%x: tensor<4xf32>, %c: tensor<4xi1>) -> tensor<4xf32> {
  %r = "mir.sub"(%x, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @negative_zero_plus_zero(
// CHECK: "mir.add"
// CHECK: return
func.func @negative_zero_plus_zero(%x: tensor<4xf32>, %c: tensor<4xi1>) -> tensor<4xf32> {
  %z = "mir.constant"() {value = dense<0.0> : tensor<4xf32>} : () -> tensor<4xf32>
  %r = "mir.add"(%x, %z) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @zero_plus_negative_zero(
// CHECK: "mir.add"
// CHECK: return
func.func @zero_plus_negative_zero(%x: tensor<4xf32>, %c: tensor<4xi1>) -> tensor<4xf32> {
  %z = "mir.constant"() {value = dense<0.0> : tensor<4xf32>} : () -> tensor<4xf32>
  %r = "mir.add"(%z, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @zero_minus_zero(
// CHECK: "mir.sub"
// CHECK: return
func.func @zero_minus_zero(%x: tensor<4xf32>, %c: tensor<4xi1>) -> tensor<4xf32> {
  %z = "mir.constant"() {value = dense<0.0> : tensor<4xf32>} : () -> tensor<4xf32>
  %r = "mir.sub"(%z, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @minus_negative_zero(
// CHECK: "mir.sub"
// CHECK: return
func.func @minus_negative_zero(%x: tensor<4xf32>, %c: tensor<4xi1>) -> tensor<4xf32> {
  %z = "mir.constant"() {value = dense<-0.0> : tensor<4xf32>} : () -> tensor<4xf32>
  %r = "mir.sub"(%x, %z) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @one_divided(
// CHECK: "mir.div"
// CHECK: return
func.func @one_divided(%x: tensor<4xf32>, %c: tensor<4xi1>) -> tensor<4xf32> {
  %z = "mir.constant"() {value = dense<1.0> : tensor<4xf32>} : () -> tensor<4xf32>
  %r = "mir.div"(%z, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @self_divided(
// CHECK: "mir.div"
// CHECK: return
func.func @self_divided(%x: tensor<4xf32>, %c: tensor<4xi1>) -> tensor<4xf32> {
  %r = "mir.div"(%x, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @self_divided_int(
// CHECK: "mir.div"
// CHECK: return
func.func @self_divided_int(%x: tensor<4xi32>, %c: tensor<4xi1>) -> tensor<4xi32> {
  %r = "mir.div"(%x, %x) : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
  return %r : tensor<4xi32>
}

// CHECK-LABEL: func.func @neg_abs(
// CHECK: "mir.abs"
// CHECK: "mir.neg"
func.func @neg_abs(%x: tensor<4xf32>, %c: tensor<4xi1>) -> tensor<4xf32> {
  %y = "mir.abs"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %r = "mir.neg"(%y) : (tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}
