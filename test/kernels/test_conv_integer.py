"""Convolutions of 8-bit integers at the ends of their types: by floats where those are exact."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
from rlx.ops.conv.conv import Conv
from rlx.ops.conv.integer import conv_integer


@pytest.mark.parametrize(("taps", "floats"), [(16, True), (17, False)])
@pytest.mark.parametrize("x_zero", [0, 255])
def test_sums_are_exact(taps: int, floats: bool, x_zero: int) -> None:
    rng = np.random.default_rng(taps)
    x = np.where(rng.random((1, 3, 20, 19)) < 0.1, 0, 255).astype(np.uint8)
    w = np.where(rng.random((3, 1, taps, taps)) < 0.1, 127, -128).astype(np.int8)
    g = rlx.Graph("codes")
    codes, weights = g.input("x", x.shape, "u8"), g.input("w", w.shape, "i8")
    zero = g.constant(np.uint8(x_zero))
    out = conv_integer(codes, weights, zero, None, (2, 2), (1, 1), (1, 1), (1, 1), 3)
    g.set_outputs(out)
    assert any(isinstance(op, Conv) for op in g.nodes()) == floats
    wide = x.astype(np.int64) - x_zero
    padded = np.pad(wide, [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (taps, taps), (2, 3))[:, :, ::2, ::2]
    expected = np.einsum("nchwij,cij->nchw", windows, w[:, 0].astype(np.int64))
    found = rlx.Session("cpu").compile(g).run({"x": x, "w": w})[0]
    np.testing.assert_array_equal(found, expected)
