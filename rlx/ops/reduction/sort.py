"""Sorting along an axis: stable, nan last in ascending order as in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from rlx.base.dims import is_known
from rlx.base.guards import at_hand, prefers
from rlx.errors import DTypeError, ShapeError
from rlx.ir.factors import Factors, lines
from rlx.ir.op import Array, Cost, Op, attr, bad, operand, sample
from rlx.ir.value import Value, bytes_of
from rlx.ops.indexing.gather import Gather
from rlx.ops.indexing.scatter import ScatterAdd
from rlx.ops.movement.movement import axis_of
from rlx.ops.pointwise.base import ORDERED, check_ordered
from rlx.types import DType, TensorType, bf16, dtype, f16, i64

__all__ = ["Ordering", "Sort", "argsort", "order"]


def order(x: Array, axis: int, descending: bool) -> Array:
    """The stable order of the elements along an axis, as i64; nan is the greatest."""
    wide = x.astype(np.float32) if dtype(x.dtype) in (f16, bf16) else x
    if not descending:
        return np.argsort(wide, axis, kind="stable").astype(np.int64)
    # A stable ascending order of the reversed axis, read backwards: greatest and nan first, the
    # smaller index first among equals.
    back = np.argsort(np.flip(wide, axis), axis, kind="stable")
    return (x.shape[axis] - 1 - np.flip(back, axis)).astype(np.int64)


class Ordering(Op):
    """The shared part of ops that give elements along an axis in order, and their indices."""

    result_count: ClassVar[int] = 2

    def precedes(self: Any, k: Any, a: Any, b: Any) -> Any:
        """Whether the register a comes strictly before b, whatever their indices."""
        if not self.descending:
            a, b = b, a
        if not a.dtype.is_float:
            return a > b
        return (a > b) | (k.compare("ne", a, a) & k.compare("eq", b, b))

    def has_words(self: Any, b: Any) -> bool:
        """Whether elements and indices are ordered as words; a GPU may have none of 64 bits."""
        short = self.x.dtype.bits <= 32 and self.x.type.static_shape[self.axis] < 1 << 31
        return short and b.serial

    @property
    def moved(self: Any) -> int:
        """The bytes of operand and results."""
        return bytes_of([*self.present, *self.results])

    def _along_axis(self: Any, v: Value) -> tuple[Value, Value, list[int]]:
        """``v`` and the indices with the axis moved to the end, and the way back."""
        axis = self.axis
        order = [i for i in range(self.x.rank) if i != axis] + [axis]
        return (
            v.transpose(order),
            self.results[1].transpose(order),
            [order.index(i) for i in range(len(order))],
        )

    def factors(self: Any) -> Factors:
        return lines(self, self.axis)

    def vjp(self: Any, g: Value | None, _: Value | None = None) -> tuple[Value | None]:
        if g is None:
            return (None,)
        updates, indices, back = self._along_axis(g)
        last, n = g.rank - 1, self.x.shape[self.axis]
        return (ScatterAdd(updates, indices, (n,), last, "clip", last).out.transpose(back),)

    def jvp(self: Any, t: Value) -> tuple[Value, None]:
        table, indices, back = self._along_axis(t)
        last = t.rank - 1
        return Gather(table, indices, last, "clip", last).out.transpose(back), None

    def batch(self: Any, operands: Sequence[Value], batched: Sequence[bool]) -> tuple[Value, ...]:
        return self.with_operands(operands, axis=self.axis + 1).results


class Sort(Ordering, name="mir.sort"):
    """The elements along an axis in order, and their indices as i64.

    Equal elements keep their order, also if it is descending. nan counts as greater than every
    number, so it comes last in ascending order, as in NumPy, and first in descending order. Only
    the values have a gradient. The method ``sort`` gives the values, ``argsort`` the indices.
    """

    x: Value = operand("any tensor")
    axis: int = attr(0, "the axis to sort along")
    descending: bool = attr(False, "the greatest first")

    dtypes = ORDERED
    samples = (
        sample("9xT"),
        sample("2x5x3xT", axis=1),
        sample("3x6xT", axis=1, descending=True),
        sample("2x1xT", axis=1),
        sample("2x0xT", axis=1),
        sample("0x3xT", axis=1),
    )
    bads = (
        bad("f32", match="rank 0", error=ShapeError),
        bad("2xc64", match="has an order", error=DTypeError),
        bad("2x3xf32", match="axis 2", error=ShapeError, axis=2),
    )

    @classmethod
    def build(cls, x: Value, axis: int = -1, descending: bool = False) -> Value:
        """A negative axis counts from the end."""
        return cls(x, axis_of(axis, x.rank, "sort"), descending).out

    def infer(self) -> tuple[TensorType, TensorType]:
        check_ordered("sort", self.x.dtype)
        axis_of(self.axis, self.x.rank, "sort")
        return self.x.type, self.x.type.with_dtype(i64)

    def reference(self, x: Array) -> tuple[Array, Array]:
        indices = order(x, self.axis, self.descending)
        return np.take_along_axis(x, indices, self.axis), indices

    def cost(self) -> Cost:
        """The comparisons of a merge sort."""
        size, n = self.x.type.size, self.x.shape[self.axis]
        many = size * max(1, at_hand(n - 1).bit_length()) if is_known(n) else 0
        return Cost(many if is_known(many) else 0, self.moved)

    def loops(self, b: Any) -> None:
        alone = b.serial and not b.wanted(1)
        if alone or self.has_words(b):
            self._sort_by_vectors(b, b.coder(self.descending, words=not alone))
            return
        shape, axis = self.x.type.static_shape, self.axis
        results = b.result(0), b.result(1)
        spare = b.workspace(shape, self.x.dtype), b.workspace(shape, i64)

        def line(*rest: Any) -> None:
            def at(i: Any) -> list[Any]:
                return [*rest[:axis], i, *rest[axis:]]

            self._sort_line(b, shape[axis], at, results, spare)

        b.parallel((*shape[:axis], *shape[axis + 1 :]), line)

    def _sort_by_vectors(self, b: Any, coder: Any) -> None:
        """A point is a line. Along another axis than the last it is some lines side by side, or one
        of those that are left over."""
        shape, axis = self.x.type.static_shape, self.axis
        n, inner = shape[axis], shape[axis + 1 :]
        if not inner:
            b.parallel(shape[:axis], lambda *at: b.line(lambda i: [*at, i], n, True, coder).sort())
            return
        groups, left = divmod(math.prod(inner), coder.together)
        none_left, no_groups = (
            prefers(lambda n=n: n == 0, otherwise=False) for n in (left, groups)
        )

        def lines(*rest: Any) -> None:
            *outer, point = rest

            def at(i: Any, j: Any) -> list[Any]:
                # The last index may be past its axis: it runs on through those before it.
                return [*outer, i, *[0] * (len(inner) - 1), j]

            def together() -> None:
                first = point * coder.together
                b.lines_across(lambda i, j: at(i, first + j), n, coder).sort()

            def single() -> None:
                j = point + groups * (coder.together - 1)
                b.line(lambda i: at(i, j), n, False, coder).sort()

            if none_left:
                together()
            elif no_groups:
                single()
            else:
                b.when(point < groups, together, single)

        b.parallel((*shape[:axis], groups + left), lines)

    def _sort_line(
        self, b: Any, n: int, at: Callable[[Any], list[Any]], pair: Any, spare: Any
    ) -> None:
        """Sort the n elements of the operand at the places ``at(i)`` into ``pair``, two rooms for
        values and indices; ``spare`` is another such pair. Both have the operand's shape.

        A merge sort from runs of one upward. A round merges twice, into the spare pair and back.
        """
        k = b.k

        def start(i: Any) -> None:
            b.write(pair[0], at(i), b.load(0, at(i)))
            b.write(pair[1], at(i), b.convert(i, i64))

        def merge(source: Any, target: Any, width: Any) -> None:
            def runs(low: Any) -> None:
                middle = k.minimum(low + width, n)
                high = k.minimum(middle + width, n)

                def step(i: Any, left: Any, right: Any) -> tuple[Any, Any]:
                    # A run that is used up is still read, at a place that there is.
                    first = b.read(source[0], at(k.minimum(left, n - 1)))
                    second = b.read(source[0], at(k.minimum(right, n - 1)))
                    later = (left >= middle) | self.precedes(k, second, first)
                    later = later & (right < high)
                    index = b.read(source[1], at(k.select(later, right, left)))
                    b.write(target[0], at(i), k.select(later, second, first))
                    b.write(target[1], at(i), index)
                    return k.select(later, left, left + 1), k.select(later, right + 1, right)

                k.loop(low, high, 1, step, [low, middle])

            k.loop(0, n, width * 2, runs)

        def round_(width: Any) -> Any:
            merge(pair, spare, width)
            merge(spare, pair, width * 2)
            return width * 4

        b.loop(n, start)
        if isinstance(n, int):
            passes = max(n - 1, 0).bit_length()
            b.loop((passes + 1) // 2, lambda _, width: round_(width), [k.index(1)])
        else:
            k.repeat(lambda width: width < n, round_, [k.index(1)])


def argsort(
    x: Value, axis: int = -1, descending: bool = False, dtype: DType | str | Any = "i64"
) -> Value:
    """The indices that sort a tensor along an axis, stable, as an integer type.

    A negative axis counts from the end; nan comes last in ascending order.
    """
    indices = Sort(x, axis_of(axis, x.rank, "argsort"), descending).results[1].cast(to=dtype)
    if not indices.dtype.is_int:
        raise DTypeError(f"argsort gives integers, found dtype {indices.dtype}")
    return indices
