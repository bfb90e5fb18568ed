"""Lifting of Python numbers and arrays to Values, and promotion of two element types."""

from __future__ import annotations

import cmath
from contextlib import suppress
from typing import Any

import numpy as np

from rlx.errors import DTypeError, GraphError, a_type
from rlx.ir.attrs import from_numbers, to_array
from rlx.ir.value import Value
from rlx.types import DType, complex_of, f32, f64, promote

__all__ = ["lift", "operand", "promoted"]

_WEAK: tuple[type[Any], ...] = (np.float64, np.int64, np.complex128, np.bool_)
"""The scalars that NumPy's arithmetic on Python's numbers gives."""
_NUMBERS: tuple[type[Any], ...] = (bool, int, float, complex, *_WEAK)


def lift(x: Any, like: Value) -> Value:
    """A Value as it is; a Python number as a rank-0 constant of ``like``'s element type (a complex
    one of the complex type of its precision); an array as a constant of its own type. DTypeError if
    the number does not fit the type."""
    from rlx.ops.movement.constant import Constant

    if isinstance(x, Value):
        return x
    if isinstance(x, bool | int | float | complex) and not isinstance(x, np.generic):
        dt = like.dtype
        if isinstance(x, complex):
            dt = _type_beside("c", dt)  # as in NumPy
        return Constant(_fit(x, dt)).out
    if isinstance(x, np.ndarray | np.generic | list | tuple):
        return Constant(to_array(x, "the operand")).out
    raise GraphError(f"expected a Value, a number or an array, found {a_type(x)}")


def operand(x: Any, like: Value) -> Value:
    """What meets ``like`` in an operator: as ``lift``, but the numbers of a list, and a scalar of
    one of NumPy's default types, are as a Python number by itself. DTypeError for an array, or a
    list that holds other scalars too, that would make f64 of a narrower float."""
    if isinstance(x, Value):
        return x
    if isinstance(x, np.ndarray) and not x.ndim:
        x = x[()]  # as which NumPy's own operators hand over a scalar
    if isinstance(x, _WEAK):
        x = x.item()
    if isinstance(x, list | tuple) and _of_numbers(x):
        from rlx.ops.movement.constant import Constant

        a = to_array(x, "the operand")
        return Constant(from_numbers(x, _type_beside(a.dtype.kind, like.dtype), "the operand")).out
    v = lift(x, like)
    if isinstance(x, np.ndarray | np.generic | list | tuple):
        _check_width(v.dtype, like.dtype)
    return v


def _of_numbers(x: Any) -> bool:
    """Whether nested lists hold numbers alone, which have no element type of their own."""
    if isinstance(x, list | tuple):
        return all(map(_of_numbers, x))
    return isinstance(x, _NUMBERS)


def _type_beside(kind: str, dt: DType) -> DType:
    """The type that numbers of NumPy's ``kind`` take beside one: complex ones make it complex."""
    return complex_of(promote(dt, f32)) if kind == "c" and not dt.is_complex else dt


def _check_width(given: DType, like: DType) -> None:
    narrow = (like.is_float or like.is_complex) and like.part is not f64
    if narrow and promote(given, like).part is f64:
        raise DTypeError(
            f"the array is {given.numpy} and would make {promote(given, like)} of a tensor of"
            f" {like}; write array.astype('{like.numpy}'), or cast the tensor if f64 is meant"
        )


def _fit(x: complex, dt: DType) -> np.ndarray[Any, Any]:
    if isinstance(x, complex):
        return _rounded(x, dt)
    whole = isinstance(x, int) or x.is_integer()
    if dt.is_int and not whole:
        raise DTypeError(f"the number {x} does not fit {dt}; cast the tensor to a float type first")
    if dt.kind == "bool" and x not in (0, 1):
        raise DTypeError(f"the number {x} does not fit bool; cast the tensor first")
    if dt.is_int:
        info = np.iinfo(dt.numpy)
        if not info.min <= int(x) <= info.max:
            raise DTypeError(f"the number {x} does not fit {dt} ({info.min} .. {info.max})")
        return np.asarray(int(x), dt.numpy)
    return _rounded(x, dt)


def _rounded(x: complex, dt: DType) -> np.ndarray[Any, Any]:
    """A number as one of a float or complex type, or of bool."""
    with suppress(OverflowError), np.errstate(over="ignore"):
        found = np.asarray(x).astype(dt.numpy)
        if np.isfinite(found) or not cmath.isfinite(x):
            return found
    raise DTypeError(f"the number {x} does not fit {dt}; cast the tensor to a larger type first")


def promoted(*xs: Any) -> tuple[Value, ...]:
    """Lift numbers and cast Values to their common element type. At least one must be a Value."""
    like = next((x for x in xs if isinstance(x, Value)), None)
    if like is None:
        found = ", ".join(type(x).__name__ for x in xs)
        raise GraphError(f"one of the operands at least must be a Value, found {found}")
    values = [operand(x, like) for x in xs]
    common = values[0].dtype
    for v in values[1:]:
        common = promote(common, v.dtype)
    return tuple(v if v.dtype is common else v.cast(to=common) for v in values)
