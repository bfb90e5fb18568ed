"""Running folds along an axis: sum, product, extrema, logarithm of a sum of exponentials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from rlx.ir.op import Array, attr, operand, sample
from rlx.ir.value import Value
from rlx.ops.movement.constant import Iota
from rlx.ops.movement.movement import axis_of, zeros
from rlx.ops.pointwise.base import ARITHMETIC, INEXACT
from rlx.ops.pointwise.cast import in_double, widened
from rlx.ops.reduction.recurrence import LinearRecurrence, Running
from rlx.ops.reduction.reduce import bound
from rlx.types import FLOATS, bf16, f16, i64

__all__ = ["Cummax", "Cummin", "Cumprod", "Cumsum", "Logcumsumexp"]


class Cumsum(Running, name="mir.cumsum"):
    """Running sum along an axis. Integers wrap; f16 and bf16 accumulate in f32.

    Element i is the sum of the elements up to i; ``exclusive`` leaves i itself out, ``reverse``
    sums from the end: the elements from i on.
    """

    x: Value = operand("any tensor of numbers")
    axis: int = attr(doc="the axis along which to sum")
    exclusive: bool = attr(False, "leave each element out of its own sum")
    reverse: bool = attr(False, "sum from the end of the axis")

    dtypes = ARITHMETIC
    samples = (
        sample("2x3x4xT", axis=1),
        sample("2x3xT", axis=0, exclusive=True),
        sample("2x5xT", axis=1, reverse=True),
        sample("4xT", axis=0, exclusive=True, reverse=True),
        sample("2x1xT", axis=1, exclusive=True),
        sample("2x0xT", axis=1),
    )

    @classmethod
    def build(cls, x: Value, axis: int, exclusive: bool = False, reverse: bool = False) -> Value:
        """A negative axis counts from the end."""
        return cls(x, axis_of(axis, x.rank, "cumsum"), exclusive, reverse).out

    def reference(self, x: Array) -> Array:
        x = np.flip(x, self.axis) if self.reverse else x
        out = in_double(self._running, x) if self.x.dtype in INEXACT else self._running(x)
        return np.flip(out, self.axis) if self.reverse else out

    def _running(self, x: Array) -> Array:
        total = np.cumsum(x, axis=self.axis, dtype=x.dtype)
        if not self.exclusive:
            return total
        # Not total - x, which is nan after an inf.
        first = np.zeros_like(np.take(x, [0] if x.shape[self.axis] else [], axis=self.axis))
        rest = np.take(total, range(x.shape[self.axis] - 1), axis=self.axis)
        return np.concatenate([first, rest], axis=self.axis)

    def start(self, b: Any) -> list[Any]:
        return [b.const(0, self.x.dtype)]

    @property
    def groups(self) -> bool:
        return True

    def fold(self, k: Any, carried: Sequence[Any], x: Any) -> list[Any]:
        return [carried[0] + x]

    def vjp(self, g: Value) -> tuple[Value]:
        return (g.cumsum(self.axis, self.exclusive, not self.reverse),)

    def jvp(self, t: Value) -> Value:
        return t.cumsum(self.axis, self.exclusive, self.reverse)


class Cumprod(Running, name="mir.cumprod"):
    """Running product along an axis. Integers wrap; f16 and bf16 accumulate in f32.

    Element i is the product of the elements up to i; ``exclusive`` leaves i itself out, ``reverse``
    multiplies from the end. Nothing is divided in the gradient, so it holds at zeros.
    """

    x: Value = operand("any tensor of numbers")
    axis: int = attr(doc="the axis along which to multiply")
    exclusive: bool = attr(False, "leave each element out of its own product")
    reverse: bool = attr(False, "multiply from the end of the axis")

    dtypes = ARITHMETIC
    samples = (
        sample("2x3x4xT", axis=1),
        sample("2x4xT", axis=1, exclusive=True, reverse=True),
        sample("2x0xT", axis=1),
    )

    @classmethod
    def build(cls, x: Value, axis: int, exclusive: bool = False, reverse: bool = False) -> Value:
        """A negative axis counts from the end."""
        return cls(x, axis_of(axis, x.rank, "cumprod"), exclusive, reverse).out

    def reference(self, x: Array) -> Array:
        return in_double(self._products, x) if self.x.dtype in INEXACT else self._products(x)

    def _products(self, x: Array) -> Array:
        total = self.accumulated(np.multiply, x)
        if not self.exclusive or not x.shape[self.axis]:
            return total
        out = np.roll(total, -1 if self.reverse else 1, self.axis)
        out[(slice(None),) * self.axis + (-1 if self.reverse else 0,)] = 1
        return out

    def start(self, b: Any) -> list[Any]:
        return [b.const(1, self.x.dtype)]

    @property
    def groups(self) -> bool:
        """Not of floats: the product of a group may overflow where that of all does not."""
        return self.x.dtype.is_int

    def fold(self, k: Any, carried: Sequence[Any], x: Any) -> list[Any]:
        return [carried[0] * x]

    def vjp(self, g: Value) -> tuple[Value]:
        wide, x = widened(g), widened(self.x)
        wide = self.near(wide, -1, 0) if self.exclusive else wide
        # What an element does to its own product and, by the factors behind it, to later ones.
        onward = LinearRecurrence(self.near(x, -1, 0), wide, self.axis, not self.reverse).out
        return ((onward * self._before(x)).cast(to=g.dtype),)

    def jvp(self, t: Value) -> Value:
        x = widened(self.x)
        # The first factor meets 0, which makes nan of an inf.
        factors = self.near(self.near(x, -1, 0), 1, 0)
        new = widened(t) * self._before(x)
        out = LinearRecurrence(factors, new, self.axis, self.reverse).out
        return (self.near(out, 1, 0) if self.exclusive else out).cast(to=t.dtype)

    def _before(self, x: Value) -> Value:
        return Cumprod(x, self.axis, True, self.reverse).out


class RunningExtremum(Running):
    """The shared part of cummax and cummin. Of equal elements the last has the gradient."""

    x: Value = operand("any tensor of numbers")
    axis: int = attr(doc="the axis along which to compare")
    reverse: bool = attr(False, "begin at the end of the axis")

    samples = (
        sample("2x3x4xT", axis=1),
        sample("2x5xT", axis=1, reverse=True),
        sample("2x0xT", axis=1),
    )
    greatest: ClassVar[bool]

    @classmethod
    def build(cls, x: Value, axis: int, reverse: bool = False) -> Value:
        """A negative axis counts from the end."""
        return cls(x, axis_of(axis, x.rank, cls.name.split(".")[1]), reverse).out

    def reference(self, x: Array) -> Array:
        wide = x.astype(np.float32) if self.x.dtype in (f16, bf16) else x
        ufunc = np.maximum if self.greatest else np.minimum
        return self.accumulated(ufunc, wide).astype(x.dtype)

    def start(self, b: Any) -> list[Any]:
        dt = self.x.dtype
        return [b.const(bound(dt, "min" if self.greatest else "max"), dt)]

    @property
    def groups(self) -> bool:
        return True

    def fold(self, k: Any, carried: Sequence[Any], x: Any) -> list[Any]:
        return [(k.maximum if self.greatest else k.minimum)(carried[0], x)]

    def _winners(self) -> Value:
        """For every element the index of the one that it is."""
        x = self.x
        number = Iota(x.shape, self.axis, i64).out
        own = x.eq(self.out).logical_or(x.ne(x))
        if not self.reverse:
            return Cummax(own.where(number, 0), self.axis, False).out
        return Cummin(own.where(number, bound(i64, "max")), self.axis, True).out

    def vjp(self, g: Value) -> tuple[Value]:
        nothing = zeros(g.shape, g.dtype)
        return (nothing.put_along_axis(self._winners(), g, self.axis, "add", "clip"),)

    def jvp(self, t: Value) -> Value:
        return t.take_along_axis(self._winners(), self.axis, "clip")


class Cummax(RunningExtremum, name="mir.cummax"):
    """The greatest element so far along an axis; nan from the first nan on."""

    greatest = True


class Cummin(RunningExtremum, name="mir.cummin"):
    """The least element so far along an axis; nan from the first nan on."""

    greatest = False


class Logcumsumexp(Running, name="mir.logcumsumexp"):
    """The logarithm of the running sum of exponentials along an axis, without overflow."""

    x: Value = operand("a tensor of floats")
    axis: int = attr(doc="the axis along which to sum")
    reverse: bool = attr(False, "sum from the end of the axis")

    flops_per_element = 4
    dtypes = FLOATS
    samples = (
        sample("2x3x4xT", axis=1),
        sample("2x5xT", axis=1, reverse=True),
        sample("2x0xT", axis=1),
    )

    @classmethod
    def build(cls, x: Value, axis: int, reverse: bool = False) -> Value:
        """A negative axis counts from the end."""
        return cls(x, axis_of(axis, x.rank, "logcumsumexp"), reverse).out

    def reference(self, x: Array) -> Array:
        return in_double(lambda v: self.accumulated(np.logaddexp, v), x)

    # Carried: the greatest element, and the sum of exponentials relative to it. Where it is
    # infinite they are relative to 0 instead, since the difference would be nan.

    def start(self, b: Any) -> list[Any]:
        return [b.const(float("-inf"), self.x.dtype), b.const(0, self.x.dtype)]

    def fold(self, k: Any, carried: Sequence[Any], x: Any) -> list[Any]:
        most, total = carried
        top = k.maximum(most, x)
        base = self._base(k, top)
        kept = total * k.exp(self._base(k, most) - base)
        kept = k.select(k.compare("eq", most, float("-inf")), 0.0, kept)
        return [top, kept + k.exp(x - base)]

    def element(self, k: Any, carried: Sequence[Any]) -> Any:
        return self._base(k, carried[0]) + k.log(carried[1])

    def _base(self, k: Any, top: Any) -> Any:
        return k.select(k.compare("eq", k.abs(top), float("inf")), 0.0, top)

    # d out[k] / d x[i] is exp(x[i] - out[k]), a product of factors of at most 1.

    def vjp(self, g: Value) -> tuple[Value]:
        x, y = widened(self.x), widened(self.out)
        onward = LinearRecurrence(
            self.near(self._kept(y), -1, 0), widened(g), self.axis, not self.reverse
        ).out
        return ((onward * _ratio(x, y)).cast(to=g.dtype),)

    def jvp(self, t: Value) -> Value:
        x, y = widened(self.x), widened(self.out)
        new = widened(t) * _ratio(x, y)
        return LinearRecurrence(self._kept(y), new, self.axis, self.reverse).out.cast(to=t.dtype)

    def _kept(self, y: Value) -> Value:
        """What share of each result the one before has. Before the first is -inf: its factor is to
        be finite, since it meets 0."""
        return _ratio(self.near(y, 1, float("-inf")), y)


def _ratio(a: Value, b: Value) -> Value:
    """exp(a - b), 1 where both are the same infinity."""
    return a.eq(b).where(0, a - b).exp()
