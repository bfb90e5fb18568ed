// A product by blocks of threads: pieces of both matrices come into shared memory, zeros for what is
// beyond the edge, between two barriers; the epilogue follows in registers, inside of the edge.
// RUN: %rlx-opt %s --emit=lir --target=opencl | %filecheck %s --check-prefix=LIR
// RUN: %rlx-opt %s --emit=source --target=opencl | %filecheck %s --check-prefix=CL
// RUN: %rlx-opt %s --emit=source --target=gpu | %filecheck %s --check-prefix=WGSL
// RUN: %rlx-opt %s --emit=ptx --target=cuda:sm_90 | %filecheck %s --check-prefix=PTX

// LIR: shape = {columns = 4 : i64, depth = 16 : i64, is = "Tile", rows = 4 : i64, threads_x = 16 : i64, threads_y = 16 : i64}
// LIR: lir.ops = "matmul+relu"

// CL: __kernel __attribute__((reqd_work_group_size(256, 1, 1)))
// CL: __local float [[A:.*]][1040];
// CL: __local float [[B:.*]][1040];
// CL: for (int [[K:v[0-9]+]] = 0; [[K]] < {{v[0-9]+}}; [[K]] += 16) {
// CL: const float [[X:v[0-9]+]] = b0[
// CL: const float [[IN:v[0-9]+]] = {{v[0-9]+}} ? [[X]] : 0.0f;
// CL: [[A]][{{v[0-9]+}}] = [[IN]];
// CL: [[B]][{{v[0-9]+}}] =
// CL: barrier(CLK_LOCAL_MEM_FENCE);
// CL: for (int [[I:v[0-9]+]] = 0; [[I]] < 16; [[I]] += 1) {
// CL-COUNT-16: fma(
// CL: }
// CL-NEXT: barrier(CLK_LOCAL_MEM_FENCE);
// CL: if ({{v[0-9]+}}) {
// CL: [[Y:v[0-9]+]] = {{v[0-9]+}} ? 0.0f :
// CL: b2[{{v[0-9]+}}] = [[Y]];

// WGSL: var<workgroup> {{.*}}: array<f32, 1040>;
// WGSL: @compute @workgroup_size(256, 1, 1)
// WGSL-COUNT-2: workgroupBarrier();

// PTX: .maxntid 256, 1, 1
// PTX: .shared .align 16 .b8 {{.*}}[4160];
// PTX: st.shared
// PTX: bar.sync 0;
// PTX-COUNT-16: fma.rn.f32
module attributes {rlx.graph = "g"} {
  func.func @main(%x: tensor<1000x33xf32> {rlx.input = "x"}, %w: tensor<33x700xf32> {rlx.input = "w"}) -> tensor<1000x700xf32> {
    %0 = "mir.matmul"(%x, %w) : (tensor<1000x33xf32>, tensor<33x700xf32>) -> tensor<1000x700xf32>
    %1 = "mir.relu"(%0) : (tensor<1000x700xf32>) -> tensor<1000x700xf32>
    return %1 : tensor<1000x700xf32>
  }
}
