// The same kernel in two languages: buffers, then numbers; a guard; elements read and written.
// RUN: %rlx-opt %s --emit=source --target=opencl | %filecheck %s --check-prefix=CL
// RUN: %rlx-opt %s --emit=source --target=gpu | %filecheck %s --check-prefix=WGSL

// CL: #pragma OPENCL FP_CONTRACT OFF
// CL: __kernel __attribute__((reqd_work_group_size(128, 1, 1)))
// CL: void {{[a-z]+}}_0(__global const float* b0, __global float* b1, __global const int* b2) {
// CL: get_group_id(1)
// CL: {{.*}} * 32768;
// CL: if ({{v[0-9]+}}) {
// CL: const float [[X:v[0-9]+]] = b0[{{v[0-9]+}}];
// CL: const float [[Y:v[0-9]+]] = fabs([[X]]);
// CL: b1[{{v[0-9]+}}] = [[Y]];

// WGSL: @group(0) @binding(0) var<storage, read> {{[a-z]+}}_0_b0: array<f32>;
// WGSL: @group(0) @binding(1) var<storage, read_write> {{[a-z]+}}_0_b1: array<f32>;
// WGSL: @group(0) @binding(2) var<storage, read> {{[a-z]+}}_0_b2: array<i32>;
// WGSL: @compute @workgroup_size(128, 1, 1)
// WGSL: if ({{v[0-9]+}}) {
// WGSL: let [[Y:v[0-9]+]]: f32 = abs({{v[0-9]+}});
// WGSL: _b1[{{v[0-9]+}}] = [[Y]];
module attributes {rlx.graph = "g"} {
  func.func @main(%arg0: tensor<5xf32> {rlx.input = "x"}) -> tensor<5xf32> {
    %0 = "mir.abs"(%arg0) : (tensor<5xf32>) -> tensor<5xf32>
    return %0 : tensor<5xf32>
  }
}
