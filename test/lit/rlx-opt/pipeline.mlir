// RUN: %rlx-opt %s --hir-to-mir --simplify | %filecheck %s
// RUN: %rlx-opt %s --pass-pipeline=hir-to-mir,simplify | %filecheck %s
// RUN: %rlx-opt %s --pass-pipeline='builtin.module(hir-to-mir, simplify, canonicalize{max-iterations=3}, cse)' | %filecheck %s
// RUN: %rlx-opt %s --simplify --hir-to-mir | %filecheck %s --check-prefix=ORDER
// RUN: %rlx-opt %s --cse | %filecheck %s --check-prefix=CSE
// RUN: %rlx-opt --list-passes | %filecheck %s --check-prefix=LIST
// RUN: %rlx-opt --version | %filecheck %s --check-prefix=VERSION
// RUN: %rlx-opt --help | %filecheck %s --check-prefix=HELP

// CHECK-NOT: hir.
// CHECK: "mir.matmul"
// CHECK: "mir.expand"
// CHECK: "mir.add"

// Passes run in the order of their flags.
// ORDER-NOT: "mir.expand"
// ORDER: "mir.add"

// CSE-COUNT-1: "hir.linear"
// CSE-NOT: "hir.linear"

// LIST: hir-to-mir {{ *}}Replace every hir block
// LIST-NEXT: simplify
// LIST-NEXT: legalize
// LIST-NEXT: share-inputs
// LIST-NEXT: hoist
// LIST-NEXT: fuse
// LIST-NEXT: mir-to-lir
// LIST-NEXT: canonicalize
// LIST-NEXT: cse

// VERSION: rlx-opt {{[0-9]+\.[0-9]+}}

// HELP: usage: rlx-opt
// HELP-DAG: --emit
// HELP-DAG: --verify-diagnostics
// HELP-DAG: --share-inputs

func.func @main(%x: tensor<8x16xf32> {rlx.input = "x"}, %w: tensor<16x4xf32> {rlx.param = "w"},
                %b: tensor<4xf32> {rlx.param = "b"}) -> (tensor<8x4xf32>, tensor<8x4xf32>) {
  %0 = "hir.linear"(%x, %w, %b) {activation = "none", transposed = false}
      : (tensor<8x16xf32>, tensor<16x4xf32>, tensor<4xf32>) -> tensor<8x4xf32>
  %1 = "hir.linear"(%x, %w, %b) {activation = "none", transposed = false}
      : (tensor<8x16xf32>, tensor<16x4xf32>, tensor<4xf32>) -> tensor<8x4xf32>
  return %0, %1 : tensor<8x4xf32>, tensor<8x4xf32>
}
