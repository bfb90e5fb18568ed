"""Precision "q8": rows in 8 bits by weights in packed blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx import quant
from rlx.types import u8

Array = np.ndarray[Any, Any]


def rows(m: int, depth: int) -> Array:
    return np.random.default_rng(m).standard_normal((m, depth), np.float32)


def packed_weight(scheme: str, n: int = 40, depth: int = 512) -> Array:
    return quant.quantize(rows(n, depth) / 8, scheme)


def graph(packed: Array, scheme: str, m: int = 3, *, by_ops: bool = False) -> rlx.Graph:
    g = rlx.Graph("q8")
    x, w = g.input("x", [m, 512]), g.param("w", packed.shape, u8)
    if by_ops:
        g.set_outputs(x @ w.dequantize_blocks(scheme).transpose())
    else:
        g.set_outputs(x.dequant_matmul(w, scheme=scheme))
    return g


def run(g: rlx.Graph, packed: Array, device: str = "cpu", precision: str = "q8") -> Array:
    f = rlx.Session(device, precision).compile(g)
    f.set_param("w", packed)
    (m, depth) = g.inputs[0].type.static_shape
    return f.run({"x": rows(m, depth)})[0]


@pytest.mark.parametrize("by_ops", [False, True])
@pytest.mark.parametrize("scheme", ["q4_0", "q4_k", "q6_k", "q2_k"])
def test_rows_are_rounded_by_an_op_and_said_in_the_report(scheme: str, by_ops: bool) -> None:
    packed = packed_weight(scheme)
    g = graph(packed, scheme, by_ops=by_ops)
    f = rlx.Session("cpu", "q8").compile(g)
    assert f.precision is not None
    assert f"rows in 8 bits by {scheme} x 1" in str(f.precision)
    found, exact = run(g, packed), run(g, packed, precision="f32")
    w = quant.dequantize(packed, scheme, (40, 512)).astype(np.float64)
    most = np.abs(rows(3, 512).reshape(3, 16, 32)).max(-1).repeat(32, -1)
    bound = most / 254 @ np.abs(w).T
    assert np.all(np.abs(found - rows(3, 512) @ w.T) <= 1.001 * bound + 1e-4)
    assert np.abs(found - exact).max() > 1e-4, "rows were rounded"
    np.testing.assert_allclose(run(g, packed, "interpret"), found, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("scheme", ["q4_0", "q4_1", "q6_k"])
def test_rows_have_the_same_bits_alone_and_among_many(scheme: str) -> None:
    packed = packed_weight(scheme)
    x = rows(37, 512)
    x[5, :32] = 0

    def found(part: Array) -> Array:
        f = rlx.Session("cpu", "q8").compile(graph(packed, scheme, len(part)))
        f.set_param("w", packed)
        return f.run({"x": part})[0]

    whole = found(x)
    for n in range(0, 37, 9):
        np.testing.assert_array_equal(found(x[n : n + 1])[0], whole[n])
    np.testing.assert_array_equal(found(x[:20]), whole[:20])


def test_products_of_one_tensor_share_its_rows() -> None:
    packed = packed_weight("q4_0")
    g = rlx.Graph()
    x, w, v = g.input("x", [1, 512]), *(g.param(n, packed.shape, u8) for n in "wv")
    g.set_outputs([x.dequant_matmul(p, scheme="q4_0") for p in (w, v)])
    f = rlx.Session("cpu", "q8").compile(g)
    assert f.reports[0].compilation.dispatch.native == {
        "block_rows: quantize_rows": 1, "block_product_rows: dequant_matmul_rows": 2,
    }  # fmt: skip


def test_other_products_and_schemes_stay() -> None:
    raw = quant.quantize(rows(8, 512), "f16")
    g = rlx.Graph()
    x, w = g.input("x", [1, 512]), g.param("w", raw.shape, u8)
    y, z = g.input("y", [512, 4]), g.input("z", [4, 512])
    h = x.cast(to="f16").dequant_matmul(g.param("v", [8, 288], u8), scheme="q4_0")
    g.set_outputs([x.dequant_matmul(w, scheme="f16"), x @ y, x @ z.transpose(), h])
    f = rlx.Session("cpu", "q8").compile(g)
    assert f.precision is not None
    assert not f.precision.changed
