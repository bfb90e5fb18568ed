"""What the derivative rules choose where no derivative exists, at poles and at ties, by type.

``test_derivatives_jax`` has more of them in f64, against JAX's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.interpreter import interpret
from rlx.ir.value import Value
from rlx.types import FLOATS
from support import ad
from support.evaluate import call
from support.tolerances import assert_close

Array = np.ndarray[Any, Any]

NAN, INF = math.nan, math.inf


def gradients(f: Callable[..., Value], *arrays: Array) -> list[Array]:
    """The gradients of ``sum(f(*arrays))``."""
    return call(lambda *xs: ad.grad(f(*xs).sum(), xs), *arrays)


CHOICES: list[tuple[str, Callable[..., Value], list[list[float]], list[list[float]]]] = [
    ("relu", lambda x: x.relu(), [[-1, 0, 2, INF]], [[0, 0, 1, 1]]),
    ("abs", lambda x: x.abs(), [[-2, 0, 3]], [[-1, 0, 1]]),
    ("sqrt", lambda x: x.sqrt(), [[0, 4, INF]], [[INF, 0.25, 0]]),
    ("log", lambda x: x.log(), [[0, 0.5]], [[INF, 2]]),
    ("sign", lambda x: x.sign(), [[-1, 0, 2]], [[0, 0, 0]]),
    ("round", lambda x: x.round(), [[0.5, 1.2]], [[0, 0]]),
    ("floor", lambda x: x.floor(), [[0.0, 1.2]], [[0, 0]]),
    ("sigmoid", lambda x: x.sigmoid(), [[-1000, 0, 1000]], [[0, 0.25, 0]]),
    ("tanh", lambda x: x.tanh(), [[-1000, 0, 1000]], [[0, 1, 0]]),
    ("silu", lambda x: x.silu(), [[-1000, 0, 1000]], [[0, 0.5, 1]]),
    ("gelu", lambda x: x.gelu(), [[-1000, 0, 1000]], [[0, 0.5, 1]]),
    (
        "maximum",
        lambda x, y: x.maximum(y),
        [[1, 2, 3, NAN], [2, 2, 2, 1]],
        [[0, 0.5, 1, 0], [1, 0.5, 0, 0]],
    ),
    (
        "minimum",
        lambda x, y: x.minimum(y),
        [[1, 2, 3], [2, 2, 2]],
        [[1, 0.5, 0], [0, 0.5, 1]],
    ),
    # The power 0 has no slope in the base, and the base 0 none in the power.
    (
        "pow",
        lambda x, y: x**y,
        [[0, 0, 0, -2, 2], [0, 1, 2, 3, 0]],
        [[0, 1, 0, 12, 0], [0, 0, 0, NAN, math.log(2)]],
    ),
    ("square of a negative", lambda x: x**2, [[-3, 0, 3]], [[-6, 0, 6]]),
    (
        "where hides the other side",
        lambda x: x.gt(0).where(x, 0.0) * 2,
        [[-1, 0, 3]],
        [[0, 0, 2]],
    ),
    ("max", lambda x: x.max(), [[1, 3, 3, 2]], [[0, 0.5, 0.5, 0]]),
    ("min", lambda x: x.min(), [[1, 3, 1, 1]], [[1 / 3, 0, 1 / 3, 1 / 3]]),
    ("prod, no zero", lambda x: x.prod(), [[2, 3, 4]], [[12, 8, 6]]),
    ("prod, one zero", lambda x: x.prod(), [[2, 0, 4]], [[0, 8, 0]]),
    ("prod, two zeros", lambda x: x.prod(), [[2, 0, 0]], [[0, 0, 0]]),
    ("softmax", lambda x: x.softmax()[0], [[1e4, 1e4]], [[0.25, -0.25]]),
]


@pytest.mark.parametrize("dt", FLOATS, ids=str)
@pytest.mark.parametrize(("name", "f", "at", "expected"), CHOICES, ids=[c[0] for c in CHOICES])
def test_choice(
    name: str, f: Callable[..., Value], at: list[list[float]], expected: list[list[float]], dt: Any
) -> None:
    found = gradients(f, *(np.array(x, dt.numpy) for x in at))
    for a, b in zip(found, expected, strict=True):
        assert_close(a, np.array(b, dt.numpy))


def test_second_derivative_of_prod_at_zeros() -> None:
    def hessian_row(x: Value) -> Value:
        (g,) = ad.grad(x.prod(), [x])
        return ad.grad(g[0], [x])[0]

    np.testing.assert_array_equal(call(hessian_row, np.array([0.0, 3.0, 5.0])), [0, 5, 3])
    np.testing.assert_array_equal(call(hessian_row, np.array([0.0, 0.0, 5.0])), [0, 5, 0])


def test_cast_passes_gradients_between_floats_only() -> None:
    x = np.array([1.5, -2.0], np.float32)
    (through,) = gradients(lambda v: v.cast("bf16").cast("f64") * 3.0, x)
    assert_close(through, np.array([3, 3], np.float32))
    (stopped,) = gradients(lambda v: v.cast("i32").cast("f32"), x)
    assert_close(stopped, np.array([0, 0], np.float32))


def test_the_gradient_of_prod_along_a_symbolic_axis() -> None:
    g = rlx.Graph("symbolic")
    x = g.input("x", ["n", 2], "f64")
    g.set_outputs(ad.grad(x.prod(axes=0).sum(), [x]))
    a = np.array([[2.0, 0.0], [3.0, 5.0], [4.0, 7.0]])
    np.testing.assert_array_equal(interpret(g, {"x": a})[0], [[12, 35], [8, 0], [6, 0]])
