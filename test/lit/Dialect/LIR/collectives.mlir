// RUN: %rlx-opt %s --verify-roundtrip --canonicalize --cse --emit=lir | %filecheck %s

// Upstream passes leave steps in place, also those that give a value that nobody reads.

// CHECK-LABEL: func.func @main
// CHECK: "lir.collective"(%{{.*}}, %{{.*}}) {{.*}}count = 4 : i64, kind = "all_reduce", lir.apart, peers = array<i64>, ranks = 2 : i64, reduction = "max"
// CHECK: "lir.await"()
// CHECK: "lir.collective"(%{{.*}}, %{{.*}}) {{.*}}kind = "permute", peers = array<i64: 0, 1>
// CHECK: "lir.collective"(%{{.*}}) {{.*}}kind = "axis_index"
module attributes {lir.target = "cpu", lir.sites = [{message = "all_reduce", file = "f.py", line = 1 : i64}]} {
  func.func @main(%arena: memref<64xi8> {lir.role = "arena"}, %packed: memref<0xi8> {lir.role = "packed"}, %error: memref<2xi64> {lir.role = "error"}, %input0: memref<4xf32> {lir.role = "input", lir.name = "x"}, %output0: memref<4xf32> {lir.role = "output", lir.name = "y"}) {
    %x = "lir.view"(%input0) {offset = 0 : i64, shape = array<i64: 4>, strides = array<i64: 1>} : (memref<4xf32>) -> memref<?xf32>
    %a = "lir.view"(%arena) {offset = 0 : i64, shape = array<i64: 4>, strides = array<i64: 1>} : (memref<64xi8>) -> memref<?xf32>
    %y = "lir.view"(%output0) {offset = 0 : i64, shape = array<i64: 4>, strides = array<i64: 1>} : (memref<4xf32>) -> memref<?xf32>
    "lir.collective"(%x, %a) {kind = "all_reduce", reduction = "max", axis = "data", ranks = 2 : i64, count = 4 : i64, peers = array<i64>, site = 0 : i64, lir.apart} : (memref<?xf32>, memref<?xf32>) -> ()
    "lir.await"() : () -> ()
    "lir.collective"(%a, %y) {kind = "permute", reduction = "sum", axis = "data", ranks = 2 : i64, count = 4 : i64, peers = array<i64: 0, 1>, site = 0 : i64} : (memref<?xf32>, memref<?xf32>) -> ()
    %r = "lir.view"(%arena) {offset = 32 : i64, shape = array<i64>, strides = array<i64>} : (memref<64xi8>) -> memref<?xi64>
    "lir.collective"(%r) {kind = "axis_index", reduction = "sum", axis = "data", ranks = 2 : i64, count = 0 : i64, peers = array<i64>, site = 0 : i64} : (memref<?xi64>) -> ()
    return
  }
}
