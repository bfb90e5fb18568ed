"""Conversion of users' values to arrays of a tensor's type: one rule for every way of running."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlx.errors import DTypeError, OutOfMemoryError, RlxError, ShapeError, a_type
from rlx.ir.attrs import carried_out, check_unmasked, from_numbers, unread
from rlx.ir.builders import located
from rlx.ir.location import caller
from rlx.types import DTYPES

__all__ = ["array_of", "as_array", "fixed", "typed_array"]

Array = np.ndarray[Any, Any]


def as_array(
    value: Any, signature: tuple[str, str, tuple[int, ...]], what: str, *, flat: bool = False
) -> Array:
    """``value`` (array-like or DLPack) as a C-contiguous array of the declared type and shape.

    Where ``flat`` says so a flat list of the right length is taken for any shape; an array has a
    shape of its own, which must be the declared one. Raises DTypeError and ShapeError that name
    ``what``, and OutOfMemoryError where a copy is needed; see ``typed_array``.
    """
    name, dt, shape = signature
    a = typed_array(value, name, dt, what)
    listed = flat and isinstance(value, list | tuple) and a.ndim == 1
    if a.shape != tuple(shape) and not (listed and a.size == math.prod(shape)):
        raise ShapeError(
            f"{what} {name!r} has shape {list(shape)}, found {list(a.shape)}"
            f" ({a.size} elements, expected {int(np.prod(shape))})",
            caller(),
        )
    try:
        return np.ascontiguousarray(a).reshape(shape)
    except MemoryError:
        raise OutOfMemoryError(
            f"{what} {name!r} does not lie row by row in memory, and there is none for a copy of"
            f" {a.nbytes} bytes",
            caller(),
        ) from None


def typed_array(value: Any, name: str, dt: str, what: str) -> Array:
    """``value`` (array-like or DLPack) as an array of the declared element type.

    An array, and what has ``__array__``, must have it, and no mask. Python numbers and lists of
    them take it, if that loses nothing but digits: a float is refused for an integer, and so is a
    number out of range. DTypeError names ``what`` and says how to convert.
    """
    expected = DTYPES[dt]
    if not isinstance(value, np.ndarray | np.generic):
        value = _read(value, name, dt, what)
    if isinstance(value, np.ndarray | np.generic):
        located(check_unmasked)(value, f"{what} {name!r}")
        a = np.asarray(value)
        if a.dtype != expected.numpy:
            raise DTypeError(
                f"{what} {name!r} is {dt}, found {a.dtype}; convert it with"
                f' .astype("{expected.numpy}") first',
                caller(),
            )
        return a
    return located(from_numbers)(value, expected, f"{what} {name!r}")


def array_of(value: Any, name: str) -> Array:
    """An array of any library as one of NumPy's, of its own type; DTypeError, which calls it
    ``name``, for what NumPy cannot read and for a masked array."""
    if not isinstance(value, np.ndarray):
        value = _read(value, name, "an array", "argument")
    if not isinstance(value, np.ndarray | np.generic):
        kind = a_type(value)
        raise DTypeError(f"argument {name!r} is {kind}, which holds no elements; give an array")
    check_unmasked(value, f"argument {name!r}")
    return np.asarray(value)


def _read(value: Any, name: str, dt: str, what: str) -> Any:
    """An array of another library as one of NumPy's; what is none stays."""
    try:
        if hasattr(value, "__dlpack__"):
            return np.from_dlpack(carried_out(value))
        return np.asarray(value) if hasattr(value, "__array__") else value
    except RlxError:
        raise
    except Exception as e:  # the library's own
        kind = a_type(value)
        reason = f"is {dt}, found {kind} that NumPy cannot read; give a NumPy array"
        raise unread(e, f"{what} {name!r}", reason, caller()) from None


def fixed(a: Array) -> Array:
    """The elements of an array, row-major, in memory that nobody can write: its own if it is such,
    as that of a file mapped for reading is, else a copy.

    A read-only array is no such by itself: it may be a view of memory that others write, and its
    owner may write it again.
    """
    if a.flags.c_contiguous and a.flags.aligned and _is_fixed(a):
        return a
    if not a.size:
        kept = np.empty(a.shape, a.dtype)
        kept.flags.writeable = False
        return kept
    return np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape)


def _is_fixed(owner: Any) -> bool:
    """Whether nobody can write the memory of an array, or of what it is a view of."""
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            return False
        owner = owner.base
    while isinstance(owner, memoryview):
        if not owner.readonly:
            return False
        owner = owner.obj
    if isinstance(owner, np.ndarray):
        return _is_fixed(owner)
    kind = f"{type(owner).__module__}.{type(owner).__name__}"
    return isinstance(owner, bytes) or (kind == "mmap.mmap" and memoryview(owner).readonly)
