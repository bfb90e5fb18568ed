"""Reading and accumulating by integer index: gather, and its adjoint scatter_add.

``mode`` says what an index outside the axis means. "fault": -n to -1 count from the end, and any
other is a FaultError of the run. "clip": it is the nearest valid index, so that a negative one is
0, as in ``numpy.take`` and in XLA. Where the result is empty no index is looked at.

The first ``batch_dims`` axes of data and indices are shared: each batch has its own indices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.dims import as_dim
from rlx.errors import DTypeError, FaultError, GraphError, ShapeError
from rlx.ops.base import Array, Cost, Op, attr, bad, operand, sample
from rlx.ops.constant import Constant
from rlx.ops.elementwise import ANY, ARITHMETIC
from rlx.ops.movement import DimLike, axis_of, listed, unravel, zeros
from rlx.ops.value import Value, bytes_of
from rlx.types import Dim, TensorType, bf16, f16, f32, i64, u64

__all__ = ["Gather", "ScatterAdd", "out_of_range", "place"]

MODES = ("fault", "clip")


def _check_indices(op: Gather | ScatterAdd, data: Value, length: Dim) -> None:
    """Refuse indices that do not fit ``data``; ``length`` is that of the indexed axis."""
    indices, lead = op.indices, op.batch_dims
    if not indices.dtype.is_int:
        raise DTypeError(
            f"{op.short} takes integer indices, found {indices.dtype}; cast them to i64 first"
        )
    if op.mode not in MODES:
        raise GraphError(f'{op.short}: mode is "fault" or "clip", found {op.mode!r}')
    if not 0 <= lead <= min(op.axis, indices.rank):
        raise ShapeError(
            f"{op.short}: batch_dims={lead} does not fit axis {op.axis} and indices of rank"
            f" {indices.rank}"
        )
    if data.shape[:lead] != indices.shape[:lead]:
        raise ShapeError(
            f"{op.short}: the first {lead} dims of {listed(data.shape)} and of the indices"
            f" {listed(indices.shape)} differ"
        )
    if length == 0 and indices.type.size != 0:
        raise ShapeError(f"{op.short}: axis {op.axis} is empty, so no index can be valid")


def out_of_range(op: Gather | ScatterAdd, length: int) -> str:
    """What is wrong with an index that the mode does not allow."""
    return f"{op.short}: index out of range for axis {op.axis} of {length} elements"


def _positions(op: Gather | ScatterAdd, indices: Array, length: int) -> Array:
    """The indices counted from the front; FaultError for one that is out of range."""
    if op.mode == "clip":
        top = min(max(length - 1, 0), np.iinfo(indices.dtype).max)
        return np.clip(indices, 0, top).astype(np.intp)
    outside = (indices >= length) | (indices < -length)
    if outside.any():
        found = indices[outside].flat[0]
        raise FaultError(f"{out_of_range(op, length)}: found {found}", op.location)
    return np.where(indices < 0, indices.astype(np.intp) + length, indices).astype(np.intp)


def place(k: Any, index: Any, length: Any, mode: str) -> tuple[Any, Any]:
    """The same in a kernel: registers of the place that an index means, always one within the axis,
    and of whether it was out of range. ``length`` is a number or a register."""
    # Unsigned ones in u64, so that no huge index turns into one that counts from the end.
    wide = u64 if index.dtype.kind == "uint" else i64
    index = k.cast(index, wide)
    length = length if isinstance(length, int) else k.cast(length, wide)
    outside, inside = index >= length, index
    if wide is i64:
        outside = outside | (index < -length)
        inside = k.select(index < 0, index + length, index)
    if mode == "fault":
        return k.select(outside, 0, inside), outside
    return k.maximum(k.minimum(index, length - 1), 0), outside


def _position(op: Gather | ScatterAdd, b: Any, index: Any, length: int) -> Any:
    """The same in a loop nest, where a fault is recorded."""
    inside, outside = place(b.k, index, length, op.mode)
    if op.mode == "fault":
        b.fault(outside, out_of_range(op, length))
    return b.index(inside)


def _same_batch(operands: Sequence[Value], batched: Sequence[bool]) -> list[Value]:
    """The operands with the new leading axis on both."""
    pairs = list(zip(operands, batched, strict=True))
    count = next(v.shape[0] for v, has in pairs if has)
    return [v if has else v.expand((count, *v.shape)) for v, has in pairs]


def _as_indices(indices: Value | Array | int) -> Value:
    return indices if isinstance(indices, Value) else Constant(np.asarray(indices)).out


class Gather(Op, name="mir.gather"):
    """Elements of a table by index along one axis, as ``numpy.take``.

    The result has the table's dims before ``axis``, the indices' dims (without batch axes), and
    the table's dims after it.
    """

    table: Value = operand("the tensor to read from")
    indices: Value = operand("integers of any shape")
    axis: int = attr(0, "the axis that they point into")
    mode: str = attr("fault", '"fault" or "clip": what an index out of range means')
    batch_dims: int = attr(0, "number of leading axes that table and indices share")

    flops_per_element = 0
    dtypes = ANY
    samples = (
        sample("5x3xT", "4xi64", axis=0, data={1: "index:5"}),
        sample("2x5xT", "2x2xi32", axis=1, data={1: "index:5"}),
        sample("2x5x3xT", "1x2xu8", axis=1, mode="clip", data={1: "index:9"}),
        sample("5xT", "i64", data={1: "index:5"}),
        sample("2x4x3xT", "2x2xi64", axis=1, batch_dims=1, data={1: "index:4"}),
        sample("2x3x4xT", "2x3x5xi16", axis=2, batch_dims=2, data={1: "index:4"}),
        sample("4x2xT", "0xi64", data={1: "index:4"}),
        sample("4x0xT", "3xu64", data={1: "index:4"}),
    )
    bads = (
        bad("5x3xf32", "4xf32", match="cast them to i64", error=DTypeError),
        bad("5x3xf32", "4xi64", match="axis 2", error=ShapeError, axis=2),
        bad("5x3xf32", "4xi64", match='"clip"', error=GraphError, mode="wrap"),
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
        return cls(table, _as_indices(indices), axis, mode, batch_dims).out

    def infer(self) -> TensorType:
        table, indices = self.table, self.indices
        axis = axis_of(self.axis, table.rank, "gather")
        _check_indices(self, table, table.shape[axis])
        middle = indices.shape[self.batch_dims :]
        return table.type.with_shape((*table.shape[:axis], *middle, *table.shape[axis + 1 :]))

    def cost(self) -> Cost:
        """As much of the table is read as the result holds."""
        return Cost(0, bytes_of([self.indices, self.out, self.out]))

    def reference(self, table: Array, indices: Array) -> Array:
        out = np.empty(self.out.type.static_shape, table.dtype)
        if out.size:
            places = _positions(self, indices, table.shape[self.axis])
            for at in np.ndindex(table.shape[: self.batch_dims]):
                out[at] = np.take(table[at], places[at], self.axis - self.batch_dims)
        return out

    def loops(self, b: Any) -> None:
        axis, lead = self.axis, self.batch_dims
        length = self.table.type.static_shape[axis]
        end = axis + self.indices.rank - lead

        def point(*at: Any) -> None:
            i = _position(self, b, b.load(1, [*at[:lead], *at[axis:end]]), length)
            b.store(0, at, b.load(0, [*at[:axis], i, *at[end:]]))

        b.parallel(self.out.type.static_shape, point)

    def vjp(self, g: Value) -> tuple[Value, None]:
        length = self.table.shape[self.axis]
        back = ScatterAdd(g, self.indices, (length,), self.axis, self.mode, self.batch_dims)
        return back.out, None

    def jvp(self, tt: Value | None, ti: Value | None) -> Value:
        if tt is None:
            return zeros(self.out.shape, self.out.dtype)
        return self.with_operands([tt, self.indices]).out

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        if self.batch_dims or all(batched):
            both = _same_batch(operands, batched)
            lead = self.batch_dims + 1
            return self.with_operands(both, axis=self.axis + 1, batch_dims=lead).out
        if batched[0]:
            return self.with_operands(operands, axis=self.axis + 1).out
        out = self.with_operands(operands).out
        rest = [i for i in range(out.rank) if i != self.axis]
        return out.transpose([self.axis, *rest])


class ScatterAdd(Op, name="mir.scatter_add"):
    """Zeros to which updates are added by index along one axis; the adjoint of gather.

    The result has the updates' dims with those of the indices replaced by ``size``. Updates for
    one place add up in index order, so the result does not depend on threads; 16-bit floats
    accumulate in f32 and round once.
    """

    updates: Value = operand("what is added: dims before axis, the indices' dims, dims after")
    indices: Value = operand("integers: where each update goes along the axis")
    size: tuple[Dim, ...] = attr(doc="the length of the result's axis (one dim)")
    axis: int = attr(0, "the axis that the indices point into")
    mode: str = attr("fault", '"fault" or "clip": what an index out of range means')
    batch_dims: int = attr(0, "number of leading axes that updates and indices share")

    dtypes = ARITHMETIC
    samples = (
        sample("4x3xT", "4xi64", size=(5,), axis=0, data={1: "index:5"}),
        sample("2x2x2xT", "2x2xi32", size=(3,), axis=1, data={1: "index:3"}),
        sample("6xT", "6xu8", size=(2,), mode="clip", data={1: "index:4"}),
        sample("3xT", "i64", size=(4,), axis=0, data={1: "index:4"}),
        sample("2x3x2xT", "2x3xi16", size=(4,), axis=1, batch_dims=1, data={1: "index:4"}),
        sample("0x2xT", "0xi64", size=(3,), data={1: "index:3"}),
    )
    bads = (
        bad("4x3xf32", "4xf32", match="cast them to i64", error=DTypeError, size=(5,)),
        bad("4x3xf32", "3xi64", match="dims of the indices", error=ShapeError, size=(5,)),
        bad("4xf32", "4xi64", match="axis 1", error=ShapeError, size=(5,), axis=1),
        bad("4xf32", "4xi64", match='"clip"', error=GraphError, size=(5,), mode="wrap"),
        bad("4xf32", "4xi64", match="one size", error=ShapeError, size=(5, 2)),
        bad("4xf32", "4xi64", match="empty", error=ShapeError, size=(0,)),
        bad("4xbool", "4xi64", match="found bool", error=DTypeError, size=(5,)),
    )

    @classmethod
    def build(
        cls,
        updates: Value,
        indices: Value | Array | int,
        size: DimLike,
        axis: int = 0,
        mode: str = "fault",
        batch_dims: int = 0,
    ) -> Value:
        """The indices may be a number or an array; a negative axis counts from the end."""
        index = _as_indices(indices)
        axis = axis_of(axis, updates.rank - index.rank + batch_dims + 1, "scatter_add")
        return cls(updates, index, (as_dim(size),), axis, mode, batch_dims).out

    def infer(self) -> TensorType:
        updates, indices = self.updates, self.indices
        if updates.dtype not in ARITHMETIC:
            raise DTypeError(f"scatter_add adds numbers, found {updates.dtype}")
        if len(self.size) != 1:
            raise ShapeError(f"scatter_add takes one size, found {listed(self.size)}")
        middle = indices.shape[self.batch_dims :]
        axis = axis_of(self.axis, updates.rank - len(middle) + 1, "scatter_add")
        _check_indices(self, updates, self.size[0])
        end = axis + len(middle)
        if updates.shape[axis:end] != middle:
            raise ShapeError(
                f"scatter_add: {listed(updates.shape)} must have the dims of the indices"
                f" {listed(middle)} at axis {axis}"
            )
        return updates.type.with_shape((*updates.shape[:axis], *self.size, *updates.shape[end:]))

    def cost(self) -> Cost:
        """An addition for every update."""
        size = self.updates.type.size
        return Cost(size if isinstance(size, int) else 0, super().cost().bytes)

    def reference(self, updates: Array, indices: Array) -> Array:
        shape = self.out.type.static_shape
        wide = np.float32 if self.updates.dtype in (f16, bf16) else updates.dtype
        out = np.zeros(shape, wide)
        if out.size:
            places = _positions(self, indices, shape[self.axis])
            for at in np.ndindex(shape[: self.batch_dims]):
                part = out[at].reshape(
                    math.prod(shape[self.batch_dims : self.axis]), *shape[self.axis :]
                )
                rows = updates[at].reshape(len(part), places[at].size, *part.shape[2:])
                for n, i in enumerate(places[at].flat):
                    part[:, i] += rows[:, n].astype(wide)
        return out.astype(updates.dtype)

    def loops(self, b: Any) -> None:
        """Pull form: every place looks at all indices in order and takes the updates meant for it,
        which needs no atomics and fixes the order of the sum."""
        axis, lead = self.axis, self.batch_dims
        shape, middle = self.out.type.static_shape, self.indices.type.static_shape[lead:]
        wide = f32 if self.updates.dtype in (f16, bf16) else self.updates.dtype

        def point(*at: Any) -> None:
            def step(n: Any, total: Any) -> Any:
                which = unravel(n, middle)
                i = _position(self, b, b.load(1, [*at[:lead], *which]), shape[axis])

                def add() -> Any:
                    return total + b.load(0, [*at[:axis], *which, *at[axis + 1 :]])

                hit = b.k.compare("eq", i, at[axis])
                return b.when(hit, add, lambda: total, results=(total,))[0]

            b.store(0, at, b.loop(math.prod(middle), step, init=(b.const(0, wide),))[0])

        b.parallel(shape, point)

    def vjp(self, g: Value) -> tuple[Value, None]:
        return Gather(g, self.indices, self.axis, self.mode, self.batch_dims).out, None

    def jvp(self, tu: Value | None, ti: Value | None) -> Value:
        if tu is None:
            return zeros(self.out.shape, self.out.dtype)
        return self.with_operands([tu, self.indices]).out

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        if not self.batch_dims and not batched[1]:
            return self.with_operands(operands, axis=self.axis + 1).out
        both = _same_batch(operands, batched)
        lead = self.batch_dims + 1
        return self.with_operands(both, axis=self.axis + 1, batch_dims=lead).out
