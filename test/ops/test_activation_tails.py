"""Activations far left of 0, where 1 + erf and 1 + tanh would leave no digit: compiled code is near
the reference relative to the result, by a kernel family and the common way."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
from rlx.interpreter import interpret

EPS = 2.0**-23


@pytest.mark.parametrize("dispatch", ["native", "common"])
@pytest.mark.parametrize(
    # An exponent's rounding error is multiplied by its size, which in gelu_approx is up to 90.
    ("name", "bound"),
    [("gelu", 7 * EPS), ("gelu_approx", 90 * EPS), ("silu", 4 * EPS)],
)
def test_left_tail(name: str, bound: float, dispatch: str) -> None:
    g = rlx.Graph("tail")
    x = np.linspace(-12 if name == "gelu" else -9, -1, 5000, dtype=np.float32)
    g.set_outputs(getattr(g.input("x", x.shape), name)())
    (found,) = rlx.Session("cpu").compile(g, dispatch=dispatch).run({"x": x})
    (expected,) = interpret(g, {"x": x})
    np.testing.assert_allclose(found, expected, rtol=bound, atol=0)
