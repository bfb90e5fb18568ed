"""Gathers and scatters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.frontends.common.values import constant, size_value
from rlx.frontends.stablehlo.node import Node, Result, row
from rlx.ir.value import Value
from rlx.ops.movement.constant import Iota
from rlx.ops.movement.rearrange import stack
from rlx.types import Dim, SymDim, bool_, i64

__all__ = ["gathered"]

_REDUCTIONS = {
    "add": "add", "multiply": "mul", "minimum": "min", "maximum": "max", "second": "set",
}  # fmt: skip


def _starts(index: Value, axis: int) -> Value:
    """The indices as i64, with the axis of their coordinates last."""
    index = index.cast(i64)
    if axis == index.rank:
        return index.unsqueeze(axis)
    return index.moveaxis(axis, -1)


class _Windows:
    """Windows of an operand, each at a place that indices say."""

    def __init__(
        self, operand: Value, index: Value, sizes: Sequence[Dim], batch: Sequence[Dim],
        axes: Sequence[int], operand_batches: Sequence[int], index_batches: Sequence[int],
        vector_axis: int,
    ) -> None:  # fmt: skip
        self.operand, self.sizes, self.batch, self.axes = operand, sizes, list(batch), list(axes)
        self.starts = _starts(index, vector_axis)
        before = [j if j < vector_axis else j - 1 for j in index_batches]
        self.batches = dict(zip(operand_batches, before, strict=True))

    @property
    def whole(self) -> list[Dim]:
        """The shape of all elements: that of the indices, and of a window."""
        return [*self.batch, *self.sizes]

    def start(self, axis: int) -> Value | None:
        """Where windows begin along an axis, or None for 0."""
        return self.starts[..., self.axes.index(axis)] if axis in self.axes else None

    def coordinates(self, clamped: bool) -> Value:
        """The places of all elements, [*batch, *window, rank]."""
        rank, found = len(self.sizes), list[Value]()
        for axis, size in enumerate(self.sizes):
            at = Iota(tuple(self.whole), len(self.batch) + axis, i64).out
            start = self.start(axis)
            if start is not None:
                if clamped:
                    most = self.operand.shape[axis] - size
                    start = start.maximum(0).minimum(_number(most))
                at = at + start.reshape([*self.batch, *[1] * rank])
            if axis in self.batches:
                at = at + Iota(tuple(self.whole), self.batches[axis], i64).out
            if start is not None and not clamped:  # a place before the first is no place
                at = at.lt(0).where(_number(self.operand.shape[axis]), at)
            found.append(at)
        return stack(found, axis=-1)


def _number(d: Dim) -> Any:
    return size_value(d) if isinstance(d, SymDim) else d


@row("gather")
def _gather(n: Node) -> Result:
    return gathered(n, n.xs[0], n.xs[1], n.ints("slice_sizes"))


def gathered(n: Node, x: Value, index: Value, sizes: Sequence[Dim]) -> Value:
    """Windows of these sizes, at the places that indices say."""
    d = n.numbers("dimension_numbers")
    shape = _gathered_shape(d, index, sizes)
    if 0 in shape:
        return x.zeros_like().flatten()[:1].expand(shape) if x.type.size else _empty(x, shape)
    offsets = [int(i) for i in d.offset_dims]
    batch_dims = [i for i in range(len(shape)) if i not in offsets]
    batch = [shape[i] for i in batch_dims]
    axes = [int(i) for i in d.start_index_map]
    dropped = {int(i) for i in (*d.collapsed_slice_dims, *d.operand_batching_dims)}
    windows = _Windows(
        x, index, sizes, batch, axes, list(d.operand_batching_dims),
        list(d.start_indices_batching_dims), int(d.index_vector_dim),
    )  # fmt: skip
    found = _rows(windows, dropped)
    if found is None and not axes and not windows.batches:
        found = x.slice([0] * x.rank, list(sizes)).expand(windows.whole)
    if found is None:
        found = x.gather_nd(windows.coordinates(clamped=True), mode="clip")
    kept = [s for i, s in enumerate(sizes) if i not in dropped]
    order = [0] * len(shape)
    for i, at in enumerate([*batch_dims, *offsets]):
        order[at] = i
    return found.reshape([*batch, *kept]).transpose(order)


def _gathered_shape(d: Any, index: Value, sizes: Sequence[Dim]) -> list[Dim]:
    """The indices' dims but that of vectors, with the windows' dims at their places."""
    vector, offsets = int(d.index_vector_dim), [int(i) for i in d.offset_dims]
    dropped = {int(i) for i in (*d.collapsed_slice_dims, *d.operand_batching_dims)}
    batch = iter([s for i, s in enumerate(index.shape) if i != vector])
    window = iter([s for i, s in enumerate(sizes) if i not in dropped])
    rank = len(offsets) + index.rank - (vector < index.rank)
    return [next(window) if i in offsets else next(batch) for i in range(rank)]


def _empty(x: Value, shape: Sequence[Dim]) -> Value:
    return constant(0, x.dtype).expand(list(shape))


def _rows(w: _Windows, dropped: set[int]) -> Value | None:
    """Whole rows of the operand along one axis, as a gather of them; None for other windows."""
    shape = w.operand.shape
    if len(w.axes) != 1 or w.batches:
        return None
    axis = w.axes[0]
    rest = [i for i in range(len(shape)) if i != axis]
    if w.sizes[axis] != 1 or any(w.sizes[i] != shape[i] for i in rest) or axis not in dropped:
        return None
    start = w.start(axis)
    assert start is not None
    found = w.operand.gather(
        start.maximum(0).minimum(_number(shape[axis] - 1)), axis=axis, mode="clip"
    )
    # The axes of the indices lie in the place of the axis.
    order = [*range(axis, axis + len(w.batch)), *range(axis),
             *range(axis + len(w.batch), found.rank)]  # fmt: skip
    return found.transpose(order)


@row("scatter")
def _scatter(n: Node) -> Result:
    if len(n.xs) != 3:
        raise n.refuse(f"of {len(n.xs) // 2} operands at once; one is read")
    x, index, updates = n.xs
    reduction = _reduction(n, x)
    d: Any = n.numbers("scatter_dimension_numbers")
    if 0 in updates.shape or 0 in x.shape:
        return x
    window_dims = [int(i) for i in d.update_window_dims]
    dropped = {int(i) for i in (*d.inserted_window_dims, *d.input_batching_dims)}
    sizes_of = iter(window_dims)
    sizes = [
        1 if i in dropped else updates.type.static_shape[next(sizes_of)] for i in range(x.rank)
    ]
    batch_dims = [i for i in range(updates.rank) if i not in window_dims]
    batch = [updates.type.static_shape[i] for i in batch_dims]
    windows = _Windows(
        x, index, sizes, batch, [int(i) for i in d.scattered_dims_to_operand_dims],
        list(d.input_batching_dims), list(d.scatter_indices_batching_dims),
        int(d.index_vector_dim),
    )  # fmt: skip
    if not x.rank:
        raise n.refuse("into a scalar")
    given = updates.transpose([*batch_dims, *window_dims]).reshape(windows.whole)
    places = windows.coordinates(clamped=False)  # what lies outside is left out
    if x.dtype is bool_:
        found = x.cast("u8").scatter_nd(places, given.cast("u8"), reduction, mode="fill")
        return found.ne(0)
    return x.scatter_nd(places, given, reduction, mode="fill")


def _reduction(n: Node, x: Value) -> str:
    op = n.single(0)
    if x.dtype is bool_ and op in ("or", "and"):
        return "max" if op == "or" else "min"
    if op not in _REDUCTIONS:
        raise n.refuse("by a region other than one of add, multiply, minimum, maximum and the new")
    return _REDUCTIONS[op]
