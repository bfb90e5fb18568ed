"""The same elements in other places, literals, and tensors made of none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import UnsupportedError
from rlx.frontends.onnx.export import sizes
from rlx.frontends.onnx.export.writer import Name, Rows, Writer
from rlx.types import bool_, i32, i64

__all__ = ["ROWS"]


def literal(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
    return w.constant(op.value)


def numbers(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
    """0, 1, 2 and so on along an axis."""
    count = op.shape[op.axis]
    if isinstance(count, int):
        line = w.constant(np.arange(count, dtype=np.int64))
    else:
        line = w.node("Range", w.constant(np.int64(0)), sizes.scalar(w, count),
                      w.constant(np.int64(1)))  # fmt: skip
    line = line if op.dtype is i64 else w.cast(line, op.dtype)
    ones = [1] * (len(op.shape) - op.axis - 1)
    found = w.node("Unsqueeze", line, w.ints(range(1, 1 + len(ones)))) if ones else line
    return found if len(op.shape) == 1 else w.node("Expand", found, sizes.line(w, op.shape))


def reshaped(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
    return sizes.shaped(w, xs[0], op.out.shape)


def turned(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
    if op.x.rank < 2:
        return w.node("Identity", xs[0])
    return w.node("Transpose", xs[0], perm=list(op.perm))


def expanded(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
    return w.node("Expand", xs[0], sizes.line(w, op.out.shape))


def flipped(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
    axes = list(op.axes)
    if not axes:
        return w.node("Identity", xs[0])
    first, last = [-1] * len(axes), [np.iinfo(np.int64).min] * len(axes)
    return w.node("Slice", xs[0], w.ints(first), w.ints(last), w.ints(axes), w.ints(first))


def sliced(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
    if not op.x.rank:
        return w.node("Identity", xs[0])
    ends = [a + (n - 1) * s + 1 if n != 0 else a
            for a, n, s in zip(op.starts, op.sizes, op.steps, strict=True)]  # fmt: skip
    axes = w.ints(range(op.x.rank))
    first, last = sizes.line(w, op.starts), sizes.line(w, ends)
    return w.node("Slice", xs[0], first, last, axes, w.ints(op.steps))


def boxed(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
    """A box at starts of the run, moved into the tensor."""
    if op.batch_dims:
        raise UnsupportedError("boxes that start elsewhere in each batch have no form in ONNX")
    if not op.x.rank:
        return w.node("Identity", xs[0])
    start = xs[1] if op.starts.dtype is i64 else w.cast(xs[1], i64)
    zero, dims = w.constant(0, i64), sizes.line(w, op.x.shape)
    room = w.node("Sub", dims, sizes.line(w, op.sizes))
    back = w.node("Where", w.node("Less", start, zero), w.node("Add", start, dims), start)
    start = w.node("Min", w.node("Max", back, zero), room)
    end = w.node("Add", start, sizes.line(w, op.sizes))
    return w.node("Slice", xs[0], start, end, w.ints(range(op.x.rank)))


def joined(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
    return w.node("Concat", *xs, axis=op.axis)


def padded(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
    if not op.x.rank:
        return w.node("Identity", xs[0])
    pads = sizes.line(w, [*op.low, *op.high])
    if op.x.dtype is bool_:  # which few runtimes pad
        wide = w.node("Pad", w.cast(xs[0], i32), pads, w.cast(xs[1], i32))
        return w.cast(wide, bool_)
    return w.node("Pad", xs[0], pads, xs[1])


def unchanged(w: Writer, op: Any, xs: Sequence[Name]) -> Sequence[Name]:
    return list(xs)


ROWS: Rows = {
    "mir.constant": literal, "mir.iota": numbers, "mir.reshape": reshaped,
    "mir.transpose": turned, "mir.expand": expanded, "mir.flip": flipped, "mir.slice": sliced,
    "mir.dynamic_slice": boxed,
    "mir.concat": joined, "mir.pad": padded, "control.barrier": unchanged,
}  # fmt: skip
