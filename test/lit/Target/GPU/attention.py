"""Attention by blocks of query rows: pieces of K, weights and pieces of V through shared memory."""
# RUN: %python %s | %rlx-opt --emit=lir --target=vulkan | %filecheck %s --check-prefix=LIR
# RUN: %python %s | %rlx-opt --emit=source --target=gpu | %filecheck %s --check-prefix=WGSL
# RUN: %python %s | %rlx-opt --emit=ptx --target=cuda:sm_90 | %filecheck %s --check-prefix=PTX

# What a device shares decides how much of K, V and Q is there at a time.
# LIR: dim = 64 : i64, is = "GpuAttentionConfig", keys = 8 : i64
# LIR-SAME: columns = 2 : i64, depth = 16 : i64, is = "Tile", rows = 4 : i64
# LIR-SAME: whole = false

# WGSL: var<workgroup> {{.*}}: array<f32, 2080>;
# WGSL: var<workgroup> {{.*}}: array<f32, 1040>;
# WGSL: var<workgroup> {{.*}}: array<f32, 528>;
# The next block of keys, only as far as one is seen.
# WGSL: for (var [[AT:v[0-9]+]]: i32 = {{.*}}; [[AT]] < [[HIGH:v[0-9]+]]; [[AT]] += 32i) {
# The scores of a piece of the dim.
# WGSL: for (var {{.*}} < 64i; {{.*}} += 16i) {
# WGSL: workgroupBarrier();
# WGSL-COUNT-8: fma(
# WGSL: workgroupBarrier();
# A hidden key has the score -1e9, and one beyond the last is not weighed at all.
# WGSL: select((-1e+09f),
# WGSL: select(rlx_f32(0xff800000u),
# Four rows' peaks in a tree of sixteen threads each.
# WGSL: < 8i
# WGSL-COUNT-4: rlx_maximum(
# WGSL: < 1i
# WGSL: for (var {{.*}} += 8i) {
# WGSL: workgroupBarrier();
# WGSL-COUNT-16: fma(

# PTX: .maxntid 256, 1, 1
# PTX-COUNT-3: .shared .align 16 .b8
# PTX: bar.sync 0;

from cases import case


@case
def attention(g):
    q, k, v = (g.input(n, [1, 2, 131, 64]) for n in "qkv")
    return g.attention(
        q, k, v, num_heads=2, kv_heads=2, scale=0.125, layout="bhsd", mask_kind="causal"
    )
