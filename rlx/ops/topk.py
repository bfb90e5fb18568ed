"""The k greatest or least elements along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.errors import DTypeError, ShapeError
from rlx.ops.base import Array, Cost, attr, bad, operand, sample
from rlx.ops.elementwise import NUMERIC
from rlx.ops.movement import axis_of
from rlx.ops.sort import Ordering, order
from rlx.ops.value import Value
from rlx.types import TensorType, bf16, f16, f32, i64

__all__ = ["TopK"]


class TopK(Ordering, name="mir.topk"):
    """The k greatest (or least) elements along an axis, best first, and their indices as i64.

    Among equals the smaller index comes first. nan counts as greater than every number: it comes
    first among the greatest and last among the least. Only the values have a gradient.
    """

    x: Value = operand("a tensor of floats or integers")
    k: int = attr(doc="how many, at most the length of the axis")
    axis: int = attr(0, "the axis to select along")
    largest: bool = attr(True, "the greatest; False: the least")

    dtypes = NUMERIC
    samples = (
        sample("6xT", k=3, axis=0),
        sample("2x5xT", k=2, axis=1),
        sample("4x3xT", k=4, axis=0),
        sample("2x5x3xT", k=2, axis=1, largest=False),
        sample("2x1xT", k=1, axis=1),
        sample("2x3xT", k=0, axis=1),
        sample("0x3xT", k=2, axis=1),
        sample("2x40xT", k=20, axis=1, largest=False),
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

    @property
    def descending(self) -> bool:
        """Whether the greatest comes first."""
        return self.largest

    def reference(self, x: Array) -> tuple[Array, Array]:
        indices = np.take(order(x, self.axis, self.largest), np.arange(self.k), self.axis)
        return np.take_along_axis(x, indices, self.axis), indices

    def loops(self, b: Any) -> None:
        """For few, selection: the best element after the one before, k times, which needs no
        memory. For more the line is sorted."""
        if self._sorts():
            self._sorted(b)
        else:
            self._selected(b)

    def _sorts(self) -> bool:
        """Whether sorting takes fewer comparisons; one of a merge costs about two of a scan."""
        return self.k > 2 * self.x.type.static_shape[self.axis].bit_length()

    def _sorted(self, b: Any) -> None:
        shape, axis = self.x.type.static_shape, self.axis
        pairs = [(b.workspace(shape, self.x.dtype), b.workspace(shape, i64)) for _ in "ab"]

        def row(*rest: Any) -> None:
            def at(i: Any) -> list[Any]:
                return [*rest[:axis], i, *rest[axis:]]

            self.sort_line(b, shape[axis], at, *pairs)

            def copy(i: Any) -> None:
                for n, room in enumerate(pairs[0]):
                    b.store(n, at(i), b.read(room, at(i)))

            b.loop(self.k, copy)

        b.parallel((*shape[:axis], *shape[axis + 1 :]), row)

    def _selected(self, b: Any) -> None:
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
                    level = k.logical_not(self.precedes(k, v, last)) & (i > last_index)
                    later = self.precedes(k, last, v) | level | (last_index < 0)
                    take = later & ((best_index < 0) | self.precedes(k, v, best))
                    return k.select(take, v, best), k.select(take, i, best_index)

                value, index = b.loop(shape[axis], look, init=(zero, none))
                b.store(0, at(rank), value)
                b.store(1, at(rank), index)
                return value, index

            b.loop(self.k, select, init=(zero, none))

        b.parallel((*shape[:axis], *shape[axis + 1 :]), row)

    def cost(self) -> Cost:
        """Comparisons of the way that ``loops`` takes."""
        size = self.x.type.size
        if not self.x.type.is_static or not isinstance(size, int) or self._sorts():
            return super().cost()
        return Cost(size * self.k, self.moved)
