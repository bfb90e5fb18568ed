"""Products, reductions, normalisations and orders: what folds along axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.frontends.onnx.export import sizes
from rlx.frontends.onnx.export.writer import Name, Row, Rows, Writer, same
from rlx.types import f32, i32, i64

__all__ = ["ROWS"]


def _folded(w: Writer, kind: str, op: Any, x: Name) -> Name:
    """A reduction. Small integers are folded as wider ones, which runtimes have."""
    dt = op.x.dtype
    wide = i32 if dt.is_int and dt.bits < 32 else dt
    x = x if wide is dt else w.cast(x, wide)
    found = w.node(kind, x, w.ints(op.axes), keepdims=int(op.keepdims))
    return found if wide is op.out.dtype else w.cast(found, op.out.dtype)


def folded(kind: str) -> Row:
    """A reduction, over no axes none."""

    def row(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
        return _folded(w, kind, op, xs[0]) if op.axes else w.node("Identity", xs[0])

    return row


def mean(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
    """The sum over the count, so that the mean of nothing is nan in every runtime."""
    if not op.axes:
        return w.node("Identity", xs[0])
    counts = [op.x.shape[a] for a in op.axes]
    if all(isinstance(d, int) and d for d in counts):
        return _folded(w, "ReduceMean", op, xs[0])
    total = _folded(w, "ReduceSum", op, xs[0])
    size = sizes.scalar(w, op.x.type.with_shape(counts).size)
    return w.node("Div", total, w.cast(size, op.x.dtype))


def product(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
    """Of integers, which some runtimes do not let wrap, as i64."""
    dt = op.x.dtype
    if not op.axes:
        return w.node("Identity", xs[0])
    if not dt.is_int or dt is i64:
        return _folded(w, "ReduceProd", op, xs[0])
    wide = w.cast(xs[0], i64)
    found = w.node("ReduceProd", wide, w.ints(op.axes), keepdims=int(op.keepdims))
    return w.cast(found, dt)


_MULTIPLIED = {"i8": i32, "u8": i32, "i16": i32, "u16": i32, "u32": i64}
"""Integers whose matrices are multiplied as others, which wrap alike."""


def matmul(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
    dt = op.out.dtype
    wide = _MULTIPLIED.get(dt.name)
    if wide is None:
        return w.node("MatMul", *xs)
    return w.cast(w.node("MatMul", *[w.cast(x, wide) for x in xs]), dt)


def running_sum(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
    dt = op.x.dtype
    wide = i32 if dt.is_int and dt.bits < 32 else f32 if dt.is_float and dt.bits < 32 else dt
    x = xs[0] if wide is dt else w.cast(xs[0], wide)
    found = w.node("CumSum", x, w.constant(op.axis, i64), exclusive=int(op.exclusive),
                   reverse=int(op.reverse))  # fmt: skip
    return found if wide is dt else w.cast(found, dt)


def along(kind: str) -> Row:
    """A function of lines along an axis."""

    def row(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
        return w.node(kind, *xs, axis=op.axis)

    return row


def place(kind: str) -> Row:
    """Where an extreme is; small integers are looked at as wider ones."""

    def row(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
        dt = op.x.dtype
        small = not dt.is_float and dt.bits < 32
        x = w.cast(xs[0], i32) if small else xs[0]
        found = w.node(kind, x, axis=op.axis, keepdims=int(op.keepdims),
                       select_last_index=int(op.select_last_index))  # fmt: skip
        return found if op.out.dtype is i64 else w.cast(found, op.out.dtype)

    return row


ROWS: Rows = {
    "mir.matmul": matmul, "mir.reduce_mean": mean, "mir.reduce_prod": product,
    **{f"mir.reduce_{name}": folded(kind) for name, kind in {
        "sum": "ReduceSum", "max": "ReduceMax", "min": "ReduceMin",
    }.items()},
    "mir.cumsum": running_sum, "mir.softmax": along("Softmax"),
    "mir.log_softmax": along("LogSoftmax"), "mir.argmax": place("ArgMax"),
    "mir.argmin": place("ArgMin"), "mir.det": same("Det"),
}  # fmt: skip
