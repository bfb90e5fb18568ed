"""Reading and writing by index, and boxes at starts known at run time."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from rlx.ops.indexing.index_modes import out_of_range, place
from rlx.targets.graph.rows.common import Row, dtype_of, least, most, shape_of
from rlx.targets.graph.tensor import Tensor
from rlx.targets.graph.whole import Whole
from rlx.types import bool_, i32, i64

__all__ = ["ROWS", "checked_places"]


def checked_places(k: Whole, node: Any, indices: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """The places that indices mean, within the axis, and which were out of range; a fault where the
    mode makes one of these."""
    inside, outside = place(k, indices, length, node.mode)
    if node.mode == "fault":
        k.check(outside, out_of_range(node, length))
    return _word(k, inside), outside


def _word(k: Whole, indices: Tensor) -> Tensor:
    """Indices in the signed type of the system's indices."""
    return k.cast(indices, i32 if k.target.index_bits == 32 else i64)


def _gather(k: Whole, node: Any, table: Tensor, indices: Tensor) -> Tensor:
    shape, axis, lead = shape_of(node), node.axis, node.batch_dims
    if 0 in shape or not table.shape[axis]:
        return k.literal(0, table.dtype, shape)
    inside, outside = checked_places(k, node, indices, table.shape[axis])
    out = k.reshape(k.taken(table, inside, axis, lead), shape)
    if node.mode != "fill":
        return out
    dims = [*indices.shape[:lead], *[1] * (axis - lead), *indices.shape[lead:]]
    gone = k.reshape(outside, (*dims, *[1] * (table.rank - 1 - axis)))
    return k.select(gone, k.literal(0, table.dtype), out)


def _position(k: Whole, node: Any, indices: Tensor) -> Tensor:
    (length,) = node.size
    if 0 in indices.shape:
        return k.literal(0, i64, indices.shape)
    inside, outside = checked_places(k, node, indices, length)
    inside = k.cast(inside, i64)
    return k.select(outside, length, inside) if node.mode == "fill" else inside


_NEUTRAL: dict[str, Any] = {
    "add": lambda _: 0, "mul": lambda _: 1, "max": least, "min": most, "set": lambda _: 0,
}  # fmt: skip


def _scatter_on(
    k: Whole, node: Any, verb: str, start: Tensor, indices: Tensor, updates: Tensor
) -> Tensor:
    """Updates on a tensor. Those that are out of range, and of a "set" all but the last for their
    place, go to a place behind the end, which is cut off."""
    axis, lead, length = node.axis, node.batch_dims, start.shape[node.axis]
    if 0 in start.shape or 0 in updates.shape:
        return start
    inside, outside = checked_places(k, node, indices, length)
    fill = node.mode == "fill"
    count = prod(indices.shape[lead:])
    if verb == "set" and count > 1:
        stays = _stays(k, inside, outside if fill else None, length, lead)
        inside, fill = k.select(stays, inside, length), True
    elif fill:
        inside = k.select(outside, length, inside)
    if not fill:
        return k.scattered(verb, start, inside, updates, axis, lead)
    low, high = [0] * start.rank, [0] * start.rank
    high[axis] = 1 if verb != "set" else count
    if verb == "set":  # behind the end each has a place of its own
        own = k.reshape(k.iota((count,), 0, inside.dtype), indices.shape[lead:])
        own = k.spread(own, indices.shape)
        inside = k.select(k.compare("eq", inside, length), own + length, inside)
    wide = k.padded(start, k.literal(_NEUTRAL[verb](start.dtype), start.dtype), low, high)
    out = k.scattered(verb, wide, inside, updates, axis, lead)
    return k.narrow(out, axis, 0, length)


