"""Elementary functions of complex numbers against NumPy's, on their branch cuts too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from support.evaluate import call

Array = np.ndarray[Any, Any]

FUNCTIONS: dict[str, Callable[..., Array]] = {
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh,
    "tanh": np.tanh, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "expm1": np.expm1,
    "log1p": np.log1p, "exp2": np.exp2, "log2": np.log2, "sign": np.sign,
    "rsqrt": lambda z: 1 / np.sqrt(z), "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
}  # fmt: skip


def points() -> Array:
    """Of every size and direction, and on both sides of the axes."""
    rng = np.random.default_rng(0)
    size = np.exp(rng.uniform(-12, 3.5, 400))
    axes = [(a, s) for a in (0, 0.5, 1, 2, -0.5, -1, -2) for s in (0.0, -0.0)]
    cuts = [complex(*at) for a, s in axes for at in ((a, s), (s, a))]
    return np.concatenate([size * np.exp(1j * rng.uniform(-np.pi, np.pi, 400)), cuts])


def compare(found: Array, z: Array, name: str) -> None:
    with np.errstate(all="ignore"):
        expected = FUNCTIONS[name](z.astype(np.complex128))
    known = np.isfinite(expected)
    error = np.abs(found[known] - expected[known]) / np.maximum(np.abs(expected[known]), 1e-30)
    # NumPy's log1p loses digits near 0.
    assert np.max(error) < (3e-6 if found.dtype == np.complex64 else 1e-10)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dt", [np.complex64, np.complex128])
def test_a_function_is_numpys(name: str, dt: type) -> None:
    z = points().astype(dt)
    compare(call(lambda x: getattr(x, name)(), z), z, name)


def test_compiled() -> None:
    z = points().astype(np.complex64)
    g = rlx.Graph()
    x = g.input("z", z.shape, "c64")
    g.set_outputs([getattr(x, name)() for name in FUNCTIONS])
    for name, found in zip(FUNCTIONS, rlx.Session("cpu").compile(g).run({"z": z}), strict=True):
        compare(found, z, name)


def test_far_away() -> None:
    z = np.array([1e200 + 1e100j, -3e180 + 1j, 5 - 1e250j, 700 + 1j, -700 - 2j])
    for name in ("atanh", "atan", "tanh", "tan", "sign", "sigmoid"):
        with np.errstate(all="ignore"):
            expected = FUNCTIONS[name](z)
        found = call(lambda x, name=name: getattr(x, name)(), z)
        known = np.isfinite(expected)
        np.testing.assert_allclose(found[known], expected[known], 1e-12)


def test_limits() -> None:
    """Of C99, Annex G."""
    inf, nan = np.inf, np.nan
    for name, z, re, im in (
        ("tanh", complex(inf, -inf), 1, 0), ("expm1", complex(-inf, -inf), -1, 0),
        ("cosh", complex(inf, nan), inf, nan), ("sinh", complex(-inf, inf), -inf, nan),
        ("expm1", complex(inf, nan), inf, nan), ("sign", complex(inf, 1), nan, nan),
    ):  # fmt: skip
        found = call(lambda x, name=name: getattr(x, name)(), np.array([z]))[0]
        np.testing.assert_array_equal([found.real, found.imag], [re, im])


def test_powers() -> None:
    z, w = points()[:50], points()[50:100] / 4
    np.testing.assert_allclose(call(lambda x, y: x**y, z, w), z**w, 1e-11)
    np.testing.assert_allclose(call(lambda x: x**3.0, z), z**3, 1e-12)
    found = call(lambda x, y: x**y, np.zeros(4, complex), np.array([0, 1 + 1j, 2j, -1]))
    np.testing.assert_array_equal(found, [1, 0, complex("nan"), complex("nan")])


@pytest.mark.parametrize("p", [0, 1, 2, 3, np.inf, -np.inf])
def test_norms_are_real(p: float) -> None:
    z = points()[:12].reshape(3, 4)
    expected = np.linalg.norm(z, p, axis=1)
    for norm in (lambda x: x.norm(p, axes=1), lambda x: rlx.linalg.vector_norm(x, p, 1)):
        found = call(norm, z)
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, expected, 1e-12)
