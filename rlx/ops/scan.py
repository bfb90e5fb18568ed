"""Running folds along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import DTypeError, ShapeError
from rlx.ops.base import Array, Op, attr, bad, operand, sample
from rlx.ops.cast import in_double
from rlx.ops.elementwise import NUMERIC
from rlx.ops.movement import axis_of
from rlx.ops.value import Value
from rlx.types import TensorType

__all__ = ["Cumsum"]


class Cumsum(Op, name="mir.cumsum"):
    """Running sum along an axis. Integers wrap; f16 and bf16 accumulate in f32.

    Element i is the sum of the elements up to i; ``exclusive`` leaves i itself out, ``reverse``
    sums from the end: the elements from i on.
    """

    x: Value = operand("any tensor of numbers")
    axis: int = attr(doc="the axis along which to sum")
    exclusive: bool = attr(False, "leave each element out of its own sum")
    reverse: bool = attr(False, "sum from the end of the axis")

    dtypes = NUMERIC
    samples = (
        sample("2x3x4xT", axis=1),
        sample("2x3xT", axis=0, exclusive=True),
        sample("2x5xT", axis=1, reverse=True),
        sample("4xT", axis=0, exclusive=True, reverse=True),
        sample("2x1xT", axis=1, exclusive=True),
        sample("2x0xT", axis=1),
    )
    bads = (
        bad("2x3xf32", match="axis 2 is out of range", error=ShapeError, axis=2),
        bad("f32", match="axis 0 is out of range", error=ShapeError, axis=0),
        bad("2xf32", match="not negative", error=ShapeError, axis=-1),
        bad("2xbool", match="found bool. Cast the operand", error=DTypeError, axis=0),
    )

    @classmethod
    def build(cls, x: Value, axis: int, exclusive: bool = False, reverse: bool = False) -> Value:
        """A negative axis counts from the end."""
        return cls(x, axis_of(axis, x.rank, "cumsum"), exclusive, reverse).out

    def infer(self) -> TensorType:
        if self.x.dtype not in self.dtypes:
            raise DTypeError(f"cumsum takes numbers; found {self.x.dtype}. Cast the operand first")
        axis_of(self.axis, self.x.rank, "cumsum")
        if self.axis < 0:
            raise ShapeError(f"cumsum: the stored axis is not negative, found {self.axis}")
        return self.x.type

    def reference(self, x: Array) -> Array:
        x = np.flip(x, self.axis) if self.reverse else x
        out = in_double(self._running, x) if self.x.dtype.is_float else self._running(x)
        return np.flip(out, self.axis) if self.reverse else out

    def _running(self, x: Array) -> Array:
        total = np.cumsum(x, axis=self.axis, dtype=x.dtype)
        if not self.exclusive:
            return total
        # Not total - x, which is nan after an inf.
        first = np.zeros_like(np.take(x, [0] if x.shape[self.axis] else [], axis=self.axis))
        rest = np.take(total, range(x.shape[self.axis] - 1), axis=self.axis)
        return np.concatenate([first, rest], axis=self.axis)

    def loops(self, b: Any) -> None:
        shape = self.x.type.static_shape
        axis, length = self.axis, shape[self.axis]

        def line(*at: Any) -> None:
            def step(i: Any, acc: Any) -> list[Any]:
                place = [*at[:axis], (length - 1) - i if self.reverse else i, *at[axis:]]
                total = acc + b.load(0, place)
                b.store(0, place, acc if self.exclusive else total)
                return [total]

            b.loop(length, step, [b.const(0, self.x.dtype)])

        b.parallel((*shape[:axis], *shape[axis + 1 :]), line)

    def vjp(self, g: Value) -> tuple[Value]:
        return (g.cumsum(self.axis, self.exclusive, not self.reverse),)

    def jvp(self, t: Value) -> Value:
        return t.cumsum(self.axis, self.exclusive, self.reverse)

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        return self.with_operands(operands, axis=self.axis + 1).out
