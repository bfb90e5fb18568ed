// RUN: %rlx-opt %s --emit=lir | %filecheck %s

// Control flow becomes structured steps. Both bodies of a cond write to the place of its result; a
// loop keeps what it carries there.

func.func private @double(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = "mir.add"(%x, %x) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}
func.func private @same(%x: tensor<8xf32>) -> tensor<8xf32> {
  return %x : tensor<8xf32>
}
func.func private @choose(tensor<i1>, tensor<8xf32>) -> tensor<8xf32> attributes
    {rlx.control = "cond", then = @double, otherwise = @same}

func.func private @small(%x: tensor<8xf32>, %top: tensor<f32>) -> tensor<i1> {
  %0 = "mir.reduce_max"(%x) {axes = array<i64: 0>, keepdims = false} : (tensor<8xf32>) -> tensor<f32>
  %1 = "mir.lt"(%0, %top) : (tensor<f32>, tensor<f32>) -> tensor<i1>
  return %1 : tensor<i1>
}
func.func private @twice(%x: tensor<8xf32>, %top: tensor<f32>) -> tensor<8xf32> {
  %0 = "mir.add"(%x, %x) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}
func.func private @grow(tensor<8xf32>, tensor<f32>) -> tensor<8xf32> attributes
    {rlx.control = "while_loop", test = @small, body = @twice, carries = 1 : i64, limit = 50 : i64}

func.func @main(%p: tensor<i1> {rlx.input = "p"}, %x: tensor<8xf32> {rlx.input = "x"},
                %top: tensor<f32> {rlx.input = "top"}) -> tensor<8xf32> {
  %0 = func.call @choose(%p, %x) : (tensor<i1>, tensor<8xf32>) -> tensor<8xf32>
  %1 = func.call @grow(%0, %top) : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  return %1 : tensor<8xf32>
}

// CHECK:      lir.sites = [{file = {{.*}}, message = "while_loop: its test is still true after 50 rounds"}]
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
// CHECK-NEXT:   func.call @[[ADD]]
// CHECK-NEXT:   func.call @[[COPY]]
// CHECK-NEXT:   scf.yield
// CHECK-NEXT: } attributes {lir.limit = 50 : i64, lir.site = 0 : i64}
