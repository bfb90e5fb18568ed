"""Schemes against the gguf package, whose bits are GGML's, and against their formulas."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from rlx import quant
from rlx.quant import BlockScheme
from rlx.quant.bits import E2M1, E4M3, E5M2, from_planes, nearest, planes
from rlx.quant.table import _GGML, _PARTS, ORIGINAL, by_ggml, scheme_named

Array = np.ndarray[Any, Any]

BLOCKS = [*_GGML]
UNJUDGED = {"q8_k", "q1_0"}
"""What gguf does not decode."""

EXACT = [
    "f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "tq1_0", "tq2_0", "mxfp4",
]  # fmt: skip
"""What gguf encodes."""

SEARCHED = {
    "q2_k": (0.26766, 0.30030, 0.30272, 0.21800), "q3_k": (0.14445, 0.16923, 0.17766, 0.11846),
    "q4_k": (0.07079, 0.08394, 0.08589, 0.05408), "q5_k": (0.03544, 0.04199, 0.04317, 0.02692),
    "q6_k": (0.01731, 0.02111, 0.02214, 0.01300), "iq4_nl": (0.07492, 0.08638, 0.09098, 0.06359),
    "iq4_xs": (0.07562, 0.08726, 0.09212, 0.06421), "nvfp4": (0.09594, 0.09290, 0.09185, 0.10099),
}  # fmt: skip
"""The relative error (root mean square) of the encoders of ggml 0.25.3 on ``distribution``."""

DISTRIBUTIONS = ("normal", "laplace", "student", "uniform")


def distribution(name: str) -> Array:
    """One of four, drawn in their order from one generator."""
    rng, shape = np.random.default_rng(7), (64, 2048)
    drawn = (
        rng.standard_normal(shape), rng.laplace(size=shape), rng.standard_t(4, shape),
        rng.uniform(-1, 1, shape),
    )  # fmt: skip
    return (drawn[DISTRIBUTIONS.index(name)] * 0.05).astype(np.float32)


def scheme(name: str) -> BlockScheme:
    found = scheme_named(name)
    assert isinstance(found, BlockScheme)
    return found


def same_bits(found: Array, expected: Array) -> bool:
    """Equal but for the payloads of nans."""
    number = ~np.isnan(expected)
    equal = np.array_equal(found.view(np.uint32)[number], expected.view(np.uint32)[number])
    return bool(equal and np.isnan(found[~number]).all())


def judge_random(name: str, blocks: int, seed: int) -> None:
    gguf = pytest.importorskip("gguf")
    s = scheme(name)
    raw = np.random.default_rng(seed).integers(0, 256, (blocks // 10, 10 * s.bytes), np.uint8)
    with np.errstate(all="ignore"):
        expected = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[name.upper()])
    assert same_bits(quant.dequantize(raw, name, expected.shape), expected)


@pytest.mark.parametrize("name", [n for n in BLOCKS if n not in UNJUDGED])
def test_random_blocks_are_decoded_as_gguf_does(name: str) -> None:
    judge_random(name, 5000, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in BLOCKS if n not in UNJUDGED])
def test_a_million_random_blocks_are_decoded_as_gguf_does(name: str) -> None:
    for part in range(50):
        judge_random(name, 20_000, part)


def weights(shape: tuple[int, ...] = (64, 512), seed: int = 0) -> Array:
    """Rows of many magnitudes, and special ones."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * rng.lognormal(0, 1.5, (shape[0], 1))
    for row, value in zip(x, (0, 1, -1, 1e-6), strict=False):
        row[:] = value
    x[-1, ::2] = 0
    return x.astype(np.float32)


@pytest.mark.parametrize("name", EXACT)
def test_encoders_give_the_bits_of_gguf(name: str) -> None:
    gguf = pytest.importorskip("gguf")
    kind = gguf.GGMLQuantizationType[name.upper()]
    x = weights()
    with np.errstate(all="ignore"):
        expected = np.asarray(gguf.quants.quantize(x.copy(), kind)).view(np.uint8)
    found = quant.quantize(x, name)
    np.testing.assert_array_equal(found, expected)
    assert same_bits(quant.dequantize(found, name, x.shape), gguf.quants.dequantize(expected, kind))


def relative_error(name: str, x: Array, **more: Any) -> float:
    y = quant.dequantize(quant.quantize(x, name, **more), name, x.shape)
    return float(np.sqrt(np.mean((x - y) ** 2, dtype=np.float64) / np.mean(x**2)))


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
@pytest.mark.parametrize("name", SEARCHED)
def test_searched_scales_err_less_than_ggml_s(name: str, kind: str) -> None:
    assert relative_error(name, distribution(kind)) < SEARCHED[name][DISTRIBUTIONS.index(kind)]


