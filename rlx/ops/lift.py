"""How Python numbers and arrays become Values, and how two element types meet."""

from __future__ import annotations

import cmath
from contextlib import suppress
from typing import Any

import numpy as np

from rlx.errors import DTypeError, GraphError
from rlx.ops.attrs import to_array
from rlx.ops.value import Value
from rlx.types import DType, complex_of, f32, promote

__all__ = ["lift", "promoted"]


def lift(x: Any, like: Value) -> Value:
    """A Value as it is; a Python number as a rank-0 constant of ``like``'s element type (a complex
    one of the complex type of its precision); an array
    as a constant of its own type. DTypeError if the number does not fit the type."""
    from rlx.ops.constant import Constant

    if isinstance(x, Value):
        return x
    if isinstance(x, bool | int | float | complex) and not isinstance(x, np.generic):
        dt = like.dtype
        if isinstance(x, complex) and not dt.is_complex:
            # A complex number makes complex what it meets, as in NumPy.
            dt = complex_of(promote(dt, f32))
        return Constant(_fit(x, dt)).out
    if isinstance(x, np.ndarray | np.generic | list | tuple):
        return Constant(to_array(x, "the operand")).out
    raise GraphError(f"expected a Value, a number or an array, found a {type(x).__name__}")


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
    values = [lift(x, like) for x in xs]
    common = values[0].dtype
    for v in values[1:]:
        common = promote(common, v.dtype)
    return tuple(v if v.dtype is common else v.cast(to=common) for v in values)
