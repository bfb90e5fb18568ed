// A rule can be left out, of every pass that has it or of one in a pipeline.
// RUN: %rlx-opt %s --emit=fused | %filecheck %s
// RUN: %rlx-opt %s --emit=fused --disable-rule=mul-one,elementwise | %filecheck %s --check-prefix=NEITHER
// RUN: %rlx-opt %s --emit=fused --disable-rule=mul-one --disable-rule=elementwise | %filecheck %s --check-prefix=NEITHER
// RUN: %rlx-opt %s --pass-pipeline='simplify{disable-rules=mul-one,fold},legalize,fuse' | %filecheck %s --check-prefix=MUL
// RUN: %rlx-opt %s --simplify --disable-rule=mul-one --dump-pass-pipeline 2>&1 >%t.out | %filecheck %s --check-prefix=DUMP

// CHECK-NOT: "mir.mul"
// CHECK: "mir.fused"

// NEITHER-NOT: "mir.fused"
// NEITHER: "mir.mul"
// NEITHER-NOT: "mir.fused"

// MUL: "mir.fused"
// MUL: "mir.mul"

// DUMP: builtin.module(simplify{disable-rules=mul-one})

func.func @main(%x: tensor<2xf32> {rlx.input = "x"}) -> tensor<2xf32> {
  %one = "mir.constant"() {value = dense<1.0> : tensor<2xf32>} : () -> tensor<2xf32>
  %0 = "mir.mul"(%x, %one) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  %1 = "mir.exp"(%0) : (tensor<2xf32>) -> tensor<2xf32>
  %2 = "mir.neg"(%1) : (tensor<2xf32>) -> tensor<2xf32>
  return %2 : tensor<2xf32>
}
