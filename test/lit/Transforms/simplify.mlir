// RUN: %rlx-opt %s --simplify --split-input-file | %filecheck %s

// A broadcast becomes an op, so that a pointwise op's operands have its own shape.

// CHECK-LABEL: func.func @broadcast(
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<2x3xf32>, %[[Y:[a-z0-9]+]]: tensor<3xf32>, %[[S:[a-z0-9]+]]: tensor<f32>)
// CHECK-NEXT: %[[E:[a-z0-9]+]] = "mir.expand"(%[[Y]]) {shape = array<i64: 2, 3>}
// CHECK-NEXT: %[[A:[a-z0-9]+]] = "mir.add"(%[[X]], %[[E]])
// CHECK-NEXT: %[[T:[a-z0-9]+]] = "mir.expand"(%[[S]]) {shape = array<i64: 2, 3>}
// CHECK-NEXT: "mir.mul"(%[[T]], %[[A]])
func.func @broadcast(%x: tensor<2x3xf32>, %y: tensor<3xf32>, %s: tensor<f32>) -> tensor<2x3xf32> {
  %0 = "mir.add"(%x, %y) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  %1 = "mir.mul"(%s, %0) : (tensor<f32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  return %1 : tensor<2x3xf32>
}

// -----

// CHECK-LABEL: func.func @broadcast_of_both(
// CHECK: "mir.expand"(%{{.*}}) {shape = array<i64: 2, 3>} : (tensor<2x1xf32>) -> tensor<2x3xf32>
// CHECK: "mir.expand"(%{{.*}}) {shape = array<i64: 2, 3>} : (tensor<1x3xf32>) -> tensor<2x3xf32>
// CHECK: "mir.sub"(%{{.*}}, %{{.*}}) : (tensor<2x3xf32>, tensor<2x3xf32>)
func.func @broadcast_of_both(%x: tensor<2x1xf32>, %y: tensor<1x3xf32>) -> tensor<2x3xf32> {
  %0 = "mir.sub"(%x, %y) : (tensor<2x1xf32>, tensor<1x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// -----

// CHECK-LABEL: func.func @symbolic(
// CHECK: "mir.expand"(%{{.*}}) {shape = ["n", "3"]}
func.func @symbolic(%x: tensor<?x3xf32, ["n", "3"]>, %y: tensor<3xf32>) -> tensor<?x3xf32, ["n", "3"]> {
  %0 = "mir.add"(%x, %y) : (tensor<?x3xf32, ["n", "3"]>, tensor<3xf32>) -> tensor<?x3xf32, ["n", "3"]>
  return %0 : tensor<?x3xf32, ["n", "3"]>
}

// -----

// A rule sees through the broadcast of a scalar constant.

// CHECK-LABEL: func.func @scalar_one(
// CHECK-SAME: %[[X:[a-z0-9]+]]:
// CHECK-NEXT: return %[[X]]
func.func @scalar_one(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %1 = "mir.constant"() {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
  %0 = "mir.mul"(%x, %1) : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// -----

// Folding is evaluation by the op's reference: in the element type, nan and overflow included.

// CHECK-LABEL: func.func @fold(
// CHECK-DAG: dense<[5.000000e+00, 7.000000e+00]> : tensor<2xf32>
// CHECK-DAG: dense<-128> : tensor<i8>
// CHECK-DAG: dense<{{\[\[}}1, 3], [2, 4]]> : tensor<2x2xi32>
// CHECK-DAG: dense<0x7F800000> : tensor<1xf32>
// CHECK-DAG: dense<true> : tensor<2xi1>
// CHECK-NOT: "mir.add"
// CHECK: return
func.func @fold() -> (tensor<2xf32>, tensor<i8>, tensor<2x2xi32>, tensor<1xf32>, tensor<2xi1>) {
  %a = "mir.constant"() {value = dense<[1.0, 2.0]> : tensor<2xf32>} : () -> tensor<2xf32>
  %b = "mir.constant"() {value = dense<[4.0, 5.0]> : tensor<2xf32>} : () -> tensor<2xf32>
  %0 = "mir.add"(%a, %b) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  %c = "mir.constant"() {value = dense<127> : tensor<i8>} : () -> tensor<i8>
  %d = "mir.constant"() {value = dense<1> : tensor<i8>} : () -> tensor<i8>
  %1 = "mir.add"(%c, %d) : (tensor<i8>, tensor<i8>) -> tensor<i8>
  %e = "mir.constant"() {value = dense<[[1, 2], [3, 4]]> : tensor<2x2xi32>} : () -> tensor<2x2xi32>
  %2 = "mir.transpose"(%e) {perm = array<i64: 1, 0>} : (tensor<2x2xi32>) -> tensor<2x2xi32>
  %f = "mir.constant"() {value = dense<200.0> : tensor<1xf32>} : () -> tensor<1xf32>
  %3 = "mir.exp"(%f) : (tensor<1xf32>) -> tensor<1xf32>
  %4 = "mir.lt"(%a, %b) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xi1>
  return %0, %1, %2, %3, %4 : tensor<2xf32>, tensor<i8>, tensor<2x2xi32>, tensor<1xf32>, tensor<2xi1>
}

// -----

// A splat folds at any size; another constant only while the result is small.

// CHECK-LABEL: func.func @fold_limit(
// CHECK-DAG: dense<3.000000e+00> : tensor<4096x4096xf32>
// CHECK-DAG: "mir.expand"(%{{.*}}) {shape = array<i64: 65536, 2>}
// CHECK: return
func.func @fold_limit() -> (tensor<4096x4096xf32>, tensor<65536x2xf32>) {
  %a = "mir.constant"() {value = dense<1.0> : tensor<4096x4096xf32>} : () -> tensor<4096x4096xf32>
  %b = "mir.constant"() {value = dense<2.0> : tensor<4096x4096xf32>} : () -> tensor<4096x4096xf32>
  %0 = "mir.add"(%a, %b) : (tensor<4096x4096xf32>, tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
  %c = "mir.constant"() {value = dense<[1.0, 2.0]> : tensor<2xf32>} : () -> tensor<2xf32>
  %1 = "mir.expand"(%c) {shape = array<i64: 65536, 2>} : (tensor<2xf32>) -> tensor<65536x2xf32>
  return %0, %1 : tensor<4096x4096xf32>, tensor<65536x2xf32>
}

// -----

// A fault is raised by the run, at the op's own place: it is not folded away.

// CHECK-LABEL: func.func @fault(
// CHECK: "mir.gather"
func.func @fault() -> tensor<1xf32> {
  %t = "mir.constant"() {value = dense<[1.0, 2.0]> : tensor<2xf32>} : () -> tensor<2xf32>
  %i = "mir.constant"() {value = dense<[7]> : tensor<1xi64>} : () -> tensor<1xi64>
  %0 = "mir.gather"(%t, %i) {axis = 0 : i64, mode = "fault", batch_dims = 0 : i64} : (tensor<2xf32>, tensor<1xi64>) -> tensor<1xf32>
  return %0 : tensor<1xf32>
}

// -----

// CHECK-LABEL: func.func @movement_that_moves_nothing(
// CHECK-SAME: %[[X:[a-z0-9]+]]:
// CHECK-NEXT: return %[[X]], %[[X]], %[[X]], %[[X]], %[[X]]
func.func @movement_that_moves_nothing(%x: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>) {
  %0 = "mir.reshape"(%x) {shape = array<i64: 2, 3>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %1 = "mir.transpose"(%x) {perm = array<i64: 0, 1>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %2 = "mir.expand"(%x) {shape = array<i64: 2, 3>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %3 = "mir.cast"(%x) {saturate = true, to = f32} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %4 = "mir.slice"(%x) {starts = array<i64: 0, 0>, sizes = array<i64: 2, 3>, steps = array<i64: 1, 1>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %0, %1, %2, %3, %4 : tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>
}

// -----

// CHECK-LABEL: func.func @movement_twice(
// CHECK-SAME: %[[X:[a-z0-9]+]]:
// CHECK-NEXT: %[[R:[a-z0-9]+]] = "mir.reshape"(%[[X]]) {shape = array<i64: 24>}
// CHECK-NEXT: %[[T:[a-z0-9]+]] = "mir.transpose"(%[[X]]) {perm = array<i64: 1, 0, 2>}
// CHECK-NEXT: return %[[R]], %[[T]], %[[X]]
func.func @movement_twice(%x: tensor<2x3x4xf32>) -> (tensor<24xf32>, tensor<3x2x4xf32>, tensor<2x3x4xf32>) {
  %0 = "mir.reshape"(%x) {shape = array<i64: 6, 4>} : (tensor<2x3x4xf32>) -> tensor<6x4xf32>
  %1 = "mir.reshape"(%0) {shape = array<i64: 24>} : (tensor<6x4xf32>) -> tensor<24xf32>
  %2 = "mir.transpose"(%x) {perm = array<i64: 2, 0, 1>} : (tensor<2x3x4xf32>) -> tensor<4x2x3xf32>
  %3 = "mir.transpose"(%2) {perm = array<i64: 2, 1, 0>} : (tensor<4x2x3xf32>) -> tensor<3x2x4xf32>
  %4 = "mir.transpose"(%2) {perm = array<i64: 1, 2, 0>} : (tensor<4x2x3xf32>) -> tensor<2x3x4xf32>
  return %1, %3, %4 : tensor<24xf32>, tensor<3x2x4xf32>, tensor<2x3x4xf32>
}

// -----

// A cast that rounds is no identity, there and back.

// CHECK-LABEL: func.func @casts_that_round(
// CHECK: "mir.cast"
// CHECK: "mir.cast"
func.func @casts_that_round(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = "mir.cast"(%x) {saturate = true, to = bf16} : (tensor<2xf32>) -> tensor<2xbf16>
  %1 = "mir.cast"(%0) {saturate = true, to = f32} : (tensor<2xbf16>) -> tensor<2xf32>
  return %1 : tensor<2xf32>
}

// -----

// Dead and repeated ops go: every op of mir is pure.

// CHECK-LABEL: func.func @dead_and_repeated(
// CHECK-COUNT-1: "mir.neg"
// CHECK-NOT: "mir.exp"
// CHECK: "mir.add"(%[[N:[a-z0-9]+]], %[[N]])
func.func @dead_and_repeated(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = "mir.neg"(%x) : (tensor<2xf32>) -> tensor<2xf32>
  %1 = "mir.neg"(%x) : (tensor<2xf32>) -> tensor<2xf32>
  %2 = "mir.exp"(%x) : (tensor<2xf32>) -> tensor<2xf32>
  %3 = "mir.add"(%0, %1) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  return %3 : tensor<2xf32>
}

// -----

// The operands of an op that commutes match in either order.

// CHECK-LABEL: func.func @negative_zero_add(
// CHECK-SAME: %[[X:[a-z0-9]+]]: 
// CHECK-NEXT: return %[[X]] 
func.func @negative_zero_add(%x: tensor<4xf32>, %c: tensor<4xi1>) -> tensor<4xf32> {
  %z = "mir.constant"() {value = dense<-0.0> : tensor<4xf32>} : () -> tensor<4xf32>
  %r = "mir.add"(%z, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @zero_add(
// CHECK-SAME: %[[X:[a-z0-9]+]]: 
// CHECK-NEXT: return %[[X]] 
func.func @zero_add(%x: tensor<4xi32>, %c: tensor<4xi1>) -> tensor<4xi32> {
  %z = "mir.constant"() {value = dense<0> : tensor<4xi32>} : () -> tensor<4xi32>
  %r = "mir.add"(%z, %x) : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
  return %r : tensor<4xi32>
}

// CHECK-LABEL: func.func @one_mul(
// CHECK-SAME: %[[X:[a-z0-9]+]]: 
// CHECK-NEXT: return %[[X]] 
func.func @one_mul(%x: tensor<4xi32>, %c: tensor<4xi1>) -> tensor<4xi32> {
  %z = "mir.constant"() {value = dense<1> : tensor<4xi32>} : () -> tensor<4xi32>
  %r = "mir.mul"(%z, %x) : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
  return %r : tensor<4xi32>
}

// CHECK-LABEL: func.func @zero_mul(
// CHECK-NEXT: %[[Z:[a-z0-9_]+]] = "mir.constant"() {value = dense<0> 
// CHECK-NEXT: return %[[Z]] 
func.func @zero_mul(%x: tensor<4xi32>, %c: tensor<4xi1>) -> tensor<4xi32> {
  %z = "mir.constant"() {value = dense<0> : tensor<4xi32>} : () -> tensor<4xi32>
  %r = "mir.mul"(%z, %x) : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
  return %r : tensor<4xi32>
}
