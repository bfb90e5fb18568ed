// RUN: %rlx-opt %s --emit=fused --target=cpu:x86-64-v3 --mlir-print-debuginfo | %filecheck %s --check-prefix=FUSED
// RUN: %rlx-opt %s --emit=lir --target=cpu:x86-64-v3 --mlir-print-debuginfo | %filecheck %s --check-prefix=LIR

// A region and its launch have the locations of all their ops, a view those of the ops that it
// stands for, and an argument its own. Products that became one have both locations.

func.func @main(%x: tensor<4x8xf32> {rlx.input = "x"} loc("m.py":1:1), %w: tensor<8x8xf32> {rlx.param = "w"} loc("m.py":2:1), %v: tensor<8x8xf32> {rlx.param = "v"} loc("m.py":3:1)) -> tensor<4x8xf32> {
  %t = "mir.transpose"(%x) {perm = array<i64: 1, 0>} : (tensor<4x8xf32>) -> tensor<8x4xf32> loc("m.py":4:1)
  %u = "mir.transpose"(%t) {perm = array<i64: 1, 0>} : (tensor<8x4xf32>) -> tensor<4x8xf32> loc("m.py":5:1)
  %r = "mir.relu"(%u) : (tensor<4x8xf32>) -> tensor<4x8xf32> loc("m.py":6:1)
  %p = "mir.matmul"(%r, %w) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32> loc("m.py":7:1)
  %q = "mir.matmul"(%r, %v) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32> loc("m.py":8:1)
  %a = "mir.tanh"(%p) : (tensor<4x8xf32>) -> tensor<4x8xf32> loc("m.py":9:1)
  %s = "mir.add"(%a, %q) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32> loc("m.py":10:1)
  return %s : tensor<4x8xf32>
}

// FUSED-DAG: #[[P:.*]] = loc("m.py":7:1)
// FUSED-DAG: #[[Q:.*]] = loc("m.py":8:1)
// FUSED:     #[[PRODUCT:.*]] = loc(fused[#[[P]], #[[Q]]])
// FUSED:     "mir.concat"{{.*}} loc(#[[PRODUCT]])
// FUSED:     "mir.matmul"{{.*}} loc(#[[PRODUCT]])
// FUSED:     "mir.slice"{{.*}} loc(#[[PRODUCT]])
// FUSED:     {kind = "elementwise"} : () -> tensor<4x8xf32> loc(#[[REGION:.*]])
// FUSED-DAG: #[[A:.*]] = loc("m.py":9:1)
// FUSED-DAG: #[[S:.*]] = loc("m.py":10:1)
// FUSED:     #[[REGION]] = loc(fused[#[[A]], #[[S]]])

// LIR-DAG:  #[[A:.*]] = loc("m.py":9:1)
// LIR-DAG:  #[[S:.*]] = loc("m.py":10:1)
// LIR:      #[[REGION:.*]] = loc(fused[#[[A]], #[[S]]])
// LIR:      func.func @main
// LIR-SAME: {lir.name = "w", lir.role = "param"} loc("m.py":2:1)
// LIR-SAME: {lir.name = "x", lir.role = "input"} loc("m.py":1:1)
// LIR-SAME: {lir.name = "0", lir.role = "output"} loc(fused[#[[A]], #[[S]]])
// LIR:      call @contraction{{.*}} loc(#[[PRODUCT:.*]])
// LIR:      "lir.view"{{.*}} loc(#[[PRODUCT]])
// LIR:      call @elementwise{{.*}} loc(#[[REGION]])
// LIR:      #[[P:.*]] = loc("m.py":7:1)
// LIR:      #[[Q:.*]] = loc("m.py":8:1)
// LIR:      #[[PRODUCT]] = loc(fused[#[[P]], #[[Q]]])
