// Rows of 33 by 16 threads each, eight in a block: every reduction is a tree in shared memory, and
// what is beyond the last row is not stored. A column of a million in two launches.
// RUN: %rlx-opt %s --emit=lir --target=opencl | %filecheck %s --check-prefix=LIR
// RUN: %rlx-opt %s --emit=source --target=opencl | %filecheck %s --check-prefix=CL

// LIR-DAG: kind = "max"{{.*}}lir.family = "gpu_reduce"
// LIR-DAG: threads = 16 : i64
// LIR: lir.ops = "softmax", lir.range = 13 :
// LIR: lir.ops = "reduce_max", lir.range = 128 :
// LIR: lir.ops = "reduce_max", lir.range = 1 :

// CL: void rowwise_{{[0-9]+}}(
// CL: __local float [[S:.*]][128];
// CL: for (int [[J:v[0-9]+]] = [[T:v[0-9]+]]; [[J]] < {{v[0-9]+}}; [[J]] += 16) {
// CL: rlx_maximum(
// CL: barrier(
// CL: [[T]] < 8;
// CL: rlx_maximum(
// CL: barrier(
// CL: [[T]] < 4;
// CL: [[T]] < 1;
// CL-NOT: __local
// CL: 1.0f /
// CL: if ([[INSIDE:v[0-9]+]]) {
// CL-NEXT: {{.*}}
// CL-NEXT: {{.*}}
// CL-NEXT: b1[

// CL: void gpu_reduce_{{[0-9]+}}(
// CL: __local float {{.*}}[256];
// CL-COUNT-9: barrier(
module attributes {rlx.graph = "g"} {
  func.func @main(%x: tensor<101x33xf32> {rlx.input = "x"}, %y: tensor<1000000xf32> {rlx.input = "y"}) -> (tensor<101x33xf32>, tensor<f32>) {
    %0 = "mir.softmax"(%x) {axis = 1 : i64} : (tensor<101x33xf32>) -> tensor<101x33xf32>
    %1 = "mir.reduce_max"(%y) {axes = array<i64: 0>, keepdims = false} : (tensor<1000000xf32>) -> tensor<f32>
    return %0, %1 : tensor<101x33xf32>, tensor<f32>
  }
}
