// RUN: %rlx-opt %s --simplify | %filecheck %s
// RUN: %python %inputs/every_rule.py %s

// Every row of RULES, by its name. What must not happen to floats stands in simplify-floats.mlir.

// CHECK-LABEL: func.func @add_negative_zero(
// CHECK-SAME: %[[X:[a-z0-9]+]]: 
// CHECK-NEXT: return %[[X]] 
func.func @add_negative_zero(%x: tensor<4xf32>, %c: tensor<4xi1>) -> tensor<4xf32> {
  %z = "mir.constant"() {value = dense<-0.0> : tensor<4xf32>} : () -> tensor<4xf32>
  %r = "mir.add"(%x, %z) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @add_zero(
// CHECK-SAME: %[[X:[a-z0-9]+]]: 
// CHECK-NEXT: return %[[X]] 
func.func @add_zero(%x: tensor<4xi32>, %c: tensor<4xi1>) -> tensor<4xi32> {
  %z = "mir.constant"() {value = dense<0> : tensor<4xi32>} : () -> tensor<4xi32>
  %r = "mir.add"(%x, %z) : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
  return %r : tensor<4xi32>
}

// CHECK-LABEL: func.func @sub_zero(
// CHECK-SAME: %[[X:[a-z0-9]+]]: 
// CHECK-NEXT: return %[[X]] 
func.func @sub_zero(%x: tensor<4xf32>, %c: tensor<4xi1>) -> tensor<4xf32> {
  %z = "mir.constant"() {value = dense<0.0> : tensor<4xf32>} : () -> tensor<4xf32>
  %r = "mir.sub"(%x, %z) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @sub_self(
// CHECK-NEXT: %[[Z:[a-z0-9_]+]] = "mir.constant"() {value = dense<0> 
// CHECK-NEXT: return %[[Z]] 
func.func @sub_self(%x: tensor<4xi32>, %c: tensor<4xi1>) -> tensor<4xi32> {
  %r = "mir.sub"(%x, %x) : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
  return %r : tensor<4xi32>
}

// CHECK-LABEL: func.func @mul_one(
// CHECK-SAME: %[[X:[a-z0-9]+]]: 
// CHECK-NEXT: return %[[X]] 
func.func @mul_one(%x: tensor<4xf32>, %c: tensor<4xi1>) -> tensor<4xf32> {
  %z = "mir.constant"() {value = dense<1.0> : tensor<4xf32>} : () -> tensor<4xf32>
  %r = "mir.mul"(%x, %z) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @mul_zero(
// CHECK-NEXT: %[[Z:[a-z0-9_]+]] = "mir.constant"() {value = dense<0> 
// CHECK-NEXT: return %[[Z]] 
func.func @mul_zero(%x: tensor<4xi32>, %c: tensor<4xi1>) -> tensor<4xi32> {
  %z = "mir.constant"() {value = dense<0> : tensor<4xi32>} : () -> tensor<4xi32>
  %r = "mir.mul"(%x, %z) : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
  return %r : tensor<4xi32>
}

// CHECK-LABEL: func.func @div_one(
// CHECK-SAME: %[[X:[a-z0-9]+]]: 
// CHECK-NEXT: return %[[X]] 
func.func @div_one(%x: tensor<4xf32>, %c: tensor<4xi1>) -> tensor<4xf32> {
  %z = "mir.constant"() {value = dense<1.0> : tensor<4xf32>} : () -> tensor<4xf32>
  %r = "mir.div"(%x, %z) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @double_neg(
// CHECK-SAME: %[[X:[a-z0-9]+]]: 
// CHECK-NEXT: return %[[X]] 
func.func @double_neg(%x: tensor<4xf32>, %c: tensor<4xi1>) -> tensor<4xf32> {
  %y = "mir.neg"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %r = "mir.neg"(%y) : (tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @sub_from_negative_zero(
// CHECK-SAME: %[[X:[a-z0-9]+]]: 
// CHECK-NEXT: %[[R:[a-z0-9]+]] = "mir.neg"(%[[X]]) 
// CHECK-NEXT: return %[[R]] 
func.func @sub_from_negative_zero(%x: tensor<4xf32>, %c: tensor<4xi1>) -> tensor<4xf32> {
  %z = "mir.constant"() {value = dense<-0.0> : tensor<4xf32>} : () -> tensor<4xf32>
  %r = "mir.sub"(%z, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @abs_abs(
// CHECK-SAME: %[[X:[a-z0-9]+]]: 
// CHECK-NEXT: %[[R:[a-z0-9]+]] = "mir.abs"(%[[X]]) 
// CHECK-NEXT: return %[[R]] 
func.func @abs_abs(%x: tensor<4xf32>, %c: tensor<4xi1>) -> tensor<4xf32> {
  %y = "mir.abs"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %r = "mir.abs"(%y) : (tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @abs_neg(
// CHECK-SAME: %[[X:[a-z0-9]+]]: 
// CHECK-NEXT: %[[R:[a-z0-9]+]] = "mir.abs"(%[[X]]) 
// CHECK-NEXT: return %[[R]] 
func.func @abs_neg(%x: tensor<4xf32>, %c: tensor<4xi1>) -> tensor<4xf32> {
  %y = "mir.neg"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %r = "mir.abs"(%y) : (tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @relu_relu(
// CHECK-SAME: %[[X:[a-z0-9]+]]: 
// CHECK-NEXT: %[[R:[a-z0-9]+]] = "mir.relu"(%[[X]]) 
// CHECK-NEXT: return %[[R]] 
func.func @relu_relu(%x: tensor<4xf32>, %c: tensor<4xi1>) -> tensor<4xf32> {
  %y = "mir.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %r = "mir.relu"(%y) : (tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @max_self(
// CHECK-SAME: %[[X:[a-z0-9]+]]: 
// CHECK-NEXT: return %[[X]] 
func.func @max_self(%x: tensor<4xf32>, %c: tensor<4xi1>) -> tensor<4xf32> {
  %r = "mir.maximum"(%x, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @min_self(
// CHECK-SAME: %[[X:[a-z0-9]+]]: 
// CHECK-NEXT: return %[[X]] 
func.func @min_self(%x: tensor<4xf32>, %c: tensor<4xi1>) -> tensor<4xf32> {
  %r = "mir.minimum"(%x, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @double_not(
// CHECK-SAME: %[[X:[a-z0-9]+]]: 
// CHECK-NEXT: return %[[X]] 
func.func @double_not(%x: tensor<4xi1>, %c: tensor<4xi1>) -> tensor<4xi1> {
  %y = "mir.logical_not"(%x) : (tensor<4xi1>) -> tensor<4xi1>
  %r = "mir.logical_not"(%y) : (tensor<4xi1>) -> tensor<4xi1>
  return %r : tensor<4xi1>
}

// CHECK-LABEL: func.func @and_self(
// CHECK-SAME: %[[X:[a-z0-9]+]]: 
// CHECK-NEXT: return %[[X]] 
func.func @and_self(%x: tensor<4xi1>, %c: tensor<4xi1>) -> tensor<4xi1> {
  %r = "mir.logical_and"(%x, %x) : (tensor<4xi1>, tensor<4xi1>) -> tensor<4xi1>
  return %r : tensor<4xi1>
}

// CHECK-LABEL: func.func @or_self(
// CHECK-SAME: %[[X:[a-z0-9]+]]: 
// CHECK-NEXT: return %[[X]] 
func.func @or_self(%x: tensor<4xi1>, %c: tensor<4xi1>) -> tensor<4xi1> {
  %r = "mir.logical_or"(%x, %x) : (tensor<4xi1>, tensor<4xi1>) -> tensor<4xi1>
  return %r : tensor<4xi1>
}

// CHECK-LABEL: func.func @where_same(
// CHECK-SAME: %[[X:[a-z0-9]+]]: 
// CHECK-NEXT: return %[[X]] 
func.func @where_same(%x: tensor<4xf32>, %c: tensor<4xi1>) -> tensor<4xf32> {
  %r = "mir.where"(%c, %x, %x) : (tensor<4xi1>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @same_reshape(
// CHECK-SAME: %[[X:[a-z0-9]+]]: 
// CHECK-NEXT: return %[[X]] 
func.func @same_reshape(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %r = "mir.reshape"(%x) {shape = array<i64: 2, 3>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %r : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @merge_reshapes(
// CHECK-SAME: %[[X:[a-z0-9]+]]: 
// CHECK-NEXT: %[[R:[a-z0-9_]+]] = "mir.reshape"(%[[X]]) {shape = array<i64: 3, 4>} 
// CHECK-NEXT: return %[[R]] 
func.func @merge_reshapes(%x: tensor<2x6xf32>) -> tensor<3x4xf32> {
  %a = "mir.reshape"(%x) {shape = array<i64: 12>} : (tensor<2x6xf32>) -> tensor<12xf32>
  %r = "mir.reshape"(%a) {shape = array<i64: 3, 4>} : (tensor<12xf32>) -> tensor<3x4xf32>
  return %r : tensor<3x4xf32>
}

// CHECK-LABEL: func.func @same_expand(
// CHECK-SAME: %[[X:[a-z0-9]+]]: 
// CHECK-NEXT: return %[[X]] 
func.func @same_expand(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %r = "mir.expand"(%x) {shape = array<i64: 2, 3>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %r : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @merge_expands(
// CHECK-SAME: %[[X:[a-z0-9]+]]: 
// CHECK-NEXT: %[[R:[a-z0-9_]+]] = "mir.expand"(%[[X]]) {shape = array<i64: 4, 2, 3>} 
// CHECK-NEXT: return %[[R]] 
func.func @merge_expands(%x: tensor<1x3xf32>) -> tensor<4x2x3xf32> {
  %a = "mir.expand"(%x) {shape = array<i64: 2, 3>} : (tensor<1x3xf32>) -> tensor<2x3xf32>
  %r = "mir.expand"(%a) {shape = array<i64: 4, 2, 3>} : (tensor<2x3xf32>) -> tensor<4x2x3xf32>
  return %r : tensor<4x2x3xf32>
}

// CHECK-LABEL: func.func @same_cast(
// CHECK-SAME: %[[X:[a-z0-9]+]]: 
// CHECK-NEXT: return %[[X]] 
func.func @same_cast(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %r = "mir.cast"(%x) {saturate = true, to = f32} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %r : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @same_slice(
// CHECK-SAME: %[[X:[a-z0-9]+]]: 
// CHECK-NEXT: return %[[X]] 
func.func @same_slice(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %r = "mir.slice"(%x) {starts = array<i64: 0, 0>, sizes = array<i64: 2, 3>, steps = array<i64: 1, 1>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %r : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @double_flip(
// CHECK-SAME: %[[X:[a-z0-9]+]]: 
// CHECK-NEXT: return %[[X]] 
func.func @double_flip(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %a = "mir.flip"(%x) {axes = array<i64: 1>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %r = "mir.flip"(%a) {axes = array<i64: 1>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %r : tensor<2x3xf32>
}
