// RUN: %rlx-opt %s --split-input-file --simplify | %filecheck %s
// RUN: not %rlx-opt %s --split-input-file --emit=lir 2>&1 | %filecheck %s --check-prefix=LINE

// CHECK: func.func @first
// CHECK: // -----
// CHECK: func.func @second
func.func @first(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }
// ----- a remark may follow
// A // ----- within a line parts nothing.
func.func @second(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }
// LINE: split-input.mlir{{.*}}: error: the module has no function @main, which share-inputs starts from
