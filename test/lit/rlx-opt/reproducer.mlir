// A failing pass leaves the IR that it was given and its own text, and --run-reproducer runs that.
// RUN: not %rlx-opt %s --simplify --transform-interpreter --cse --mlir-pass-pipeline-crash-reproducer=%t.mlir 2>%t.err
// RUN: %filecheck %s --check-prefix=FAIL < %t.err
// RUN: %filecheck %s --check-prefix=FILE < %t.mlir
// RUN: not %rlx-opt %t.mlir --run-reproducer 2>&1 | %filecheck %s --check-prefix=AGAIN
// RUN: %rlx-opt %t.mlir 2>&1 | %filecheck %s --check-prefix=HINT
// RUN: %rlx-opt %s --simplify --mlir-pass-pipeline-crash-reproducer=%t.none
// RUN: not ls %t.none

// One of the whole run is written before it starts, and gives the same result.
// RUN: %rlx-opt %s --hoist --emit=asm --target=cpu:x86-64-v4 --no-fuse --disable-rule=contraction --mlir-generate-reproducer=%t.whole > %t.s
// RUN: %filecheck %s --check-prefix=WHOLE < %t.whole
// RUN: %rlx-opt %t.whole --run-reproducer > %t.again
// RUN: cmp %t.s %t.again
// RUN: not %rlx-opt %s --run-reproducer 2>&1 | %filecheck %s --check-prefix=NONE

// FAIL: error: could not find a nested named sequence
// FAIL: rlx-opt: this repeats the failure:
// FAIL-NEXT: rlx-opt {{.*}}.tmp.mlir --run-reproducer

// FILE-NOT: "mir.mul"
// FILE: "mir.exp"
// FILE: {-#
// FILE-NEXT: external_resources: {
// FILE-NEXT: mlir_reproducer: {
// FILE-NEXT: pipeline: "builtin.module(transform-interpreter{{.*}})",
// FILE-NEXT: disable_threading: true,
// FILE-NEXT: verify_each: true
// FILE: rlx_reproducer: {
// FILE-NEXT: target: "cpu",

// AGAIN-NOT: warning
// AGAIN: error: could not find a nested named sequence
// AGAIN-NOT: warning

// HINT: warning: ignoring unknown external resources for 'mlir_reproducer'
// HINT: help: --run-reproducer runs the pipeline that it holds

// WHOLE: "mir.mul"
// WHOLE: pipeline: "builtin.module(hoist)"
// WHOLE: target: "cpu:x86-64-v4"
// WHOLE: fuse: false
// WHOLE: emit: "asm"
// WHOLE: disable_rules: "contraction"

// NONE: error: the input holds no reproducer

func.func @main(%x: tensor<2xf32> {rlx.input = "x"}) -> tensor<2xf32> {
  %one = "mir.constant"() {value = dense<1.0> : tensor<2xf32>} : () -> tensor<2xf32>
  %0 = "mir.mul"(%x, %one) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  %1 = "mir.exp"(%0) : (tensor<2xf32>) -> tensor<2xf32>
  %2 = "mir.neg"(%1) : (tensor<2xf32>) -> tensor<2xf32>
  return %2 : tensor<2xf32>
}
