"""Arithmetic of two operands."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from rlx.errors import DTypeError, ShapeError
from rlx.ir.lift import promoted
from rlx.ir.op import Array, bad, sample
from rlx.ir.value import Value
from rlx.ops.pointwise.base import ARITHMETIC, INEXACT, ORDERED, Binary, sum_to
from rlx.ops.pointwise.cast import in_double
from rlx.types import FLOATS

__all__ = ["Add", "Div", "Maximum", "Minimum", "Mul", "Pow", "Sub"]

SAMPLES = (
    sample("2x3xT", "2x3xT"),
    sample("4x1x5xT", "3x1xT"),
    sample("T", "2xT"),
    sample("T", "T"),
    sample("0x3xT", "3xT"),
)
SHAPES_AND_TYPES = (
    bad("2x3xf32", "4xf32", match="do not broadcast", error=ShapeError),
    bad("2xf32", "2xi32", match="one type", error=DTypeError),
)
BADS = (
    *SHAPES_AND_TYPES,
    bad("2xbool", "2xbool", match="found bool. Cast the operand", error=DTypeError),
)


def total(node: Binary, *parts: Value | None) -> Value:
    """The sum of the tangents that are there, in the shape of the node's result."""
    there = [p for p in parts if p is not None]
    out = there[0]
    for p in there[1:]:
        out = out + p
    return out.expand(node.out.shape)


def safe_divisor(k: Any, lhs: Any, rhs: Any) -> tuple[Any, Any]:
    """Whether an integer divisor is 0, and the divisor with which no instruction traps: 1 in place
    of 0, and of -1 under the least integer."""
    dt = lhs.dtype
    zero = k.compare("eq", rhs, 0)
    unsafe = zero
    if dt.kind == "int":
        least = k.compare("eq", lhs, -(1 << (dt.bits - 1)))
        unsafe = zero | (least & k.compare("eq", rhs, -1))
    return zero, k.select(unsafe, 1, rhs)


class Add(Binary, name="mir.add"):
    """Sum, element by element. Integers wrap."""

    linear = ((0, 1),)
    commutes = True
    dtypes = ARITHMETIC
    samples = SAMPLES
    bads = BADS

    def reference(self, lhs: Array, rhs: Array) -> Array:
        return np.add(lhs, rhs)

    def scalar(self, k: Any, lhs: Any, rhs: Any) -> Any:
        return lhs + rhs

    def vjp(self, g: Value) -> tuple[Value, Value]:
        return sum_to(g, self.lhs), sum_to(g, self.rhs)

    def jvp(self, tl: Value | None, tr: Value | None) -> Value:
        return total(self, tl, tr)


class Sub(Binary, name="mir.sub"):
    """Difference, element by element. Integers wrap."""

    linear = ((0, 1),)
    dtypes = ARITHMETIC
    samples = SAMPLES
    bads = BADS

    def reference(self, lhs: Array, rhs: Array) -> Array:
        return np.subtract(lhs, rhs)

    def scalar(self, k: Any, lhs: Any, rhs: Any) -> Any:
        return lhs - rhs

    def vjp(self, g: Value) -> tuple[Value, Value]:
        return sum_to(g, self.lhs), sum_to(-g, self.rhs)

    def jvp(self, tl: Value | None, tr: Value | None) -> Value:
        return total(self, tl, None if tr is None else -tr)


class Mul(Binary, name="mir.mul"):
    """Product, element by element. Integers wrap."""

    linear = ((0,), (1,))
    commutes = True
    dtypes = ARITHMETIC
    samples = SAMPLES
    bads = BADS

    def reference(self, lhs: Array, rhs: Array) -> Array:
        return np.multiply(lhs, rhs)

    def scalar(self, k: Any, lhs: Any, rhs: Any) -> Any:
        return lhs * rhs

    def vjp(self, g: Value) -> tuple[Value, Value]:
        return sum_to(g * self.rhs, self.lhs), sum_to(g * self.lhs, self.rhs)

    def jvp(self, tl: Value | None, tr: Value | None) -> Value:
        return total(
            self,
            None if tl is None else tl * self.rhs,
            None if tr is None else tr * self.lhs,
        )


