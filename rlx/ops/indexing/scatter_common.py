"""Common base of the ops that write by integer index along an axis.

``places`` says what an index means. Updates for one place are taken in index order, so the last
one set stays and a sum has one order: the result does not depend on threads. Sums and products of
16-bit floats accumulate in f32 and round once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.base.dims import is_known
from rlx.errors import ShapeError
from rlx.ir.op import Array, Cost, Op
from rlx.ir.value import Value
from rlx.ops.indexing.gather import Gather
from rlx.ops.indexing.index_modes import check_indices, position, positions, same_batch
from rlx.ops.movement.movement import listed, unravel
from rlx.types import DType, Shape, bf16, f16, f32

__all__ = ["REDUCTIONS", "Scattering", "accumulator", "combine"]

_UFUNCS: dict[str, Any] = {
    "set": None, "add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum,
}  # fmt: skip
REDUCTIONS = tuple(_UFUNCS)
"""What becomes of an element and an update for its place. min and max give nan if either is nan."""


def accumulator(dt: DType, reduction: str) -> DType:
    """The type in which elements are kept until all updates are in."""
    return f32 if dt in (f16, bf16) and reduction in ("add", "mul") else dt


def combine(k: Any, reduction: str, old: Any, new: Any) -> Any:
    """The element after an update, as a register."""
    if reduction == "set":
        return new
    if reduction in ("min", "max"):
        return (k.minimum if reduction == "min" else k.maximum)(old, new)
    return old + new if reduction == "add" else old * new


class Scattering(Op):
    """The shared part of ops that write updates by index, on zeros or on a tensor."""

    @property
    def what(self: Any) -> str:
        """The reduction."""
        raise AssertionError(f"{self.name} names no reduction")

    @property
    def target(self: Any) -> Value | None:
        """The tensor that is written on; None for zeros."""
        raise AssertionError(f"{self.name} names no target")

    @property
    def accumulator(self: Any) -> DType:
        """The type in which elements are kept until all updates are in."""
        return accumulator(self.updates.dtype, self.what)

    def check_updates(self: Any, shape: Shape) -> None:
        """Refuse updates and indices that do not fit a result of ``shape``."""
        axis, indices = self.axis, self.indices
        check_indices(self, self.updates, shape[axis])
        wanted = (*shape[:axis], *indices.shape[self.batch_dims :], *shape[axis + 1 :])
        if self.updates.shape != wanted:
            raise ShapeError(
                f"{self.short}: the updates {listed(self.updates.shape)} must be {listed(wanted)}:"
                f" {listed(shape)} with the dims of the indices at axis {axis}"
            )

    def cost(self: Any) -> Cost:
        """An operation for every update."""
        size = self.updates.type.size
        return Cost(size if is_known(size) else 0, super().cost().bytes)

    def written(self: Any, start: Array, updates: Array, indices: Array) -> Array:
        """The reference: the updates on an array of the result's shape."""
        shape, lead = start.shape, self.batch_dims
        out = start.astype(self.accumulator.numpy)
        if out.size:
            places, outside = positions(self, indices, shape[self.axis])
            for at in np.ndindex(shape[:lead]):
                part = out[at].reshape(math.prod(shape[lead : self.axis]), *shape[self.axis :])
                rows = updates[at].reshape(len(part), places[at].size, *part.shape[2:])
                for n, i in enumerate(places[at].flat):
                    if self.mode != "fill" or not outside[at].flat[n]:
                        new = rows[:, n].astype(out.dtype)
                        ufunc = _UFUNCS[self.what]
                        part[:, i] = new if ufunc is None else ufunc(part[:, i], new)
        return out.astype(updates.dtype)

    def loops(self: Any, b: Any) -> None:
        """A point is a line along the axis: it takes the target's elements, and then all updates
        for the line in order."""
        axis, shape = self.axis, self.out.type.static_shape
        middle, wide = self.indices.type.static_shape[self.batch_dims :], self.accumulator
        number: dict[Value | None, int] = {v: n for n, v in enumerate(self.operands)}
        dense = wide is self.updates.dtype
        kept = b.result(0) if dense else b.workspace(shape, wide)
        zero = b.const(0, wide)

        def line(*at: Any) -> None:
            front, back = at[:axis], at[axis:]

            def begin(i: Any) -> None:
                at = [*front, i, *back]
                b.write(kept, at, zero if self.target is None else b.load(number[self.target], at))

            def update(n: Any) -> None:
                which = unravel(n, middle)
                index = b.load(number[self.indices], [*front[: self.batch_dims], *which])
                i, outside = position(self, b, index, shape[axis])
                at = [*front, i, *back]

                def write() -> None:
                    new = b.load(number[self.updates], [*front, *which, *back])
                    b.write(kept, at, combine(b.k, self.what, b.read(kept, at), new))

                if self.mode == "fill":
                    b.when(b.k.logical_not(outside), write)
                else:
                    write()

            def finish(i: Any) -> None:
                b.store(0, [*front, i, *back], b.read(kept, [*front, i, *back]))

            b.loop(shape[axis], begin)
            b.loop(math.prod(middle), update)
            if not dense:
                b.loop(shape[axis], finish)

        b.parallel((*shape[:axis], *shape[axis + 1 :]), line)

    def taken(self: Any, v: Value) -> Value:
        """The elements of a value of the result's shape that the updates go to."""
        return Gather(v, self.indices, self.axis, self.mode, self.batch_dims).out

    def batch(self: Any, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        if not self.batch_dims and not batched[1]:  # every element has the same indices
            ready = same_batch(operands, batched)
            ready[1] = operands[1]
            return self.with_operands(ready, axis=self.axis + 1).out
        both = same_batch(operands, batched)
        lead = self.batch_dims + 1
        return self.with_operands(both, axis=self.axis + 1, batch_dims=lead).out
