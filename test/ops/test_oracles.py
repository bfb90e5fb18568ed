"""Numpy references against oracles that share nothing with them: scipy, libm, exact arithmetic."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.special

from rlx.types import FLOATS, INTS, DType, bf16, dtype, f16, f32, f64
from support.evaluate import call
from support.tolerances import EXACT, assert_close

Array = np.ndarray[Any, Any]
Function = Callable[[Array], Array]

NAN, INF = math.nan, math.inf
LINE = np.concatenate([np.linspace(-9, 9, 181), np.random.default_rng(0).standard_normal(200)])
"""Arguments over the range in which the functions bend."""

PRECISION = {f16: (11, -14), bf16: (8, -126), f32: (24, -126), f64: (53, -1022)}
"""Bits of the significand, and the exponent of the least normal number."""


def nearest(exact: Fraction, dt: DType) -> float:
    """The number of a float type that is nearest to an exact one, of two the even one."""
    bits, least = PRECISION[dt]
    if not exact:
        return 0.0
    exponent = exact.numerator.bit_length() - exact.denominator.bit_length()
    exponent -= abs(exact) < Fraction(2) ** exponent
    unit = Fraction(2) ** (max(exponent, least) - bits + 1)
    rounded = round(exact / unit) * unit
    if abs(rounded) > Fraction(float(ml_dtypes.finfo(dt.numpy).max)):
        return math.copysign(INF, exact)
    return float(rounded)


def ulps(found: Array, expected: Array) -> float:
    """The largest distance in units of the last place of ``found``'s type."""
    info = ml_dtypes.finfo(found.dtype)
    size = np.maximum(np.abs(expected), float(info.smallest_normal))
    unit = np.exp2(np.floor(np.log2(size))) * float(info.eps)
    return float(np.max(np.abs(found.astype(np.float64) - expected) / unit, initial=0.0))


def each(f: Callable[[float], float]) -> Function:
    return lambda x: np.array([f(v) for v in x])


# The name, an oracle in f64, how many ulps apart the two may be in f64, and the arguments.
FUNCTIONS: list[tuple[str, Function, float, Array]] = [
    ("exp", each(math.exp), 1, LINE),
    ("log", each(math.log), 1, np.exp(LINE)),
    ("sqrt", each(math.sqrt), 0.5, np.exp(LINE)),
    ("rsqrt", lambda x: np.sqrt(1 / x), 2, np.exp(LINE)),
    ("sin", each(math.sin), 1, LINE * 50),
    ("cos", each(math.cos), 1, LINE * 50),
    ("tan", each(math.tan), 1, LINE),
    ("atan", each(math.atan), 1, LINE),
    ("tanh", each(math.tanh), 2, LINE),
    ("erf", scipy.special.erf, 2, LINE),
    ("erfinv", scipy.special.erfinv, 4, np.tanh(LINE / 4)),
    ("sigmoid", scipy.special.expit, 2, LINE * 75),
    ("silu", lambda x: x * scipy.special.expit(x), 4, LINE),
    ("gelu", lambda x: x * scipy.special.ndtr(x), 64, LINE),
    (
        "gelu_approx",
        lambda x: x * scipy.special.expit(math.sqrt(8 / math.pi) * (x + 0.044715 * x**3)),
        128,  # the exponent of expit carries its rounding error times its size
        LINE,
    ),
    ("expm1", each(math.expm1), 1, LINE),
    ("log1p", each(math.log1p), 1, np.exp(LINE) - 0.99),
    ("exp2", each(math.exp2), 1, LINE),
    ("log2", each(math.log2), 1, np.exp(LINE)),
    ("asin", each(math.asin), 1, LINE / 9.1),
    ("acos", each(math.acos), 1, LINE / 9.1),
    ("sinh", each(math.sinh), 1, LINE),
    ("cosh", each(math.cosh), 1, LINE),
    ("asinh", each(math.asinh), 1, LINE),
    ("acosh", each(math.acosh), 1, np.exp(np.abs(LINE))),
    ("atanh", each(math.atanh), 1, LINE / 9.1),
    ("softplus", scipy.special.softplus, 2, LINE * 9),
    ("mish", lambda x: x * np.tanh(scipy.special.softplus(x)), 4, LINE),
    ("lgamma", each(math.lgamma), 0, np.exp(LINE)),
    ("digamma", scipy.special.digamma, 40, np.exp(np.abs(LINE)) + 1),
    ("polygamma", lambda x: scipy.special.polygamma(1, x), 8, np.exp(np.abs(LINE))),
    ("bessel_i0e", scipy.special.i0e, 4, LINE * 3),
    ("bessel_i1e", scipy.special.i1e, 4, LINE * 3),
    ("ceil", each(lambda v: float(math.ceil(v))), 0, np.arange(-9, 9, 0.25)),
    ("trunc", each(lambda v: float(math.trunc(v))), 0, np.arange(-9, 9, 0.25)),
    ("round", each(lambda v: float(round(v))), 0, np.arange(-9, 9, 0.25)),
    ("floor", each(lambda v: float(math.floor(v))), 0, np.arange(-9, 9, 0.25)),
]


