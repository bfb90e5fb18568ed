// RUN: %rlx-opt %s --emit=lir | %filecheck %s

// A loop over a scalar is one launch: its program is the config of the kernel, and the schedule has
// no loop.

func.func private @more(%i: tensor<i64>, %n: tensor<i64>) -> tensor<i1> {
  %0 = "mir.lt"(%i, %n) : (tensor<i64>, tensor<i64>) -> tensor<i1>
  return %0 : tensor<i1>
}
func.func private @twice(%i: tensor<i64>, %n: tensor<i64>) -> tensor<i64> {
  %0 = "mir.add"(%i, %i) : (tensor<i64>, tensor<i64>) -> tensor<i64>
  return %0 : tensor<i64>
}
func.func private @grow(tensor<i64>, tensor<i64>) -> tensor<i64> attributes
    {rlx.control = "while_loop", test = @more, body = @twice, carries = 1 : i64, limit = 50 : i64}

func.func @main(%n: tensor<i64> {rlx.input = "n"}) -> tensor<i64> {
  %one = "mir.constant"() {value = dense<1> : tensor<i64>} : () -> tensor<i64>
  %0 = func.call @grow(%one, %n) : (tensor<i64>, tensor<i64>) -> tensor<i64>
  return %0 : tensor<i64>
}

// CHECK:      func.func private @loop_0(memref<?xi64>, memref<?xi64>, memref<?xi64>, index)
// CHECK-SAME: inputs = [0], is = "LoopConfig"
// CHECK-SAME: lir.family = "loop"
// CHECK:      func.func @main
// CHECK-NOT:  scf.
// CHECK:      call @loop_0
// CHECK-NOT:  call
// CHECK:      return
