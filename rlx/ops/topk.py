"""The k greatest or least elements along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from rlx.errors import DTypeError, ShapeError
from rlx.ops.base import Array, Cost, Op, attr, bad, operand, sample
from rlx.ops.elementwise import NUMERIC
from rlx.ops.gather import Gather, ScatterAdd
from rlx.ops.movement import axis_of
from rlx.ops.value import Value
from rlx.types import TensorType, bf16, f16, f32, i64

__all__ = ["TopK"]


class TopK(Op, name="mir.topk"):
    """The k greatest (or least) elements along an axis, best first, and their indices as i64.

    Among equals the smaller index comes first. nan counts as greater than every number: it comes
    first among the greatest and last among the least. Only the values have a gradient.
    """

    x: Value = operand("a tensor of floats or integers")
    k: int = attr(doc="how many, at most the length of the axis")
    axis: int = attr(0, "the axis to select along")
    largest: bool = attr(True, "the greatest; False: the least")

    result_count: ClassVar[int] = 2
    dtypes = NUMERIC
    samples = (
        sample("6xT", k=3, axis=0),
        sample("2x5xT", k=2, axis=1),
        sample("4x3xT", k=4, axis=0),
        sample("2x5x3xT", k=2, axis=1, largest=False),
        sample("2x1xT", k=1, axis=1),
        sample("2x3xT", k=0, axis=1),
        sample("0x3xT", k=2, axis=1),
    )
    bads = (
        bad("2x3xf32", match="4 of the 3 elements", error=ShapeError, k=4, axis=1),
        bad("2x3xf32", match="-1 of the 3 elements", error=ShapeError, k=-1, axis=1),
        bad("2x3xf32", match="axis 2", error=ShapeError, k=1, axis=2),
        bad("f32", match="rank 0", error=ShapeError, k=1, axis=0),
        bad("2x3xbool", match="found bool", error=DTypeError, k=1, axis=1),
    )

    @classmethod
    def build(cls, x: Value, k: int, axis: int = -1, largest: bool = True) -> tuple[Value, Value]:
        """Values and indices; a negative axis counts from the end."""
        values, indices = cls(x, k, axis_of(axis, x.rank, "topk"), largest).results
        return values, indices

    def infer(self) -> tuple[TensorType, TensorType]:
        axis = axis_of(self.axis, self.x.rank, "topk")
        if self.x.dtype not in NUMERIC:
            raise DTypeError(f"topk orders floats or integers, found {self.x.dtype}")
        n = self.x.shape[axis]
        if self.k < 0 or (isinstance(n, int) and self.k > n):
            raise ShapeError(f"topk: cannot take {self.k} of the {n} elements of axis {axis}")
        out = self.x.type.with_shape((*self.x.shape[:axis], self.k, *self.x.shape[axis + 1 :]))
        return out, out.with_dtype(i64)

    def reference(self, x: Array) -> tuple[Array, Array]:
        wide = x.astype(np.float32) if self.x.dtype in (f16, bf16) else x
        n = x.shape[self.axis]
        if self.largest:
            # A stable ascending order of the reversed axis, read backwards: greatest and nan
            # first, the smaller index first among equals.
            back = np.argsort(np.flip(wide, self.axis), self.axis, kind="stable")
            order = n - 1 - np.flip(back, self.axis)
        else:
            order = np.argsort(wide, self.axis, kind="stable")
        indices = np.take(order, np.arange(self.k), self.axis).astype(np.int64)
        return np.take_along_axis(x, indices, self.axis), indices

    def loops(self, b: Any) -> None:
        """Selection: the best element after the one before, k times. It needs no scratch."""
        shape, axis = self.x.type.static_shape, self.axis
        wide = f32 if self.x.dtype in (f16, bf16) else self.x.dtype
        zero, none = b.const(0, wide), b.const(-1, i64)

        def row(*rest: Any) -> None:
            def at(i: Any) -> list[Any]:
                return [*rest[:axis], i, *rest[axis:]]

            def select(rank: Any, last: Any, last_index: Any) -> tuple[Any, Any]:
                def look(j: Any, best: Any, best_index: Any) -> tuple[Any, Any]:
                    k, v, i = b.k, b.load(0, at(j)), b.convert(j, i64)
                    # v comes after the last one if it is worse, or equal at a later index.
                    level = k.logical_not(self._precedes(k, v, last)) & (i > last_index)
                    later = self._precedes(k, last, v) | level | (last_index < 0)
                    take = later & ((best_index < 0) | self._precedes(k, v, best))
                    return k.select(take, v, best), k.select(take, i, best_index)

                value, index = b.loop(shape[axis], look, init=(zero, none))
                b.store(0, at(rank), value)
                b.store(1, at(rank), index)
                return value, index

            b.loop(self.k, select, init=(zero, none))

        b.parallel((*shape[:axis], *shape[axis + 1 :]), row)

    def _precedes(self, k: Any, a: Any, b: Any) -> Any:
        """Whether the register a comes strictly before b, whatever their indices."""
        if not self.largest:
            a, b = b, a
        if not a.dtype.is_float:
            return a > b
        return (a > b) | (k.compare("ne", a, a) & k.compare("eq", b, b))

    def cost(self) -> Cost:
        """One comparison for every element and every one of the k."""
        size = self.x.type.size
        return Cost(size * self.k if isinstance(size, int) else 0, super().cost().bytes)

    def _along_axis(self, v: Value) -> tuple[Value, Value, list[int]]:
        """``v`` and the indices with the axis moved to the end, and the way back."""
        axis = self.axis
        order = [i for i in range(self.x.rank) if i != axis] + [axis]
        return (
            v.transpose(order),
            self.results[1].transpose(order),
            [order.index(i) for i in range(len(order))],
        )

    def vjp(self, g: Value | None, _: Value | None = None) -> tuple[Value | None]:
        if g is None:
            return (None,)
        updates, indices, back = self._along_axis(g)
        last, n = g.rank - 1, self.x.shape[self.axis]
        return (ScatterAdd(updates, indices, (n,), last, "clip", last).out.transpose(back),)

    def jvp(self, t: Value) -> tuple[Value, None]:
        table, indices, back = self._along_axis(t)
        last = t.rank - 1
        return Gather(table, indices, last, "clip", last).out.transpose(back), None

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> tuple[Value, ...]:
        return self.with_operands(operands, axis=self.axis + 1).results