class Div(Binary, name="mir.div"):
    """Quotient, element by element.

    Integers divide toward zero, as in C; ``x / 0`` is 0, and the least integer over -1 wraps to
    itself. Floats follow IEEE 754, complex numbers divide as in NumPy (by Smith's formula).
    """

    linear = ((0,),)
    dtypes = ARITHMETIC
    samples = (
        *(sample(*s.types, data={1: "nonzero"}) for s in SAMPLES),
        sample("4x5xT", "4x5xT"),
    )
    bads = BADS

    def reference(self, lhs: Array, rhs: Array) -> Array:
        lhs, rhs = np.asarray(lhs), np.asarray(rhs)
        if self.lhs.dtype in INEXACT:
            return np.divide(lhs, rhs)
        one = rhs.dtype.type(1)
        by = np.where(rhs == 0, one, rhs)
        floor = np.floor_divide(lhs, by)
        inexact = floor * by != lhs
        quotient = np.where(inexact & ((lhs < 0) != (rhs < 0)), floor + one, floor)
        return np.where(rhs == 0, rhs, quotient)

    def scalar(self, k: Any, lhs: Any, rhs: Any) -> Any:
        if lhs.dtype in INEXACT:
            return lhs / rhs
        zero, divisor = safe_divisor(k, lhs, rhs)
        return k.select(zero, 0, lhs // divisor)

    def vjp(self, g: Value) -> tuple[Value, Value]:
        slope = g / self.rhs
        return sum_to(slope, self.lhs), sum_to(-(slope * self.out), self.rhs)

    def jvp(self, tl: Value | None, tr: Value | None) -> Value:
        return total(
            self,
            None if tl is None else tl / self.rhs,
            None if tr is None else -(tr * self.out / self.rhs),
        )


class Pow(Binary, name="mir.pow"):
    """``lhs`` to the power ``rhs``; a negative base with a fractional power is nan.

    Of complex numbers it is ``exp(rhs log(lhs))``, by other ops.
    """

    dtypes = FLOATS
    samples = tuple(sample(*s.types, data={0: "positive"}) for s in SAMPLES)
    bads = (
        SHAPES_AND_TYPES[0],
        bad("2xf32", "2xf64", match="one type", error=DTypeError),
        bad("2xi32", "2xi32", match="found i32. Cast the operand", error=DTypeError),
    )

    @classmethod
    def build(cls, lhs: Any, rhs: Any) -> Value:
        """Numbers take the other operand's type; two types meet by promotion."""
        a, b = promoted(lhs, rhs)
        if a.dtype.is_complex:
            from rlx.ops.pointwise.analytic import power

            return power(a, b)
        return cls(a, b).out

    def reference(self, lhs: Array, rhs: Array) -> Array:
        return in_double(np.float_power, lhs, rhs)

    def scalar(self, k: Any, lhs: Any, rhs: Any) -> Any:
        return k.pow(lhs, rhs)

    def _slopes(self) -> tuple[Value, Value]:
        """The two partial derivatives. By the base it is 0 where the power is 0, and by the power
        where the base is: not nan."""
        base, power = self.lhs, self.rhs
        # The factor 0 of a power of 0 is kept, since its own derivative by the power is not 0;
        # where it would meet an infinity or nan, that is taken away.
        flat = power.eq(0).logical_and(base.abs().gt(0).logical_not())
        by_base = power * flat.where(1.0, base) ** (power - 1.0)
        return by_base, self.out * base.eq(0).where(1.0, base).log()

    def vjp(self, g: Value) -> tuple[Value, Value]:
        by_base, by_power = self._slopes()
        return sum_to(g * by_base, self.lhs), sum_to(g * by_power, self.rhs)

    def jvp(self, tl: Value | None, tr: Value | None) -> Value:
        by_base, by_power = self._slopes()
        return total(
            self,
            None if tl is None else tl * by_base,
            None if tr is None else tr * by_power,
        )


class Extreme(Binary):
    """The shared part of maximum and minimum: a tie splits the gradient evenly."""

    commutes = True
    dtypes = ORDERED
    samples = SAMPLES
    bads = SHAPES_AND_TYPES
    larger: ClassVar[bool]

    def reference(self, lhs: Array, rhs: Array) -> Array:
        out = (np.maximum if self.larger else np.minimum)(lhs, rhs)
        if not self.lhs.dtype.is_float:
            return out
        # NumPy takes either of two zeros, the first or the second by their type.
        zero = np.where(np.signbit(lhs) == self.larger, rhs, lhs)
        return np.where((lhs == 0) & (rhs == 0), zero, out)

    def _share(self, t: Value, mine: Value, other: Value) -> Value:
        """``t`` where ``mine`` was taken, half of it at a tie, 0 elsewhere."""
        won = mine.gt(other) if self.larger else mine.lt(other)
        return won.where(t, mine.eq(other).where(t * 0.5, 0.0))

    def vjp(self, g: Value) -> tuple[Value, Value]:
        lhs, rhs = self.lhs, self.rhs
        return sum_to(self._share(g, lhs, rhs), lhs), sum_to(self._share(g, rhs, lhs), rhs)

    def jvp(self, tl: Value | None, tr: Value | None) -> Value:
        lhs, rhs = self.lhs, self.rhs
        return total(
            self,
            None if tl is None else self._share(tl, lhs, rhs),
            None if tr is None else self._share(tr, rhs, lhs),
        )


class Maximum(Extreme, name="mir.maximum"):
    """The larger of two, element by element; nan if either is nan. The "or" of bools.

    0.0 is larger than -0.0, as in IEEE 754's ``maximum``; NumPy leaves it open, and Vulkan too."""

    larger = True

    def scalar(self, k: Any, lhs: Any, rhs: Any) -> Any:
        return k.maximum(lhs, rhs)


class Minimum(Extreme, name="mir.minimum"):
    """The smaller of two, element by element; nan if either is nan. The "and" of bools.

    -0.0 is smaller than 0.0, as in IEEE 754's ``minimum``; NumPy leaves it open, and Vulkan too."""

    larger = False

    def scalar(self, k: Any, lhs: Any, rhs: Any) -> Any:
        return k.minimum(lhs, rhs)