def _stays(k: Whole, inside: Tensor, outside: Tensor | None, length: int, lead: int) -> Tensor:
    """Whether an update is the last one for its place, and within the axis."""
    batch, own = inside.shape[:lead], inside.shape[lead:]
    number = k.spread(k.reshape(k.iota((prod(own),), 0, inside.dtype), own), inside.shape)
    if outside is not None:
        number = k.select(outside, -1, number)
    none = k.literal(-1, inside.dtype, (*batch, length))
    last = k.scattered("max", none, inside, number, lead, lead)
    found = k.reshape(k.taken(last, inside, lead, lead), inside.shape)
    mine = k.compare("eq", found, number)
    return mine if outside is None else mine & k.logical_not(outside)


def _wide(k: Whole, t: Tensor, verb: str) -> Tensor:
    return k.widened(t) if verb in ("add", "mul") else t


def _scatter(k: Whole, node: Any, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    verb = node.reduction
    if x.dtype is bool_:
        x, updates = k.converted(x, i32), k.converted(updates, i32)
    out = _scatter_on(k, node, verb, _wide(k, x, verb), indices, _wide(k, updates, verb))
    return k.rounded(out, dtype_of(node))


def _scatter_add(k: Whole, node: Any, updates: Tensor, indices: Tensor) -> Tensor:
    wide = k.widened(updates)
    zeros = k.literal(0, wide.dtype, shape_of(node))
    return k.rounded(_scatter_on(k, node, "add", zeros, indices, wide), updates.dtype)


# -- boxes ---------------------------------------------------------------------------------


def _starts(k: Whole, node: Any, x: Tensor, starts: Tensor, box: Sequence[int]) -> list[Tensor]:
    """Where the box begins along each axis, moved into the tensor: of the shape of the batch."""
    lead, found = node.batch_dims, list[Tensor]()
    for axis, size in enumerate(box):
        dim = x.shape[lead + axis]
        s = k.reshape(k.narrow(starts, lead, axis, axis + 1), starts.shape[:lead])
        s = k.cast(s, k.index_word(s.dtype))
        if s.dtype.kind == "int":
            s = k.maximum(k.select(s < 0, s + dim, s), 0)
        found.append(_word(k, k.minimum(s, dim - size)))
    return found


def _lines(k: Whole, start: Tensor, count: int, step: int = 1) -> Tensor:
    """start, start + 1 and so on as a new last axis; or iota - start (``step`` -1)."""
    shape = (*start.shape, count)
    line = k.spread(k.iota((count,), 0, start.dtype), shape)
    begin = k.spread(k.reshape(start, (*start.shape, 1)), shape)
    return line + begin if step > 0 else line - begin


def _dynamic_slice(k: Whole, node: Any, x: Tensor, starts: Tensor) -> Tensor:
    shape, lead = shape_of(node), node.batch_dims
    if 0 in shape:
        return k.literal(0, x.dtype, shape)
    for axis, start in enumerate(_starts(k, node, x, starts, shape[lead:])):
        size = shape[lead + axis]
        if size != x.shape[lead + axis]:
            x = k.taken(x, _lines(k, start, size), lead + axis, lead)
    return k.reshape(x, shape)


def _dynamic_update(k: Whole, node: Any, x: Tensor, update: Tensor, starts: Tensor) -> Tensor:
    lead, box = node.batch_dims, update.shape[node.batch_dims :]
    if 0 in update.shape:
        return x
    inside: Tensor | None = None
    moved = update
    for axis, start in enumerate(_starts(k, node, x, starts, box)):
        at, size = lead + axis, x.shape[lead + axis]
        if box[axis] == size:
            continue
        source = _lines(k, start, size, -1)
        covered = (source >= 0) & (source < box[axis])
        moved = k.taken(moved, k.select(covered, source, 0), at, lead)
        covered = k.reshape(covered, (*x.shape[:lead], *[1] * axis, size, *[1] * (x.rank - at - 1)))
        inside = covered if inside is None else inside & covered
    moved = k.reshape(moved, x.shape)
    return moved if inside is None else k.select(inside, moved, x)


ROWS: dict[str, Row] = {
    "mir.gather": _gather,
    "mir.position": _position,
    "mir.scatter": _scatter,
    "mir.scatter_add": _scatter_add,
    "mir.dynamic_slice": _dynamic_slice,
    "mir.dynamic_update_slice": _dynamic_update,
}
