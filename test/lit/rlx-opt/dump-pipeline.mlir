// The pipeline as text, on stderr: with every option of a pass of MLIR, and to the stage of --emit.
// RUN: %rlx-opt %s --emit=fused --dump-pass-pipeline 2>&1 >%t.out | %filecheck %s
// RUN: %rlx-opt %s -p 'func.func(cse,canonicalize),simplify' --dump-pass-pipeline 2>&1 >%t.out | %filecheck %s --check-prefix=NESTED
// RUN: %rlx-opt %s --pass-pipeline= --dump-pass-pipeline 2>&1 >%t.out | %filecheck %s --check-prefix=NONE

// CHECK: {{^}}builtin.module(hir-to-mir,simplify,legalize,share-inputs,hoist,fuse){{$}}
// NESTED: {{^}}builtin.module(func.func(cse,canonicalize{{[{].*max-iterations=10.*[}]}}),simplify){{$}}
// NONE: {{^}}builtin.module(){{$}}

func.func @main(%x: tensor<1x2xf32> {rlx.input = "x"}, %w: tensor<2x2xf32> {rlx.param = "w"}) -> tensor<1x2xf32> {
  %0 = "hir.linear"(%x, %w) {activation = "none", transposed = false} : (tensor<1x2xf32>, tensor<2x2xf32>) -> tensor<1x2xf32>
  return %0 : tensor<1x2xf32>
}
