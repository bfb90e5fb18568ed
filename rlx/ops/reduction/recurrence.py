"""Folds that run along an axis: what they share, and the linear recurrence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.errors import DTypeError, ShapeError
from rlx.ir.factors import Factors, lines
from rlx.ir.op import Array, Op, attr, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.indexing.index_modes import same_batch
from rlx.ops.movement.movement import axis_of, zeros
from rlx.ops.movement.slicing import shifted
from rlx.ops.pointwise.base import INEXACT, NUMERIC, unsuitable
from rlx.ops.pointwise.cast import in_double, widened
from rlx.types import TensorType

__all__ = ["LinearRecurrence", "Running"]

BADS = (
    bad("2x3xf32", match="axis 2 is out of range", error=ShapeError, axis=2),
    bad("f32", match="axis 0 is out of range", error=ShapeError, axis=0),
    bad("2xf32", match="not negative", error=ShapeError, axis=-1),
    bad("2xbool", match="found bool. Cast the operand", error=DTypeError, axis=0),
)


class Running(Op):
    """The shared part: element i of a line is a fold of the elements up to i, or with ``reverse``
    from i on."""

    dtypes = NUMERIC
    bads = BADS

    def infer(self: Any) -> TensorType:
        if self.x.dtype not in self.dtypes:
            raise unsuitable(self, self.x.dtype)
        axis_of(self.axis, self.x.rank, self.short)
        if self.axis < 0:
            raise ShapeError(f"{self.short}: the stored axis is not negative, found {self.axis}")
        return self.x.type

    # What an op's fold is made of.

    def start(self: Any, b: Any) -> list[Any]:
        """The registers that are carried into the first element."""
        raise AssertionError(f"{self.name} defines no start")

    def fold(self: Any, k: Any, carried: Sequence[Any], x: Any) -> list[Any]:
        """Those that are carried on from an element."""
        raise AssertionError(f"{self.name} defines no fold")

    def element(self: Any, k: Any, carried: Sequence[Any]) -> Any:
        """The element of the result that they give."""
        return carried[0]

    def step(self: Any, k: Any, carried: Sequence[Any], read: Callable[[int], Any]) -> list[Any]:
        """The same, with the operands to be read by their numbers."""
        return self.fold(k, carried, read(0))

    @property
    def groups(self) -> bool:
        """Whether ``fold`` takes folds of neighbours as it takes elements, so that elements may be
        grouped in any way; it carries one register then, which is the element of the result."""
        return False

    @property
    def way(self) -> tuple[int, bool, bool]:
        """The axis, whether it begins at its end, and whether each element is left out of its own
        result."""
        return self.attrs["axis"], self.attrs["reverse"], bool(self.attrs.get("exclusive"))

    def loops(self: Any, b: Any) -> None:
        b.running(self)

    def accumulated(self: Any, ufunc: Any, x: Array) -> Array:
        """The reference, by a NumPy function that accumulates."""
        x = np.flip(x, self.axis) if self.reverse else x
        out = ufunc.accumulate(x, axis=self.axis, dtype=x.dtype)
        return np.flip(out, self.axis) if self.reverse else out

    def near(self: Any, v: Value, steps: int, fill: float) -> Value:
        """The elements that come ``steps`` before each in the order of the fold."""
        return shifted(v, self.axis, -steps if self.reverse else steps, fill)

    def factors(self: Any) -> Factors:
        return lines(self, self.axis)

    def batch(self: Any, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        return self.with_operands(operands, axis=self.axis + 1).out


class LinearRecurrence(Running, name="mir.linear_recurrence"):
    """``y[i] = a[i] * y[i - 1] + b[i]`` along an axis, from 0; the scan of state-space models.

    With ``reverse`` it begins at the end: ``y[i] = a[i] * y[i + 1] + b[i]``. f16 and bf16 are
    computed in f32.
    """

    a: Value = operand("the factors; that of the first element meets 0")
    x: Value = operand("what is added, of the same type: b of the formula")
    axis: int = attr(doc="the axis along which it runs")
    reverse: bool = attr(False, "begin at the end of the axis")

    flops_per_element = 2
    dtypes = INEXACT
    samples = (
        sample("2x3x4xT", "2x3x4xT", axis=1),
        sample("2x5xT", "2x5xT", axis=1, reverse=True),
        sample("2x0xT", "2x0xT", axis=1),
    )
    bads = (
        bad("2x3xf32", "2x3xf32", match="axis 2 is out of range", error=ShapeError, axis=2),
        bad("2x3xf32", "3xf32", match="one type", error=ShapeError, axis=0),
        bad("2x3xf32", "2x3xf64", match="one type", error=ShapeError, axis=0),
        bad("2xi32", "2xi32", match="found i32. Cast the operand", error=DTypeError, axis=0),
    )

    @classmethod
    def build(cls, a: Value, x: Value, axis: int, reverse: bool = False) -> Value:
        """A negative axis counts from the end."""
        return cls(a, x, axis_of(axis, x.rank, "linear_recurrence"), reverse).out

    def infer(self) -> TensorType:
        if self.a.type != self.x.type:
            raise ShapeError(
                f"{self.short} takes factors and summands of one type, found {self.a.type} and"
                f" {self.x.type}"
            )
        return super().infer()

    def reference(self, a: Array, x: Array) -> Array:
        return in_double(self._lines, a, x)

    def _lines(self, a: Array, x: Array) -> Array:
        out, last = np.empty_like(x), np.zeros((), x.dtype)
        count = x.shape[self.axis]
        for i in range(count):
            at = (slice(None),) * self.axis + (count - 1 - i if self.reverse else i,)
            last = out[at] = a[at] * last + x[at]
        return out

    def start(self, b: Any) -> list[Any]:
        return [b.const(0, self.x.dtype)]

    def step(self, k: Any, carried: Sequence[Any], read: Callable[[int], Any]) -> list[Any]:
        return [read(0) * carried[0] + read(1)]

    def vjp(self, g: Value) -> tuple[Value, Value]:
        a = widened(self.a)
        gx = LinearRecurrence(self.near(a, -1, 0), widened(g), self.axis, not self.reverse).out
        ga = gx * self.near(widened(self.out), 1, 0)
        return ga.cast(to=g.dtype), gx.cast(to=g.dtype)

    def jvp(self, ta: Value | None, tx: Value | None) -> Value:
        dt, a = self.out.dtype, widened(self.a)
        new = zeros(self.x.shape, a.dtype) if tx is None else widened(tx)
        if ta is not None:
            new = new + widened(ta) * self.near(widened(self.out), 1, 0)
        return LinearRecurrence(a, new, self.axis, self.reverse).out.cast(to=dt)

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        return self.with_operands(same_batch(operands, batched), axis=self.axis + 1).out
