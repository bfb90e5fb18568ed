"""Special functions and bits of floats, interpreted and compiled, held against SciPy and NumPy
where the samples do not lead: negative numbers, far ends, every kind of float."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

import rlx
from rlx.types import INTS, DType, dtype
from support.evaluate import call

Array = np.ndarray[Any, Any]

LINE = np.concatenate([np.linspace(-9.3, 20.0, 1201), 10.0 ** np.linspace(-6, 6, 60)])
KINDS = np.array([0.0, -0.0, 1.0, -1.0, 1e-45, np.inf, -np.inf, np.nan, 3e38], np.float32)


def ways(f: Callable[..., rlx.Value], *arrays: Array) -> list[Array]:
    """What a function gives, by the interpreter and compiled."""
    g = rlx.Graph()
    inputs = [g.input(f"x{i}", a.shape, dtype(a.dtype)) for i, a in enumerate(arrays)]
    g.set_outputs([f(*inputs)])
    compiled = rlx.Session("cpu").compile(g).run({f"x{i}": a for i, a in enumerate(arrays)})
    return [call(f, *arrays), np.asarray(compiled[0])]


@pytest.mark.parametrize("dt", ["f32", "f64"])
@pytest.mark.parametrize(
    ("name", "oracle"),
    [
        ("lgamma", scipy.special.gammaln),
        ("digamma", scipy.special.digamma),
        ("bessel_i0e", scipy.special.i0e),
        ("bessel_i1e", scipy.special.i1e),
    ],
)
def test_over_the_line(name: str, oracle: Callable[[Array], Array], dt: str) -> None:
    """Near a root the error is that of the terms which cancel there."""
    x = LINE.astype(dtype(dt).numpy)
    expected = oracle(x.astype(np.float64))
    for found in ways(lambda v: getattr(v, name)(), x):
        np.testing.assert_allclose(found, expected, *((1e-5, 2e-6), (1e-11, 1e-13))[dt == "f64"])


SHAPES = 10.0 ** np.linspace(-6, 6, 60)


@pytest.mark.parametrize("dt", ["f32", "f64"])
def test_incomplete_gamma_functions(dt: str) -> None:
    """Around every shape, and far from it. SciPy's lower tail of shapes above 1e5 is cut short."""
    rng = np.random.default_rng(0)
    spread = rng.uniform(-4, 4, (20, 60)) / np.sqrt(SHAPES + 1)
    a, x = np.broadcast_arrays(SHAPES, SHAPES * np.exp(spread))
    a, x = (v.astype(dtype(dt).numpy) for v in (a, x))
    wide = (a.astype(np.float64), x.astype(np.float64))
    both = scipy.special.gammainc(*wide), scipy.special.gammaincc(*wide)
    below = (wide[0] < 1e5) | (wide[1] > wide[0])
    for found in ways(lambda a, x: a.igamma(x), a, x):
        np.testing.assert_allclose(found[below], both[0][below],
                                   *((1e-4, 1e-6), (1e-11, 1e-13))[dt == "f64"])  # fmt: skip
    for found in ways(lambda a, x: a.igammac(x), a, x):
        np.testing.assert_allclose(found[below], both[1][below],
                                   *((1e-4, 1e-6), (1e-11, 1e-13))[dt == "f64"])  # fmt: skip


def test_the_lower_tail_of_a_large_shape() -> None:
    """By quadrature to 40 digits (mpmath), where SciPy's series is cut short."""
    a = np.array([59737434.94242558, 1e6])
    x = np.array([59702015.94062424, 995000.0])
    for found in ways(lambda a, x: a.igamma(x), a, x):
        np.testing.assert_allclose(found, [2.2865656917453327e-6, 2.7495803592700708e-7], 1e-13)


def test_incomplete_gamma_functions_at_their_ends() -> None:
    a, x = (v.ravel() for v in np.meshgrid(KINDS, KINDS))
    for found in ways(lambda a, x: a.igamma(x), a, x):
        np.testing.assert_allclose(found, scipy.special.gammainc(*np.float64([a, x])), atol=1e-7)


