"""Gathers and scatters with an index for every element, and by whole coordinates.

They are short combinations of ``gather`` and ``scatter``, which have their speed, derivatives and
batching. ``position`` checks coordinates before they are joined into one index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.base.dims import is_known
from rlx.errors import DTypeError, GraphError, ShapeError
from rlx.ir.factors import Factors, broadcast
from rlx.ir.lift import lift
from rlx.ir.op import Array, Op, attr, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.indexing.gather import Gather
from rlx.ops.indexing.index_modes import as_indices, check_integers, check_mode, position, positions
from rlx.ops.indexing.scatter import Scatter
from rlx.ops.movement.movement import axis_of, is_negative, listed
from rlx.ops.reduction.reduce import as_value
from rlx.types import Dim, TensorType, broadcast_shapes, i64

__all__ = ["Position", "gather_nd", "joined", "put_along_axis", "scatter_nd", "take_along_axis"]


class Position(Op, name="mir.position"):
    """The place along an axis that each index means, as i64: 0 to size - 1.

    With the mode "fill" an index out of range becomes ``size``.
    """

    indices: Value = operand("integers of any shape")
    size: tuple[Dim, ...] = attr(doc="the length of the axis (one dim)")
    mode: str = attr("fault", '"fault", "clip", "wrap" or "fill": an index out of range')
    axis: int = attr(0, "the axis, as errors name it")
    of: str = attr("position", "the op that asks, as errors name it")

    flops_per_element = 0
    differentiable = False
    samples = (
        sample("2x3xi64", size=(5,), data={0: "index:5"}),
        sample("4xi8", size=(5,), mode="wrap"),
        sample("6xu8", size=(5,), mode="fill", data={0: "index:9"}),
        sample("6xi32", size=(5,), mode="clip"),
        sample("0xi64", size=(0,)),
    )
    bads = (
        bad("2xf32", match="cast them to i64", error=DTypeError, size=(5,)),
        bad("2xi64", match='"clip"', error=GraphError, size=(5,), mode="drop"),
        bad("2xi64", match="one size", error=ShapeError, size=(5, 2)),
        bad("2xi64", match="empty", error=ShapeError, size=(0,)),
    )

    def infer(self) -> TensorType:
        check_integers(self, self.indices)
        check_mode(self, self.mode)
        if len(self.size) != 1 or is_negative(self.size[0]):
            raise ShapeError(f"{self.short} takes one size, found {listed(self.size)}")
        TensorType(self.size, i64).addressable()
        if self.size[0] == 0 and self.indices.type.size != 0 and self.mode != "fill":
            raise ShapeError(f"{self.short}: axis {self.axis} is empty, so no index can be valid")
        return self.indices.type.with_dtype(i64)

    def _length(self) -> int:
        return TensorType(self.size, i64).static_shape[0]

    def reference(self, indices: Array) -> Array:
        length = self._length()
        places, outside = positions(self, indices, length)
        out = np.where(outside, length, places) if self.mode == "fill" else places
        return out.astype(np.int64)

    def loops(self, b: Any) -> None:
        length = self._length()

        def point(*at: Any) -> None:
            place, outside = position(self, b, b.load(0, at), length)
            if self.mode == "fill":
                place = b.k.select(outside, b.k.index(length), place)
            b.store(0, at, b.convert(place, i64))

        b.parallel(self.out.type.static_shape, point)

    def factors(self) -> Factors:
        return broadcast(self)

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        return self.with_operands(operands).out


# -- an index for every element ------------------------------------------------------------


def take_along_axis(
    x: Value, indices: Value | Array | int, axis: int = -1, mode: str = "fault"
) -> Value:
    """Elements by an index of their own along an axis, as ``numpy.take_along_axis`` and ONNX's
    GatherElements: for axis 0 ``out[i, j] = x[indices[i, j], j]``.

    The ranks are equal, and the dims but that of the axis broadcast. ``mode`` is that of gather.
    """
    index = as_indices(indices)
    axis = _same_rank(x, index, axis, "take_along_axis")
    others = broadcast_shapes(*(_without(v, axis) for v in (x, index)))
    ready, index = (_moved(v, axis).expand((*others, v.shape[axis])) for v in (x, index))
    last = x.rank - 1
    return _back(Gather(ready, index, last, mode, last).out, axis)


def put_along_axis(
    x: Value,
    indices: Value | Array | int,
    updates: Value | Array | float,
    axis: int = -1,
    reduction: str = "set",
    mode: str = "fault",
) -> Value:
    """The tensor with updates at indices of their own along an axis, as ``numpy.put_along_axis``
    and ONNX's ScatterElements: for axis 0 ``out[indices[i, j], j] = updates[i, j]``.

    The ranks are equal; the indices broadcast to the tensor's dims but that of the axis, the
    updates to the indices. ``reduction`` and ``mode`` are those of scatter.
    """
    index = as_indices(indices)
    axis = _same_rank(x, index, axis, "put_along_axis")
    others = _without(x, axis)
    index = _moved(index, axis)
    index = index.expand((*others, index.shape[-1]))
    new = _back(index, axis).shape
    ready = _moved(lift(updates, x).expand(new), axis)
    last = x.rank - 1
    return _back(Scatter(_moved(x, axis), index, ready, last, reduction, mode, last).out, axis)


def _same_rank(x: Value, indices: Value, axis: int, what: str) -> int:
    axis = axis_of(axis, x.rank, what)
    if indices.rank != x.rank:
        raise ShapeError(
            f"{what}: the tensor {x.type} and the indices {indices.type} need one rank; add dims"
            " of 1 with unsqueeze"
        )
    return axis


def _without(v: Value, axis: int) -> tuple[Dim, ...]:
    return (*v.shape[:axis], *v.shape[axis + 1 :])


def _moved(v: Value, axis: int) -> Value:
    """``axis`` last."""
    return v.transpose([*(i for i in range(v.rank) if i != axis), axis])


def _back(v: Value, axis: int) -> Value:
    """The last axis at ``axis``."""
    order = list(range(v.rank - 1))
    return v.transpose([*order[:axis], v.rank - 1, *order[axis:]])


# -- coordinates ---------------------------------------------------------------------------


def gather_nd(x: Value, indices: Value | Array, mode: str = "fault", batch_dims: int = 0) -> Value:
    """Parts of a tensor by coordinates, as ONNX's GatherND: the last axis of the indices holds k
    of them, which name an element of k axes, or the part behind it.

    The first ``batch_dims`` axes are shared. For x [b, m, n, d] and indices [b, p, 2] with one
    batch dim the result is [b, p, d]. ``mode`` is that of gather.
    """
    index = as_indices(indices)
    flat, rows = _flattened("gather_nd", x, index, mode, batch_dims)
    return Gather(rows, flat, batch_dims, _checked(mode), batch_dims).out


def scatter_nd(
    x: Value,
    indices: Value | Array,
    updates: Value | Array | float,
    reduction: str = "set",
    mode: str = "fault",
    batch_dims: int = 0,
) -> Value:
    """The tensor with updates by coordinates, as ONNX's ScatterND: what ``gather_nd`` would read
    with these indices is written. ``reduction`` and ``mode`` are those of scatter, and updates
    broadcast to what gather_nd would give."""
    index = as_indices(indices)
    flat, rows = _flattened("scatter_nd", x, index, mode, batch_dims)
    new = lift(updates, x).expand((*flat.shape, *rows.shape[batch_dims + 1 :]))
    how = (batch_dims, reduction, _checked(mode), batch_dims)
    return Scatter(rows, flat, new, *how).out.reshape(x.shape)


def _checked(mode: str) -> str:
    """The mode for indices that ``position`` has checked."""
    return "fill" if mode == "fill" else "clip"


def _flattened(what: str, x: Value, indices: Value, mode: str, lead: int) -> tuple[Value, Value]:
    """Indices into the joined axes that the coordinates are of, and the tensor with them joined;
    with "fill" one out of range is beyond the end."""
    many = indices.shape[-1] if indices.rank else None
    if not is_known(many):
        raise ShapeError(
            f"{what}: the last axis of the indices holds the coordinates, and its length is a"
            f" number; found {indices.type}"
        )
    if not 0 <= lead < indices.rank or lead + many > x.rank:
        raise ShapeError(
            f"{what}: {many} coordinates after {lead} batch dims do not fit a tensor of rank"
            f" {x.rank} and indices of rank {indices.rank}"
        )
    if not many:
        flat = as_indices(np.zeros((), np.int64)).expand(indices.shape[:-1])
        return flat, x.reshape([*x.shape[:lead], 1, *x.shape[lead:]])
    columns = [indices.narrow(-1, n, 1).reshape(indices.shape[:-1]) for n in range(many)]
    return joined(what, x, columns, mode, lead)


def joined(
    what: str, x: Value, columns: Sequence[Value], mode: str, axis: int
) -> tuple[Value, Value]:
    """One index for coordinates along as many axes, from ``axis`` on, and the tensor with these
    axes joined; with "fill" a coordinate out of range gives an index beyond the end.

    The columns broadcast; ``what`` is the op that asks.
    """
    dims = x.shape[axis : axis + len(columns)]
    total = x.type.with_shape(dims).size
    flat, outside = None, None
    for n, (column, dim) in enumerate(zip(columns, dims, strict=True)):
        at = Position(column, (dim,), mode, axis + n, what).out
        if mode == "fill":
            beyond = at.ge(_number(dim))
            outside = beyond if outside is None else outside.logical_or(beyond)
        flat = at if flat is None else flat * _number(dim) + at
    assert flat is not None, "there is a column at least"
    if outside is not None:
        flat = outside.where(_number(total), flat)
    return flat, x.reshape([*x.shape[:axis], total, *x.shape[axis + len(columns) :]])


def _number(dim: Dim) -> int | Value:
    return dim if is_known(dim) else as_value(dim)
