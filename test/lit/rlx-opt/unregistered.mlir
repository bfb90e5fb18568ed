// RUN: %rlx-opt %s --allow-unregistered-dialect | %filecheck %s
// RUN: %rlx-opt %s --allow-unregistered-dialect --simplify --legalize --fuse | %filecheck %s
// RUN: not %rlx-opt %s --allow-unregistered-dialect --emit=lir 2>&1 | %filecheck %s --check-prefix=LIR
// RUN: not %rlx-opt %s 2>&1 | %filecheck %s --check-prefix=REFUSED

// CHECK: "test.use"(%{{.*}}) {level = 3 : i64}
// REFUSED: error: {{.*}}unregistered
// LIR: error: {{.*}}test.use

func.func @main(%x: tensor<2xf32> {rlx.input = "x"}) -> tensor<2xf32> {
  %0 = "mir.exp"(%x) : (tensor<2xf32>) -> tensor<2xf32>
  %1 = "test.use"(%0) {level = 3 : i64} : (tensor<2xf32>) -> tensor<2xf32>
  return %1 : tensor<2xf32>
}
