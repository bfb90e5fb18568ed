// The op of a diagnostic is shown on demand; the line of the text stands there in any case.
// RUN: not %rlx-opt %s 2>&1 | %filecheck %s --check-prefix=PLAIN
// RUN: not %rlx-opt %s --mlir-print-op-on-diagnostic 2>&1 | %filecheck %s

// PLAIN: error: 'func.return' op has 1 operands
// PLAIN-NOT: see current operation

// CHECK: error: 'func.return' op has 1 operands
// CHECK: note: see current operation: "func.return"(%arg0)

func.func @f(%x: tensor<2xf32>) {
  return %x : tensor<2xf32>
}
