"""Attributes of ops: their kinds, and how a user's value becomes the stored one."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rlx.base.dims import Dim, SymDim, as_dim, bind_dim
from rlx.base.stored import is_stored, store
from rlx.errors import (
    DTypeError,
    GraphError,
    IRError,
    OutOfMemoryError,
    RlxError,
    ShapeError,
    a_type,
    shown,
)
from rlx.types import DType, c64, complex_of, dtype, f32

__all__ = [
    "DIMS", "KINDS", "OFFSETS", "carried_out", "check_unmasked", "complex_from", "flagged",
    "from_numbers", "literal", "normalise", "parts_of", "repeats", "to_array", "unread",
    "with_ranges", "words_of",
]  # fmt: skip


DIMS = "tuple[Dim, ...]"
"""The kind of an attribute of dims."""

OFFSETS = "tuple[Offset, ...]"
"""The kind of an attribute of what is computed like dims, and may be negative."""


def _int(v: Any) -> int:
    return operator.index(v)


def _float(v: Any) -> float:
    return float(v)


def _bool(v: Any) -> bool:
    if not isinstance(v, bool | np.bool_):
        raise TypeError
    return bool(v)


def _str(v: Any) -> str:
    if not isinstance(v, str):
        raise TypeError
    return v


def _ints(v: Any) -> tuple[int, ...]:
    return tuple(operator.index(x) for x in _many(v))


def _many(v: Any) -> Iterable[Any]:
    """The items of ``v``, or ``v`` as the only one."""
    if type(v) is tuple:
        return v
    if isinstance(v, Mapping | bytes):
        raise TypeError
    return v if isinstance(v, Iterable) and not isinstance(v, str) else (v,)


def _dims(v: Any) -> tuple[int | SymDim, ...]:
    return tuple([-1 if isinstance(d, int) and d == -1 else as_dim(d) for d in _many(v)])


def _offsets(v: Any) -> tuple[int | SymDim, ...]:
    return tuple(d if isinstance(d, SymDim) else operator.index(d) for d in _many(v))


def with_ranges(dims: tuple[Dim, ...], operands: Sequence[Any]) -> tuple[Dim, ...]:
    """Dims of an attribute, in which a name without a range is that of an operand's shape."""
    if all(isinstance(d, int) for d in dims):
        return dims
    known: dict[str, SymDim] = {}
    for v in operands:
        for d in () if v is None else v.shape:
            if isinstance(d, SymDim):
                known |= {s.name: SymDim({(s,): 1}) for s in d.leaves() if s.has_range}
    return tuple(bind_dim(d, known) for d in dims)


def _array(v: Any) -> np.ndarray[Any, Any]:
    """A read-only copy in row-major order; its dtype is one of ours."""
    if is_stored(v):
        return v
    a = to_array(v, "the array")
    try:
        a = a.astype(dtype(a.dtype).numpy, copy=True, order="C")
    except MemoryError:
        raise ShapeError(f"an array of {a.nbytes} bytes, more than there is memory for") from None
    return store(a)


def to_array(value: Any, what: str) -> np.ndarray[Any, Any]:
    """``value`` as an array of numbers; DTypeError for what is none, such as lists of unequal
    lengths, or has a mask."""
    check_unmasked(value, what)
    try:
        a = np.asarray(carried_out(value))
    except RlxError:
        raise
    except Exception as e:  # also what an __array__ of somebody else's raises
        raise unread(e, what, "is no array of numbers") from None
    if a.dtype == object and a.size:
        raise DTypeError(f"{what} holds {a.flat[0]!r}, which no element type does")
    return a


def unread(
    e: Exception, what: str, reason: str, location: tuple[str, int] | None = None
) -> RlxError:
    """The error of what NumPy did not read as an array: it is none, or there was no memory."""
    if isinstance(e, MemoryError):
        return OutOfMemoryError(f"there is no memory to read {what} as an array: {e}", location)
    return DTypeError(f"{what} {reason}: {e}", location)


def carried_out(value: Any) -> Any:
    """A tensor of PyTorch that is negated or conjugated by a flag, as one whose memory says so:
    DLPack hands over the memory, and drops the flag of a negation."""
    if isinstance(value, np.ndarray):
        return value
    for flag, without in (("is_conj", "resolve_conj"), ("is_neg", "resolve_neg")):
        if flagged(value, flag):
            value = getattr(value, without)()
    return value


def flagged(value: Any, flag: str) -> bool:
    """Whether a tensor of PyTorch says so by a method of this name."""
    return hasattr(value, "__dlpack__") and getattr(value, flag, bool)() is True