@pytest.mark.parametrize("dt", FLOATS, ids=str)
@pytest.mark.parametrize(
    ("name", "oracle", "bound", "line"), FUNCTIONS, ids=[f[0] for f in FUNCTIONS]
)
def test_function(name: str, oracle: Function, bound: float, line: Array, dt: DType) -> None:
    """f64 is within a stated bound; in shorter types the exact result is rounded once."""
    x = line.astype(dt.numpy)
    found = call(lambda v: getattr(v, name)(), x)
    assert ulps(found, oracle(x.astype(np.float64))) <= (bound if dt is f64 else 0.5001)


SPECIAL: dict[str, dict[float, float]] = {
    "exp": {INF: INF, -INF: 0, 1000.0: INF, -1000.0: 0, NAN: NAN},
    "log": {0.0: -INF, -1.0: NAN, INF: INF, NAN: NAN},
    "sqrt": {0.0: 0, -1.0: NAN, INF: INF, NAN: NAN},
    "rsqrt": {0.0: INF, -1.0: NAN, INF: 0, NAN: NAN},
    "sin": {INF: NAN, NAN: NAN},
    "atan": {INF: math.pi / 2, -INF: -math.pi / 2, NAN: NAN},
    "tanh": {INF: 1, -INF: -1, 1000.0: 1, NAN: NAN},
    "erf": {INF: 1, -INF: -1, NAN: NAN},
    "erfinv": {1.0: INF, -1.0: -INF, 0.0: 0, 1.5: NAN, -INF: NAN, NAN: NAN},
    "sigmoid": {INF: 1, -INF: 0, 1000.0: 1, -1000.0: 0, NAN: NAN},
    "relu": {INF: INF, -INF: 0, NAN: NAN},
    "sign": {INF: 1, -INF: -1, 0.0: 0, NAN: NAN},
    "abs": {-INF: INF, NAN: NAN},
    "lgamma": {0.0: INF, -3.0: INF, 1.0: 0, 2.0: 0, INF: INF, -INF: INF, NAN: NAN},
    "digamma": {0.0: -INF, -3.0: NAN, INF: INF, NAN: NAN},
    "polygamma": {0.0: INF, -3.0: INF, INF: 0, NAN: NAN},
    "bessel_i0e": {0.0: 1, INF: 0, -INF: 0, NAN: NAN},
    "bessel_i1e": {0.0: 0, INF: 0, -INF: 0, NAN: NAN},
    "round": {0.5: 0, 1.5: 2, 2.5: 2, -0.5: 0, INF: INF, NAN: NAN},
    "floor": {-0.5: -1, -INF: -INF, NAN: NAN},
}


@pytest.mark.parametrize("dt", FLOATS, ids=str)
@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(name: str, dt: DType) -> None:
    x, expected = (np.array(list(v)) for v in (SPECIAL[name], SPECIAL[name].values()))
    found = call(lambda v: getattr(v, name)(), x.astype(dt.numpy))
    assert_close(found, expected.astype(dt.numpy), EXACT)


# -- casts -----------------------------------------------------------------------------------


def near_ties(to: DType) -> Iterable[float]:
    """Doubles at and beside the midpoint of two neighbours of ``to``, subnormals included."""
    rng = np.random.default_rng(0)
    bits, least = PRECISION[to]
    for _ in range(300):
        exponent = int(rng.integers(least - bits - 1, 18))
        half = math.ldexp(int(rng.integers(0, 1 << bits)) + 0.5, exponent)
        yield from (half, half * (1 + 2**-50), half * (1 - 2**-50), -half)


@pytest.mark.parametrize("to", [f16, bf16, f32], ids=str)
def test_cast_from_f64_rounds_once(to: DType) -> None:
    x = np.array([*near_ties(to), 1e39, -1e39, 65519.99, 65520.0])
    expected = np.array([nearest(Fraction(v), to) for v in x])
    found = call(lambda v: v.cast(to), x)
    np.testing.assert_array_equal(found.astype(np.float64), expected)


