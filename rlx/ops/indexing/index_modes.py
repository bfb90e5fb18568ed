"""Modes of integer indices: checks and wrapping, and the position along an axis that one names.

``mode`` says what an index outside the axis means. "fault": -n to -1 count from the end, and any
other is a FaultError of the run. "clip": it is the nearest valid index, so that a negative one is
0, as in ``numpy.take`` and in XLA. "wrap": it counts on around the axis, as in ``numpy.take``.
"fill": -n to -1 count from the end, and for any other 0 is read and nothing is written, as with
JAX's mode of that name. Where the result is empty no index is looked at.

The first ``batch_dims`` axes of data and indices are shared: each batch has its own indices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.base.dims import is_known
from rlx.errors import DTypeError, FaultError, GraphError, ShapeError
from rlx.ir.attrs import to_array
from rlx.ir.factors import Parts
from rlx.ir.op import Array, Op
from rlx.ir.value import Value
from rlx.ops.movement.constant import Constant
from rlx.ops.movement.movement import listed
from rlx.types import Dim, Shape

__all__ = [
    "MODES",
    "as_indices",
    "check_indices",
    "check_integers",
    "check_mode",
    "out_of_range",
    "own_places",
    "place",
    "position",
    "positions",
    "same_batch",
]

MODES = ("fault", "clip", "wrap", "fill")


def _name(op: Op) -> str:
    """What a user called: ``position`` is told by its caller."""
    return op.attrs.get("of", op.short)


def check_mode(op: Op, mode: str) -> None:
    """Refuse a mode that there is not."""
    if mode not in MODES:
        known = ", ".join(f'"{m}"' for m in MODES)
        raise GraphError(f"{_name(op)}: mode is one of {known}; found {mode!r}")


def check_integers(op: Op, indices: Value) -> None:
    """Refuse indices that are no integers."""
    if not indices.dtype.is_int:
        raise DTypeError(
            f"{_name(op)} takes integer indices, found {indices.dtype}; cast them to i64 first"
        )


def check_indices(op: Any, data: Value, length: Dim) -> None:
    """Refuse indices that do not fit ``data``; ``length`` is that of the indexed axis."""
    indices, lead = op.indices, op.batch_dims
    check_integers(op, indices)
    check_mode(op, op.mode)
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
    if length == 0 and indices.type.size != 0 and op.mode != "fill":
        raise ShapeError(f"{op.short}: axis {op.axis} is empty, so no index can be valid")


def out_of_range(op: Any, length: int) -> str:
    """What is wrong with an index that the mode does not allow."""
    return f"{_name(op)}: index out of range for axis {op.axis} of {length} elements"


def positions(op: Any, indices: Array, length: int) -> tuple[Array, Array]:
    """The indices counted from the front, and which of them were out of range: those are 0 with
    the mode "fill", and a FaultError with "fault"."""
    # Integers of 64 bits of their own sign, so that neither a length nor a sum wraps.
    wide = indices.astype(np.uint64 if indices.dtype.kind == "u" else np.int64)
    outside = (wide >= length) | (wide < -length if wide.dtype.kind == "i" else False)
    if op.mode == "clip":
        return np.clip(wide, 0, max(length - 1, 0)).astype(np.intp), outside
    if op.mode == "wrap":
        return np.mod(wide, max(length, 1)).astype(np.intp), outside
    if op.mode == "fault" and outside.any():
        found = indices[outside].flat[0]
        raise FaultError(f"{out_of_range(op, length)}: found {found}", op.location)
    inside = np.where(outside, 0, wide).astype(np.intp)
    return np.where(inside < 0, inside + length, inside), outside


def place(k: Any, index: Any, length: Any, mode: str) -> tuple[Any, Any]:
    """The same in a kernel: registers of the place that an index means, always one within the axis,
    and of whether it was out of range. ``length`` is a number or a register."""
    # Unsigned ones stay so: no huge index turns into one that counts from the end.
    wide = k.index_word(index.dtype)
    index = k.cast(index, wide)
    length = length if is_known(length) else k.cast(length, wide)
    outside, inside = index >= length, index
    if wide.kind == "int":
        outside = outside | (index < -length)
    if mode == "clip":
        return k.maximum(k.minimum(index, length - 1), 0), outside
    if mode == "wrap":
        # For an empty axis the code never runs, but is built: it must not divide by a literal 0.
        inside = index % (max(length, 1) if is_known(length) else length)
    if wide.kind == "int":
        inside = k.select(inside < 0, inside + length, inside)
    return inside if mode == "wrap" else k.select(outside, 0, inside), outside


def position(op: Any, b: Any, index: Any, length: int) -> tuple[Any, Any]:
    """The same in a loop nest, where a fault is recorded."""
    inside, outside = place(b.k, index, length, op.mode)
    if op.mode == "fault":
        b.fault(outside, out_of_range(op, length))
    return b.index(inside), outside


def same_batch(operands: Sequence[Value], batched: Sequence[bool]) -> list[Value]:
    """The operands with the new leading axis on all."""
    pairs = list(zip(operands, batched, strict=True))
    count = next(v.shape[0] for v, has in pairs if has)
    return [v if has else v.expand((count, *v.shape)) for v, has in pairs]


def as_indices(indices: Value | Array | int) -> Value:
    """Indices that may be a number or an array, as a Value."""
    return indices if isinstance(indices, Value) else Constant(to_array(indices, "the index")).out


def own_places(op: Any, indices: Value, parts: Parts, size: Shape) -> tuple[Value, Value]:
    """Which indices point into this rank's part of an axis of ``size``, the factor "at", and where
    from its start; one that is out of range is what the op says of it."""
    from rlx.ops.indexing.along import Position
    from rlx.ops.reduction.reduce import as_value

    local = Position(indices, size, op.mode, op.axis, op.short).out - parts.start("at")
    return local.ge(0).logical_and(local.lt(as_value(parts.length("at")))), local
