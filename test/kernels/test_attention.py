"""Attention against its definition in double precision, and the promises that it makes."""

from __future__ import annotations

import ctypes
import mmap
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlx.kernels.attention import emit as attention
from rlx.kernels.attention.args import tile_for
from rlx.kernels.attention.emit import AttentionConfig, AttentionSizes, MaskKind, Strides
from rlx.targets.cpu import emit
from rlx.targets.cpu.features import preset
from rlx.targets.cpu.target import kernel_target
from rlx.types import DType, bf16, bool_, f16, f32, f64, i8, i64, u8
from support import jit as loader
from support.attention_calls import LANES, MASKS, TARGET, TOLERANCE, made
from support.jit import host
from support.runkernel import features_of
from support.samples import additive_mask, least
from support.sweeps import pairs, pairwise

Array = np.ndarray[Any, Any]

SHAPES = [
    (1, 1, 1, 1, 1, 1),
    (1, 2, 2, 16, 16, 32),
    (2, 3, 3, 37, 61, 24),
    (1, 4, 2, 61, 37, 20),
    (2, 4, 1, 5, 130, 7),
    (1, 2, 1, 50, 333, 64),
    (1, 1, 1, 33, 100, 80),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("mask", MASKS)
def test_shapes_and_masks(shape: tuple[int, ...], mask: MaskKind) -> None:
    made(np.random.default_rng(0), shape, mask=mask).check()


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("dt", [f32, f64, bf16], ids=str)
def test_without_avx512(mask: MaskKind, dt: DType) -> None:
    features = features_of("x86-64-v3")
    for dim in (20, 64):
        shape = (1, 4, 2, 45, 141, dim)
        made(np.random.default_rng(19), shape, dt, "qkv", mask=mask, features=features).check()


@pytest.mark.parametrize("layout", ["qkv", "bhsd", "bshd"])
@pytest.mark.parametrize("dt", [f16, bf16, f32, f64], ids=str)
@pytest.mark.parametrize("decode", [False, True])
def test_layouts_and_types(layout: str, dt: DType, decode: bool) -> None:
    rows = 2 if decode else 29
    shape = (2, 4, 2, rows, 109, 4 * LANES)
    for mask in ("none", "window"):
        made(np.random.default_rng(1), shape, dt, layout, mask=mask, decode=decode).check()


def test_random_shapes() -> None:
    rng = np.random.default_rng(2)
    for _ in range(40):
        batch, key_heads, group = rng.integers(1, 4, 3)
        queries, keys, dim = rng.integers(1, 140), rng.integers(1, 300), rng.integers(1, 70)
        shape = tuple(map(int, (batch, key_heads * group, key_heads, queries, keys, dim)))
        mask = MASKS[rng.integers(len(MASKS))]
        window, softcap = int(rng.integers(0, 200)), float(rng.choice([0.0, 1.5]))
        made(rng, shape, mask=mask, window=window, softcap=softcap).check()


@pytest.mark.parametrize("isa", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("dt", [f32, f64], ids=str)
@pytest.mark.parametrize("dim", [3, 20, 64])
def test_scores_that_rise(dim: int, dt: DType, isa: str) -> None:
    """By more than peaks may be off, in a block of keys and from one to the next."""
    rng, features = np.random.default_rng(21), features_of(isa)
    for keys, steps in ((100, [20]), (131, [50, 60]), (300, [130]), (300, [20, 290])):
        call = made(rng, (1, 2, 1, 37, keys, dim), dt, features=features)
        call.q[...], call.k[...] = np.rint(call.q), np.rint(call.k)
        # From each step on, the even rows see six more in every score, and the odd ones less.
        call.q[..., 0] = np.resize([1, -1], 37)
        call.k[..., 0] += 24 * np.searchsorted(steps, np.arange(keys), side="right")
        call.check()


@pytest.mark.parametrize("pairs", [False, True])
def test_large_values(pairs: bool) -> None:
    """Scores that rise by less than asks for a new peak: no weighted value is above its value."""
    call = made(np.random.default_rng(23), (1, 1, 1, 20, 130, 32), bf16 if pairs else f32)
    if pairs and not attention.pairs(call.config, TARGET, call.sizes):
        pytest.skip("this machine multiplies no pairs of bf16")
    call = replace(call, pairs=pairs)
    call.q[...], call.k[...] = 1, 0
    call.k[..., 64:, :] = 0.75
    call.k[..., 129, :] = 5
    call.v[...] = 2e38
    got = call.run().astype(np.float64)
    np.testing.assert_allclose(got, 2e38, rtol=4 * TOLERANCE[call.config.dtype])


@pytest.mark.parametrize("pairs", [False, True])
def test_infinite_scores(pairs: bool) -> None:
    """-inf is a weight of 0, wherever it stands; a row of it alone is 0, and inf is nan."""
    call = made(np.random.default_rng(22), (1, 1, 1, 4, 300, 32), bf16 if pairs else f32)
    if pairs and not attention.pairs(call.config, TARGET, call.sizes):
        pytest.skip("this machine multiplies no pairs of bf16")
    call = replace(call, mask="bias", mask_array=np.zeros((1, 1, 4, 300), np.float32), pairs=pairs)
    call.mask_array[0, 0, 0, :140] = -np.inf
    call.mask_array[0, 0, 1, 140:] = -np.inf
    call.mask_array[0, 0, 2] = -np.inf
    call.mask_array[0, 0, 3, 200] = np.inf
    got, want = call.run().astype(np.float64), call.expected()
    limit = TOLERANCE[call.config.dtype] * 4
    np.testing.assert_allclose(got[0, 0, :2], want[0, 0, :2], rtol=0, atol=limit)
    assert not got[0, 0, 2].any() and not want[0, 0, 2].any()
    assert np.isnan(got[0, 0, 3]).all() and np.isnan(want[0, 0, 3]).all()


@pairwise(
    dt=[f16, bf16, f32, f64],
    way=["blocks", "decode", "pairs"],
    isa=["x86-64-v3", "x86-64-v4"],
)
def test_masks_of_the_least_number(dt: DType, way: str, isa: str) -> None:
    """Of f32, also as bf16 has it, or of the type itself, and of -inf, on parts and on whole rows:
    beside the least number no score counts."""
    rng, features = np.random.default_rng(23), features_of(isa)
    target = kernel_target(features)
    for seed, shape in enumerate([(2, 4, 2, 5, 141, 64), (1, 2, 2, 3, 300, 32)]):
        call = made(rng, shape, dt, "qkv", mask="bias", features=features, softcap=2.0 * seed)
        call = replace(call, decode=way == "decode", pairs=way == "pairs")
        if call.pairs and not attention.pairs(call.config, target, call.sizes):
            pytest.skip("no pairs of this type are multiplied here")
        for kind in {f32, dt}:
            bias = additive_mask((*shape[:2], *shape[3:5]), kind, rng)
            bias[0, 0, :, :] = least(kind)
            replace(call, mask_array=bias).check()


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("dim", [LANES, 5 * LANES, 8 * LANES])
def test_decode(mask: MaskKind, dim: int) -> None:
    rng = np.random.default_rng(3)
    for shape in [(1, 1, 1, 1, 1, dim), (2, 6, 2, 1, 301, dim), (1, 4, 4, 3, 97, dim)]:
        for softcap in (0.0, 2.0):
            made(rng, shape, mask=mask, softcap=softcap, decode=True, window=40).check()


@pytest.mark.parametrize("dt", [bool_, i8, u8, i64, f16, bf16, f32, f64], ids=str)
@pytest.mark.parametrize("decode", [False, True])
def test_types_of_a_custom_mask(dt: DType, decode: bool) -> None:
    rng = np.random.default_rng(4)
    call = made(rng, (2, 2, 2, 2, 41, 2 * LANES), mask="custom", decode=decode)
    for dtype in (f32, f64):
        q, k, v, out = (x.astype(dtype.numpy) for x in (call.q, call.k, call.v, call.out))
        replace(call, q=q, k=k, v=v, out=out, mask_array=call.mask_array.astype(dt.numpy)).check()
    edge = np.linspace(0, 1, 41).astype(dt.numpy)
    replace(call, mask_array=np.stack([edge, edge[::-1]])).check()


@pytest.mark.parametrize("decode", [False, True])
def test_a_bias_broadcasts(decode: bool) -> None:
    rng = np.random.default_rng(5)
    call = made(rng, (2, 3, 3, 4, 50, 2 * LANES), mask="bias", decode=decode)
    for shape in [(1, 1, 1, 50), (2, 1, 1, 50), (1, 3, 1, 50), (1, 3, 4, 50), (2, 1, 4, 50)]:
        for dt in (f16, f32, f64):
            bias = rng.standard_normal(shape).astype(dt.numpy)
            replace(call, mask_array=bias).check()


@pytest.mark.parametrize("decode", [False, True])
def test_rows_that_see_no_key_weigh_all_alike(decode: bool) -> None:
    rng = np.random.default_rng(6)
    shape = (1, 2, 2, 20, 7, 2 * LANES)
    for mask in ("causal", "window"):
        call = made(rng, shape, mask=mask, decode=decode)
        call.check()
        mean = call.v.astype(np.float64).mean(axis=2)
        np.testing.assert_allclose(call.out[:, :, 0], mean, atol=1e-6)
    call = made(rng, (2, 2, 2, 5, 200, 2 * LANES), mask="custom", decode=decode)
    call.mask_array[0] = False
    call.check()
    np.testing.assert_allclose(call.out[0, :, 3], call.v[0].mean(axis=1), atol=1e-6)


@pytest.mark.parametrize("decode", [False, True])
def test_extreme_scores(decode: bool) -> None:
    rng = np.random.default_rng(7)
    call = made(rng, (1, 2, 2, 4, 220, 2 * LANES), decode=decode, scale=1e4)
    want = call.expected()
    np.testing.assert_allclose(call.run(), want, atol=1e-3)
    low = replace(call, scale=-1e4)
    np.testing.assert_allclose(low.run(), low.expected(), atol=1e-3)


@pytest.mark.parametrize("decode", [False, True])
def test_infinities_and_nan(decode: bool) -> None:
    rng = np.random.default_rng(8)
    shape = (1, 1, 1, 4, 300, 2 * LANES)
    bias = np.zeros((1, 1, 4, 300), np.float32)
    bias[..., 0, :290] = -np.inf
    bias[..., 1, 100:] = -np.inf
    bias[..., 2, :] = -np.inf
    call = replace(made(rng, shape, mask="bias", decode=decode), mask_array=bias)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(call.run(), call.expected(), atol=4e-6)
    assert not call.out[0, 0, 2].any()

    call = made(rng, shape, decode=decode)
    call.q[0, 0, 1, 3] = np.nan
    out = call.run()
    assert np.isnan(out[0, 0, 1]).all() and np.isfinite(out[0, 0, [0, 2, 3]]).all()
    call = made(rng, shape, decode=decode)
    call.k[0, 0, 150, 0] = np.inf
    assert np.isnan(call.run()).any(axis=-1).sum() == (call.q[..., 0] > 0).sum()
    call = made(rng, shape, decode=decode)
    call.v[0, 0, 150, 1] = np.nan
    assert np.isnan(call.run()[..., 1]).all() and np.isfinite(call.out[..., 2]).all()


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("decode", [False, True])
def test_the_same_bits_however_the_range_is_cut(mask: MaskKind, decode: bool) -> None:
    rng = np.random.default_rng(9)
    call = made(rng, (3, 4, 2, 2 if decode else 150, 210, 4 * LANES), mask=mask, decode=decode)
    whole = call.run().copy()
    assert np.isfinite(whole).all()
    for pieces in (2, 3, 7):
        assert np.array_equal(call.run(pieces), whole)


@pytest.mark.parametrize("decode", [False, True])
@pytest.mark.parametrize("keys", [30, 128, 140])
def test_hidden_keys_at_the_end_change_no_bit(keys: int, decode: bool) -> None:
    rng = np.random.default_rng(10)
    dim, most = 4 * LANES, keys + 120
    call = made(rng, (2, 2, 2, 3, most, dim), mask="custom", decode=decode)
    call.mask_array[:, keys:] = False
    outs = []
    for n in (keys, keys + 2, keys + 18, most):
        short = replace(
            call, k=call.k[:, :, :n], v=call.v[:, :, :n], mask_array=call.mask_array[:, :n]
        )
        outs.append(short.run().copy())
    assert all(np.array_equal(outs[0], x) for x in outs[1:])


@pytest.mark.parametrize("decode", [False, True])
@pytest.mark.parametrize("mask", ["causal", "window", "custom"])
def test_a_hidden_key_weighs_nothing(mask: MaskKind, decode: bool) -> None:
    rng = np.random.default_rng(14)
    call = made(rng, (1, 2, 2, 5, 130, 2 * LANES), mask=mask, decode=decode)
    want = call.run().copy()
    hidden = np.broadcast_to(call.hidden(), (1, 1, 5, 130)).all(axis=(0, 1, 2))
    assert hidden.any() or mask == "causal"
    call.v[:, :, hidden] = 3e38
    assert np.array_equal(call.run(), want)


@pytest.mark.parametrize("decode", [False, True])
def test_a_window_wider_than_the_keys_is_causal(decode: bool) -> None:
    call = made(np.random.default_rng(15), (1, 2, 2, 7, 50, 2 * LANES), decode=decode)
    causal = replace(call, mask="causal").run().copy()
    for window in (49, 1 << 31, (1 << 62) + 5):
        assert np.array_equal(replace(call, mask="window", window=window).run(), causal)


@pytest.mark.parametrize("mask", ["none", "window"])
def test_a_row_has_the_same_bits_in_any_batch(mask: MaskKind) -> None:
    rng = np.random.default_rng(11)
    call = made(rng, (9, 2, 2, 175, 175, 32), mask=mask, window=60)
    whole = call.run().copy()
    q, k, v, out = (x[4:5] for x in (call.q, call.k, call.v, call.out))
    part = replace(call, q=q, k=k, v=v, out=out)
    assert attention.launch(part.config, TARGET, part.sizes).range > 4
    assert np.array_equal(part.run(), whole[4:5])


@pytest.mark.parametrize("queries", [1, LANES - 1, LANES, LANES + 1, 2 * LANES + 3, 3 * LANES])
def test_a_narrow_block_has_the_bits_of_a_wide_one(queries: int) -> None:
    """The last block of queries computes one vector of them where that is enough."""
    call = made(np.random.default_rng(17), (1, 2, 2, 4 * LANES, 131, 2 * LANES))
    whole = call.run().copy()
    q, out = (np.ascontiguousarray(x[:, :, :queries]) for x in (call.q, call.out))
    assert np.array_equal(replace(call, q=q, out=out).run(), whole[:, :, :queries])


def test_rows_of_many_query_heads_split() -> None:
    call = made(np.random.default_rng(16), (1, 15, 1, 3, 77, 2 * LANES), mask="causal", decode=True)
    assert attention.launch(call.config, TARGET, call.sizes).range == 4
    call.check()
    whole = call.run().copy()
    assert np.array_equal(call.run(4), whole)


def test_a_row_has_the_same_bits_whoever_is_beside_it() -> None:
    """Query heads of a group go side by side, and what is left of them one by one."""
    call = made(np.random.default_rng(18), (1, 7, 1, 1, 150, 3 * LANES), decode=True)
    whole = call.run().copy()
    for head in range(7):
        q, out = (x[:, head : head + 1].copy() for x in (call.q, call.out))
        assert np.array_equal(replace(call, q=q, out=out).run(), whole[:, head : head + 1])


def guarded(values: Array) -> Array:
    """A copy that ends where a page without access begins."""
    page = mmap.PAGESIZE
    size = -(-values.nbytes // page) * page
    memory = mmap.mmap(-1, size + page)
    base = np.frombuffer(memory, np.uint8)
    where = ctypes.c_void_p(base.ctypes.data + size)
    assert ctypes.CDLL(None).mprotect(where, ctypes.c_size_t(page), 0) == 0
    copy = base[size - values.nbytes : size].view(values.dtype).reshape(values.shape)
    copy[...] = values
    return copy


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("dt", [f32, f16], ids=str)
@pytest.mark.parametrize("decode", [False, True])
def test_nothing_beyond_the_buffers_is_touched(mask: MaskKind, dt: DType, decode: bool) -> None:
    rng = np.random.default_rng(12)
    dim = 2 * LANES if decode else 13
    call = made(rng, (1, 2, 1, 5, 103, dim), dt, "bhsd", mask=mask, decode=decode)
    q, k, v, out = (guarded(x) for x in (call.q, call.k, call.v, call.out))
    array = None if call.mask_array is None else guarded(call.mask_array)
    replace(call, q=q, k=k, v=v, out=out, mask_array=array).check()


@pairwise(shape=[*SHAPES, (1, 16, 16, 96, 96, 64)], mask=["none", "custom", "bias"], dt=[f32, bf16])
def test_scratch_is_as_large_as_stated(shape: tuple[int, ...], mask: MaskKind, dt: DType) -> None:
    """The scratch of the call ends at a page without access."""
    rng = np.random.default_rng(13)
    for decode in (False, True):
        sized = (*shape[:-1], 2 * LANES) if decode else shape
        call = made(rng, sized, dt, mask=mask, decode=decode)
        launch = attention.launch(call.config, TARGET, call.sizes)
        kernel = attention.emit("bounded", call.config, TARGET)
        entry = loader._link(emit.compile_kernels([kernel], host()), "bounded")
        masks = [] if call.mask_array is None else [call.mask_array]
        arrays = [call.q, call.k, call.v, *masks, call.out]
        scratch = guarded(np.zeros(launch.scratch, np.uint8))
        assert scratch.ctypes.data % 64 == 0
        buffers = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
        numbers = (ctypes.c_int64 * len(launch.sizes))(*launch.sizes)
        types = [ctypes.c_int64] * 2 + [ctypes.c_void_p] * 3
        ctypes.CFUNCTYPE(None, *types)(entry[1])(
            0,
            launch.range,
            ctypes.addressof(buffers),
            ctypes.addressof(numbers),
            scratch.ctypes.data,
        )
        np.testing.assert_allclose(
            call.out.astype(np.float64), call.expected(), atol=4 * TOLERANCE[dt]
        )


def test_scratch_does_not_grow_with_the_length() -> None:
    def scratch(length: int, decode: bool) -> int:
        strides = Strides(length * 64, length * 64, 64)
        queries = 1 if decode else length
        sizes = AttentionSizes(1, 8, 8, queries, length, 64, 0.125, *[strides] * 4)
        return attention.launch(AttentionConfig(decode=decode), TARGET, sizes).scratch

    assert scratch(1 << 20, False) <= scratch(4096, False) < 512 << 10
    assert scratch(1 << 20, True) == scratch(128, True) < 16 << 10


def test_long_sequences_and_few_heads_split() -> None:
    strides = Strides(0, 0, 64)
    blocks_of_128 = 128 // tile_for(TARGET, f32).queries
    for queries, fewest in ((2048, 16), (128, blocks_of_128), (8, 1)):
        sizes = AttentionSizes(1, 1, 1, queries, queries, 64, 0.125, *[strides] * 4)
        assert attention.launch(AttentionConfig(), TARGET, sizes).range >= fewest


def test_what_has_no_meaning_is_refused() -> None:
    strides = Strides(0, 0, 64)
    with pytest.raises(ValueError, match="sizes"):
        AttentionSizes(1, 3, 2, 4, 4, 64, 0.125, *[strides] * 4)
    with pytest.raises(ValueError, match="mask"):
        AttentionConfig(mask="bias")
    with pytest.raises(ValueError, match="bias"):
        AttentionConfig(mask="bias", mask_dtype=i64)
    with pytest.raises(ValueError, match="float"):
        AttentionConfig(i8)
    sizes = AttentionSizes(1, 1, 1, 1, 4, LANES + 1, 0.125, *[strides] * 4)
    with pytest.raises(ValueError, match="head dim"):
        attention.launch(AttentionConfig(decode=True), TARGET, sizes)


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4", "aarch64"])
def test_objects_for_every_cpu(cpu: str) -> None:
    features = preset(cpu)
    target = kernel_target(features)
    kernels = [
        attention.emit(f"attention_{dt}_{mask}_{decode}", config, target)
        for dt, (mask, mask_dt), decode in pairs(
            [f32, f16, f64], [("causal", None), ("custom", bool_), ("bias", f32)], [False, True]
        )
        for config in [AttentionConfig(dt, mask, mask_dt, softcap=True, decode=decode)]
    ]
    assert emit.compile_kernels(kernels, features).startswith(b"\x7fELF")


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4", "aarch64"])
@pytest.mark.parametrize("dt", [f32, f64], ids=str)
def test_tiles_fit_the_registers(cpu: str, dt: DType) -> None:
    target = kernel_target(preset(cpu))
    tile = attention.tile_for(target, dt)
    assert tile.keys * tile.query_vectors + tile.query_vectors + 1 <= target.registers
    assert tile.rows * tile.dim_vectors + tile.dim_vectors + 1 <= target.registers
    assert tile.queries % tile.rows == 0
