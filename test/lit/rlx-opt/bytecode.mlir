// Bytecode is written and read; a damaged file of it is refused, whatever MLIR's reader makes of it.
// RUN: %rlx-opt %s --emit-bytecode -o %t.bc
// RUN: %rlx-opt %t.bc --simplify | %filecheck %s
// RUN: %rlx-opt %t.bc --emit-bytecode | %rlx-opt - --verify-roundtrip | %filecheck %s
// RUN: %python -c "import sys; d = open(sys.argv[1], 'rb').read(); open(sys.argv[2], 'wb').write(d[:len(d) // 2])" %t.bc %t.cut
// RUN: not %rlx-opt %t.cut 2>&1 | %filecheck %s --check-prefix=CUT

// CHECK: func.func @f
// CHECK: "mir.exp"
// CUT: .cut: error: the bytecode is damaged

func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = "mir.exp"(%x) : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