@pytest.mark.parametrize("to", FLOATS, ids=str)
@pytest.mark.parametrize("source", INTS, ids=str)
def test_cast_from_integers_rounds_once(source: DType, to: DType) -> None:
    info, rng = np.iinfo(source.numpy), np.random.default_rng(0)
    whole = {0, 1, info.min, info.max, info.max // 2 + 1}
    for shift in range(1, 64):
        lead = int(rng.integers(1 << 8)) << 1 | 1  # a midpoint of bf16 and, often, of the others
        whole |= {s * ((lead << shift) + d) for d in (-1, 0, 1) for s in (1, -1)}
        whole |= {s * (((lead << 16 | 1) << shift) + d) for d in (-1, 0, 1) for s in (1, -1)}
    x = np.array(sorted(v for v in whole if info.min <= v <= info.max), source.numpy)
    expected = np.array([nearest(Fraction(int(v)), to) for v in x])
    np.testing.assert_array_equal(call(lambda v: v.cast(to), x).astype(np.float64), expected)


@pytest.mark.parametrize("to", INTS, ids=str)
@pytest.mark.parametrize("source", FLOATS, ids=str)
def test_cast_to_integers_saturates(source: DType, to: DType) -> None:
    info = np.iinfo(to.numpy)
    edges = [math.ldexp(1.0, to.bits), math.ldexp(1.0, to.bits - 1)]
    line = [s * (e + d) for e in edges for d in (-1.0, -0.5, 0.0, 0.5, 1.0) for s in (1, -1)]
    x = np.array([*line, *LINE, 0.5, -0.5, -0.99, 1e30, -1e30, INF, -INF, NAN])
    with np.errstate(over="ignore"):
        x = x.astype(source.numpy)

    def expected(v: float) -> int:
        if math.isnan(v):
            return 0
        inside = math.trunc(v) if math.isfinite(v) else int(math.copysign(2**65, v))
        return min(max(inside, info.min), info.max)

    np.testing.assert_array_equal(
        call(lambda v: v.cast(to), x),
        np.array([expected(float(v)) for v in x], to.numpy),
    )


def test_cast_of_integers_wraps_and_of_bools_is_0_or_1() -> None:
    x = np.array([-129, -1, 0, 127, 255, 256, 2**40 + 5])
    np.testing.assert_array_equal(call(lambda v: v.cast("i8"), x), [127, -1, 0, 127, -1, 0, 5])
    np.testing.assert_array_equal(call(lambda v: v.cast("u8"), x), [127, 255, 0, 127, 255, 0, 5])
    truth = call(lambda v: v.cast("bool"), np.array([0.0, -0.0, NAN, 1e-45, 2.0], np.float32))
    np.testing.assert_array_equal(truth, [False, False, True, True, True])
    np.testing.assert_array_equal(call(lambda v: v.cast("i8"), truth), [0, 0, 1, 1, 1])


# -- arithmetic ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["i8", "u8"])
def test_integer_division_is_that_of_c_without_its_traps(name: str) -> None:
    info = np.iinfo(dtype(name).numpy)
    x, y = (a.ravel() for a in np.meshgrid(*[np.arange(info.min, info.max + 1)] * 2))

    def quotient(a: int, b: int) -> int:
        return 0 if b == 0 else math.trunc(Fraction(a, b))

    expected = np.array([quotient(int(a), int(b)) for a, b in zip(x, y, strict=True)])
    found = call(lambda a, b: a / b, x.astype(info.dtype), y.astype(info.dtype))
    np.testing.assert_array_equal(found, expected.astype(info.dtype))


def test_pow() -> None:
    pairs = [*itertools.product([0.5, 1.0, 2.0, 7.3, INF], [-2.0, -0.5, 0.0, 0.5, 3.0])]
    pairs += [(-2.0, 3.0), (-2.0, -2.0), (0.0, 0.0), (0.0, 2.0), (NAN, 0.0), (1.0, NAN)]
    x, y = np.array(pairs).T
    expected = np.array([math.pow(a, b) for a, b in pairs])
    np.testing.assert_allclose(call(lambda a, b: a**b, x, y), expected, rtol=1e-15)
    special = call(lambda a, b: a**b, np.array([-2.0, 0.0]), np.array([0.5, -1.0]))
    np.testing.assert_array_equal(special, [NAN, INF])
    zero, infinite = call(lambda a: a**0.5, np.array([-0.0, -INF]))  # no square root
    assert math.copysign(1, zero) == 1 and infinite == INF


@pytest.mark.parametrize("dt", [bf16, f32, f64], ids=str)
def test_maximum_and_minimum_give_nan_for_nan(dt: DType) -> None:
    x, y = (np.array(v, dt.numpy) for v in ([1, NAN, NAN, -INF], [NAN, 1, NAN, 3]))
    results = call(lambda a, b: [a.maximum(b), a.minimum(b), a.max(), a.min()], x, y)
    expected = [[NAN, NAN, NAN, 3], [NAN, NAN, NAN, -INF], NAN, NAN]
    for found, values in zip(results, expected, strict=True):
        assert_close(found, np.array(values, dt.numpy), EXACT)


# -- folds -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dt", [f16, bf16, f32], ids=str)
def test_folds_round_the_exact_result_once(dt: DType) -> None:
    x = (np.random.default_rng(0).standard_normal((5, 40)) * 3).astype(dt.numpy)
    exact = [[Fraction(float(v)) for v in row] for row in x]
    sums = [sum(row, Fraction()) for row in exact]
    oracles = {
        "sum": sums,
        "mean": [s / len(row) for s, row in zip(sums, exact, strict=True)],
        "prod": [math.prod(row, start=Fraction(1)) for row in exact],
    }
    for name, values in oracles.items():
        found = call(lambda v, name=name: getattr(v, name)(axis=-1), x)
        assert [float(v) for v in found] == [nearest(v, dt) for v in values], name
    runs = [list(itertools.accumulate(row)) for row in exact]
    found = call(lambda v: v.cumsum(1), x)
    assert found.astype(float).tolist() == [[nearest(v, dt) for v in row] for row in runs]


def test_folds_of_integers_wrap() -> None:
    x = np.array([100, 100, 3], np.int8)
    assert call(lambda v: [v.sum(), v.prod(), v.cumsum(0)[-1]], x) == [-53, 48, -53]


def test_cumsum_forms() -> None:
    x = np.array([1.0, 2.0, INF, 4.0])
    forms = [
        call(lambda v, e=e, r=r: v.cumsum(0, exclusive=e, reverse=r), x).tolist()
        for e, r in itertools.product([False, True], repeat=2)
    ]
    assert forms == [[1, 3, INF, INF], [INF, INF, INF, 4], [0, 1, 3, INF], [INF, INF, 4, 0]]


# -- composites ------------------------------------------------------------------------------

X = np.random.default_rng(0).standard_normal((3, 4, 5)) * 4


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_softmax(axis: int) -> None:
    found = call(lambda v: v.softmax(axis), X)
    np.testing.assert_allclose(found, scipy.special.softmax(X, axis), rtol=1e-14)


def test_softmax_special_rows() -> None:
    x = np.array([[1e4, 1e4], [-INF, 0], [-INF, -INF], [NAN, 0], [INF, 0]], np.float32)
    expected = np.array([[0.5, 0.5], [0, 1], *[[NAN, NAN]] * 3], np.float32)
    np.testing.assert_array_equal(call(lambda v: v.softmax(), x), expected)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_norms(axis: int) -> None:
    size = X.shape[axis]
    gamma, beta = np.linspace(0.5, 2, size), np.linspace(-1, 1, size)
    wide = [
        np.moveaxis(np.broadcast_to(v, (*np.delete(X.shape, axis), size)), -1, axis)
        for v in (gamma, beta)
    ]
    mean, var = X.mean(axis, keepdims=True), X.var(axis, keepdims=True)
    expected = (X - mean) / np.sqrt(var + 1e-5) * wide[0] + wide[1]
    found = call(lambda *v: v[0].layer_norm(*v[1:], axis=axis), X, gamma, beta)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    size_of = np.linalg.norm(X, axis=axis, keepdims=True) / math.sqrt(size)
    found = call(lambda *v: v[0].rms_norm(*v[1:], axis=axis, eps=0.0), X, gamma, beta)
    np.testing.assert_allclose(found, X / size_of * wide[0] + wide[1], rtol=1e-12)


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm", "softmax"])
def test_16_bit_composites_round_once(name: str) -> None:
    x = (X * 50).astype(bf16.numpy)
    short = call(lambda v: getattr(v, name)(), x)
    exact = call(lambda v: getattr(v, name)(), x.astype(np.float64))
    assert ulps(short, exact) <= 0.5001
