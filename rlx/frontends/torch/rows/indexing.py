"""Elements by index: reading and writing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import ShapeError
from rlx.frontends.common.values import constant, scalar
from rlx.frontends.torch.node import Node, Operand, Row, Rows, axis_of
from rlx.frontends.torch.rows.movement import bounds
from rlx.ir.graph import topological
from rlx.ir.interpreter import evaluate, replay
from rlx.ir.value import Value
from rlx.ops.indexing.along import Position, gather_nd, put_along_axis, scatter_nd, take_along_axis
from rlx.ops.indexing.gather import Gather
from rlx.ops.movement.constant import Iota
from rlx.ops.pointwise.binary import Maximum
from rlx.ops.pointwise.compare import Where
from rlx.ops.pointwise.division import FloorDivide
from rlx.ops.sugar import concat
from rlx.types import Dim, DType, bool_, broadcast_shapes, i64

__all__ = ["ROWS"]

REDUCTIONS = {"sum": "add", "add": "add", "prod": "mul", "multiply": "mul", "amax": "max",
              "amin": "min"}  # fmt: skip


def embedding(n: Node, weight: Value, indices: Value, padding_idx: int = -1, *rest: Any) -> Value:
    """What is said of the padding and of sparse gradients matters to derivatives alone."""
    return Gather.build(weight, indices, 0)


def index_select(n: Node, x: Value, dim: int, index: Value) -> Value:
    return Gather.build(x, index, axis_of(dim, x.rank)) if x.rank else x


def take(n: Node, x: Value, index: Value) -> Value:
    return Gather.build(x.reshape([-1]), index, 0)


def gather(n: Node, x: Value, dim: int, index: Value) -> Value:
    """The index may be smaller than the tensor along the other axes."""
    if not x.rank:
        return x.expand(index.shape)
    if not index.rank:
        index = index.reshape([1])
    axis = axis_of(dim, x.rank)
    cut = [d if i == axis else m for i, (d, m) in enumerate(zip(x.shape, index.shape, strict=True))]
    if list(x.shape) != cut:
        x = x.slice([0] * x.rank, cut)
    return take_along_axis(x, index, axis).reshape(n.shape)


# -- index by tensors, as NumPy has it -----------------------------------------------------


class Places:
    """Index tensors for some axes of a tensor: these in front, the others behind them."""

    def __init__(self, n: Node, x: Value, indices: Sequence[Value | None]) -> None:
        given = [*indices, *[None] * (x.rank - len(indices))]
        if any(i is not None and i.dtype is bool_ for i in given):
            n.refuse("an index that is a mask gives a result whose shape depends on data")
        self.axes = [axis for axis, i in enumerate(given) if i is not None]
        self.rest = [axis for axis in range(x.rank) if axis not in self.axes]
        self.order = [*self.axes, *self.rest]
        tensors = [i for i in given if i is not None]
        shape: tuple[Dim, ...] = ()
        for i in tensors:
            shape = broadcast_shapes(shape, i.shape)
        self.shape = shape
        self.tensors = [i.cast(i64).expand(shape) for i in tensors]

    @property
    def front(self) -> int:
        """How many axes of the tensor stand before the indexed ones in the result: none if these
        do not lie together."""
        together = self.axes == list(range(self.axes[0], self.axes[-1] + 1))
        return self.axes[0] if together else 0

    @property
    def coordinates(self) -> Value:
        """Along a last axis, the place in each of the indexed axes."""
        return concat([i.unsqueeze(-1) for i in self.tensors], -1)


def index(n: Node, x: Value, indices: Sequence[Value | None]) -> Value:
    p = Places(n, x, indices)
    if not p.axes:
        return x
    if len(p.axes) == 1:
        return Gather.build(x, p.tensors[0], p.axes[0])
    out = gather_nd(x.transpose(p.order), p.coordinates)
    k = len(p.shape)
    before = list(range(k, k + p.front))
    return out.transpose([*before, *range(k), *range(k + p.front, out.rank)]) if before else out


def index_put(
    n: Node, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False,
    unsafe: Any = None,
) -> Value:  # fmt: skip
    values = n.cast(values)
    if indices and all(i is None or i.dtype is bool_ for i in indices):
        return _put_by_masks(n, x, indices, values, accumulate)
    p = Places(n, x, indices)
    rest = [x.shape[axis] for axis in p.rest]
    before = rest[: p.front]
    values = values.expand([*before, *p.shape, *rest[p.front :]])
    if before:
        k, f = len(p.shape), p.front
        order = [*range(f, f + k), *range(f), *range(f + k, values.rank)]
        values = values.transpose(order)
    reduction = "add" if accumulate else "set"
    out = scatter_nd(x.transpose(p.order), p.coordinates, values, reduction)
    return out.transpose([p.order.index(axis) for axis in range(x.rank)])


def _put_by_masks(
    n: Node, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool
) -> Value:
    """One number where a mask is true, or a row for each place where it is, in order."""
    masks = [i for i in indices if i is not None]
    if len(masks) != 1 or accumulate:
        n.refuse("values are added, or written where several masks are true; write by torch.where")
    lead, mask = next(i for i, a in enumerate(indices) if a is not None), masks[0]
    behind = x.rank - lead - mask.rank
    chosen = mask.reshape([*[1] * lead, *mask.shape, *[1] * behind])
    if values.type.size == 1:
        return Where.build(chosen, values.reshape([]), x)
    if lead or values.rank > behind + 1:
        n.refuse("values are written by a mask of axes that are not the first; transpose it")
    if values.rank == behind + 1:
        count = values.shape[0]
        if count == 1:
            values = values.reshape(values.shape[1:])
        else:
            off = (_true_places(mask) - n.cast(count, i64)).abs()
            told = f"index_put of {count} rows where a mask is true in more or fewer places"
            values = _in_order(values, mask, off, f"{told} (the index is the difference)")
    return Where.build(chosen, values, x)


def _true_places(mask: Value) -> Value:
    """How many places of a mask are true, as an i64 of shape [1]."""
    return mask.reshape([-1]).cast(i64).sum([0], True)


def _in_order(rows: Value, mask: Value, off: Value, told: str) -> Value:
    """For each place of a mask the row that is its own, if it is true there; ``off`` and ``told``
    are those of ``_if_none``."""
    at = _if_none(mask.reshape([-1]).cast(i64).cumsum(0) - 1, off, told)
    if rows.shape[0] == 0:  # then no place is true
        rows = constant(0, rows.dtype).expand([1, *rows.shape[1:]])
    return Gather.build(rows, at, 0, "clip").reshape([*mask.shape, *rows.shape[1:]])


def _if_none(x: Value, off: Value, told: str) -> Value:
    """Integers as they are, if a count of what is wrong, an i64 of shape [1], is 0. Else there is
    no result, which is an error here where the count is known, and else a fault of the run: as for
    an index that is the count, of an axis with the place 0 alone. ``told`` says what is wrong."""
    ops = topological([off])
    read = [off, *(v for op in ops for v in op.present)]
    if not all(v.op is not None and v.type.is_static for v in read):
        return x + Position(off, (1,), "fault", 0, told).out
    found: dict[Value, Any] = {}
    replay(ops, found, evaluate)
    if found[off].any():
        raise ShapeError(f"{told}: found {found[off].item()}")
    return x


# -- writing along an axis -----------------------------------------------------------------


def scatter(reduction: str | None = None) -> Row:
    """Updates at an index of their own along an axis."""

    def row(
        n: Node, x: Value, dim: int, index: Value, src: Operand, reduce: str | None = None,
        *, include_self: bool = True,
    ) -> Value:  # fmt: skip
        how = reduction or ("set" if reduce is None else REDUCTIONS.get(reduce))
        if how is None and reduce != "mean":
            n.refuse(f"it reduces by {reduce!r}")
        rank = x.rank
        if not rank:
            x, index = x.reshape([1]), index.reshape([1])
        index = index if index.rank else index.reshape([1])
        updates = n.cast(src)
        if not isinstance(src, Value):
            updates = updates.expand(index.shape)
        updates = updates if updates.rank else updates.reshape([1])
        if updates.shape != index.shape:
            updates = updates.slice([0] * index.rank, index.shape)
        out = _reduced(x, axis_of(dim, x.rank), index, updates, how, include_self)
        return out if rank else out.reshape([])

    return row


def _reduced(
    x: Value, axis: int, index: Value, updates: Value, how: str | None, with_own: bool
) -> Value:
    """Updates put by a reduction, None for the mean, of them alone unless ``with_own``."""
    if with_own and how is not None:
        return _put(x, axis, index, updates, how)
    ones = constant(1, x.dtype).expand(updates.shape)
    count = _put(x.zeros_like(), axis, index, ones, "add")
    if not with_own:
        x = count.gt(scalar(0, x)).where(scalar(neutral(how, x.dtype), x), x)
    found = _put(x, axis, index, updates, how or "add")
    if how is not None:
        return found
    count = Maximum.build(count, scalar(1, x)) if not with_own else count + scalar(1, x)
    return found / count if x.dtype.is_float else FloorDivide.build(found, count)


def neutral(how: str | None, dt: DType) -> float:
    """What a reduction leaves another number as it is with."""
    if how in ("max", "min"):
        if dt.is_float:
            return -np.inf if how == "max" else np.inf
        return getattr(np.iinfo(dt.numpy), "min" if how == "max" else "max")
    return 1 if how == "mul" else 0


def index_reduce(
    n: Node, x: Value, dim: int, index: Value, source: Value, reduce: str,
    *, include_self: bool = True,
) -> Value:  # fmt: skip
    """Slices along an axis, by index, reduced."""
    shape, how = x.shape, REDUCTIONS.get(reduce)
    if not x.rank:
        x, source = x.reshape([1]), source.reshape([1])
    axis = axis_of(dim, x.rank)
    ones = [1] * (x.rank - axis - 1)
    places = index.reshape([index.shape[0] if index.rank else 1, *ones]).expand(source.shape)
    return _reduced(x, axis, places, n.cast(source), how, include_self).reshape(shape)


def _put(x: Value, axis: int, index: Value, updates: Value, how: str) -> Value:
    others = [i for i in range(x.rank) if i != axis]
    if all(x.shape[i] == index.shape[i] for i in others):
        return put_along_axis(x, index, updates, axis, how)
    grid = [index.cast(i64) if i == axis else Iota(index.shape, i, i64).out for i in range(x.rank)]
    places = concat([g.unsqueeze(-1) for g in grid], -1)
    return scatter_nd(x, places, updates, how)


def index_write(reduction: str) -> Row:
    """Slices along an axis, by index."""

    def row(
        n: Node, x: Value, dim: int, index: Value, source: Operand, *, alpha: float = 1
    ) -> Value:
        if not x.rank:
            updates = n.cast(source).reshape([])
            return x + updates * n.cast(alpha) if reduction == "add" else updates
        axis, index = axis_of(dim, x.rank), index.reshape([-1])
        shape = [*x.shape[:axis], index.shape[0], *x.shape[axis + 1 :]]
        updates = n.cast(source)
        updates = updates.reshape(shape) if updates.rank else updates.expand(shape)
        updates = updates if alpha == 1 else updates * n.cast(alpha)
        return x.scatter(index, updates, axis, reduction)

    return row


def slice_scatter(
    n: Node, x: Value, src: Value, dim: int = 0, start: Dim | None = None,
    end: Dim | None = None, step: int = 1,
) -> Value:  # fmt: skip
    axis = axis_of(dim, x.rank)
    first, last = bounds(start, end, x.shape[axis])
    updates = n.cast(src)
    if step == 1 and first == 0 and last == x.shape[axis]:
        return updates.expand(x.shape)
    count = src.shape[axis]  # torch has seen that it is that of the slice
    if step == 1:
        last = first + count
        parts = [x.narrow(axis, 0, first), updates, x.narrow(axis, last, x.shape[axis] - last)]
        return concat([p for p in parts if p.shape[axis] != 0], axis)
    places = Iota((count,), 0, i64).out * step + n.cast(first, i64)
    return x.scatter(places, updates, axis)


def select_scatter(n: Node, x: Value, src: Value, dim: int, index: Dim) -> Value:
    axis = axis_of(dim, x.rank)
    place = x.shape[axis] + index if isinstance(index, int) and index < 0 else index
    updates = n.cast(src).unsqueeze(axis)
    return slice_scatter(n, x, updates, axis, place, place + 1)


def diagonal_scatter(
    n: Node, x: Value, src: Value, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Value:
    axes = [dim1 % x.rank, dim2 % x.rank]
    rest = [a for a in range(x.rank) if a not in axes]
    moved = x.transpose([*rest, *axes])
    row, column = (Iota(moved.shape[-2:], a, i64).out for a in (0, 1))
    on = (column - row).eq(offset)
    low = -min(offset, 0)
    at = (row - low).maximum(0).minimum(n.cast(src.shape[-1] - 1, i64))
    wide = Gather.build(n.cast(src), at, src.rank - 1)
    order = [*rest, *axes]
    return Where.build(on, wide, moved).transpose([order.index(a) for a in range(x.rank)])


def masked_scatter(n: Node, x: Value, mask: Value, source: Value) -> Value:
    """The elements of the source, in order, where a mask is true; there may be more of them."""
    mask, line = mask.expand(x.shape), source.reshape([-1])
    count = line.shape[0]
    off = (_true_places(mask) - n.cast(count, i64)).maximum(0)
    told = f"masked_scatter from {count} elements where a mask is true in more places"
    found = _in_order(line, mask, off, f"{told} (the index is how many more)")
    return Where.build(mask, found, x)


def one_hot(n: Node, x: Value, num_classes: int = -1) -> Value:
    if num_classes < 0:
        n.refuse("the number of its classes depends on data; give num_classes")
    outside = x.lt(0).logical_or(x.ge(num_classes)).cast(i64).reshape([-1]).sum([0], True)
    told = f"one_hot with classes outside of 0 to {num_classes - 1} (the index is how many)"
    x = _if_none(x.cast(i64).reshape([-1]), outside, told).reshape(x.shape)
    return x.one_hot(num_classes, dtype=i64)


def searched(
    n: Node, edges: Value, values: Operand, *, out_int32: bool = False, right: bool = False,
    side: str | None = None,
) -> Value:  # fmt: skip
    if edges.rank != 1:
        n.refuse("its edges have more than one axis")
    which = side or ("right" if right else "left")
    found = edges.searchsorted(n.cast(values, edges.dtype), which)
    return found.cast(n.dtype)


def counted(n: Node, repeats: Value, output_size: int | None = None) -> Value:
    """Each place as often as it is said: the first whose repeats, with those before, are more."""
    repeats = repeats.cast(i64)
    below = repeats.lt(0).cast(i64).sum([0], True)
    places = Iota.build(n.shape, 0, i64)
    told = "repeat_interleave with negative repeats (the index is how many)"
    places = _if_none(places, below, told)
    if output_size is not None:
        off = (repeats.sum([0], True) - n.cast(output_size, i64)).abs()
        told = f"repeat_interleave with output_size={output_size} and repeats with another sum"
        places = _if_none(places, off, f"{told} (the index is the difference)")
    return n.cast(repeats.cumsum(0).searchsorted(places, "right"))


def bucketed(
    n: Node, x: Operand, boundaries: Value, *, out_int32: bool = False, right: bool = False
) -> Value:
    return searched(n, boundaries, x, right=right)


def flat_index(n: Node, x: Value, index: Value, source: Value, accumulate: bool = False) -> Value:
    """``put``: by places in the tensor as one line."""
    reduction = "add" if accumulate else "set"
    line = x.reshape([-1]).scatter(index.reshape([-1]), source.reshape([-1]), 0, reduction)
    return line.reshape(x.shape)


def embedding_gradient(
    n: Node, g: Value, indices: Value, num_weights: Dim, padding_idx: int, scaled: bool
) -> Value:
    if scaled:
        n.refuse("gradients are scaled by the frequency of an index")
    lines = g.reshape([math.prod(g.type.static_shape[:-1]), g.shape[-1]])
    line = indices.reshape([-1])
    if padding_idx >= 0:
        keep = line.ne(padding_idx).unsqueeze(-1)
        lines = Where.build(keep, lines, constant(0, g.dtype))
    return lines.scatter_add(line, num_weights)


ROWS: Rows = {
    "embedding": embedding, "index_select": index_select, "take": take, "gather": gather,
    "index": index, "_unsafe_index": index, "index_put": index_put,
    "_unsafe_index_put": index_put, "_index_put_impl": index_put,
    "scatter": scatter(), "scatter.src": scatter(), "scatter.value": scatter(),
    "scatter_add": scatter("add"), "scatter_reduce": scatter(),
    "index_reduce": index_reduce,
    "index_add": index_write("add"), "index_copy": index_write("set"),
    "index_fill": index_write("set"), "slice_scatter": slice_scatter,
    "select_scatter": select_scatter, "diagonal_scatter": diagonal_scatter,
    "masked_scatter": masked_scatter, "one_hot": one_hot, "searchsorted": searched,
    "repeat_interleave.Tensor": counted,
    "bucketize": bucketed, "put": flat_index, "embedding_dense_backward": embedding_gradient,
}  # fmt: skip
