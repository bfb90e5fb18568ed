"""Elements by index: reading, writing, and where extremes are."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.errors import ShapeError, UnsupportedError
from rlx.frontends.common.values import constant, size_value
from rlx.frontends.onnx.edges import Edge, is_symbolic
from rlx.frontends.onnx.node import Node, Row, Rows
from rlx.frontends.onnx.rows.suppression import suppression
from rlx.ir.value import Value
from rlx.ops.indexing.along import put_along_axis, scatter_nd
from rlx.ops.indexing.gather import Gather
from rlx.ops.indexing.scatter import Scatter
from rlx.ops.movement.constant import Iota
from rlx.ops.movement.slicing import Slice
from rlx.ops.reduction.argreduce import ArgMax, ArgMin
from rlx.types import Dim, bool_, i64

__all__ = ["ROWS"]

Array = np.ndarray[Any, Any]


def gather(n: Node) -> Value:
    x, axis, known = n[0], n.axis(0), _known_places(n.edge(1))
    first = None if known is None else _first_of_run(known, x.shape[axis])
    if known is None or first is None:
        return Gather.build(x, n[1], axis)
    part = x.narrow(axis, first, known.size)
    return part.reshape([*x.shape[:axis], *known.shape, *x.shape[axis + 1 :]])


def _known_places(e: Edge) -> Array | None:
    """The elements of indices that the file has, such as positions of tokens; None for others."""
    return None if e.known is None or is_symbolic(e.known) or not e.known.size else e.known


def _first_of_run(places: Array, size: Dim) -> int | None:
    """The first of places on an axis that follow one another, which are a slice; None for others,
    and where one is not on the axis."""
    flat = places.reshape(-1)
    first, last = int(flat[0]), int(flat[-1])
    if not isinstance(size, int) or not 0 <= first <= last < size:
        return None
    return first if np.array_equal(flat, np.arange(first, first + flat.size)) else None


def gather_elements(n: Node) -> Value:
    """With an index for every element of the result; it may reach a part of the other axes."""
    x, indices, axis = n[0], n[1], n.axis(0)
    if indices.rank != x.rank:
        raise ShapeError(f"its indices {indices.type} need the rank of {x.type}")
    sizes = [d if i == axis else indices.shape[i] for i, d in enumerate(x.shape)]
    part = x if tuple(sizes) == x.shape else Slice.build(x, [0] * x.rank, sizes)
    known = _known_places(n.edge(1))
    if known is not None:
        lines = np.moveaxis(known, axis, -1).reshape(-1, known.shape[axis])
        first = _first_of_run(lines[0], x.shape[axis])
        if first is not None and (lines == lines[0]).all():
            return part.narrow(axis, first, known.shape[axis])
    others = [i for i in range(x.rank) if i != axis]
    rows, at = (v.transpose([*others, axis]) for v in (part, indices))
    out = Gather(rows, at, x.rank - 1, "fault", x.rank - 1).out
    back = [*range(axis), x.rank - 1, *range(axis, x.rank - 1)]
    return out.transpose(back)


def gather_coordinates(n: Node) -> Value:
    """Parts of a tensor, by coordinates that the last axis of the indices holds."""
    x, indices, lead = n[0], n[1].cast(i64), n.attr("batch_dims", 0)
    many = indices.shape[-1]
    if not isinstance(many, int) or lead + many > x.rank:
        raise ShapeError(f"{many} coordinates after {lead} batch dims do not fit {x.type}")
    dims = x.shape[lead : lead + many]
    joined: Dim = x.type.with_shape(dims).size
    rows = x.reshape([*x.shape[:lead], joined, *x.shape[lead + many :]])
    known = _known_places(n.edge(1))
    if known is not None and not lead and all(isinstance(d, int) for d in dims):
        flat = _flat_places(known, np.array(dims, np.int64))
        if flat is not None:
            first = _first_of_run(flat, joined)
            if first is None:
                return Gather.build(rows, constant(flat, i64), 0)
            part = rows.narrow(0, first, flat.size)
            return part.reshape([*flat.shape, *x.shape[many:]])
    flat, outside, total = constant(0, i64), constant(False, bool_), constant(1, i64)
    for axis, dim in enumerate(dims):
        size = size_value(dim)
        at = indices.narrow(-1, axis, 1).reshape(indices.shape[:-1])
        at = at.lt(0).where(at + size, at)
        outside = outside.logical_or(at.lt(0).logical_or(at.ge(size)))
        flat, total = flat * size + at, total * size
    # One that is out of range along its axis must not be another element's place.
    flat = outside.where(total, flat).expand(indices.shape[:-1])
    return Gather(rows, flat, lead, "fault", lead).out


def _flat_places(known: Array, dims: Array) -> Array | None:
    """Known coordinates as places in the joined axes; None if one is outside, a fault of a run."""
    at = np.where(known < 0, known + dims, known)
    if not ((at >= 0) & (at < dims)).all():
        return None
    return np.asarray(at @ (np.cumprod([1, *dims[:0:-1]], dtype=np.int64)[::-1]))


def scatter_elements(n: Node) -> Value:
    x, indices, axis = n[0], n[1], n.axis(0)
    if any(d != x.shape[i] for i, d in enumerate(indices.shape) if i != axis):
        raise UnsupportedError(
            f"its indices {indices.type} do not reach all of {x.type} along the other axes"
        )
    return put_along_axis(x, indices, n[2], axis, _reduction(n))


def _reduction(n: Node) -> str:
    kind = n.attr("reduction", "none")
    return "set" if kind == "none" else kind


def scatter_coordinates(n: Node) -> Value:
    return scatter_nd(n[0], n[1], n[2], _reduction(n))


def extreme_index(op: type[ArgMax] | type[ArgMin]) -> Row:
    def row(n: Node) -> Value:
        last = bool(n.attr("select_last_index", 0))
        return op.build(n[0], n.axis(0), bool(n.attr("keepdims", 1)), last)

    return row


def hard_max(n: Node) -> Value:
    """One at the first of the greatest elements of a line, zeros elsewhere."""
    x, axis = n[0], n.axis(-1 if n.version >= 13 else 1)
    if n.version < 13:
        x = x.reshape([*x.shape[:axis], x.type.with_shape(x.shape[axis:]).size])
    places = Iota(x.shape, axis, i64).out
    return places.eq(ArgMax.build(x, axis, True)).cast(x.dtype).reshape(n[0].shape)


def update_cache(n: Node) -> Value:
    """A cache with updates from a place of each sequence on; around the end if it is circular."""
    cache, update, axis = n[0], n[1], n.axis(-2)
    length = update.shape[axis]
    at = Iota((length,), 0, i64).out.reshape([1, length])
    if n.has(2):
        at = at + n[2].reshape([cache.shape[0], 1])
    at = at.expand([cache.shape[0], length])
    wraps = n.attr("mode", "linear") == "circular"
    order = [0, axis, *(i for i in range(1, cache.rank) if i != axis)]
    back = [order.index(i) for i in range(cache.rank)]
    ready = Scatter(
        cache.transpose(order), at, update.transpose(order), 1, "set",
        "wrap" if wraps else "fault", 1,
    ).out  # fmt: skip
    return ready.transpose(back)


ROWS: Rows = {
    "ArgMax": extreme_index(ArgMax),
    "ArgMin": extreme_index(ArgMin),
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_coordinates,
    "Hardmax": hard_max,
    "NonMaxSuppression": suppression,
    "Scatter": scatter_elements,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_coordinates,
    "TensorScatter": update_cache,
}
