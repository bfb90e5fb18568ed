// Products of 16-bit floats by the matrix units of each maker.
// RUN: %rlx-opt %s --emit=ptx --target=cuda:sm_80 | %filecheck %s --check-prefix=CUDA
// RUN: %rlx-opt %s --emit=asm --target=rocm:gfx942 | %filecheck %s --check-prefix=CDNA
// RUN: %rlx-opt %s --emit=asm --target=rocm:gfx1100 | %filecheck %s --check-prefix=RDNA

// CUDA: .shared .align 16
// CUDA: ld.shared.b32
// CUDA: mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32

// CDNA: ds_read_b64
// CDNA: v_mfma_f32_16x16x16_bf16
// CDNA: .group_segment_fixed_size: 5120

// RDNA: ds_load_b128
// RDNA: v_wmma_f32_16x16x16_bf16
module attributes {rlx.graph = "g"} {
  func.func @main(%arg0: tensor<64x64xbf16> {rlx.input = "x"}, %arg1: tensor<64x64xbf16> {rlx.input = "y"}) -> tensor<64x64xbf16> {
    %0 = "mir.matmul"(%arg0, %arg1) : (tensor<64x64xbf16>, tensor<64x64xbf16>) -> tensor<64x64xbf16>
    return %0 : tensor<64x64xbf16>
  }
}
