"""Quantised values with scales and zero points, and rounding that is differentiated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ops import rules
from rlx.types import i8, i32

Array = np.ndarray[Any, Any]

X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32) * 3
TOPS = {8: 127, 4: 7, 2: 1}


def run(g: rlx.Graph, **feeds: Array) -> list[Array]:
    return [np.asarray(v) for v in rlx.Session("cpu").compile(g).run(feeds)]


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_quantize_and_back(axis: int | None) -> None:
    n = None if axis is None else X.shape[axis]
    rng = np.random.default_rng(1)
    scales = np.asarray(rng.uniform(0.01, 0.1, n), np.float32)
    zeros = np.asarray(rng.integers(-9, 9, n))
    g = rlx.Graph()
    q = g.input("x", X.shape).quantize(scales, zeros, axis=axis)
    g.set_outputs([q, q.dequantize(scales, zeros, axis=axis), q.dequantize(scales, axis=axis)])
    found, back, without = run(g, x=X)
    s, z = scales, zeros
    if axis is not None:
        place = [1, 1]
        place[axis] = -1
        s, z = scales.reshape(place), zeros.reshape(place)
    expected = np.clip(np.round(X / s) + z, -128, 127).astype(np.int8)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(back, (expected - z.astype(np.float32)) * s)
    np.testing.assert_array_equal(without, expected.astype(np.float32) * s)


@pytest.mark.parametrize("zeros", [(0, 0, 0), (3, -4, 7)])
def test_q_matmul_by_its_formula(zeros: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(2)
    x, w = rng.integers(-128, 128, (2, 3, 8), np.int8), rng.integers(-128, 128, (8, 5), np.int8)
    bias = rng.integers(-1000, 1000, 5, np.int32)
    g = rlx.Graph()
    a, b, c = g.input("x", x.shape, i8), g.input("w", w.shape, i8), g.input("b", [5], i32)
    xz, wz, oz = zeros
    more: Any = {"x_zero": xz, "w_zero": wz, "out_zero": oz, "multiplier": 0.003}
    g.set_outputs([a.q_matmul(b, c, **more), a.q_matmul(b, **more)])
    found = run(g, x=x, w=w, b=bias)
    sums = (x.astype(np.int64) - xz) @ (w.astype(np.int64) - wz)
    for got, s in zip(found, (sums + bias, sums), strict=True):
        scaled = np.round(s.astype(np.float32) * np.float32(0.003)) + oz
        np.testing.assert_array_equal(got, np.clip(scaled, -128, 127).astype(np.int8))


def scale_of(x: Array, top: int, axis: int | None) -> Array:
    others = None if axis is None else 1 - axis
    return np.maximum(np.abs(x).max(others, keepdims=True) / np.float32(top), 1e-12)


def fake(x: Array, s: Array, top: int) -> Array:
    return np.clip(np.round(x / s), -top, top) * s


@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_fake_quantize_by_its_formula(bits: int, axis: int | None) -> None:
    g = rlx.Graph()
    g.set_outputs(g.input("x", X.shape).fake_quantize(bits, axis))
    (found,) = run(g, x=X)
    top = TOPS[bits]
    np.testing.assert_array_equal(found, fake(X, scale_of(X, top, axis), top))


def slope(ste: str, ratio: Array, top: int) -> Array:
    return {
        "identity": np.ones_like(ratio),
        "clipped_identity": (np.abs(ratio) <= top).astype(np.float32),
        "tanh": 1 - np.tanh(ratio) ** 2,
        "hard_tanh": np.maximum(0, 1 - np.abs(ratio) / top),
    }[ste]


@pytest.mark.parametrize("ste", ["identity", "clipped_identity", "tanh", "hard_tanh"])
def test_the_derivative_is_the_one_asked_for(ste: str) -> None:
    """With a fixed scale that is too small for some elements."""
    g = rlx.Graph()
    x, up = g.input("x", X.shape), g.input("up", X.shape)
    y = x.fake_quantize(4, ste=ste, scale_mode="fixed", state=g.constant(np.float32(0.5)))
    (back,), (ahead,) = rules.vjp([y], [x], [up]), rules.jvp([y], [x], [up])
    assert back is not None and ahead is not None
    g.set_outputs([y, back, ahead])
    u = np.random.default_rng(3).standard_normal(X.shape).astype(np.float32)
    value, *slopes = run(g, x=X, up=u)
    np.testing.assert_array_equal(value, fake(X, np.float32(0.5), 7))
    for found in slopes:
        np.testing.assert_allclose(found, u * slope(ste, X / 0.5, 7), rtol=1e-5, atol=1e-6)


def test_the_moving_average_starts_at_the_first_batch() -> None:
    g = rlx.Graph()
    x, state = g.input("x", X.shape), g.input("state", [6])
    y, new = x.fake_quantize(4, 1, scale_mode="ema", state=state, decay=0.75)
    g.set_outputs([y, new])
    old = np.float32([0, -1, 0.5, 1, 2, 0])
    found, after = run(g, x=X, state=old)
    now = scale_of(X, 7, 1)[0]
    expected = np.where(old > 0, old * np.float32(0.75) + now * np.float32(0.25), now)
    np.testing.assert_allclose(after, expected, rtol=1e-6)
    np.testing.assert_allclose(found, fake(X, after, 7), rtol=1e-6)


@pytest.mark.parametrize("axis", [None, 1])
def test_lsq_learns_its_scale(axis: int | None) -> None:
    s = np.float32(0.5) if axis is None else np.linspace(0.2, 1, 6, dtype=np.float32)
    g = rlx.Graph()
    x, scale, up = g.input("x", X.shape), g.input("s", s.shape), g.input("up", X.shape)
    y = x.fake_quantize_lsq(scale, 4, axis)
    dx, ds = rules.vjp([y], [x, scale], [up])
    assert dx is not None and ds is not None
    g.set_outputs([y, dx, ds])
    u = np.random.default_rng(4).standard_normal(X.shape).astype(np.float32)
    value, dx, ds = run(g, x=X, s=s, up=u)
    z = X / s
    np.testing.assert_array_equal(value, fake(X, s, 7))
    np.testing.assert_allclose(dx, u * (np.abs(z) <= 7), rtol=1e-6)
    psi = np.where(np.abs(z) <= 7, np.round(z) - z, 7 * np.sign(z))
    np.testing.assert_allclose(ds, (psi * u).sum(None if axis is None else 0), rtol=1e-4, atol=1e-5)


def test_constant_zero_has_the_least_scale() -> None:
    g = rlx.Graph()
    g.set_outputs(g.input("x", [3]).fake_quantize(8))
    np.testing.assert_array_equal(run(g, x=np.zeros(3, np.float32))[0], np.zeros(3))