@pytest.mark.parametrize("name", [n for n in BLOCKS if scheme(n).encode])
@pytest.mark.parametrize("value", [0, 1, -1, 3e-3])
def test_constant_blocks(name: str, value: float) -> None:
    x = np.full((2, 256), value, np.float32)
    y = quant.dequantize(quant.quantize(x, name), name, x.shape)
    np.testing.assert_allclose(y, x, rtol=0.03)


@pytest.mark.parametrize("name", [n for n in BLOCKS if scheme(n).weighs])
def test_importance_moves_the_error_elsewhere(name: str) -> None:
    x = np.random.default_rng(2).standard_normal((16, 512)).astype(np.float32)
    importance = np.where(np.arange(512) % 4 == 0, np.float32(50), np.float32(0.02))
    plain, weighted = (
        quant.dequantize(quant.quantize(x, name, importance=w), name, x.shape)
        for w in (None, importance)
    )
    plain_error, error = (float(np.sum(importance * (x - y) ** 2)) for y in (plain, weighted))
    assert error < plain_error
    np.testing.assert_array_equal(
        quant.quantize(x, name, importance=1), quant.quantize(x, name), err_msg="of weights all 1"
    )


@pytest.mark.parametrize("name", [n for n in BLOCKS if not scheme(n).weighs and scheme(n).encode])
def test_what_is_decoded_is_encoded_to_itself(name: str) -> None:
    once = quant.quantize(weights(), name)
    values = quant.dequantize(once, name, (64, 512))
    again = quant.dequantize(quant.quantize(values, name), name, (64, 512))
    np.testing.assert_allclose(again, values, rtol=2e-3)


def test_q8_k_by_its_c_struct() -> None:
    """A float of the block, 256 bytes, and the sums of 16 of them, from which nothing is read."""
    x = weights((6, 256), 3)
    raw = quant.quantize(x, "q8_k")
    d, q = raw[:, :4].view("<f4"), raw[:, 4:260].view(np.int8)
    np.testing.assert_array_equal(quant.dequantize(raw, "q8_k", x.shape), d * q)
    np.testing.assert_array_equal(raw[:, 260:].view("<i2"), q.reshape(6, 16, 16).sum(2))
    assert np.abs(d * q - x).max() <= np.abs(d).max()


def test_q1_0_is_a_sign_and_a_size() -> None:
    x = weights((6, 128), 4)
    raw = quant.quantize(x, "q1_0")
    d = raw[:, :2].view("<f2").astype(np.float32)
    expected = np.where(x >= 0, d, -d)
    np.testing.assert_array_equal(quant.dequantize(raw, "q1_0", x.shape), expected)


@pytest.mark.parametrize("name", BLOCKS)
def test_the_other_byte_order(name: str) -> None:
    s = scheme(name)
    raw = np.random.default_rng(5).integers(0, 256, (40, s.bytes), np.uint8)
    swapped = raw.view(s.fields).astype(s.fields.newbyteorder(">")).view(np.uint8)
    shape = (40, s.block)
    found = quant.dequantize(swapped, name, shape, byteorder="big")
    assert same_bits(found, quant.dequantize(raw, name, shape))


@pytest.mark.parametrize("kind", ["bytes", "bytearray", "memoryview", "flat", "strided", "split"])
def test_data_are_bytes_or_arrays_of_any_shape(kind: str) -> None:
    x = weights((4, 64))
    raw = quant.quantize(x, "q4_0")
    data: Any = {
        "bytes": raw.tobytes(),
        "bytearray": bytearray(raw.tobytes()),
        "memoryview": memoryview(raw.tobytes()),
        "flat": raw.reshape(-1),
        "strided": np.repeat(raw, 2, 1)[:, ::2],
        "split": raw.reshape(2, 2, 2, 18),
    }[kind]
    expected = quant.dequantize(raw, "q4_0", (4, 64))
    np.testing.assert_array_equal(quant.dequantize(data, "q4_0", [4, 64]), expected)
    assert quant.dequantize(data, "q4_0", (2, 2, 64)).shape == (2, 2, 64)


def test_empty_arrays() -> None:
    for name in ("q4_0", "q4_k", "iq2_xxs"):
        assert quant.dequantize(b"", name, (0, 256)).shape == (0, 256)
    assert quant.quantize(np.zeros((0, 256)), "q4_k").shape == (0, 144)


def test_rows_of_the_table() -> None:
    gguf = pytest.importorskip("gguf")
    for kind, (block, size) in gguf.GGML_QUANT_SIZES.items():
        if kind.name.lower() in _GGML:
            row = by_ggml()[int(kind)]
            assert (row.name, row.block, row.bytes) == (kind.name.lower(), block, size)
    assert scheme("q4_k").bits == 4.5
    assert repr(scheme("q4_k")) == "<q4_k: 256 elements in 144 bytes>"
    assert repr(scheme_named("awq")) == "<awq: qweight, qzeros, scales>"
    assert str(scheme("q4_k")) == "q4_k"
    assert quant.schemes()["q4_k"] is scheme("q4_k") is scheme_named(scheme("q4_k"))


