"""The logarithm of the gamma function, and its derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from rlx.errors import DTypeError, GraphError
from rlx.ir.op import Array, attr, bad, sample
from rlx.ir.value import Value
from rlx.ops.pointwise.activation import Activation
from rlx.ops.pointwise.cast import in_double
from rlx.ops.pointwise.elementary import two_samples
from rlx.types import f64

__all__ = [
    "BERNOULLI",
    "Digamma",
    "Lgamma",
    "Polygamma",
    "digamma_above",
    "horner",
    "lgamma_middle",
]

BERNOULLI = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798,
    -174611 / 330,
)  # fmt: skip
"""Bernoulli numbers: the second, the fourth and so on."""
GAMMA = 0.57721566490153286061
"""Euler's constant."""
MOST = 20
"""The highest derivative of digamma: 20! and its powers of x stay within f32."""


@cache
def _zeta_minus_one(s: int) -> float:
    """What the terms of zeta(s) after the first sum to, by Euler and Maclaurin."""
    n = 40
    total = math.fsum(k**-s for k in range(2, n)) + n ** (1 - s) / (s - 1) + 0.5 * n**-s
    rising = float(s)
    for j, b in enumerate(BERNOULLI[:3], 1):
        total += b * rising / math.factorial(2 * j) * n ** (1 - s - 2 * j)
        rising *= (s + 2 * j - 1) * (s + 2 * j)
    return total


@cache
def _at_two(terms: int) -> tuple[float, ...]:
    """Coefficients of lgamma(2 + z) / z as a series in z."""
    rest = (_zeta_minus_one(k) * (-1) ** k / k for k in range(2, terms + 1))
    return (1 - GAMMA, *rest)


def horner(coefficients: Sequence[float], x: Any) -> Any:
    """A polynomial at x, the constant first; at infinity too."""
    found = x * coefficients[-1] + coefficients[-2]
    for c in reversed(coefficients[:-2]):
        found = found * x + c
    return found


def _outside(f: Callable[[float], float]) -> Callable[[Array], Array]:
    """A function of the math module, infinite at its poles."""

    def one(x: float) -> float:
        try:
            return f(x)
        except (ValueError, OverflowError):
            return math.inf

    each = np.frompyfunc(one, 1, 1)
    return lambda x: np.asarray(each(x), np.float64)


class OfGamma(Activation):
    """A function of the family: of a negative number it is reflected."""

    samples = two_samples("positive")


class Lgamma(OfGamma, name="mir.lgamma"):
    """``log(|gamma(x)|)``: infinite at 0 and the negative integers."""

    def reference(self, x: Array) -> Array:
        return in_double(_outside(math.lgamma), x)

    def scalar(self, k: Any, x: Any) -> Any:
        wide = x.dtype is f64
        y = k.select(x < 0.0, 1.0 - x, x)
        found = k.select(y < 8.5, lgamma_middle(k, y, wide), self._far(k, y, wide))
        apart = k.abs(x - k.round_even(x))
        mirrored = math.log(math.pi) - k.log(k.sin(apart * math.pi)) - found
        found = k.select(x < 0.0, mirrored, found)
        return k.select(k.compare("eq", k.abs(x), math.inf), math.inf, found)

    def _far(self, k: Any, y: Any, wide: bool) -> Any:
        """Stirling's series."""
        terms = [b / (2 * j * (2 * j - 1)) for j, b in enumerate(BERNOULLI, 1)]
        inverse = 1.0 / y
        tail = inverse * horner(terms if wide else terms[:3], inverse * inverse)
        return (y - 0.5) * (k.log(y) - 1.0) + (0.5 * math.log(2 * math.pi) - 0.5) + tail

    def slope(self, x: Value, y: Value) -> Value:
        return x.digamma()


def lgamma_middle(k: Any, y: Any, wide: bool) -> Any:
    """Of a number from 0 to 8.5: the series around 2, to which factors lead."""
    product, z = y * 0.0 + 1.0, y - 2.0
    for i in range(1, 7):
        product = k.select(y >= i + 1.5, product * (y - float(i)), product)
        z = k.select(y >= i + 1.5, y - (i + 2.0), z)
    low, least = k.compare("lt", y, 1.5), k.compare("lt", y, 0.5)
    z = k.select(least, y, k.select(low, y - 1.0, z))
    series = z * horner(_at_two(28 if wide else 14), z)
    below = k.select(low, k.log1p(z), 0.0) + k.select(least, k.log(y), 0.0)
    return series + k.log(product) - below


