"""Elements by index."""

from __future__ import annotations

from rlx.errors import ShapeError
from rlx.frontends.onnx.edges import size_value
from rlx.frontends.onnx.node import Node, Rows, constant
from rlx.ops.gather import Gather
from rlx.ops.slicing import Slice
from rlx.ops.value import Value
from rlx.types import Dim, bool_, i64

__all__ = ["ROWS"]


def gather(n: Node) -> Value:
    return Gather.build(n[0], n[1], n.axis(0))


def gather_elements(n: Node) -> Value:
    """With an index for every element of the result; it may reach a part of the other axes."""
    x, indices, axis = n[0], n[1], n.axis(0)
    if indices.rank != x.rank:
        raise ShapeError(f"its indices {indices.type} need the rank of {x.type}")
    sizes = [d if i == axis else indices.shape[i] for i, d in enumerate(x.shape)]
    part = x if tuple(sizes) == x.shape else Slice.build(x, [0] * x.rank, sizes)
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
    flat, outside, total = constant(0, i64), constant(False, bool_), constant(1, i64)
    for axis, dim in enumerate(dims):
        size = size_value(dim)
        at = indices.narrow(-1, axis, 1).reshape(indices.shape[:-1])
        at = at.lt(0).where(at + size, at)
        outside = outside.logical_or(at.lt(0).logical_or(at.ge(size)))
        flat, total = flat * size + at, total * size
    # One that is out of range along its axis must not be another element's place.
    flat = outside.where(total, flat).expand(indices.shape[:-1])
    joined: Dim = x.type.with_shape(dims).size
    rows = x.reshape([*x.shape[:lead], joined, *x.shape[lead + many :]])
    return Gather(rows, flat, lead, "fault", lead).out


ROWS: Rows = {
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_coordinates,
}
