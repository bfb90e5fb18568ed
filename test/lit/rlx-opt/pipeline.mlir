// RUN: %rlx-opt %s --hir-to-mir --simplify | %filecheck %s
// RUN: %rlx-opt %s --pass-pipeline=hir-to-mir,simplify | %filecheck %s
// RUN: %rlx-opt %s --pass-pipeline='builtin.module(hir-to-mir, simplify, canonicalize{max-iterations=3}, cse)' | %filecheck %s
// RUN: %rlx-opt %s --simplify --hir-to-mir | %filecheck %s --check-prefix=ORDER
// RUN: %rlx-opt %s --cse | %filecheck %s --check-prefix=CSE
// RUN: %rlx-opt %s -p hir-to-mir,simplify | %filecheck %s
// RUN: %rlx-opt %s -pass-pipeline='any(hir-to-mir,func.func(cse),simplify)' | %filecheck %s
// RUN: %rlx-opt %s --hir-to-mir --simplify=disable-rules=fold --canonicalize='max-iterations=3 top-down=false' --cse | %filecheck %s

// CHECK-NOT: hir.
// CHECK: "mir.matmul"
// CHECK: "mir.expand"
// CHECK: "mir.add"

// Passes run in the order of their flags.
// ORDER-NOT: "mir.expand"
// ORDER: "mir.add"

// CSE-COUNT-1: "hir.linear"
// CSE-NOT: "hir.linear"

func.func @main(%x: tensor<8x16xf32> {rlx.input = "x"}, %w: tensor<16x4xf32> {rlx.param = "w"},
                %b: tensor<4xf32> {rlx.param = "b"}) -> (tensor<8x4xf32>, tensor<8x4xf32>) {
  %0 = "hir.linear"(%x, %w, %b) {activation = "none", transposed = false}
      : (tensor<8x16xf32>, tensor<16x4xf32>, tensor<4xf32>) -> tensor<8x4xf32>
  %1 = "hir.linear"(%x, %w, %b) {activation = "none", transposed = false}
      : (tensor<8x16xf32>, tensor<16x4xf32>, tensor<4xf32>) -> tensor<8x4xf32>
  return %0, %1 : tensor<8x4xf32>, tensor<8x4xf32>
}
