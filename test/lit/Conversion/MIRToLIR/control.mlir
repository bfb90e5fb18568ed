// RUN: %rlx-opt %s --split-input-file --emit=lir | %filecheck %s

// Control flow becomes structured steps. Both bodies of a cond write to the place of its result; a
// loop keeps what it carries there, and here its kernel writes over the old value.

func.func private @double(%x: tensor<32xf32>) -> tensor<32xf32> {
  %0 = "mir.add"(%x, %x) : (tensor<32xf32>, tensor<32xf32>) -> tensor<32xf32>
  return %0 : tensor<32xf32>
}
func.func private @same(%x: tensor<32xf32>) -> tensor<32xf32> {
  return %x : tensor<32xf32>
}
func.func private @choose(tensor<i1>, tensor<32xf32>) -> tensor<32xf32> attributes
    {rlx.control = "cond", then = @double, otherwise = @same}

func.func private @small(%x: tensor<32xf32>, %top: tensor<f32>) -> tensor<i1> {
  %0 = "mir.reduce_max"(%x) {axes = array<i64: 0>, keepdims = false} : (tensor<32xf32>) -> tensor<f32>
  %1 = "mir.lt"(%0, %top) : (tensor<f32>, tensor<f32>) -> tensor<i1>
  return %1 : tensor<i1>
}
func.func private @twice(%x: tensor<32xf32>, %top: tensor<f32>) -> tensor<32xf32> {
  %0 = "mir.add"(%x, %x) : (tensor<32xf32>, tensor<32xf32>) -> tensor<32xf32>
  return %0 : tensor<32xf32>
}
func.func private @grow(tensor<32xf32>, tensor<f32>) -> tensor<32xf32> attributes
    {rlx.control = "while_loop", test = @small, body = @twice, carries = 1 : i64, limit = 50 : i64}

func.func @main(%p: tensor<i1> {rlx.input = "p"}, %x: tensor<32xf32> {rlx.input = "x"},
                %top: tensor<f32> {rlx.input = "top"}) -> tensor<32xf32> {
  %0 = func.call @choose(%p, %x) : (tensor<i1>, tensor<32xf32>) -> tensor<32xf32>
  %1 = func.call @grow(%0, %top) : (tensor<32xf32>, tensor<f32>) -> tensor<32xf32>
  return %1 : tensor<32xf32>
}

// CHECK-LABEL: module attributes
// CHECK-SAME: lir.sites = [{file = {{.*}}, message = "while_loop: its test is still true after 50 rounds"}]
// CHECK:      func.func private @[[ADD:elementwise_[0-9]+]]
// CHECK:      func.func private @[[COPY:copy_[0-9]+]]
// CHECK:      func.func @main
// CHECK:      %[[CHOICE:.*]] = "lir.test"
// CHECK-NEXT: scf.if %[[CHOICE]] {
// CHECK-NEXT:   func.call @[[ADD]]
// CHECK-NEXT: } else {
// CHECK-NEXT:   func.call @[[COPY]]
// CHECK-NEXT: }
// CHECK:      call @[[COPY]]
// CHECK:      scf.while : () -> () {
// CHECK-NEXT:   func.call @rowwise
// CHECK-NEXT:   func.call @elementwise
// CHECK-NEXT:   %[[MORE:.*]] = "lir.test"
// CHECK-NEXT:   scf.condition(%[[MORE]])
// CHECK-NEXT: } do {
// CHECK-NEXT:   func.call @elementwise_{{[0-9]+}}(%[[V:[0-9]+]], %[[V]],
// CHECK-NEXT:   scf.yield
// CHECK-NEXT: } attributes {lir.limit = 50 : i64, lir.site = 0 : i64}

// -----

// A scan reads and writes a row in place: views that move with the round. What is inside moves with
// two. The last round comes first, and its number is stored for the body that asks for it.

func.func private @cell(%j: tensor<i64>, %c: tensor<32xf32>, %e: tensor<32xf32>) -> (tensor<32xf32>, tensor<32xf32>) {
  %0 = "mir.mul"(%c, %e) : (tensor<32xf32>, tensor<32xf32>) -> tensor<32xf32>
  %1 = "mir.add"(%c, %e) : (tensor<32xf32>, tensor<32xf32>) -> tensor<32xf32>
  return %1, %0 : tensor<32xf32>, tensor<32xf32>
}
func.func private @cells(tensor<32xf32>, tensor<5x32xf32>) -> (tensor<32xf32>, tensor<5x32xf32>) attributes
    {rlx.control = "scan", body = @cell, length = ["5"], carries = 1 : i64, scanned = 1 : i64, reverse = false}
func.func private @row(%i: tensor<i64>, %c: tensor<32xf32>, %n: tensor<i64>, %e: tensor<5x32xf32>) -> (tensor<32xf32>, tensor<i64>, tensor<5x32xf32>) {
  %0:2 = func.call @cells(%c, %e) : (tensor<32xf32>, tensor<5x32xf32>) -> (tensor<32xf32>, tensor<5x32xf32>)
  %1 = "mir.add"(%i, %n) : (tensor<i64>, tensor<i64>) -> tensor<i64>
  return %0#0, %1, %0#1 : tensor<32xf32>, tensor<i64>, tensor<5x32xf32>
}
func.func private @rows(tensor<32xf32>, tensor<i64>, tensor<3x5x32xf32>) -> (tensor<32xf32>, tensor<3xi64>, tensor<3x5x32xf32>) attributes
    {rlx.control = "scan", body = @row, length = ["3"], carries = 1 : i64, scanned = 1 : i64, reverse = true}

func.func @main(%c: tensor<32xf32> {rlx.input = "c"}, %n: tensor<i64> {rlx.input = "n"},
                %x: tensor<3x5x32xf32> {rlx.input = "x"}) -> (tensor<32xf32>, tensor<3xi64>, tensor<3x5x32xf32>) {
  %0:3 = func.call @rows(%c, %n, %x) : (tensor<32xf32>, tensor<i64>, tensor<3x5x32xf32>) -> (tensor<32xf32>, tensor<3xi64>, tensor<3x5x32xf32>)
  return %0#0, %0#1, %0#2 : tensor<32xf32>, tensor<3xi64>, tensor<3x5x32xf32>
}

// CHECK-LABEL: module attributes
// CHECK:       func.func @main
// CHECK-SAME:  %[[N:[a-z0-9]+]]: memref<i64> {lir.name = "n"
// CHECK-SAME:  %[[X:[a-z0-9]+]]: memref<3x5x32xf32> {lir.name = "x"
// CHECK-SAME:  %[[OUT:[a-z0-9]+]]: memref<3x5x32xf32> {lir.name = "2"
// CHECK:       scf.for %[[I:.*]] = %{{.*}} to %c3 step
// CHECK-DAG:     "lir.view"(%{{.*}}, %[[I]]) {moves = array<i64: 8>
// CHECK-DAG:     "lir.count"(%[[I]]
// CHECK:         scf.for %[[J:.*]] = %{{.*}} to %c5 step
// CHECK-DAG:       %[[E:.*]] = "lir.view"(%[[X]], %[[I]], %[[J]]) {moves = array<i64: 640, 128>
// CHECK-DAG:       %[[Y:.*]] = "lir.view"(%[[OUT]], %[[I]], %[[J]]) {moves = array<i64: 640, 128>
// CHECK:           func.call @elementwise_{{[0-9]+}}(%{{.*}}, %[[E]], %[[Y]],
// CHECK:         }
// CHECK:       } {lir.reverse}
