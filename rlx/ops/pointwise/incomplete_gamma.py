"""The regularised incomplete gamma functions, and the derivative by the shape of the distribution.

With ``f(y) = y**(a - 1) exp(-y) / gamma(a)``, the density of the gamma distribution of shape a,
they are its integrals below and above x. Below a + 1 the series in x is summed where a is small;
else the density is integrated from x to where it vanishes, by Gauss and Legendre in steps along
which it falls by a few factors of e.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar

import numpy as np

from rlx.errors import DTypeError, ShapeError, UnsupportedError
from rlx.ir.op import Array, bad, sample
from rlx.ir.value import Value
from rlx.ops.pointwise.base import Binary, sum_to
from rlx.ops.pointwise.binary import SAMPLES, total
from rlx.ops.pointwise.cast import in_double
from rlx.ops.pointwise.compare import Where
from rlx.ops.pointwise.gamma import BERNOULLI, digamma_above, horner, lgamma_middle
from rlx.types import FLOATS, f32, f64

__all__ = ["Igamma", "IgammaGradA", "Igammac"]

STIRLING = 8.0
"""From here on the gamma function is Stirling's series."""
SUMMED = 20.0
"""Up to this shape the series in x is summed."""
POINTS = 10
"""Of a step of the integration."""


@cache
def _rule() -> list[tuple[float, float]]:
    places, weights = np.polynomial.legendre.leggauss(POINTS)
    return [(float(p), float(w)) for p, w in zip(places, weights, strict=True)]


class _Density:
    """The gamma density of shape a > 0, in the words of ``k``: registers, arrays or values."""

    def __init__(self, k: Any, a: Any, wide: bool) -> None:
        self.k, self.a, self.wide = k, a, wide
        self.small = k.compare("lt", a, STIRLING)
        self.low, self.high = k.minimum(a, STIRLING), k.maximum(a, STIRLING)

    def log_constant(self) -> Any:
        """Of what ``log_term`` lacks: log(gamma(a + 1)), of a large shape beside a log(a) - a."""
        k, inverse = self.k, 1.0 / self.high
        terms = [b / (2 * j * (2 * j - 1)) for j, b in enumerate(BERNOULLI, 1)]
        tail = inverse * horner(terms if self.wide else terms[:3], inverse * inverse)
        far = (k.log(self.high) + math.log(2 * math.pi)) * 0.5 + tail
        return k.select(self.small, lgamma_middle(k, self.low + 1.0, self.wide), far)

    def log_term(self, y: Any, apart: Any) -> Any:
        """log(y**a exp(-y)), of a large shape less a log(a) - a: of ``apart``, which is y - a, so
        that no digits cancel."""
        k, t = self.k, apart / self.high
        r = t / (t + 2.0)
        square = r * r
        series = [1 / (2 * i + 3) for i in range(16 if self.wide else 7)]
        near = r * (t - square * 2.0 * horner(series, square))
        bent = k.select(self._near(t), near, t - k.log(y / self.high))  # t - log(1 + t)
        return k.select(self.small, self.low * k.log(y) - y, -self.high * bent)

    def _near(self, t: Any) -> Any:
        return self.k.compare("lt", self.k.abs(t), 0.5)

    def slope(self, y: Any, apart: Any) -> Any:
        """The derivative of log f(y) by a: log(y) - digamma(a)."""
        k, t, inverse = self.k, apart / self.high, 1.0 / self.high
        square = inverse * inverse
        terms = [b / (2 * j) for j, b in enumerate(BERNOULLI[: 8 if self.wide else 4], 1)]
        gap = inverse * 0.5 + square * horner(terms, square)  # log(a) - digamma(a)
        below = k.log(y) - digamma_above(k.log, self.low, *((12, 8) if self.wide else (6, 4)))
        above = k.select(self._near(t), k.log1p(t), k.log(y / self.high)) + gap
        return k.select(self.small, below, above)


def _total(k: Any, at: Callable[[Any, Any], tuple[Any, Any]], none: Any) -> tuple[Any, Any]:
    """Two sums over the points of a step; of arrays all points are computed together."""
    if isinstance(k, _Arrays):
        places, shares = (v.reshape(-1, *[1] * none.ndim) for v in np.array(_rule()).T)
        values, changes = at(places, shares)
        return sum(values, none), sum(changes, none)
    part, change = none, none
    for place, share in _rule():
        value, changed = at(place, share)
        part, change = part + value, change + changed
    return part, change


