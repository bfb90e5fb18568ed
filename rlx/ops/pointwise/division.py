"""Division with a whole quotient, and what it leaves: of floats and of integers."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from rlx.ir.op import Array, sample
from rlx.ir.value import Value
from rlx.ops.pointwise.base import Binary, sum_to
from rlx.ops.pointwise.binary import BADS, SAMPLES, safe_divisor, total
from rlx.ops.pointwise.cast import converted
from rlx.types import bf16, f16

__all__ = ["FloorDivide", "Fmod", "Remainder"]


class WholeDivision(Binary):
    """A result of a division with a whole quotient. An integer over 0 gives 0, as in NumPy."""

    samples = tuple(sample(*s.types, data={1: "nonzero"}) for s in SAMPLES)
    bads = BADS
    ufunc: ClassVar[Any]

    def reference(self, lhs: Array, rhs: Array) -> Array:
        lhs, rhs = np.asarray(lhs), np.asarray(rhs)
        with np.errstate(all="ignore"):
            if self.out.dtype in (f16, bf16):
                wide = type(self).ufunc(lhs.astype(np.float32), rhs.astype(np.float32))
                return converted(np.asarray(wide), self.out.dtype)
            return type(self).ufunc(lhs, rhs)


def _signs_differ(x: Any, y: Any) -> Any:
    """Whether one of two numbers, of which none is nan, is negative and the other is not."""
    return (x < 0) ^ (y < 0)


class FloorDivide(WholeDivision, name="mir.floor_divide"):
    """The largest whole number not above the quotient: Python's ``//``.

    An integer over 0 is 0, and the least one over -1 is itself. Floats are as in NumPy: over 0 they
    give inf or nan, and inf over any number nan. The derivative is 0 everywhere.
    """

    differentiable = False
    ufunc = np.floor_divide

    def scalar(self, k: Any, lhs: Any, rhs: Any) -> Any:
        if lhs.dtype.is_float:
            return _float_floor_divide(k, lhs, rhs)
        zero, divisor = safe_divisor(k, lhs, rhs)
        quotient = lhs // divisor
        if lhs.dtype.kind == "int":
            rest = lhs - quotient * divisor
            below = k.compare("ne", rest, 0) & _signs_differ(rest, rhs)
            quotient = k.select(below, quotient - 1, quotient)
        return k.select(zero, 0, quotient)


def _float_floor_divide(k: Any, lhs: Any, rhs: Any) -> Any:
    """From the exact remainder: the rounded quotient alone may be whole where the true one is
    not."""
    rest = lhs % rhs
    quotient = (lhs - rest) / rhs
    below = k.compare("ne", rest, 0.0) & _signs_differ(rest, rhs)
    quotient = k.select(below, quotient - 1.0, quotient)
    whole = k.floor(quotient)
    whole = k.select(quotient - whole > 0.5, whole + 1.0, whole)
    plain = lhs / rhs
    # A zero has the sign of the quotient.
    whole = k.select(k.compare("eq", quotient, 0.0), _signed_zero(k, plain), whole)
    return k.select(k.compare("eq", rhs, 0.0), plain, whole)


def _signed_zero(k: Any, x: Any) -> Any:
    """0 with the sign of a number that may be 0 or inf itself."""
    return k.select((x < 0.0) | (1.0 / x < 0.0), k.const(-0.0, x.dtype, x.lanes), 0.0)


class Leftover(WholeDivision):
    """What a whole quotient leaves: ``lhs - quotient * rhs``, exactly."""

    def _count(self) -> Value:
        """The quotient, which the derivative takes as constant."""
        return ((self.lhs - self.out) / self.rhs).round()

    def vjp(self, g: Value) -> tuple[Value, Value]:
        return sum_to(g, self.lhs), sum_to(-(g * self._count()), self.rhs)

    def jvp(self, tl: Value | None, tr: Value | None) -> Value:
        return total(self, tl, None if tr is None else -(tr * self._count()))


class Remainder(Leftover, name="mir.remainder"):
    """What ``//`` leaves, with the sign of the divisor: Python's ``%``.

    An integer over 0 leaves 0, a float nan, and so are its derivatives by the divisor.
    """

    ufunc = np.remainder

    def scalar(self, k: Any, lhs: Any, rhs: Any) -> Any:
        if lhs.dtype.is_float:
            rest = lhs % rhs
            other = k.compare("ne", rest, 0.0) & _signs_differ(rest, rhs)
            zero = _signed_zero(k, rhs)
            return k.select(k.compare("eq", rest, 0.0), zero, k.select(other, rest + rhs, rest))
        zero, divisor = safe_divisor(k, lhs, rhs)
        rest = lhs % divisor
        if lhs.dtype.kind == "int":
            other = k.compare("ne", rest, 0) & _signs_differ(rest, rhs)
            rest = k.select(other, rest + rhs, rest)
        return k.select(zero, 0, rest)


class Fmod(Leftover, name="mir.fmod"):
    """What a quotient rounded toward zero leaves, with the sign of the dividend.

    That is C's ``fmod``, and its ``%`` of integers. An integer over 0 leaves 0, a float
    nan, and so are its derivatives by the divisor.
    """

    ufunc = np.fmod

    def scalar(self, k: Any, lhs: Any, rhs: Any) -> Any:
        if lhs.dtype.is_float:
            return lhs % rhs
        zero, divisor = safe_divisor(k, lhs, rhs)
        return k.select(zero, 0, lhs % divisor)
