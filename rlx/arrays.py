"""What users give for a tensor, as an array of its type: one rule for every way of running."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.errors import DTypeError, ShapeError
from rlx.ops.attrs import check_unmasked, from_numbers
from rlx.ops.builders import located
from rlx.ops.location import caller
from rlx.types import DTYPES

__all__ = ["as_array", "typed_array"]

Array = np.ndarray[Any, Any]


def as_array(value: Any, signature: tuple[str, str, tuple[int, ...]], what: str) -> Array:
    """``value`` (array-like or DLPack) as a C-contiguous array of the declared type and shape.

    Raises DTypeError and ShapeError that name ``what``; see ``typed_array``.
    """
    name, dt, shape = signature
    a = typed_array(value, name, dt, what)
    if a.shape != tuple(shape):
        raise ShapeError(
            f"{what} {name!r} has shape {list(shape)}, found {list(a.shape)}"
            f" ({a.size} elements, expected {int(np.prod(shape))})",
            caller(),
        )
    return np.ascontiguousarray(a).reshape(shape)


def typed_array(value: Any, name: str, dt: str, what: str) -> Array:
    """``value`` (array-like or DLPack) as an array of the declared element type.

    An array, and what has ``__array__``, must have it, and no mask. Python numbers and lists of
    them take it, if that loses nothing but digits: a float is refused for an integer, and so is a
    number out of range. DTypeError names ``what`` and says how to convert.
    """
    expected = DTYPES[dt]
    if not isinstance(value, np.ndarray | np.generic) and hasattr(value, "__dlpack__"):
        try:
            value = np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError, ValueError) as e:
            found = type(value).__name__
            raise DTypeError(
                f"{what} {name!r} is {dt}, found a {found} that NumPy cannot read: {e};"
                " give a NumPy array",
                caller(),
            ) from None
    elif not isinstance(value, np.ndarray) and hasattr(value, "__array__"):
        value = np.asarray(value)
    if isinstance(value, np.ndarray | np.generic):
        located(check_unmasked)(value, f"{what} {name!r}")
        a = np.asarray(value)
        if a.dtype != expected.numpy:
            raise DTypeError(
                f"{what} {name!r} is {dt}, found {a.dtype}; convert it with .astype first", caller()
            )
        return a
    return located(from_numbers)(value, expected, f"{what} {name!r}")
