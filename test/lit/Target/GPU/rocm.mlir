// A kernel for AMD GPUs: pointers to buffers and one to the numbers, no hidden arguments, a guard.
// RUN: %rlx-opt %s --emit=asm --target=rocm:gfx942 | %filecheck %s
// RUN: %rlx-opt %s --emit=asm --target=rocm:gfx1201 | %filecheck %s --check-prefix=RDNA
// RUN: %rlx-opt %s --emit=hsaco --target=rocm -o %t.hsaco
// RUN: not %rlx-opt %s --emit=asm --target=rocm:gfx9 2>&1 | %filecheck %s --check-prefix=BAD

// CHECK: .amdgcn_target "amdgcn-amd-amdhsa--gfx942"
// CHECK: .amdhsa_code_object_version 5
// CHECK: s_and_saveexec_b64
// CHECK: global_load_dword
// CHECK: v_and_b32{{.*}} 0x7fffffff
// CHECK: global_store_dword
// CHECK: .amdhsa_kernarg_size 24
// CHECK: .amdhsa_float_denorm_mode_32 3
// CHECK: .kernarg_segment_size: 24
// CHECK: .wavefront_size: 64

// RDNA: .amdgcn_target "amdgcn-amd-amdhsa--gfx1201"
// RDNA: .wavefront_size: 32

// BAD: unknown architecture 'gfx9'{{.*}}gfx90a, gfx942, gfx950, gfx1100, gfx1201
module attributes {rlx.graph = "g"} {
  func.func @main(%arg0: tensor<5xf32> {rlx.input = "x"}) -> tensor<5xf32> {
    %0 = "mir.abs"(%arg0) : (tensor<5xf32>) -> tensor<5xf32>
    return %0 : tensor<5xf32>
  }
}
