"""Sums of very many elements: what each addition rounds off must not add up.

A chain of additions of equal numbers drifts by parts of a thousand after millions; sums by parts
stay within few units of the last place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.graph import Graph
from rlx.ir.value import Value
from rlx.ops.movement.constant import Constant

Array = np.ndarray[Any, Any]
ULPS = 128 * 2.0**-24
"""Relative error of a good sum of up to millions; one chain has ten times that here and more."""


def run(x: Array, build: Callable[[Value], Value], **options: Any) -> Array:
    g = Graph("long")
    g.set_outputs(build(g.input("x", x.shape, rlx.types.dtype(x.dtype).name)))
    return rlx.Session("cpu").compile(g, **options).run({"x": x})[0]


def off(found: Array, expected: float | complex) -> float:
    """The largest relative error."""
    wide = np.complex128 if np.iscomplexobj(found) else np.float64
    return float(np.max(np.abs(found.astype(wide) - expected)) / abs(expected))


SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "row": ((1 << 20,), (0,)),
    "rest": ((1 << 20 | 77,), (0,)),
    "rows": ((3, 300_001), (1,)),
    "columns": ((300_001, 3), (0,)),
    "middle": ((2, 90_001, 5), (1,)),
    "parts": ((40, 20_001, 2), (0, 1)),
}


@pytest.mark.parametrize("way", ["native", "common"])
@pytest.mark.parametrize("name", SHAPES)
def test_equal_numbers_add_up(name: str, way: str) -> None:
    shape, axes = SHAPES[name]
    x = np.full(shape, 0.1, np.float32)
    count = int(np.prod([shape[a] for a in axes]))
    expected = count * float(np.float32(0.1))
    assert off(run(x, lambda v: v.reduce_sum(axes), dispatch=way), expected) < ULPS
    assert off(run(x, lambda v: v.reduce_mean(axes), dispatch=way), expected / count) < ULPS


def test_a_fused_pass_sums_and_compares() -> None:
    """Sums and extremes of one pass: the extremes, and a nan, go through all parts."""
    x = np.full((2, 1 << 20), 0.1, np.float32)
    x[1, 7] = np.nan
    x[0, 5] = 3.0

    def both(v: Value) -> Value:
        return (v * 2.0).reduce_sum(1) + v.reduce_max(1) * 0.0 + v.reduce_min(1) * 0.0

    found = run(x, both)
    expected = 2.0 * (float(np.float32(0.1)) * ((1 << 20) - 1) + 3.0)
    assert off(found[:1], expected) < ULPS and np.isnan(found[1])
    assert run(x[:1], lambda v: v.reduce_max(1))[0] == 3.0


@pytest.mark.parametrize("shape", [(1 << 20,), (200_003, 4)])
def test_a_variance_far_from_zero(shape: tuple[int, ...]) -> None:
    x = (np.random.default_rng(0).random(shape) + 1000).astype(np.float32)
    found = run(x, lambda v: v.var((0,)))
    assert np.allclose(found, x.astype(np.float64).var(axis=0), rtol=1e-3)


def test_16_bits_and_complex_numbers() -> None:
    x = np.full(1 << 20, 0.1, np.float16)
    assert off(run(x, lambda v: v.reduce_mean((0,))), float(np.float16(0.1))) < 2.0**-10
    z = np.full(300_000, 0.1 + 0.3j, np.complex64)
    assert off(run(z, lambda v: v.reduce_sum((0,))), 300_000 * complex(z[0])) < ULPS


K = 30_011


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 200), (3, 5), (8, 48), (13, 100), (130, 49)])
def test_products_of_long_rows(m: int, n: int, across: bool) -> None:
    """Nearly equal products, with a plain and a packed right operand, by all tiles; and the bits of
    a row do not depend on the rows beside it."""
    rng = np.random.default_rng(1)
    a = (0.1 + 1e-3 * rng.random((m, K))).astype(np.float32)
    b = (1.0 + 1e-3 * rng.random((K, n))).astype(np.float32)
    expected = a.astype(np.float64) @ b

    def product(rows: Array, as_param: bool) -> Array:
        g = Graph("product")
        given = rows.T.copy() if across else rows
        x = g.input("x", given.shape)
        y = g.param("y", b.shape) if as_param else g.input("y", b.shape)
        g.set_outputs((x.transpose(1, 0) if across else x) @ y + 1.0)
        f = rlx.Session("cpu").compile(g)
        if as_param:
            f.set_param("y", b)
        return f.run({"x": given} if as_param else {"x": given, "y": b})[0] - 1.0

    packed = product(a, True)
    for found in (packed, product(a, False)):
        assert np.max(np.abs(found - expected) / expected) < ULPS
    assert np.array_equal(product(a[:1], True), packed[:1])


def test_products_by_the_common_way() -> None:
    a, b = np.full((1, 100_000), 0.1, np.float32), np.ones((100_000, 1), np.float32)
    g = Graph("product")
    g.set_outputs(g.input("a", a.shape) @ g.input("b", b.shape))
    (found,) = rlx.Session("cpu").compile(g, dispatch="common").run({"a": a, "b": b})
    assert off(found, 100_000 * float(a[0, 0])) < ULPS


@pytest.mark.parametrize("rows", [1, 4, 40])
@pytest.mark.parametrize("way", ["native", "common"])
def test_attention_to_many_keys(rows: int, way: str) -> None:
    q, v = np.zeros((1, rows, 16), np.float32), np.full((1, 50_001, 16), 0.1, np.float32)
    g = Graph("attention")
    x, keys, values = (g.input(n, a.shape) for n, a in (("q", q), ("k", v), ("v", v)))
    g.set_outputs(x.attention(keys, values, num_heads=1, head_dim=16, mask_kind="none"))
    compiled = rlx.Session("cpu").compile(g, dispatch=way)
    (found,) = compiled.run({"q": q, "k": v, "v": v})
    assert off(found, float(v[0, 0, 0])) < ULPS


@pytest.mark.parametrize("rows", [1, 9, 33])
@pytest.mark.parametrize("size", [1000, 1536, 4608])
def test_sums_of_products_are_off_by_little(rows: int, size: int) -> None:
    """Of independent numbers, whose sum one chain rounds as often as it is long."""
    rng = np.random.default_rng(size)
    x, w = (rng.standard_normal(s, np.float32) for s in ((rows, size), (size, 64)))
    found = run(x, lambda v: v @ Constant(w).out)
    wanted = x.astype(np.float64) @ w
    assert np.sqrt(np.square(found - wanted).mean()) < 6e-7 * wanted.std()


@pytest.mark.parametrize("dt", [np.float32, np.float64])
def test_columns_of_two_panels_are_added_once(dt: type[np.floating[Any]]) -> None:
    """The last panel of a B that is not packed has columns of the one before, and tiles of some
    rows take panels one by one."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal((1030, 57)).astype(dt)
    g, outs, feeds = rlx.Graph(), list[Value](), {"w": w}
    b = g.input("w", w.shape, w.dtype.name)
    for m in range(1, 10):
        feeds[f"x{m}"] = rng.standard_normal((m, 1030)).astype(dt)
        outs.append(g.input(f"x{m}", [m, 1030], w.dtype.name) @ b)
    g.set_outputs(outs)
    for m, found in enumerate(rlx.Session("cpu").compile(g).run(feeds), 1):
        wanted = feeds[f"x{m}"].astype(np.float64) @ w
        np.testing.assert_allclose(found, wanted, atol=1e-3, err_msg=str(m))
