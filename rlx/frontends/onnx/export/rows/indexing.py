"""Elements by index, and orders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.errors import UnsupportedError
from rlx.frontends.onnx.export import sizes
from rlx.frontends.onnx.export.rows.elementwise import choice
from rlx.frontends.onnx.export.writer import Name, Rows, Writer
from rlx.types import Dim, DType, f32, i64

__all__ = ["ROWS"]


def _wide(w: Writer, indices: Name, dt: DType) -> Name:
    return indices if dt is i64 else w.cast(indices, i64)


def _inside(w: Writer, op: Any, indices: Name, length: Dim) -> tuple[Name, Name | None]:
    """Indices that ONNX reads as the op's mode means them; with "fill" also which are valid."""
    found = _wide(w, indices, op.indices.dtype)
    if op.mode == "fault":
        return found, None
    size = sizes.scalar(w, length)
    zero, one = w.constant(0, i64), w.constant(1, i64)
    if op.mode == "wrap":
        return w.node("Mod", found, size), None
    last = w.node("Sub", size, one)
    if op.mode == "clip":
        return w.node("Min", w.node("Max", found, zero), last), None
    low = w.node("GreaterOrEqual", found, w.node("Neg", size))
    valid = w.node("And", low, w.node("Less", found, size))
    back = w.node("Where", w.node("Less", found, zero), w.node("Add", found, size), found)
    return back, valid


def gathered(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
    table, axis, lead = xs[0], op.axis, op.batch_dims
    indices, valid = _inside(w, op, xs[1], op.table.shape[axis])
    if valid is not None:
        indices = w.node("Where", valid, indices, w.constant(0, i64))
    middle = op.indices.rank - lead
    if not lead:
        found = w.node("Gather", table, indices, axis=axis)
    else:
        # The axis follows the batch axes, and what is before it comes behind the indices.
        rank = op.table.rank
        order = [*range(lead), axis, *range(lead, axis), *range(axis + 1, rank)]
        table = w.node("Transpose", table, perm=order)
        last = w.node("Unsqueeze", indices, w.ints([-1]))
        found = w.node("GatherND", table, last, batch_dims=lead)
        at, before = lead + middle, axis - lead
        back = [*range(lead), *range(at, at + before), *range(lead, at),
                *range(at + before, op.out.rank)]  # fmt: skip
        found = w.node("Transpose", found, perm=back)
    if valid is None:
        return found
    ones = [1] * (axis - lead)
    behind = [1] * (op.table.rank - axis - 1)
    shape = [*op.indices.shape[:lead], *ones, *op.indices.shape[lead:], *behind]
    mask = sizes.shaped(w, valid, shape)
    return choice(w, op.table.dtype, mask, found, w.constant(0, op.table.dtype))


_REDUCTIONS = {"set": "none", "add": "add", "mul": "mul", "min": "min", "max": "max"}


def scattered(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
    return _scatter(w, op, xs[0], op.x.shape, op.x.dtype, xs[1], xs[2], op.reduction)


def scattered_sums(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
    zero = w.constant(0, op.updates.dtype)
    start = w.node("Expand", zero, sizes.line(w, op.out.shape))
    return _scatter(w, op, start, op.out.shape, op.updates.dtype, xs[1], xs[0], "add")


def _scatter(
    w: Writer, op: Any, x: Name, shape: Sequence[Dim], dt: DType, indices: Name, updates: Name,
    reduction: str,
) -> Name:  # fmt: skip
    """The axis goes behind the batch axes, indices of these are written out, and with the mode
    "fill" what is out of range goes to a place that is cut off."""
    axis, lead, rank = op.axis, op.batch_dims, len(shape)
    middle = op.indices.rank - lead
    indices, valid = _inside(w, op, indices, shape[axis])
    before = axis - lead
    order = [*range(lead), axis, *range(lead, axis), *range(axis + 1, rank)]
    moved = w.node("Transpose", x, perm=order) if before else x
    if before:
        at = lead + before
        perm = [*range(lead), *range(at, at + middle), *range(lead, at),
                *range(at + middle, op.updates.rank)]  # fmt: skip
        updates = w.node("Transpose", updates, perm=perm)
    short = dt.is_float and dt.bits < 32 and reduction in ("add", "mul")
    if short:  # which are accumulated in f32
        moved, updates = w.cast(moved, f32), w.cast(updates, f32)
    kind = f32 if short else dt
    if valid is not None:
        indices = w.node("Where", valid, indices, sizes.scalar(w, shape[axis]))
        pads = [0] * (2 * rank)
        pads[rank + lead] = 1
        moved = w.node("Pad", moved, w.ints(pads), w.constant(0, kind))
    places = w.node("Unsqueeze", indices, w.ints([-1]))
    if lead:
        places = w.node("Concat", *_grid(w, op, lead), places, axis=-1)
    found = w.node("ScatterND", moved, places, updates, reduction=_REDUCTIONS[reduction])
    if valid is not None:
        end = sizes.line(w, [shape[axis]])
        found = w.node("Slice", found, w.ints([0]), end, w.ints([lead]))
    if short:
        found = w.cast(found, dt)
    if not before:
        return found
    back = [*range(lead), *range(lead + 1, lead + 1 + before), lead, *range(axis + 1, rank)]
    return w.node("Transpose", found, perm=back)


def _grid(w: Writer, op: Any, lead: int) -> list[Name]:
    """For every batch axis where along it each index is."""
    shape = sizes.line(w, [*op.indices.shape, 1])
    found: list[Name] = []
    for i in range(lead):
        count = sizes.scalar(w, op.indices.shape[i])
        line = w.node("Range", w.constant(0, i64), count, w.constant(1, i64))
        more = op.indices.rank - i
        found.append(w.node("Expand", w.node("Unsqueeze", line, w.ints(range(1, 1 + more))), shape))
    return found


def top(w: Writer, op: Any, xs: Sequence[Name]) -> list[Name]:
    return _order(w, op, xs[0], w.ints([op.k]), op.largest)


def sorted_(w: Writer, op: Any, xs: Sequence[Name]) -> list[Name]:
    return _order(w, op, xs[0], sizes.line(w, [op.x.shape[op.axis]]), op.descending)


def _order(w: Writer, op: Any, x: Name, count: Name, largest: bool) -> list[Name]:
    """The first of a line in order. ONNX Runtime has it of few types, and leaves nan open."""
    dt = op.x.dtype
    wide = dt if dt.bits >= 32 and dt.kind != "uint" else f32 if dt.is_float else i64
    if dt.name == "u64":
        raise UnsupportedError("ONNX orders no u64 in all runtimes; cast it to i64")
    given = x if wide is dt else w.cast(x, wide)
    values, places = w.nodes_of("TopK", [given, count], 2, axis=op.axis, largest=int(largest),
                                sorted=1)  # fmt: skip
    values = values if wide is dt else w.cast(values, dt)
    return [values, places]


ROWS: Rows = {
    "mir.gather": gathered, "mir.scatter": scattered, "mir.scatter_add": scattered_sums,
    "mir.topk": top, "mir.sort": sorted_,
}  # fmt: skip
