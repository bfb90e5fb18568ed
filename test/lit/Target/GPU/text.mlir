// The same kernel in five languages: buffers, then numbers; a guard; elements read and written.
// RUN: %rlx-opt %s --emit=source --target=opencl | %filecheck %s --check-prefix=CL
// RUN: %rlx-opt %s --emit=source --target=gpu | %filecheck %s --check-prefix=WGSL
// RUN: %rlx-opt %s --emit=source --target=metal | %filecheck %s --check-prefix=MSL
// RUN: %rlx-opt %s --emit=source --target=opengl | %filecheck %s --check-prefix=GLSL
// RUN: %rlx-opt %s --emit=source --target=directx | %filecheck %s --check-prefix=HLSL

// MSL: #pragma clang fp contract(off)
// MSL: {{\[\[}}max_total_threads_per_threadgroup(128)]]
// MSL: kernel void {{[a-z]+}}_0(device const float* b0 {{\[\[}}buffer(0)]], device float* b1
// MSL: if ({{v[0-9]+}}) {
// MSL: const float [[Y:v[0-9]+]] = fabs({{v[0-9]+}});
// MSL: b1[{{v[0-9]+}}] = [[Y]];

// GLSL: #version 430
// GLSL: #ifdef KERNEL_[[NAME:[a-z]+_0]]
// GLSL: layout(local_size_x = 128, local_size_y = 1, local_size_z = 1) in;
// GLSL: layout(std430, binding = 0) readonly buffer B0 { float b0[]; };
// GLSL: layout(std430, binding = 1) buffer B1 { float b1[]; };
// GLSL: precise float [[Y:v[0-9]+]] = abs({{v[0-9]+}});
// GLSL: b1[{{v[0-9]+}}] = [[Y]];
// GLSL: #endif

// HLSL: StructuredBuffer<float> {{[a-z]+}}_0_b0 : register(t0);
// HLSL: RWStructuredBuffer<float> {{[a-z]+}}_0_b1 : register(u1);
// HLSL: [numthreads(128, 1, 1)]
// HLSL: precise float [[Y:v[0-9]+]] = abs({{v[0-9]+}});
// HLSL: _b1[{{v[0-9]+}}] = [[Y]];

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
