"""Reading by integer index along an axis; ``places`` says what an index means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import DTypeError, GraphError, ShapeError
from rlx.ir.factors import Factors, Parts
from rlx.ir.op import Array, Cost, Op, attr, bad, operand, sample
from rlx.ir.value import Value, bytes_of
from rlx.ops.indexing.index_modes import (
    as_indices,
    check_indices,
    own_places,
    position,
    positions,
    same_batch,
)
from rlx.ops.movement.movement import axis_of, zeros
from rlx.ops.pointwise.base import ANY, ARITHMETIC
from rlx.types import TensorType

__all__ = ["Gather"]


class Gather(Op, name="mir.gather"):
    """Elements of a table by index along one axis, as ``numpy.take``.

    The result has the table's dims before ``axis``, the indices' dims (without batch axes), and
    the table's dims after it.
    """

    table: Value = operand("the tensor to read from")
    indices: Value = operand("integers of any shape")
    axis: int = attr(0, "the axis that they point into")
    mode: str = attr("fault", '"fault", "clip", "wrap" or "fill": an index out of range')
    batch_dims: int = attr(0, "number of leading axes that table and indices share")

    linear = ((0,),)
    flops_per_element = 0
    dtypes = ANY
    samples = (
        sample("5x3xT", "4xi64", axis=0, data={1: "index:5"}),
        sample("2x5xT", "2x2xi32", axis=1, data={1: "index:5"}),
        sample("2x5x3xT", "1x2xu8", axis=1, mode="clip", data={1: "index:9"}),
        sample("5xT", "i64", data={1: "index:5"}),
        sample("2x4x3xT", "2x2xi64", axis=1, batch_dims=1, data={1: "index:4"}),
        sample("2x3x4xT", "2x3x5xi16", axis=2, batch_dims=2, data={1: "index:4"}),
        sample("2x5xT", "3xi8", axis=1, mode="wrap", data={1: "index:12"}),
        sample("4x3xT", "5xi32", mode="fill", data={1: "index:7"}),
        sample("4x2xT", "0xi64", data={1: "index:4"}),
        sample("4x0xT", "3xu64", data={1: "index:4"}),
    )
    bads = (
        bad("5x3xf32", "4xf32", match="cast them to i64", error=DTypeError),
        bad("5x3xf32", "4xi64", match="axis 2", error=ShapeError, axis=2),
        bad("5x3xf32", "4xi64", match='"clip"', error=GraphError, mode="drop"),
        bad("5x3xf32", "4xi64", match="batch_dims=1", error=ShapeError, batch_dims=1),
        bad("5x3xf32", "4x3xi64", match="first 1 dims", error=ShapeError, axis=1, batch_dims=1),
        bad("0x3xf32", "4xi64", match="empty", error=ShapeError),
    )

    @classmethod
    def build(
        cls,
        table: Value,
        indices: Value | Array | int,
        axis: int = 0,
        mode: str = "fault",
        batch_dims: int = 0,
    ) -> Value:
        """The indices may be a number or an array; a negative axis counts from the end."""
        axis = axis_of(axis, table.rank, "gather")
        return cls(table, as_indices(indices), axis, mode, batch_dims).out

    def infer(self) -> TensorType:
        table, indices = self.table, self.indices
        axis = axis_of(self.axis, table.rank, "gather")
        check_indices(self, table, table.shape[axis])
        middle = indices.shape[self.batch_dims :]
        return table.type.with_shape((*table.shape[:axis], *middle, *table.shape[axis + 1 :]))

    def cost(self) -> Cost:
        """As much of the table is read as the result holds."""
        return Cost(0, bytes_of([self.indices, self.out, self.out]))

    def reference(self, table: Array, indices: Array) -> Array:
        out = np.empty(self.out.type.static_shape, table.dtype)
        if out.size:
            lead, axis = self.batch_dims, self.axis - self.batch_dims
            places, outside = positions(self, indices, table.shape[self.axis])
            for at in np.ndindex(table.shape[:lead]):
                if table.shape[self.axis]:
                    out[at] = np.take(table[at], places[at], axis)
                if self.mode == "fill":
                    out[(*at, ...)][(*[slice(None)] * axis, outside[at])] = 0
        return out

    def loops(self, b: Any) -> None:
        axis, lead = self.axis, self.batch_dims
        length = self.table.type.static_shape[axis]
        end = axis + self.indices.rank - lead

        def point(*at: Any) -> None:
            i, outside = position(self, b, b.load(1, [*at[:lead], *at[axis:end]]), length)
            source = [*at[:axis], i, *at[end:]]
            if self.mode != "fill":
                b.store(0, at, b.load(0, source))
                return
            zero = b.const(0, self.table.dtype)
            b.store(0, at, b.when(outside, lambda: zero, lambda: b.load(0, source), [zero])[0])

        b.parallel(self.out.type.static_shape, point)

    def factors(self) -> Factors:
        lead, axis = self.batch_dims, self.axis
        before, after = list(range(axis)), [f"t{i}" for i in range(axis + 1, self.table.rank)]
        middle = [f"i{i}" for i in range(lead, self.indices.rank)]
        return Factors(
            self,
            [[*before, "at", *after], [*before[:lead], *middle]],
            [[*before, *middle, *after]],
            sums=["at"],
            whole=[] if self.table.dtype in ARITHMETIC else ["at"],
        )

    def on_parts(self, operands: Sequence[Value | None], parts: Parts) -> Sequence[Value]:
        """Of a table that is cut along the axis, each rank reads what it has, and else zeros."""
        table, indices = operands
        if "at" not in parts.cut or table is None or indices is None:
            return self.with_operands(operands).results
        mine, local = own_places(self, indices, parts, (parts.factors.sizes["at"],))
        found = self.with_operands([table, mine.where(local, 0)], mode="clip").out
        shape = [*[1] * self.axis, *mine.shape[self.batch_dims :]]
        shape[: self.batch_dims] = mine.shape[: self.batch_dims]
        behind = [1] * (found.rank - len(shape))
        return [mine.reshape((*shape, *behind)).where(found, 0)]

    def vjp(self, g: Value) -> tuple[Value, None]:
        length = self.table.shape[self.axis]
        return g.scatter_add(self.indices, length, self.axis, self.mode, self.batch_dims), None

    def jvp(self, tt: Value | None, ti: Value | None) -> Value:
        if tt is None:
            return zeros(self.out.shape, self.out.dtype)
        return self.with_operands([tt, self.indices]).out

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        if self.batch_dims or all(batched):
            both = same_batch(operands, batched)
            lead = self.batch_dims + 1
            return self.with_operands(both, axis=self.axis + 1, batch_dims=lead).out
        if batched[0]:
            return self.with_operands(operands, axis=self.axis + 1).out
        out = self.with_operands(operands).out
        rest = [i for i in range(out.rank) if i != self.axis]
        return out.transpose([self.axis, *rest])