def test_the_slope_of_an_incomplete_gamma_function_by_its_shape() -> None:
    rng = np.random.default_rng(0)
    a = np.exp(rng.uniform(-2, 6, 200))
    x, h = a * np.exp(rng.normal(0, 2, 200) / np.sqrt(a + 1)), a * 1e-5
    ahead, behind = (scipy.special.gammainc(a + s * h, x) for s in (1, -1))
    for found in ways(lambda a, x: a.igamma_grad_a(x), a, x):
        np.testing.assert_allclose(found, (ahead - behind) / (2 * h), 1e-5, 1e-8)


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_polygamma_of_negative_numbers_follows_its_recurrence(n: int) -> None:
    """psi_n(x) = psi_n(x + 1) - (-1)**n n! / x**(n + 1), down from positive numbers."""
    x = np.linspace(0.1, 0.9, 9)
    expected = scipy.special.polygamma(n, x)
    for _ in range(3):
        x = x - 1
        expected = expected - (-1.0) ** n * scipy.special.factorial(n) / x ** (n + 1)
    for found in ways(lambda v: v.polygamma(n), x):
        np.testing.assert_allclose(found, expected, 1e-10, 1e-9 * np.max(np.abs(expected)))


@pytest.mark.parametrize("n", range(1, 21))
@pytest.mark.parametrize("dt", ["f32", "f64"])
def test_polygamma_of_every_order_wherever_it_is_normal(dt: str, n: int) -> None:
    """20! and a power of x are beyond f32 where their product is not."""
    kind = dtype(dt).numpy
    line = 10.0 ** np.linspace(-3, 4 if dt == "f32" else 14, 60)
    x = np.concatenate([line, np.arange(1, 40), [np.inf]]).astype(kind)
    expected = scipy.special.polygamma(n, x.astype(np.float64))
    with np.errstate(over="ignore"):
        rounded = expected.astype(kind)
    tiny = np.abs(rounded) < np.finfo(kind).tiny
    for found in ways(lambda v: v.polygamma(n), x):
        bound = 3e-6 if dt == "f32" else 1e-14
        np.testing.assert_allclose(found[~tiny], rounded[~tiny], bound, 0)
        assert np.all(np.abs(found[tiny]) <= np.finfo(kind).tiny)


@pytest.mark.parametrize("dt", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["nextafter", "copysign"])
def test_every_pair_of_kinds_of_floats(name: str, dt: Any) -> None:
    x, y = (v.ravel().astype(dt) for v in np.meshgrid(KINDS, KINDS))
    expected = getattr(np, name)(x, y)
    for found in ways(lambda a, b: getattr(a, name)(b), x, y):
        np.testing.assert_array_equal(found, expected)
        known = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(found)[known], np.signbit(expected)[known])


@pytest.mark.parametrize("dt", INTS, ids=str)
def test_popcount_of_all_bits(dt: DType) -> None:
    info, rng = np.iinfo(dt.numpy), np.random.default_rng(0)
    drawn = rng.integers(info.min, info.max, 100, dt.numpy, endpoint=True)
    x = np.concatenate([drawn, np.array([info.min, info.max, 0, 1], dt.numpy)])
    expected = [(int(v) & ((1 << dt.bits) - 1)).bit_count() for v in x]
    for found in ways(lambda v: v.popcount(), x):
        np.testing.assert_array_equal(found, np.array(expected, dt.numpy))


def test_bits_there_and_back() -> None:
    x = np.array([1.5, -0.0, np.inf, 1e-45, -3e38], np.float32)
    for found in ways(lambda v: v.bitcast("u32"), x):
        np.testing.assert_array_equal(found, x.view(np.uint32))
    for found in ways(lambda v: v.bitcast("i32").bitcast("f32"), x):
        np.testing.assert_array_equal(found.view(np.uint32), x.view(np.uint32))
