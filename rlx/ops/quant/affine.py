"""Integers of 8 bits that stand for numbers with a scale and a zero point, and products of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.errors import DTypeError, ShapeError
from rlx.ir.attrs import to_array
from rlx.ir.lift import lift
from rlx.ir.op import Array
from rlx.ir.value import Value
from rlx.ops.matmul.quantized import matmul_integer
from rlx.ops.movement.constant import Constant
from rlx.ops.movement.movement import axis_of
from rlx.ops.pointwise.unary import Round
from rlx.types import INTS, f32, i8, i32

__all__ = ["along", "dequantize", "q_matmul", "quantize", "rounded"]


def along(what: str, v: Any, x: Value, axis: int | None) -> Value:
    """A number for the whole of x, or one for each place along an axis, in a shape that meets x."""
    found = v if isinstance(v, Value) else _numbers(what, v)
    said = found.type if isinstance(found, Value) else f"{found.dtype} {list(found.shape)}"
    if axis is None:
        if tuple(found.shape) not in ((), (1,)):
            raise ShapeError(f"{what} of {said} is one a place of an axis: say which by axis")
        return _wide(found).reshape([])
    place = axis_of(axis, x.rank, "axis")
    if tuple(found.shape) != (x.shape[place],):
        raise ShapeError(
            f"{what} must have one number for each of the {x.shape[place]} places of axis {place}"
            f" of {x.type}, found {said}"
        )
    return _wide(found).reshape([x.shape[place], *[1] * (x.rank - place - 1)])


def _wide(v: Value | Array) -> Value:
    return v.cast(to=f32) if isinstance(v, Value) else Constant(v.astype(np.float32)).out


def _numbers(what: str, v: Any) -> Array:
    found = to_array(v, what)
    if found.dtype.kind not in "iuf":
        raise DTypeError(f"{what} are numbers, found {found.dtype}")
    return found


def rounded(x: Value, zero: Value | None) -> Value:
    """i8 of numbers: the nearest whole ones, of two the even one, moved by a zero point, and within
    -128 to 127."""
    whole = Round.build(x)
    whole = whole if zero is None else whole + zero
    return whole.maximum(-128.0).minimum(127.0).cast(to=i8)


def quantize(x: Value, scales: Any, zero_points: Any = None, axis: int | None = None) -> Value:
    """Numbers as i8: ``round(x / scale) + zero_point``, of two the even one, within -128 to 127.

    Scales and zero points are one number, or one for each place along ``axis``.
    """
    if not x.dtype.is_float:
        raise DTypeError(f"quantize takes floats, found {x.dtype}")
    zero = None if zero_points is None else along("zero_points", zero_points, x, axis)
    return rounded(x.cast(to=f32) / along("scales", scales, x, axis), zero)


def dequantize(q: Value, scales: Any, zero_points: Any = None, axis: int | None = None) -> Value:
    """The f32 numbers of integers: ``(q - zero_point) * scale``.

    Scales and zero points are one number, or one for each place along ``axis``.
    """
    if q.dtype not in INTS:
        raise DTypeError(f"dequantize takes integers, found {q.dtype}")
    wide = q.cast(to=f32)
    if zero_points is not None:
        wide = wide - along("zero_points", zero_points, q, axis)
    return wide * along("scales", scales, q, axis)


def q_matmul(
    x: Value,
    w: Value,
    bias: Value | None = None,
    *,
    x_zero: int = 0,
    w_zero: int = 0,
    out_zero: int = 0,
    multiplier: float = 1.0,
) -> Value:
    """A product of i8 ``[..., M, K]`` and ``[K, N]`` that is i8 again, by one f32 multiplier:
    ``round((bias + sum((x - x_zero) * (w - w_zero))) * multiplier) + out_zero``, within -128 to
    127. Sums and the bias, ``[N]``, are i32."""
    for v, name in ((x, "x"), (w, "w")):
        if v.dtype is not i8:
            raise DTypeError(f"q_matmul takes i8, found {name} of {v.dtype}")
    if bias is not None and bias.dtype is not i32:
        raise DTypeError(f"q_matmul takes a bias of i32, found {bias.dtype}")
    zeros = [_zero(z, name, x) for z, name in ((x_zero, "x_zero"), (w_zero, "w_zero"))]
    sums = matmul_integer(x, w, *zeros)
    sums = sums if bias is None else sums + bias
    scaled = sums.cast(to=f32) * float(multiplier)
    zero = _zero(out_zero, "out_zero", x)
    return rounded(scaled, None if zero is None else zero.cast(to=f32))


def _zero(z: int, name: str, like: Value) -> Value | None:
    if not -128 <= z <= 127:
        raise DTypeError(f"q_matmul: {name} is {z}, which is no i8")
    return lift(np.array(z, np.int8), like) if z else None
