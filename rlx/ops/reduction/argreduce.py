"""Argmax and argmin: the index of the greatest or the least element along an axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from rlx.base.dims import is_known
from rlx.errors import DTypeError, ShapeError
from rlx.ir.factors import Factors
from rlx.ir.op import Array, Cost, Op, attr, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.movement.movement import axis_of
from rlx.ops.pointwise.base import ORDERED, check_ordered
from rlx.types import TensorType, bf16, f16, i64

__all__ = ["ArgExtremum", "ArgMax", "ArgMin"]


class ArgExtremum(Op):
    """The shared part of argmax and argmin. The first nan counts as the extremum, as in NumPy."""

    x: Value = operand("any tensor")
    axis: int = attr(0, "the axis to search along, not empty")
    keepdims: bool = attr(False, "keep the axis with size 1")
    select_last_index: bool = attr(False, "the last index among equals, not the first")

    differentiable = False
    dtypes = ORDERED
    samples = (
        sample("7xT"),
        sample("2x5x3xT", axis=1),
        sample("3x6xT", axis=1, keepdims=True, select_last_index=True),
        sample("2x1xT", axis=1),
        sample("0x3xT", axis=1),
    )
    bads = (
        bad("2x3xf32", match="axis 2", error=ShapeError, axis=2),
        bad("f32", match="rank 0", error=ShapeError),
        bad("2xc64", match="has an order", error=DTypeError),
        bad("2x0xf32", match="empty axis 1", error=ShapeError, axis=1),
    )
    verb: ClassVar[Literal["gt", "lt"]]
    search: ClassVar[Callable[..., Any]]

    @classmethod
    def build(
        cls,
        x: Value,
        axis: int | None = None,
        keepdims: bool = False,
        select_last_index: bool = False,
    ) -> Value:
        """As i64. A negative axis counts from the end; None searches all elements, and gives the
        index of the flattened tensor."""
        if axis is not None:
            axis = axis_of(axis, x.rank, cls.name.split(".")[1])
            return cls(x, axis, keepdims, select_last_index).out
        out = cls(x.reshape([x.type.size]), 0, False, select_last_index).out
        return out.reshape([1] * x.rank) if keepdims else out

    def infer(self) -> TensorType:
        check_ordered(self.short, self.x.dtype)
        axis, shape = axis_of(self.axis, self.x.rank, self.short), self.x.shape
        if shape[axis] == 0:
            raise ShapeError(f"{self.short}: the empty axis {axis} of {self.x.type} has no element")
        middle = (1,) if self.keepdims else ()
        return TensorType((*shape[:axis], *middle, *shape[axis + 1 :]), i64)

    def cost(self) -> Cost:
        """One comparison an element of the operand."""
        size = self.x.type.size
        return Cost(size if is_known(size) else 0, super().cost().bytes)

    def reference(self, x: Array) -> Array:
        x = x.astype(np.float32) if self.x.dtype in (f16, bf16) else x
        search, axis = type(self).search, self.axis
        if not self.select_last_index:
            return np.asarray(search(x, axis, keepdims=self.keepdims), np.int64)
        back = search(np.flip(x, axis), axis, keepdims=self.keepdims)
        return np.asarray(x.shape[axis] - 1 - back, np.int64)

    def loops(self, b: Any) -> None:
        shape, axis, k = self.x.type.static_shape, self.axis, b.k
        behind = axis + self.keepdims

        def better(a: Any, than: Any) -> Any:
            found = k.compare(self.verb, a, than)
            if not a.dtype.is_float:
                return found
            return found | (k.compare("ne", a, a) & k.compare("eq", than, than))

        def line(*rest: Any) -> None:
            def at(i: Any) -> list[Any]:
                return [*rest[:axis], i, *rest[behind:]]

            def step(i: Any, best: Any, index: Any) -> tuple[Any, Any]:
                v = b.load(0, at(i))
                last = self.select_last_index
                take = k.logical_not(better(best, v)) if last else better(v, best)
                return k.select(take, v, best), k.select(take, i, index)

            first = [b.load(0, at(0)), k.index(0)]
            found = k.loop(1, shape[axis], 1, step, first)
            b.store(0, rest, b.convert(found[1], i64))

        b.parallel(self.out.type.static_shape, line)

    def factors(self) -> Factors:
        kept = [None if i == self.axis else i for i in range(self.x.rank)]
        out = kept if self.keepdims else [i for i in kept if i is not None]
        return Factors(self, [range(self.x.rank)], [out], whole=[self.axis])

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        return self.with_operands(operands, axis=self.axis + 1).out


class ArgMax(ArgExtremum, name="mir.argmax"):
    """The index of the greatest element along an axis, as i64; of equal ones the first."""

    verb, search = "gt", np.argmax


class ArgMin(ArgExtremum, name="mir.argmin"):
    """The index of the least element along an axis, as i64; of equal ones the first."""

    verb, search = "lt", np.argmin