def test_the_names_of_the_original() -> None:
    assert len(ORIGINAL) == 15
    assert {scheme_named(n).name for n in ORIGINAL} == set(ORIGINAL.values())


@pytest.mark.parametrize(("width", "bits"), [(4, 1), (16, 2), (32, 4), (1, 4), (8, 8)])
def test_planes_there_and_back(width: int, bits: int) -> None:
    data = np.random.default_rng(6).integers(0, 256, (3, 64), np.uint8)
    values = planes(data, width, bits)
    assert values.max() < 1 << bits
    np.testing.assert_array_equal(from_planes(values, width, bits), data)


# -- small floats ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "kind"),
    [
        (E4M3, ml_dtypes.float8_e4m3fn),
        (E5M2, ml_dtypes.float8_e5m2),
        (E2M1, ml_dtypes.float4_e2m1fn),
    ],
)
def test_tables_of_small_floats(table: Array, kind: Any) -> None:
    expected = np.arange(len(table), dtype=np.uint8).view(kind).astype(np.float32)
    assert same_bits(table, expected)


@pytest.mark.parametrize(
    ("name", "kind", "top"),
    [("fp8_e4m3", ml_dtypes.float8_e4m3fn, 448), ("fp8_e5m2", ml_dtypes.float8_e5m2, 57344)],
)
def test_fp8_is_rounded_to_nearest_even(name: str, kind: Any, top: float) -> None:
    x = np.random.default_rng(7).standard_normal((4096, 3)).astype(np.float32)
    x[0] = top  # so that the scale is 1
    x[1:100] = np.random.default_rng(8).integers(0, 200, (99, 1)) / 16
    x = np.clip(x, -top, top)
    parts = quant.quantize(x, name)
    np.testing.assert_array_equal(parts["scale"], np.ones(3, np.float32))
    np.testing.assert_array_equal(parts["q"].view(kind).astype(np.float32), x.astype(kind))
    np.testing.assert_array_equal(quant.dequantize(parts, name, x.shape), x.astype(kind))
    x[::32] = top  # the same in blocks of a column
    packed = quant.quantize(x.T, f"{name}_f32")
    assert packed.shape == (3, 4096 // 32 * 36)
    found = quant.dequantize(packed, f"{name}_f32", x.T.shape)
    np.testing.assert_array_equal(found, x.T.astype(kind))


def test_nearest_of_two_is_the_even_one() -> None:
    values = np.array([0, 1, 2, 3], np.float32)
    x = np.array([0.5, 1.5, 2.5, -9, 9, 1.49], np.float32)
    np.testing.assert_array_equal(nearest(x, values), [0, 2, 2, 0, 3, 1])


# -- several arrays --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "bound"),
    [
        ("int8_block", 0.006), ("int8_block_asym", 0.006), ("int4_block_asym", 0.1),
        ("fp8_e4m3", 0.03), ("fp8_e5m2", 0.06), ("nvfp4_block", 0.09), ("gptq", 0.12),
        ("gptq_v2", 0.12), ("awq", 0.12), ("mlx_affine", 0.1),
    ],
)  # fmt: skip
def test_parts_there_and_back(name: str, bound: float) -> None:
    x = np.random.default_rng(9).standard_normal((256, 128)).astype(np.float32)
    parts = quant.quantize(x, name)
    assert {*parts} == {*_PARTS[name][2]}
    y = quant.dequantize(parts, name, x.shape)
    assert y.dtype == np.float32
    assert np.sqrt(np.mean((x - y) ** 2)) < bound


def test_blocks_by_their_formulas() -> None:
    rng = np.random.default_rng(10)
    scale, zero = (rng.standard_normal((2, 3)).astype(np.float32) for _ in range(2))
    s, z = np.repeat(scale, 4, 0), np.repeat(zero, 4, 0)
    q8 = rng.integers(-128, 128, (8, 3), np.int8)
    parts = {"q": q8, "scale": scale, "zero": zero}
    np.testing.assert_array_equal(quant.dequantize(parts, "Int8Block", (8, 3)), q8 * s)
    np.testing.assert_array_equal(quant.dequantize(parts, "int8_block_asym", (8, 3)), (q8 - z) * s)
    packed = rng.integers(0, 256, 12, np.uint8)
    q4 = np.stack([packed & 15, packed >> 4], 1).reshape(8, 3).astype(np.float32)
    parts["q"] = packed
    np.testing.assert_array_equal(quant.dequantize(parts, "int4_block", (8, 3)), q4 * s)
    np.testing.assert_array_equal(quant.dequantize(parts, "int4_block_asym", (8, 3)), (q4 - z) * s)


