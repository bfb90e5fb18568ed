// RUN: %rlx-opt %s --hir-to-mir --split-input-file --verify-diagnostics | %filecheck %s

// A region is its body, also one within another and one in a loop; nothing names its functions then.

// CHECK-NOT: @inner
// CHECK-NOT: @checkpoint
// CHECK-LABEL: func.func private @step(
// CHECK-NEXT: %[[S:.*]] = "mir.exp"(%arg1)
// CHECK-NEXT: return %arg0, %[[S]]
// CHECK-LABEL: func.func @main(
// CHECK-NEXT: %[[T:.*]] = "mir.tanh"(%arg0)
// CHECK-NEXT: %[[E:.*]] = "mir.exp"(%[[T]])
// CHECK-NEXT: %[[A:.*]] = "mir.add"(%[[E]], %[[T]])
// CHECK-NEXT: %[[L:.*]] = call @loop(%{{.*}}, %[[A]])
func.func private @inner(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "mir.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func private @checkpoint_1(tensor<4xf32>) -> tensor<4xf32> attributes
    {rlx.control = "checkpoint", body = @inner, kept = 0 : i64}
func.func private @outer(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = "mir.tanh"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = func.call @checkpoint_1(%0) : (tensor<4xf32>) -> tensor<4xf32>
  return %1, %0 : tensor<4xf32>, tensor<4xf32>
}
func.func private @checkpoint_0(tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) attributes
    {rlx.control = "checkpoint", body = @outer, kept = 1 : i64}
func.func private @test(%i: tensor<i64>, %x: tensor<4xf32>) -> tensor<i1> {
  %0 = "mir.lt"(%i, %i) : (tensor<i64>, tensor<i64>) -> tensor<i1>
  return %0 : tensor<i1>
}
func.func private @step(%i: tensor<i64>, %x: tensor<4xf32>) -> (tensor<i64>, tensor<4xf32>) {
  %0 = func.call @checkpoint_1(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %i, %0 : tensor<i64>, tensor<4xf32>
}
func.func private @loop(tensor<i64>, tensor<4xf32>) -> (tensor<i64>, tensor<4xf32>) attributes
    {rlx.control = "while_loop", test = @test, body = @step, carries = 2 : i64, limit = -1 : i64}
func.func @main(%x: tensor<4xf32> {rlx.input = "x"}, %i: tensor<i64> {rlx.input = "i"}) -> tensor<4xf32> {
  %0:2 = func.call @checkpoint_0(%x) : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  %1 = "mir.add"(%0#0, %0#1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %2:2 = func.call @loop(%i, %1) : (tensor<i64>, tensor<4xf32>) -> (tensor<i64>, tensor<4xf32>)
  return %2#1 : tensor<4xf32>
}

// -----

func.func private @again(%x: tensor<f32>) -> tensor<f32> {
  // expected-error @+1 {{@again runs itself; a loop is a while_loop}}
  %0 = func.call @region(%x) : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @region(tensor<f32>) -> tensor<f32> attributes
    {rlx.control = "checkpoint", body = @again, kept = 0 : i64}
func.func @main(%x: tensor<f32> {rlx.input = "x"}) -> tensor<f32> {
  %0 = func.call @region(%x) : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
