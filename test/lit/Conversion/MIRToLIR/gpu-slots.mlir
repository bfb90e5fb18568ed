// On a GPU every buffer that is in use has a place of its own in the arena, and the module says where
// they begin: a driver makes a buffer of each.
// RUN: %rlx-opt %s --emit=lir --target=gpu --dispatch=common | %filecheck %s

// CHECK-DAG: lir.arena_slots = array<i64: 0, 64>
// CHECK: %{{.*}}: memref<128xi8> {lir.role = "arena"}
module attributes {rlx.graph = "g"} {
  func.func @main(%arg0: tensor<5xf32> {rlx.input = "x"}) -> tensor<5xf32> {
    %0 = "mir.exp"(%arg0) : (tensor<5xf32>) -> tensor<5xf32>
    %1 = "mir.tanh"(%0) : (tensor<5xf32>) -> tensor<5xf32>
    %2 = "mir.abs"(%1) : (tensor<5xf32>) -> tensor<5xf32>
    %3 = "mir.exp"(%2) : (tensor<5xf32>) -> tensor<5xf32>
    return %3 : tensor<5xf32>
  }
}