def _integral(k: Any, a: Any, x: Any, wide: bool, sloped: bool) -> tuple[Any, Any]:
    """The integral of the density, or of its derivative by a if ``sloped``, on one side of x; and
    whether that is the side below. Both are positive and finite."""
    density, least = _Density(k, a, wide), 2.0**-53 if wide else 2.0**-24
    below = x < a + 1.0
    summed = below & (a < SUMMED)
    constant = density.log_constant()

    # The sum over n of x**n / ((a + 1) ... (a + n)), each times log(x) - digamma(a + n + 1).
    weight = density.slope(x, x - a) - 1.0 / a if sloped else x * 0.0 + 1.0

    def next_term(n: Any, term: Any, size: Any, weight: Any, found: Any) -> tuple[Any, ...]:
        term = term * x / n
        weight = weight - 1.0 / n if sloped else weight
        return n + 1.0, term, size + term, weight, found + term * weight

    none = x * 0.0
    first = k.select(summed, x * 0.0 + 1.0, 0.0)
    start = (a + 1.0, first, first, weight, first * weight)
    series = k.repeat(lambda n, term, size, *_: term > size * least, next_term, start)[4]
    series = series * k.exp(density.log_term(x, x - a) - constant)

    rate = k.abs(1.0 - (a - 1.0) / x) + 1.0 / k.sqrt(a + 1.0)
    step = k.select(below, -1.0 / rate, 1.0 / rate) * 2.0

    def next_part(begin: Any, size: Any, _: Any, found: Any) -> tuple[Any, ...]:
        end = k.maximum(begin + step, begin - (x + begin) * 0.75)
        half, middle = (end - begin) * 0.5, (end + begin) * 0.5

        def at(place: Any, share: Any) -> tuple[Any, Any]:
            on = middle + half * place
            y = (x + on, (x - a) + on)
            value = k.exp(density.log_term(*y) - constant)
            scaled = value * (a / y[0]) * (k.abs(half) * share)
            value = k.select(k.compare("gt", value, 0.0), scaled, 0.0)
            return value, value * density.slope(*y) if sloped else value

        part, change = _total(k, at, none)
        return end, size + part, part, found + change

    start = (none, none, k.select(summed, none, none + 1.0), none)
    integral = k.repeat(lambda begin, size, part, _: part > size * least, next_part, start)[3]
    return k.select(summed, series, integral), below


class _Arrays:
    """The words of formulas, of arrays."""

    select = staticmethod(np.where)

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def compare(how: str, a: Any, b: Any) -> Any:
        return getattr(operator, how)(a, b)

    @staticmethod
    def repeat(test: Any, body: Any, init: Any) -> list[Any]:
        carried = [np.asarray(v) for v in init]
        while np.any(on := test(*carried)):
            carried = [np.where(on, n, c) for n, c in zip(body(*carried), carried, strict=True)]
        return carried


class _Values:
    """The same, of values."""

    select = staticmethod(Where.build)

    def __getattr__(self, name: str) -> Any:
        return lambda x, *rest: getattr(x, name)(*rest)

    def compare(self, how: str, a: Value, b: float) -> Value:
        return getattr(a, how)(b)


class IncompleteGamma(Binary):
    """A function of a shape and a bound."""

    pointwise = False
    dtypes = FLOATS
    samples = tuple(
        sample(*s.types, data={0: "positive", 1: "positive"}, derivatives=1) for s in SAMPLES
    )
    bads = (
        bad("2x3xf32", "4xf32", match="do not broadcast", error=ShapeError),
        bad("2xf32", "2xf64", match="one type", error=DTypeError),
        bad("2xi32", "2xi32", match="found i32. Cast the operand", error=DTypeError),
    )
    flops_per_element = 500
    sloped: ClassVar[bool] = False
    _of: ClassVar[Callable[..., Any]]
    """``_of(k, integral, below)`` -> the result, of the integral on one side of the bound."""
    _edge: ClassVar[Callable[..., Any]]
    """``_edge(k, a, x)`` -> the result where an operand is 0, infinite, negative or nan."""

    def reference(self, lhs: Array, rhs: Array) -> Array:
        with np.errstate(all="ignore"):
            return in_double(lambda a, x: self.formula(_Arrays(), a, x, wide=True),
                             *np.broadcast_arrays(lhs, rhs))  # fmt: skip

    def loops(self, b: Any) -> None:
        b.pointwise(lambda k, a, x: self.formula(k, a, x, a.dtype is f64))

    def formula(self, k: Any, a: Any, x: Any, wide: bool) -> Any:
        """The result, in the words of ``k``: registers, arrays or tensors."""
        inside = self._inside(a) & self._inside(x)
        a_, x_ = k.select(inside, a, 1.0), k.select(inside, x, 1.0)
        found = self._of(k, *_integral(k, a_, x_, wide, self.sloped))
        return k.select(inside, found, self._edge(k, a, x))

    def _inside(self, v: Any) -> Any:
        return (v > 0.0) & (v < math.inf)