def check_unmasked(value: Any, what: str) -> None:
    """DTypeError for a masked array: its elements would count as if they were not masked."""
    if type(value) is np.ndarray or not isinstance(value, np.ndarray):
        return  # and NumPy need not load its masked arrays
    if isinstance(value, np.ma.MaskedArray):
        raise DTypeError(
            f"{what} is a masked array, and RLX has no masks; give .filled(value) of it, and its"
            " mask as another tensor where that matters"
        )


def from_numbers(value: Any, dt: DType, what: str) -> np.ndarray[Any, Any]:
    """Python numbers in nested lists as an array of ``dt``; DTypeError for those that do not fit
    it: a float for an integer, or a number out of range."""
    try:
        found = np.asarray(value)
        if found.size and _RANKS.get(found.dtype.kind, 4) > _RANKS[dt.numpy.kind]:
            reason = f"found {'None' if value is None else f'{found.dtype} numbers'}"
        else:
            with np.errstate(over="ignore"):
                fitting = np.asarray(value, dt.numpy)
            beyond = np.isfinite(found) & ~np.isfinite(fitting)
            if not beyond.any():
                return fitting
            reason = f"found {found[beyond][0]}, which is out of range"
    except RlxError:
        raise
    except MemoryError as e:
        raise unread(e, what, "") from None
    except Exception as e:
        reason = f"found {a_type(value)} that is no such array: {e}"
    raise DTypeError(f"{what} is {dt}, {reason}; convert it to a NumPy array first")


def literal(value: Any, dt: DType | None, what: str) -> np.ndarray[Any, Any]:
    """A literal as an array. Python's numbers, alone or in nested lists, are of type ``dt``, which
    they must fit; without one floats are f32 and complex numbers c64. What has an element type
    keeps it."""
    if hasattr(value, "dtype") or hasattr(value, "__array__"):
        return to_array(value, what)
    if dt is not None:
        return from_numbers(value, dt, what)
    a = to_array(value, what)
    smaller = {"d": f32, "D": c64}.get(a.dtype.char)
    return a if smaller is None else from_numbers(a, smaller, what)


_RANKS = {"b": 0, "u": 1, "i": 1, "f": 2, np.dtype("V").kind: 2, "c": 3}
"""Kinds of numbers by what holds them; bfloat16 is of NumPy's kind V."""


def _graph(v: Any) -> Any:
    from rlx.ir.builders import GraphOps

    if not isinstance(v, GraphOps):
        raise TypeError
    body: Any = v
    return body.snapshot()


KINDS = {
    "int": _int,
    "float": _float,
    "bool": _bool,
    "str": _str,
    "DType": dtype,
    "tuple[int, ...]": _ints,
    DIMS: _dims,
    OFFSETS: _offsets,
    "Array": _array,
    "Graph": _graph,
}
"""How to normalise each kind of attribute; a kind is the text of its annotation."""


def normalise(value: Any, kind: str, what: str) -> Any:
    """Convert ``value`` to the attribute kind, or raise GraphError saying what was expected."""
    try:
        return KINDS[kind](value)
    except RlxError as e:
        raise type(e)(f"{what}: {e.message}", e.location) from None
    except (TypeError, ValueError):
        raise GraphError(f"{what} must be {kind}, found {shown(value)}") from None


def words_of(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The bits of every element as one unsigned integer, or as two for one of 16 bytes: a row an
    element, of a whole array in order."""
    size = min(a.dtype.itemsize, 8)
    return (
        np.ascontiguousarray(a)
        .reshape(-1)
        .view(f"u{size}")
        .reshape(a.size, a.dtype.itemsize // size)
    )


FEW = 64
"""Elements that are looked at before all are."""


def repeats(a: np.ndarray[Any, Any]) -> bool:
    """Whether there are elements, and all have the same bits."""
    words = words_of(a)
    # Of a large array the first elements nearly always tell.
    return all(bool((w == words[0]).all()) for w in (words[:FEW], words)) if a.size else False


def parts_of(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A complex array as one of reals with one more dim: the real and the imaginary part."""
    real = dtype(a.dtype).part.numpy
    return np.ascontiguousarray(a).reshape(-1).view(real).reshape(*a.shape, 2)


def complex_from(parts: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The inverse of ``parts_of``; IRError for what are no pairs of f32 or f64."""
    dt = dtype(parts.dtype)
    if dt.bits not in (32, 64) or not dt.is_float or parts.shape[-1:] != (2,):
        raise IRError(f"a complex array is of pairs of f32 or f64, found {dt}{list(parts.shape)}")
    kind = complex_of(dt).numpy
    out = np.ascontiguousarray(parts).reshape(-1).view(kind).reshape(parts.shape[:-1])
    out.setflags(write=False)
    return out


def same(a: Any, b: Any) -> bool:
    """Equality of two stored attributes."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return (
            isinstance(a, np.ndarray)
            and isinstance(b, np.ndarray)
            and a.dtype == b.dtype
            and np.array_equal(a, b)
        )
    return type(a) is type(b) and a == b
