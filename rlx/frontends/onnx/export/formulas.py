"""Ops that have no form in ONNX by themselves, written as other ops of ours."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.errors import UnsupportedError
from rlx.frontends.common.values import constant, scalar, size_value
from rlx.ir.value import Value
from rlx.ops.control.builders import scan
from rlx.ops.movement.constant import Iota
from rlx.ops.nn.heads import compute_type, merge_heads, split_heads
from rlx.ops.sugar import concat
from rlx.types import DType, bf16, f16, f32, i64

__all__ = ["FORMULAS"]

Formula = Callable[[Any], Any]


def floats(function: Callable[[Value], Value]) -> Formula:
    """A function of floats, in f32 where they are shorter."""

    def formula(op: Any) -> Value:
        x = op.x.cast(f32) if op.x.dtype in (f16, bf16) else op.x
        return function(x).cast(op.x.dtype)

    return formula


def expm1(x: Value) -> Value:
    """Precise near 0, where exp(x) - 1 cancels; beyond, the factors would overflow early."""
    half = x * 0.5
    near = half.sinh() * half.exp() * 2.0
    return x.abs().lt(1.0).where(near, x.exp() - 1.0)


def log1p(x: Value) -> Value:
    """What rounding takes from 1 + x is put back by a factor."""
    y = x + 1.0
    off = y - 1.0
    whole = off.eq(0.0)
    near = y.log() * (x / whole.where(1.0, off))
    return whole.where(x, y.isinf().where(y, near))


def trunc(x: Value) -> Value:
    return x.lt(0.0).where(x.ceil(), x.floor())


def atan2(op: Any) -> Value:
    """By the arc tangent of the quotient, in the quadrant of the point."""
    y, x = (v.cast(f32) if v.dtype in (f16, bf16) else v for v in (op.lhs, op.rhs))
    below = (1.0 / y).lt(0.0).logical_and(y.eq(0.0)).logical_or(y.lt(0.0))
    left = (1.0 / x).lt(0.0).logical_and(x.eq(0.0)).logical_or(x.lt(0.0))
    size, across = y.abs(), x.abs()
    both = size.isinf().logical_and(across.isinf())
    none = size.eq(0.0).logical_and(across.eq(0.0))
    ratio = both.where(1.0, none.where(0.0, size / none.where(1.0, across)))
    angle = ratio.atan()
    angle = left.where(math.pi - angle, angle)
    found = below.where(-angle, angle)
    return x.isnan().logical_or(y.isnan()).where(math.nan, found).cast(op.out.dtype)


def floor_divide(op: Any) -> Value:
    """Rounded down, from what the quotient leaves: a rounded quotient alone may be whole where the
    true one is not. Over 0 an integer is 0, a float the quotient."""
    x, y = op.lhs, op.rhs
    if x.dtype.kind == "uint":
        return x / y
    if x.dtype.is_int:
        found = x / y
        below = (x - found * y).ne(0).logical_and((x.lt(0)).logical_xor(y.lt(0)))
        return y.eq(0).where(0, below.where(found - 1, found))
    wide = f32 if x.dtype in (f16, bf16) else x.dtype
    x, y = x.cast(wide), y.cast(wide)
    rest = x.fmod(y)
    found = (x - rest) / y
    below = rest.ne(0.0).logical_and(rest.lt(0.0).logical_xor(y.lt(0.0)))
    found = below.where(found - 1.0, found).round()
    return y.eq(0.0).where(x / y, found).cast(op.out.dtype)


def remainder(op: Any) -> Value:
    """With the sign of the divisor."""
    x, y = op.lhs, op.rhs
    rest = x.fmod(y)
    if x.dtype.kind == "uint":
        return rest
    other = rest.ne(0).logical_and(rest.lt(0).logical_xor(y.lt(0)))
    return other.where(rest + y, rest)


def position(op: Any) -> Value:
    """Indices from the front. One that is out of range stays out of range of any tensor, so that
    what reads by it is an error of the run."""
    size = op.size[0]
    at = op.indices.cast(i64)
    length = size_value(size)
    if op.mode == "clip":
        return at.maximum(0).minimum(length - 1)
    if op.mode == "wrap":
        return at.remainder(length)
    valid = at.ge(-length).logical_and(at.lt(length))
    back = at.lt(0).where(at + length, at)
    return valid.where(back, length if op.mode == "fill" else 1 << 40)


def overwritten(op: Any) -> Value:
    """A box at starts of the run: every element of the result looks whether it is in the box."""
    x, update, lead = op.x, op.update, op.batch_dims
    if lead:
        raise UnsupportedError("boxes that start elsewhere in each batch have no form in ONNX")
    if update.type.size == 0 or not x.rank:
        return update if not x.rank else x
    within, found = None, update
    starts = op.starts.cast(i64)
    for axis, (size, dim) in enumerate(zip(update.shape, x.shape, strict=True)):
        length, count = size_value(dim), size_value(size)
        start = starts[axis]
        start = start.lt(0).where(start + length, start).maximum(0).minimum(length - count)
        place = Iota((dim,), 0, i64).out - start
        there = place.ge(0).logical_and(place.lt(count))
        found = found.gather(place.maximum(0).minimum(count - 1), axis=axis)
        there = there.reshape([-1, *[1] * (x.rank - axis - 1)])
        within = there if within is None else within.logical_and(there)
    assert within is not None, "it has axes"
    return within.where(found, x)


def rope(op: Any) -> Value:
    """Halves of each head, turned."""
    heads = 1 if op.layout == "bhsd" else op.x.shape[-1] // op.head_dim
    kind = compute_type(op.x.dtype)
    x = split_heads(op.x, op.layout, heads).cast(kind)
    half = op.n_rot // 2
    cos, sin = (t.cast(kind)[:, :half] for t in (op.cos, op.sin))
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    parts = [first * cos - second * sin, second * cos + first * sin]
    turned = concat([*parts, rest] if op.n_rot < op.head_dim else parts, -1)
    return merge_heads(turned.cast(op.x.dtype), op.layout)


def looked_up(op: Any) -> Value:
    """How many elements of the line come before a value."""
    line, values = op.line, op.values
    shape = [*line.shape[:-1], *[1] * (values.rank - line.rank + 1), line.shape[-1]]
    line, values = line.reshape(shape), values.unsqueeze(-1)
    before = line.lt(values) if op.side == "left" else line.le(values)
    if line.dtype.is_float:
        known = line.isnan().logical_not()
        unknown = values.isnan()
        before = before.logical_or(unknown.logical_and(known if op.side == "left" else True))
    return before.cast(i64).sum(axes=[-1])


def spread(op: Any) -> Value:
    """Padding, with places between elements: a new axis behind each holds them."""
    x, fill = op.x, op.fill
    for axis, (between, size) in enumerate(zip(op.interior, op.x.shape, strict=True)):
        if not between:
            continue
        shape = x.shape
        wide = x.unsqueeze(axis + 1)
        high = [0] * wide.rank
        high[axis + 1] = between
        wide = wide.pad([0] * wide.rank, high, value=fill)
        x = wide.reshape([*shape[:axis], size * (between + 1), *shape[axis + 1 :]])
        if size != 0:
            kept = [*shape[:axis], size * (between + 1) - between, *shape[axis + 1 :]]
            x = x.slice([0] * x.rank, kept)
    return x.pad(op.low, op.high, value=fill)


def running(
    step: Callable[[Value, Value], Value], start: float, exclusive: bool = False
) -> Formula:
    """A fold along an axis, round by round."""

    def formula(op: Any) -> Value:
        x = op.x.swapaxes(0, op.axis)
        wide = f32 if x.dtype in (f16, bf16) else x.dtype
        first = constant(start if x.dtype.is_float else int(_least(x.dtype, start)), wide)
        before = exclusive and op.exclusive

        def body(carried: Value, element: Value) -> tuple[Value, Value]:
            new = step(carried, element)
            return new, carried if before else new

        _, found = scan(body, first.expand(x.shape[1:]), x.cast(wide), reverse=op.reverse)
        return found.cast(x.dtype).swapaxes(0, op.axis)

    return formula


def _least(dt: DType, start: float) -> float:
    if math.isfinite(start):
        return start
    info = np.iinfo(dt.numpy)
    return info.min if start < 0 else info.max


def log_add(a: Value, b: Value) -> Value:
    """The logarithm of a sum of exponentials."""
    top = a.maximum(b)
    steady = top.isinf().where(0.0, top)
    return ((a - steady).exp() + (b - steady).exp()).log() + steady


def linear_recurrence(op: Any) -> Value:
    a, x = op.a.swapaxes(0, op.axis), op.x.swapaxes(0, op.axis)
    wide = f32 if x.dtype in (f16, bf16) else x.dtype
    start = constant(0, wide).expand(x.shape[1:])

    def body(h: Value, both: tuple[Value, Value]) -> tuple[Value, Value]:
        new = both[0] * h + both[1]
        return new, new

    _, found = scan(body, start, (a.cast(wide), x.cast(wide)), reverse=op.reverse)
    return found.cast(x.dtype).swapaxes(0, op.axis)


FORMULAS: dict[str, Formula] = {
    "mir.pad": spread,
    "mir.expm1": floats(expm1), "mir.log1p": floats(log1p), "mir.trunc": floats(trunc),
    "mir.exp2": floats(lambda x: scalar(2.0, x).pow(x)),
    "mir.log2": floats(lambda x: x.log() * (1 / math.log(2))),
    "mir.isfinite": lambda op: op.x.isinf().logical_or(op.x.isnan()).logical_not(),
    "mir.atan2": atan2, "mir.floor_divide": floor_divide, "mir.remainder": remainder,
    "mir.cumprod": running(lambda a, b: a * b, 1, exclusive=True),
    "mir.cummax": running(lambda a, b: a.maximum(b), -math.inf),
    "mir.cummin": running(lambda a, b: a.minimum(b), math.inf),
    "mir.linear_recurrence": linear_recurrence, "mir.position": position, "mir.rope": rope,
    "mir.dynamic_update_slice": overwritten, "mir.searchsorted": looked_up,
    "mir.logcumsumexp": running(log_add, -math.inf),
}  # fmt: skip
