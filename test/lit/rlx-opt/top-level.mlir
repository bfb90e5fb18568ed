// The op at the top is the module that holds the text, or with --no-implicit-module what is there.
// RUN: %rlx-opt %s | %filecheck %s --check-prefix=MODULE
// RUN: %rlx-opt %s --no-implicit-module --verify-roundtrip | %filecheck %s
// RUN: %rlx-opt %s --no-implicit-module --pass-pipeline='func.func(cse)' | %filecheck %s --check-prefix=CSE
// RUN: %rlx-opt %s --no-implicit-module --cse | %filecheck %s --check-prefix=CSE
// RUN: %rlx-opt %s --pass-pipeline='func.func(cse)' | %filecheck %s --check-prefix=CSE
// RUN: not %rlx-opt %s --no-implicit-module --simplify 2>&1 | %filecheck %s --check-prefix=ROOT
// RUN: not %rlx-opt %s --no-implicit-module --emit=mir 2>&1 | %filecheck %s --check-prefix=EMIT
// RUN: %rlx-opt %s | %rlx-opt --no-implicit-module --simplify | %filecheck %s --check-prefix=MODULE
// RUN: not %rlx-opt %S/split-markers.mlir --no-implicit-module 2>&1 | %filecheck %s --check-prefix=MANY

// MODULE: module {
// MODULE-NEXT: func.func @f
// CHECK-NOT: module
// CHECK: func.func @f
// CSE: func.func @f
// CSE-COUNT-1: mir.exp
// CSE-NOT: mir.exp
// ROOT: error: simplify takes a builtin.module, found func.func
// EMIT: error: --emit=mir takes a builtin.module, found func.func
// MANY: error: source must contain a single top-level operation, found: 3

func.func @f(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
  %0 = "mir.exp"(%x) : (tensor<2xf32>) -> tensor<2xf32>
  %1 = "mir.exp"(%x) : (tensor<2xf32>) -> tensor<2xf32>
  return %0, %1 : tensor<2xf32>, tensor<2xf32>
}
