// IR around passes goes to stderr, and the result to stdout as ever.
// RUN: %rlx-opt %s --simplify --fuse --mlir-print-ir-before-all 2>&1 >%t.out | %filecheck %s --check-prefix=BEFORE
// RUN: %rlx-opt %s --simplify --fuse --mlir-print-ir-after-all 2>&1 >%t.out | %filecheck %s --check-prefix=AFTER
// RUN: %filecheck %s < %t.out
// RUN: %rlx-opt %s --simplify --fuse --cse --mlir-print-ir-before=fuse,cse --mlir-print-ir-after=simplify 2>&1 >%t.out | %filecheck %s --check-prefix=SOME
// RUN: %rlx-opt %s --simplify --legalize --mlir-print-ir-after-all --mlir-print-ir-after-change 2>&1 >%t.out | %filecheck %s --check-prefix=CHANGE
// RUN: %rlx-opt %s --pass-pipeline='func.func(cse)' --mlir-print-ir-after-all 2>&1 >%t.out | %filecheck %s --check-prefix=NESTED
// RUN: %rlx-opt %s --pass-pipeline='func.func(cse)' --mlir-print-ir-after-all --mlir-print-ir-module-scope 2>&1 >%t.out | %filecheck %s --check-prefix=SCOPE
// RUN: not %rlx-opt %s --simplify --hoist --mlir-print-ir-after-failure 2>&1 >%t.out | %filecheck %s --check-prefix=FAILURE
// RUN: %rlx-opt %s --pass-pipeline='simplify,func.func(cse)' --mlir-print-ir-after-all --mlir-print-ir-tree-dir=%t.dir > %t.out
// RUN: %filecheck %s --check-prefix=SIMPLIFIED < %t.dir/builtin_module_no-symbol-name/0_simplify.mlir
// RUN: %filecheck %s --check-prefix=F < %t.dir/builtin_module_no-symbol-name/func_func_f/1_cse.mlir
// RUN: %filecheck %s --check-prefix=G < %t.dir/builtin_module_no-symbol-name/func_func_g/2_cse.mlir

// CHECK-NOT: IR Dump
// CHECK: module {

// BEFORE: // -----// IR Dump Before simplify //----- //
// BEFORE-NEXT: module {
// BEFORE: "mir.mul"
// BEFORE: // -----// IR Dump Before fuse //----- //
// BEFORE-NOT: "mir.mul"
// BEFORE-NOT: IR Dump After

// AFTER-NOT: IR Dump Before
// AFTER: // -----// IR Dump After simplify //----- //
// AFTER-NEXT: module {
// AFTER-NOT: "mir.mul"
// AFTER: // -----// IR Dump After fuse //----- //
// AFTER: "mir.fused"

// SOME-NOT: Before simplify
// SOME: IR Dump After simplify
// SOME: IR Dump Before fuse
// SOME-NOT: After fuse
// SOME: IR Dump Before cse
// SOME-NOT: After cse

// CHANGE: IR Dump After simplify
// CHANGE-NOT: IR Dump After legalize

// NESTED: // -----// IR Dump After cse ('func.func' operation: @f) //----- //
// NESTED-NEXT: func.func @f
// NESTED-NOT: func.func @g
// NESTED: // -----// IR Dump After cse ('func.func' operation: @g) //----- //
// NESTED-NEXT: func.func @g

// SCOPE: // -----// IR Dump After cse ('func.func' operation: @f) //----- //
// SCOPE-NEXT: module {
// SCOPE: // -----// IR Dump After cse ('func.func' operation: @g) //----- //
// SCOPE-NEXT: module {

// FAILURE-NOT: IR Dump After simplify
// FAILURE: // -----// IR Dump After hoist Failed //----- //
// FAILURE-NEXT: "builtin.module"
// FAILURE: error: the module has no function @main

// SIMPLIFIED: // -----// IR Dump After simplify //----- //
// SIMPLIFIED-NEXT: module {
// F: IR Dump After cse
// F-NEXT: func.func @f
// F-NOT: func.func @g
// G: func.func @g

func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> {
  %one = "mir.constant"() {value = dense<1.0> : tensor<2xf32>} : () -> tensor<2xf32>
  %0 = "mir.mul"(%x, %one) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  %1 = "mir.exp"(%0) : (tensor<2xf32>) -> tensor<2xf32>
  %2 = "mir.neg"(%1) : (tensor<2xf32>) -> tensor<2xf32>
  return %2 : tensor<2xf32>
}
func.func @g(%x: tensor<2xf32>) -> tensor<2xf32> {
  return %x : tensor<2xf32>
}
