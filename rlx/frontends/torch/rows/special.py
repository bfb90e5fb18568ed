"""Functions of two numbers that are computed step by step: incomplete gamma functions, divisors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rlx.frontends.torch.node import Node, Rows
from rlx.ir.value import Value
from rlx.ops.control.builders import while_loop
from rlx.types import f64

__all__ = ["ROWS"]

_EPSILON = float(np.finfo(np.float64).eps)


def _series(a: Value, x: Value) -> Value:
    """The sum of x**n / ((a + 1) ... (a + n)), which converges fast below a + 1."""

    def goes_on(_: Value, term: Value, total: Value) -> Value:
        return term.gt(total * _EPSILON).any()

    def more(r: Value, term: Value, total: Value) -> tuple[Value, Value, Value]:
        term = term * x / (r + 1.0)
        return r + 1.0, term, total + term

    one = a.ones_like()
    return while_loop(goes_on, more, (a, one, one))[2]


def _fraction(a: Value, x: Value) -> Value:
    """Legendre's continued fraction, which converges fast from a + 1 on, by the algorithm of Lentz
    (Thompson and Barnett 1986)."""

    def goes_on(i: Value, b: Value, c: Value, d: Value, h: Value, change: Value) -> Value:
        return (change - 1.0).abs().gt(_EPSILON).any()

    def more(
        i: Value, b: Value, c: Value, d: Value, h: Value, change: Value
    ) -> tuple[Value, ...]:  # fmt: skip
        i, b = i + 1.0, b + 2.0
        top = i * (a - i)
        d, c = _apart(top * d + b), _apart(b + top / c)
        d = 1.0 / d
        change = c * d
        return i, b, c, d, h * change, change

    b = x + 1.0 - a
    first = 1.0 / b
    start = (a.zeros_like(), b, a.full_like(1e300), first, first, a.zeros_like())
    return while_loop(goes_on, more, start)[4]


def _apart(v: Value) -> Value:
    """A number, away from 0."""
    return v.abs().lt(1e-300).where(1e-300, v)


def _incomplete(lower: bool) -> Callable[..., Value]:
    def row(n: Node, a: Value, x: Value) -> Value:
        """Regularised, of a real a >= 0 and x >= 0; nan elsewhere. Computed in f64, as Numerical
        Recipes (6.2) has it."""
        a, x = (n.cast(v).cast(f64) for v in (a, x))
        shape = (a + x).shape
        a, x = a.expand(list(shape)), x.expand(list(shape))
        plain = a.gt(0.0).logical_and(x.gt(0.0)).logical_and((a + x).lt(np.inf))
        low = x.lt(a + 1.0)
        summed, divided = plain.logical_and(low), plain.logical_and(low.logical_not())
        size = (a * x.log() - x - a.lgamma()).exp()
        ones = a.ones_like()
        below = _series(summed.where(a, ones), summed.where(x, ones)) * size / a
        above = _fraction(divided.where(a, ones), divided.where(x, ones * 3.0)) * size
        found = low.where(below if lower else 1.0 - below, 1.0 - above if lower else above)
        return n.cast(plain.where(found, _limit(a, x, 1.0 if lower else 0.0)))

    return row


def _limit(a: Value, x: Value, all_: float) -> Value:
    """At 0 and infinity: ``all_`` where x is beyond a."""
    legal = a.ge(0.0).logical_and(x.ge(0.0)).logical_and(a.ne(x))
    found = x.gt(a).where(a.full_like(all_), a.full_like(1.0 - all_))
    return legal.where(found, a.full_like(np.nan))


def divisor(n: Node, a: Value, b: Value) -> Value:
    """The greatest common divisor, by Euclid."""
    a, b = n.cast(a), n.cast(b)
    shape = list((a + b).shape)

    def step(a: Value, b: Value) -> tuple[Value, Value]:
        none = b.eq(b.zeros_like())
        return none.where(a, b), none.where(b, a.fmod(none.where(b.ones_like(), b)))

    found = while_loop(
        lambda a, b: b.ne(b.zeros_like()).any(), step, (a.expand(shape), b.expand(shape))
    )
    return found[0].abs()


def multiple(n: Node, a: Value, b: Value) -> Value:
    common = divisor(n, a, b)
    none = common.eq(common.zeros_like())
    whole = n.cast(a).div(none.where(common.ones_like(), common))
    return (whole * n.cast(b)).abs()


ROWS: Rows = {
    "igamma": _incomplete(True), "igammac": _incomplete(False),
    "special_gammainc": _incomplete(True), "special_gammaincc": _incomplete(False),
    "gcd": divisor, "lcm": multiple,
}  # fmt: skip
