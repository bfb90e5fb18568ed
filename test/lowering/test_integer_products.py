"""Products of dequantised integers run on the integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.types import i8, u8

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
SCALES = RNG.uniform(0.01, 0.02, 24).astype(np.float32)
W = RNG.integers(-127, 128, (64, 24), np.int8)


def compiled(g: rlx.Graph, **params: Array) -> Any:
    f = rlx.Session("cpu").compile(g)
    for name, value in params.items():
        f.set_param(name, value)
    return f


def rewritten(f: Any) -> int:
    return f.reports[-1].compilation.dispatch.rewritten["scaled_matmul"]


@pytest.mark.parametrize("kind", [i8, u8])
@pytest.mark.parametrize("turned", [False, True])
def test_a_product_of_dequantised_integers(kind: Any, turned: bool) -> None:
    x = RNG.standard_normal((5, 64)).astype(np.float32)
    zero = 0 if kind is i8 else 120
    g = rlx.Graph()
    q = g.input("x", x.shape).quantize(0.03, zero, to=kind)
    w = W.T.copy() if turned else W
    held = g.param("w", w.shape, i8).dequantize(SCALES, axis=0 if turned else 1)
    g.set_outputs(q.dequantize(0.03, zero) @ (held.transpose() if turned else held))
    f = compiled(g, w=w)
    (found,) = f.run({"x": x})
    codes = np.clip(np.round(x / np.float32(0.03)) + zero, *((-128, 127), (0, 255))[kind is u8])
    expected = (codes - zero).astype(np.int32) @ W.astype(np.int32) * (np.float32(0.03) * SCALES)
    np.testing.assert_array_equal(found, expected.astype(np.float32))
    assert rewritten(f) == 1


def test_a_convolution_of_dequantised_integers() -> None:
    x = RNG.integers(0, 255, (1, 8, 6, 6), np.uint8)
    w = RNG.integers(-127, 128, (24, 8, 3, 3), np.int8)
    g = rlx.Graph()
    held = g.param("w", w.shape, i8).dequantize(SCALES, axis=0)
    g.set_outputs(g.input("x", x.shape, u8).dequantize(0.5, 100).conv(held, padding=1))
    (found,) = compiled(g, w=w).run({"x": x})
    (expected,) = rlx.interpret(g, {"x": x, "w": w})
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-3)


def test_scales_along_the_inner_axis_stay_floats() -> None:
    """What no sum of integers can be scaled by afterwards."""
    x = RNG.integers(-127, 127, (5, 64), np.int8)
    scales = RNG.uniform(0.01, 0.02, 64).astype(np.float32)
    g = rlx.Graph()
    held = g.param("w", W.shape, i8).dequantize(scales, axis=0)
    g.set_outputs(g.input("x", x.shape, i8).dequantize(0.5) @ held)
    f = compiled(g, w=W)
    (found,) = f.run({"x": x})
    assert rewritten(f) == 0
    (expected,) = rlx.interpret(g, {"x": x, "w": W})
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-3)