class Digamma(OfGamma, name="mir.digamma"):
    """The derivative of ``lgamma``: infinite at 0, nan at the negative integers."""

    def reference(self, x: Array) -> Array:
        return in_double(self._in_double, x)

    def _in_double(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            y = np.where(x < 0, 1 - x, x)
            found = digamma_above(np.log, y, steps=16, terms=8)
            apart = x - np.rint(x)
            mirrored = np.where(apart == 0, np.nan, found - math.pi / np.tan(apart * math.pi))
            return np.where(x < 0, mirrored, found)

    def scalar(self, k: Any, x: Any) -> Any:
        steps, terms = (12, 8) if x.dtype is f64 else (6, 4)
        found = digamma_above(k.log, k.select(x < 0.0, 1.0 - x, x), steps, terms)
        apart = x - k.round_even(x)
        mirrored = found - math.pi / k.tan(apart * math.pi)
        mirrored = k.select(k.compare("eq", apart, 0.0), math.nan, mirrored)
        return k.select(x < 0.0, mirrored, found)

    def slope(self, x: Value, y: Value) -> Value:
        return x.polygamma(1)


def digamma_above(log: Callable[[Any], Any], x: Any, steps: int, terms: int) -> Any:
    """Of a number that is not negative: the asymptotic series, ``steps`` further up."""
    y = x + float(steps)
    inverse = 1.0 / y
    square = inverse * inverse
    tail = square * horner([b / (2 * j) for j, b in enumerate(BERNOULLI[:terms], 1)], square)
    found = log(y) - inverse * 0.5 - tail
    total = 1.0 / x
    for i in range(1, steps):
        total = total + 1.0 / (x + float(i))
    return found - total


class Polygamma(OfGamma, name="mir.polygamma"):
    """The ``n``-th derivative of ``digamma``, n from 1 to 20."""

    n: int = attr(1, doc="which derivative")

    samples = (
        *(sample("3x4xT", n=n, data={0: "above_one"}) for n in (1, 2, 5)),
        sample("T", n=3, data={0: "above_one"}),
    )
    bads = (
        bad("2xi32", match="found i32. Cast the operand", error=DTypeError, n=1),
        bad("2xf32", match="n is 0, and goes from 1 to 20", error=GraphError, n=0),
    )

    def infer(self) -> Any:
        if not 1 <= self.n <= MOST:
            raise GraphError(f"polygamma: n is {self.n}, and goes from 1 to {MOST}")
        return super().infer()

    def reference(self, x: Array) -> Array:
        return in_double(self._in_double, x)

    def _in_double(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            found = self._of_positive(np.where(x < 0, 1 - x, x), wide=True)
            tangent = np.tan((x - np.rint(x)) * math.pi)
            return np.where(x < 0, self._mirrored(found, 1.0 / tangent), found)

    def scalar(self, k: Any, x: Any) -> Any:
        found = self._of_positive(k.select(x < 0.0, 1.0 - x, x), wide=x.dtype is f64)
        tangent = k.tan((x - k.round_even(x)) * math.pi)
        return k.select(x < 0.0, self._mirrored(found, 1.0 / tangent), found)

    def _of_positive(self, x: Any, wide: bool) -> Any:
        """``(-1)**(n+1) n! zeta(n + 1, x)``, by Euler and Maclaurin."""
        s, steps = self.n + 1, (10 if wide else 6) + self.n
        total = self._term(1.0 / x)
        for i in range(1, steps):
            total = total + self._term(1.0 / (x + float(i)))
        inverse = 1.0 / (x + float(steps))
        square, rising, tail = inverse * inverse, float(s), []
        for j, b in enumerate(BERNOULLI[: 10 if wide else 5], 1):
            tail.append(b * rising / math.factorial(2 * j))
            rising *= (s + 2 * j - 1) * (s + 2 * j)
        last = horner([1.0 / self.n, 0.5], inverse) + square * horner(tail, square)
        sign = -1.0 if self.n % 2 == 0 else 1.0
        return (total + self._factorial_power(inverse) * last) * sign

    def _term(self, x: Any) -> Any:
        """``n! x**(n + 1)``."""
        return self._factorial_power(x) * x

    def _factorial_power(self, x: Any) -> Any:
        """``n! x**n``, whose factors are taken in turn: the power alone leaves f32 first."""
        found = x
        for i in range(2, self.n + 1):
            found = found * (x * float(i))
        return found

    def _mirrored(self, found: Any, cotangent: Any) -> Any:
        """At x < 0, of what it is at 1 - x and the cotangent of pi x."""
        curve = [0.0, 1.0]  # derivatives of the cotangent are polynomials of it
        for _ in range(self.n):
            slope = [c * i for i, c in enumerate(curve)][1:]
            curve = [-a - b for a, b in zip([*slope, 0.0, 0.0], [0.0, 0.0, *slope], strict=True)]
        mirror = found * (-1.0 if self.n % 2 else 1.0)
        return mirror - horner(curve, cotangent) * math.pi ** (self.n + 1)

    def slope(self, x: Value, y: Value) -> Value:
        return x.polygamma(self.n + 1)
