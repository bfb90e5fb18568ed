"""Attention in bf16 by pairs: against its definition, and the promises that all variants make."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.codegen.builder import Kernel
from rlx.codegen.math.exponential import exp2_bf16
from rlx.kernels.attention import emit as attention
from rlx.kernels.attention.emit import AttentionConfig, AttentionSizes, MaskKind, Strides
from rlx.kernels.matmul.dot import group_of, paired
from rlx.targets.cpu import emit
from rlx.targets.cpu.features import preset
from rlx.targets.cpu.target import kernel_target
from rlx.types import bf16, f32, u32
from support.attention_calls import MASKS, TARGET, Call, made
from support.jit import jit
from support.runkernel import guarded

Array = np.ndarray[Any, Any]

BF16 = preset("x86-64-v4+avx512bf16")
runs = pytest.mark.skipif(group_of(TARGET, bf16, bf16) != 2, reason="the CPU has no AVX512-BF16")

SHAPES = [
    (1, 1, 1, 1, 1, 2),
    (1, 2, 2, 16, 16, 32),
    (2, 3, 3, 37, 61, 24),
    (1, 4, 2, 61, 37, 20),
    (2, 4, 1, 5, 130, 6),
    (1, 2, 1, 50, 333, 64),
    (1, 1, 1, 33, 193, 80),
]


def pairs(shape: tuple[int, ...], seed: int = 0, **asked: Any) -> Call:
    return made(np.random.default_rng(seed), shape, bf16, pairs=True, **asked)  # type: ignore[arg-type]


@runs
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("mask", MASKS)
def test_shapes_and_masks(shape: tuple[int, ...], mask: MaskKind) -> None:
    for layout in ("bshd", "qkv"):
        pairs(shape, mask=mask, layout=layout).check()
    pairs(shape, mask=mask, softcap=1.5, window=40).check()


@runs
def test_the_error_is_that_of_two_roundings() -> None:
    """Of the weights and of the result, half an ulp each; the former of many even out."""
    call = pairs((1, 4, 4, 128, 512, 64), scale=0.125)
    exact, sizes = call.expected(), replace(call, v=np.abs(call.v)).expected()
    error = np.abs(call.run().astype(np.float64) - exact)
    assert (error <= 2.0**-8 * sizes + 2.0**-9 * np.abs(exact)).all()
    assert error.mean() < 2.0**-8 * np.abs(exact).mean()


@runs
def test_equal_values_stay_what_they_are() -> None:
    """The weights add up to what they were rounded to."""
    call = pairs((1, 1, 1, 40, 301, 32))
    call.v[...] = call.v[:, :, :1]
    assert np.array_equal(call.run(), np.broadcast_to(call.v[:, :, :1], call.out.shape))


@runs
@pytest.mark.parametrize("mask", MASKS)
def test_the_same_bits_however_the_range_is_cut(mask: MaskKind) -> None:
    call = pairs((3, 4, 2, 150, 211, 32), mask=mask)
    whole = call.run().copy()
    for pieces in (2, 7):
        assert np.array_equal(call.run(pieces), whole)
    # The last block of queries computes one vector of them where that is enough.
    if mask == "none":
        q, out = (np.ascontiguousarray(x[:, :, :17]) for x in (call.q, call.out))
        assert np.array_equal(replace(call, q=q, out=out).run(), whole[:, :, :17])


@runs
def test_hidden_keys_at_the_end_change_no_bit() -> None:
    keys, most = 97, 200
    call = pairs((2, 2, 2, 3, most, 32), mask="custom")
    call.mask_array[:, keys:] = False  # type: ignore[index]
    outs = []
    for n in (keys, keys + 1, keys + 18, most):
        part = call.mask_array[:, :n]  # type: ignore[index]
        short = replace(call, k=call.k[:, :, :n], v=call.v[:, :, :n], mask_array=part)
        outs.append(short.run().copy())
    assert all(np.array_equal(outs[0], x) for x in outs[1:])


@runs
@pytest.mark.parametrize("mask", ["causal", "window", "custom"])
def test_a_hidden_key_weighs_nothing(mask: MaskKind) -> None:
    call = pairs((1, 2, 2, 5, 130, 32), mask=mask)
    want = call.run().copy()
    call.v[:, :, np.broadcast_to(call.hidden(), (1, 1, 5, 130)).all(axis=(0, 1, 2))] = 3e38
    assert np.array_equal(call.run(), want)


@runs
def test_infinities_and_nan() -> None:
    bias = np.zeros((1, 1, 4, 300), np.float32)
    bias[..., 0, :290] = bias[..., 1, 100:] = bias[..., 2, :] = -np.inf
    call = replace(pairs((1, 1, 1, 4, 300, 32), mask="bias"), mask_array=bias)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(call.run().astype(float), call.expected(), atol=2e-2)
    assert not call.out[0, 0, 2].astype(float).any()

    for name, at in (("q", (0, 0, 1, 3)), ("v", (0, 0, 299, 1))):
        call = pairs((1, 1, 1, 4, 300, 32))
        getattr(call, name)[at] = np.nan
        bad = np.isnan(call.run().astype(float))[0, 0]
        want = np.zeros_like(bad)
        want[(1, slice(None)) if name == "q" else (slice(None), 1)] = True
        assert np.array_equal(bad, want)


@runs
@pytest.mark.parametrize("mask", MASKS)
def test_nothing_beyond_the_buffers_is_touched(mask: MaskKind) -> None:
    for keys, dim in ((103, 14), (7, 32)):
        call = pairs((1, 2, 1, 5, keys, dim), mask=mask, layout="bhsd")
        q, k, v, out = (guarded(x) for x in (call.q, call.k, call.v, call.out))
        array = None if call.mask_array is None else guarded(call.mask_array)
        replace(call, q=q, k=k, v=v, out=out, mask_array=array).check()


@runs
def test_weights() -> None:
    """2^x, of whole registers, and the pairs that it is rounded to."""
    k = Kernel("weights", TARGET)
    x, out, both = k.buffer("x", f32), k.buffer("out", f32), k.buffer("both", u32)

    def body(i: Any) -> None:
        w = exp2_bf16(k.load(x, i * 16, 16))
        k.store(w, out, i * 16)
        k.store(paired(k, w, k.const(1.0, f32, 16)), both, i * 16)

    k.parallel(body)
    given = np.linspace(-140, 0, 16 * 4096, dtype=np.float32)
    given[:4] = -np.inf, -1e9, np.nan, -127
    found, words = np.empty_like(given), np.empty(given.shape, np.uint32)
    jit(k.text())(0, 4096, [given, found, words], [])
    exact = np.exp2(given.astype(np.float64))
    normal = given > -125.9
    assert (np.abs(found - exact) <= 2.0**-17 * exact)[normal].all()
    assert np.isnan(found[2]) and (words[[0, 1, 3]] == 0x3F800000).all()
    assert (np.abs(found[given <= -127]) < 2.0**-126).all()
    assert np.array_equal(words[normal] & 0xFFFF, found[normal].astype(bf16.numpy).view(np.uint16))


def test_which_calls_it_serves() -> None:
    steps = Strides(0, 0, 0)
    for cpu, dtype, dim, served in (
        ("x86-64-v4+avx512bf16", bf16, 64, True),
        ("x86-64-v4+avx512bf16", bf16, 63, False),
        ("x86-64-v4+avx512bf16", f32, 64, False),
        ("x86-64-v4", bf16, 64, False),
    ):
        sizes = AttentionSizes(1, 1, 1, 64, 64, dim, 0.125, *[steps] * 4)
        target = kernel_target(preset(cpu))
        assert attention.pairs(AttentionConfig(dtype), target, sizes) is served


def test_code() -> None:
    """It compiles on any machine, and multiplies by vdpbf16ps alone."""
    kernel = attention.emit("pairs", AttentionConfig(bf16, pairs=True), kernel_target(BF16))
    asm = emit.to_assembly([kernel], BF16)
    assert asm.count("vdpbf16ps") >= 16 + 8 + 16 and "vcvtne2ps2bf16" in asm


@runs
def test_a_graph_takes_it() -> None:
    g = rlx.Graph("attention")
    q, k, v = (g.input(n, [2, 40, 64], "bf16") for n in "qkv")
    g.set_outputs([q.attention(k, v, num_heads=2, head_dim=32)])
    f = rlx.Session().compile(g)
    rng = np.random.default_rng(3)
    feeds = {n: rng.standard_normal((2, 40, 64)).astype(bf16.numpy) for n in "qkv"}
    want = rlx.Session("interpret").compile(g).run(feeds)[0]
    got = f.run(feeds)[0]
    assert np.abs(got.astype(float) - want.astype(float)).max() <= 2.0**-7
