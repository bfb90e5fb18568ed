"""Builders of tensors that need no operand, or only an operand's shape: NumPy's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import GraphError
from rlx.ir.value import Value
from rlx.ops.movement.constant import Constant, Iota, check_count
from rlx.ops.movement.movement import DimLike
from rlx.ops.pointwise.cast import converted
from rlx.types import DType, bool_, f32, i64
from rlx.types import dtype as dtype_of

__all__ = [
    "arange",
    "full",
    "full_like",
    "linspace",
    "ones",
    "ones_like",
    "zeros",
    "zeros_like",
]

Number = float | int | bool


def _type_of(*numbers: Number) -> DType:
    """The element type of Python numbers: bool, i64 or f32."""
    if all(isinstance(n, bool) for n in numbers):
        return bool_
    return i64 if all(isinstance(n, int) for n in numbers) else f32


def full(
    shape: Sequence[DimLike] | DimLike, value: Number, dtype: DType | str | Any = None
) -> Value:
    """A tensor of one number. Without ``dtype`` its type is bool, i64 or f32, as the number's."""
    if not isinstance(value, int | float | complex | np.generic | np.ndarray) or np.ndim(value):
        raise GraphError(f"full takes one number, found {value!r}")
    to = _type_of(value) if dtype is None else dtype_of(dtype)
    return Constant(converted(np.asarray(value), to)).out.expand(shape)


def zeros(shape: Sequence[DimLike] | DimLike, dtype: DType | str | Any = "f32") -> Value:
    """A tensor of zeros."""
    return full(shape, 0, dtype)


def ones(shape: Sequence[DimLike] | DimLike, dtype: DType | str | Any = "f32") -> Value:
    """A tensor of ones."""
    return full(shape, 1, dtype)


def full_like(x: Value, value: Number) -> Value:
    """One number in the shape and the element type of a tensor."""
    return full(x.shape, value, x.dtype)


def zeros_like(x: Value) -> Value:
    """Zeros in the shape and the element type of a tensor."""
    return full_like(x, 0)


def ones_like(x: Value) -> Value:
    """Ones in the shape and the element type of a tensor."""
    return full_like(x, 1)


def arange(
    start: Number, stop: Number | None = None, step: Number = 1, dtype: DType | str | Any = None
) -> Value:
    """``start``, ``start + step``, … below ``stop``; with one number from 0 below it. Without
    ``dtype`` whole numbers give i64, others f32."""
    first, end = (0, start) if stop is None else (start, stop)
    if not step:
        raise GraphError("arange: the step is 0")
    check_count("arange", (end - first) / step)
    line = np.arange(first, end, step)
    to = _type_of(0, first, end, step) if dtype is None else dtype_of(dtype)
    if line.dtype.kind == "f" or not to.is_int:
        return Constant(converted(line, to)).out
    count = Iota((len(line),), 0, to).out
    count = count if step == 1 else count * step
    return count + int(first) if first else count


def linspace(
    start: float,
    stop: float,
    num: int = 50,
    endpoint: bool = True,
    dtype: DType | str | Any = "f32",
) -> Value:
    """``num`` numbers at equal distances from ``start`` to ``stop``, which is the last of them
    unless ``endpoint`` is false."""
    if any(isinstance(n, Value) or not isinstance(n, int | float) for n in (start, stop, num)):
        raise GraphError(f"linspace takes numbers, found {start!r}, {stop!r} and {num!r}")
    if num < 0:
        raise GraphError(f"linspace: a number of elements cannot be negative, found {num}")
    check_count("linspace", num)
    numbers = np.linspace(float(start), float(stop), num, endpoint)
    return Constant(converted(numbers, dtype_of(dtype))).out
