"""The k greatest or least elements along an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.base.dims import is_known, maximum, surely_less
from rlx.errors import DTypeError, ShapeError
from rlx.ir.op import Array, Cost, attr, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.movement.movement import axis_of
from rlx.ops.pointwise.base import NUMERIC
from rlx.ops.reduction.sort import Ordering, order
from rlx.types import TensorType, i64

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
        if self.k < 0 or surely_less(n, self.k):
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
        """A CPU selects among words; else a line's results hold a heap of the best so far, the last
        of them at its root, which is sorted in the end."""
        shape, axis = self.x.type.static_shape, self.axis
        n = shape[axis]
        coder = b.coder(self.descending, words=True) if self.has_words(b) else None

        def line(*rest: Any) -> None:
            def at(i: Any) -> list[Any]:
                return [*rest[:axis], i, *rest[axis:]]

            if coder:
                b.line(at, n, axis == self.x.rank - 1, coder).select(self.k, self.precedes)
            else:
                self._fill_heap(b, _Heap(self, b, at))

        if self.k:
            b.parallel((*shape[:axis], *shape[axis + 1 :]), line)
        else:
            b.parallel((0,), lambda _: None)

    def _fill_heap(self, b: Any, heap: _Heap) -> None:
        """Most elements are looked at once, against the root, by vectors where that is possible."""
        n, lanes = self.x.type.static_shape[self.axis], b.k.target.lanes(self.x.dtype)
        vectors = lanes > 1 and self.axis == self.x.rank - 1
        whole = n - (n - self.k) % lanes if vectors else self.k

        def offer(i: Any, *last: Any) -> Any:
            value = heap.value(i)

            def replace() -> Any:
                heap.sift(b.k.index(0), self.k, (value, b.convert(i, i64)))
                return heap.read(b.k.index(0))[:1]

            return b.when(self.precedes(b.k, value, last[0]), replace, lambda: last, last)

        def offer_all(i: Any, *last: Any) -> Any:
            """As many elements as lanes."""
            some = b.k.any(self.precedes(b.k, heap.value(i, lanes), last[0]))

            def each() -> Any:
                return b.loop(lanes, lambda j, *last: offer(i + j, *last), last)

            return b.when(some, each, lambda: last, last)

        def take_out(n: Any) -> None:
            end = (self.k - 1) - n
            item, last = heap.read(end), heap.read(b.k.index(0))
            heap.sift(b.k.index(0), end, item)
            heap.write(end, last)

        b.loop(self.k, heap.fill)
        b.loop(self.k // 2, lambda n: heap.sift_from((self.k // 2 - 1) - n))
        last = heap.read(b.k.index(0))[:1]
        last = b.k.loop(self.k, whole, lanes, offer_all, last) if vectors else last
        b.k.loop(whole, n, 1, offer, last)
        b.loop(self.k - 1, take_out)

    def cost(self) -> Cost:
        """A comparison an element, and those that sort the k."""
        x, n = self.x.type.size, self.x.shape[self.axis]
        if not is_known(x) or not is_known(n):
            return Cost(0, self.moved)
        return Cost(x + x // maximum(n, 1) * self.k * self.k.bit_length(), self.moved)


Item = tuple[Any, Any]
"""An element of a heap: a value and its index."""


class _Heap:
    """The results of a line as a binary heap: no element comes before those below it. ``at(i)`` is
    the index of the line's element i."""

    def __init__(self, op: TopK, b: Any, at: Callable[[Any], list[Any]]) -> None:
        self.op, self.b, self.at = op, b, at

    def value(self, i: Any, lanes: int = 0) -> Any:
        """The operand's element i, or as many as lanes."""
        return self.b.load(0, self.at(i), lanes)

    def fill(self, i: Any) -> None:
        """Put the operand's element i at the place i."""
        self.b.store(0, self.at(i), self.b.load(0, self.at(i)))
        self.b.store(1, self.at(i), self.b.convert(i, i64))

    def read(self, i: Any) -> Item:
        """The element at a place."""
        b = self.b
        return b.read(b.result(0), self.at(i)), b.read(b.result(1), self.at(i))

    def write(self, i: Any, item: Item) -> None:
        """Put an element at a place."""
        self.b.store(0, self.at(i), item[0])
        self.b.store(1, self.at(i), item[1])

    def after(self, a: Item, b: Item) -> Any:
        """Whether an element comes after another in the order of the results."""
        k, before = self.b.k, self.op.precedes
        (v, i), (w, j) = a, b
        return before(k, w, v) | (k.logical_not(before(k, v, w)) & (i > j))

    def sift_from(self, place: Any) -> None:
        """Move the element at a place down to where it belongs."""
        self.sift(place, self.op.k, self.read(place))

    def sift(self, place: Any, size: Any, item: Item) -> None:
        """Put an element into the heap of ``size`` elements that is free at ``place``."""
        k, last = self.b.k, self.op.k - 1

        def down(_: Any, hole: Any) -> Any:
            # A child that there is not is still read, at a place that there is.
            left, right = hole * 2 + 1, hole * 2 + 2
            one = self.read(k.minimum(left, last))
            two = self.read(k.minimum(right, last))
            other = (right < size) & self.after(two, one)
            child = k.select(other, right, left)
            best = tuple(k.select(other, a, b) for a, b in zip(two, one, strict=True))
            moves = (left < size) & self.after(best, item)
            self.b.when(moves, lambda: self.write(hole, best))
            return k.select(moves, child, hole)

        depth = max(0, self.op.k.bit_length() - 1)
        self.write(self.b.loop(depth, down, [place])[0], item)
