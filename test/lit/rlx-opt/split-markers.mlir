// The markers are free to choose, and a line that nearly is one draws a warning.
// RUN: %rlx-opt %s --split-input-file='//###' --output-split-marker='// next' 2>%t.err | %filecheck %s
// RUN: %filecheck %s --check-prefix=NEAR < %t.err
// RUN: %rlx-opt %s --split-input-file='//###' --verify-diagnostics 2>/dev/null | %filecheck %s --check-prefix=DEFAULT
// RUN: not %rlx-opt %s --split-input-file='//###' --hoist -o %t.none 2>&1 | %filecheck %s --check-prefix=FAIL
// RUN: not ls %t.none
// RUN: %rlx-opt %s --split-input-file='//###' -o %t.kept 2>/dev/null
// RUN: %filecheck %s --check-prefix=DEFAULT < %t.kept

// CHECK: func.func private @first
// CHECK: {{^// next$}}
// CHECK: func.func private @second
// CHECK: {{^// next$}}
// CHECK: func.func @third
func.func private @first()
//###
func.func private @second()
//##
// NEAR: split-markers.mlir:18: warning: near miss with file split marker '//###'
// NEAR-NEXT: {{^    //##$}}
// NEAR-NOT: warning
//###
func.func @third() { return }

// DEFAULT: @first
// DEFAULT: {{^// -----$}}
// DEFAULT: @second

// FAIL: func @first has 0 blocks, expected one