def _bounds(k: Any, a: Any, x: Any, beyond: float) -> Any:
    """``beyond`` where x is greater than a, 1 less that where it is smaller; nan where they are
    equal or one is negative."""
    unknown = a * math.nan
    found = k.select(k.compare("lt", x, a), 1.0 - beyond, unknown)
    found = k.select(k.compare("lt", a, x), beyond, found)
    return k.select((a >= 0.0) & (x >= 0.0), found, unknown)


def _density(a: Value, x: Value) -> Value:
    """The gamma density of shape a at x."""
    k, dt = _Values(), a.dtype
    a, x = (v if dt is f64 else v.cast(f32) for v in (a, x))
    density = _Density(k, a, dt is f64)
    return ((density.log_term(x, x - a) - density.log_constant()).exp() * (a / x)).cast(dt)


class Regularised(IncompleteGamma):
    """A function with derivatives by both operands."""

    sign: ClassVar[float] = 1.0

    def _by_bound(self) -> Value:
        return _density(self.lhs, self.rhs) * self.sign

    def _by_shape(self) -> Value:
        return IgammaGradA(self.lhs, self.rhs).out * self.sign

    def vjp(self, g: Value) -> tuple[Value, Value]:
        return sum_to(g * self._by_shape(), self.lhs), sum_to(g * self._by_bound(), self.rhs)

    def jvp(self, tl: Value | None, tr: Value | None) -> Value:
        return total(
            self,
            None if tl is None else tl * self._by_shape(),
            None if tr is None else tr * self._by_bound(),
        )


class Igamma(Regularised, name="mir.igamma"):
    """The regularised lower incomplete gamma function.

    Of the shape a (left) and the bound x (right) it is the integral from 0 to x of
    ``y**(a - 1) exp(-y) / gamma(a)``; nan where one is negative, or both are 0 or infinite. It has
    second derivatives, but by a.
    """

    def _of(self, k: Any, integral: Any, below: Any) -> Any:
        return k.select(below, integral, 1.0 - integral)

    def _edge(self, k: Any, a: Any, x: Any) -> Any:
        return _bounds(k, a, x, 1.0)


class Igammac(Regularised, name="mir.igammac"):
    """The regularised upper incomplete gamma function, ``1 - igamma(a, x)``.

    Its digits are all there where x is beyond a + 1.
    """

    sign = -1.0

    def _of(self, k: Any, integral: Any, below: Any) -> Any:
        return k.select(below, 1.0 - integral, integral)

    def _edge(self, k: Any, a: Any, x: Any) -> Any:
        return _bounds(k, a, x, 0.0)


class IgammaGradA(IncompleteGamma, name="mir.igamma_grad_a"):
    """The derivative of ``igamma(a, x)`` by a: 0 where x is 0 or infinite. It has none itself."""

    sloped = True
    samples = tuple(sample(*s.types, data=s.data, derivatives=0) for s in IncompleteGamma.samples)

    def _of(self, k: Any, integral: Any, below: Any) -> Any:
        return k.select(below, integral, -integral)

    def _edge(self, k: Any, a: Any, x: Any) -> Any:
        legal = (a > 0.0) & (x >= 0.0) & (a < math.inf)
        return k.select(legal, 0.0, (a + x) * math.nan)

    def vjp(self, g: Value) -> tuple[Value, Value]:
        raise self._none()

    def jvp(self, tl: Value | None, tr: Value | None) -> Value:
        raise self._none()

    def _none(self) -> UnsupportedError:
        return UnsupportedError("igamma has no second derivative by its shape a")