def test_int4_block_of_numbers_from_0() -> None:
    x = np.abs(weights((64, 3), 11))
    parts = quant.quantize(x, "int4_block", group=16)
    y = quant.dequantize(parts, "int4_block", x.shape)
    assert (np.abs(x - y) <= np.repeat(parts["scale"], 16, 0) * 0.5001).all()


def test_nvfp4_block_by_its_formula() -> None:
    rng = np.random.default_rng(12)
    q, scale = rng.integers(0, 256, (32, 2), np.uint8), rng.integers(0, 127, (2, 4), np.uint8)
    values = np.stack([q & 15, q >> 4], 2).reshape(32, 4)
    numbers = values.view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    scales = np.repeat(scale.view(ml_dtypes.float8_e4m3fn).astype(np.float32), 16, 0)
    parts = {"q": q, "scale": scale, "global_scale": np.array([0.25], np.float32)}
    found = quant.dequantize(parts, "nvfp4_block", (32, 4))
    np.testing.assert_array_equal(found, numbers * scales * np.float32(0.25))


def words(fields: Array, bits: int) -> Array:
    """Words of 32 bits with the fields of the last axis, the first lowest: Python's integers."""
    out = []
    for row in fields.reshape(-1, fields.shape[-1]):
        whole = sum(int(v) << bits * i for i, v in enumerate(row))
        count = len(row) * bits // 32
        out.append([whole >> 32 * i & 0xFFFFFFFF for i in range(count)])
    return np.array(out, np.uint32).view(np.int32).reshape(*fields.shape[:-1], -1)


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("name", ["gptq", "gptq_v2"])
def test_gptq_by_its_formula(name: str, bits: int) -> None:
    rng = np.random.default_rng(bits)
    k, n, groups = 64, 32, 4
    q = rng.integers(0, 1 << bits, (k, n))
    zero = rng.integers(0, 1 << bits, (groups, n))
    scales = rng.standard_normal((groups, n)).astype(np.float16)
    order = rng.integers(0, groups, k).astype(np.int32)
    parts = {"qweight": words(q.T, bits).T, "qzeros": words(zero, bits), "scales": scales}
    wide = scales.astype(np.float32)
    first = (zero + 1) % (1 << bits) if name == "gptq" else zero  # as AutoGPTQ 0.7.1 reads them
    for group, more in ((order, {"g_idx": order}), (np.arange(k) // 16, {})):
        expected = (q - first[group]).astype(np.float32) * wide[group]
        found = quant.dequantize({**parts, **more}, name, (k, n))
        np.testing.assert_array_equal(found, expected)


def test_awq_by_its_formula() -> None:
    rng = np.random.default_rng(13)
    k, n, groups = 32, 16, 2
    q, zero = rng.integers(0, 16, (k, n)), rng.integers(0, 16, (groups, n))
    scales = rng.standard_normal((groups, n)).astype(np.float16)

    def packed(v: Array) -> Array:
        """AutoAWQ's: field i of a word is column 0, 2, 4, 6, 1, 3, 5, 7 of its 8."""
        order = [0, 2, 4, 6, 1, 3, 5, 7]
        return words(v.reshape(len(v), -1, 8)[:, :, order].reshape(len(v), -1), 4)

    parts = {"qweight": packed(q), "qzeros": packed(zero), "scales": scales}
    group = np.arange(k) // 16
    expected = (q - zero[group]).astype(np.float32) * scales.astype(np.float32)[group]
    np.testing.assert_array_equal(quant.dequantize(parts, "awq", (k, n)), expected)


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
def test_mlx_by_its_formula(bits: int) -> None:
    rng = np.random.default_rng(bits)
    n, k, group = 3, 128, 64
    q = rng.integers(0, 1 << bits, (n, k))
    scales, biases = (rng.standard_normal((n, k // group)).astype(np.float32) for _ in range(2))
    parts = {"weight": words(q, bits).view(np.uint32), "scales": scales, "biases": biases}
    s, b = (np.repeat(v, group, 1) for v in (scales, biases))
    found = quant.dequantize(parts, "mlx_affine", (n, k))
    np.testing.assert_array_equal(found, q.astype(np.float32) * s + b)


def test_numpy_alone_is_needed() -> None:
    code = (
        "import sys, numpy, rlx.quant as q; x = numpy.ones((1, 256));"
        "[q.dequantize(q.quantize(x, n), n, x.shape) for n in ('q4_k', 'iq4_nl', 'nvfp4')];"
        "print([m for m in ('gguf', 'torch_mlir', 'llvmlite', 'rlx.runtime') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
