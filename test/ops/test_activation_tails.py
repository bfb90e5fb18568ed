"""Activations far from 0. To the left, where 1 + erf and 1 + tanh would leave no digit, compiled
code is near the reference relative to the result, by a kernel family and the common way; slopes at
the infinities are their limits."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
from rlx.ir.interpreter import interpret
from support.ad import vjp

EPS = 2.0**-23


@pytest.mark.parametrize("dispatch", ["native", "common"])
@pytest.mark.parametrize(
    # An exponent's rounding error is multiplied by its size, which in gelu_approx is up to 90.
    ("name", "bound"),
    [
        ("gelu", 7 * EPS),
        ("gelu_approx", 90 * EPS),
        ("silu", 4 * EPS),
        ("softplus", 4 * EPS),
        ("mish", 6 * EPS),
    ],
)
def test_left_tail(name: str, bound: float, dispatch: str) -> None:
    g = rlx.Graph("tail")
    x = np.linspace(-12 if name == "gelu" else -9, -1, 5000, dtype=np.float32)
    g.set_outputs(getattr(g.input("x", x.shape), name)())
    (found,) = rlx.Session("cpu").compile(g, dispatch=dispatch).run({"x": x})
    (expected,) = interpret(g, {"x": x})
    np.testing.assert_allclose(found, expected, rtol=bound, atol=0)


@pytest.mark.parametrize(
    ("name", "left", "right"),
    [
        ("softplus", 0, 1), ("softsign", 0, 0), ("elu", 0, 1), ("celu", 0, 1), ("relu6", 0, 0),
        ("selu", 0, 1.0507009873554805), ("leaky_relu", 0.01, 1), ("hard_sigmoid", 0, 0),
        ("hard_swish", 0, 1),
    ],
)  # fmt: skip
def test_slopes_at_infinity(name: str, left: float, right: float) -> None:
    g = rlx.Graph("slopes")
    x, u = g.input("x", [2], "f64"), g.input("u", [2], "f64")
    g.set_outputs([v for v in vjp([getattr(x, name)()], [x], [u]) if v is not None])
    (found,) = interpret(g, {"x": np.array([-np.inf, np.inf]), "u": np.ones(2)})
    np.testing.assert_allclose(found, [left, right], atol=1e-15)
