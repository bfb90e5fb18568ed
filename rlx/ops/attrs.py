"""Attributes of ops: their kinds, and how a user's value becomes the stored one."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import numpy as np

from rlx.dims import SymDim, as_dim
from rlx.errors import GraphError, RlxError
from rlx.types import dtype

__all__ = ["KINDS", "normalise"]


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
    return (
        (operator.index(v),) if not isinstance(v, Iterable) else tuple(operator.index(x) for x in v)
    )


def _dims(v: Any) -> tuple[int | SymDim, ...]:
    many = v if isinstance(v, Iterable) and not isinstance(v, str) else (v,)
    return tuple(d if isinstance(d, SymDim | int) and d == -1 else as_dim(d) for d in many)


def _array(v: Any) -> np.ndarray[Any, Any]:
    """A read-only copy in row-major order; its dtype is one of ours."""
    a = np.asarray(v)
    a = a.astype(dtype(a.dtype).numpy, copy=True, order="C")
    a.setflags(write=False)
    return a


def _graph(v: Any) -> Any:
    from rlx.ops.builders import GraphOps

    if not isinstance(v, GraphOps):
        raise TypeError
    return v


KINDS = {
    "int": _int,
    "float": _float,
    "bool": _bool,
    "str": _str,
    "DType": dtype,
    "tuple[int, ...]": _ints,
    "tuple[Dim, ...]": _dims,
    "Array": _array,
    "Graph": _graph,
}
"""How to normalise each kind of attribute; a kind is the text of its annotation."""


def normalise(value: Any, kind: str, what: str) -> Any:
    """Convert ``value`` to the attribute kind, or raise GraphError saying what was expected."""
    try:
        return KINDS[kind](value)
    except RlxError:
        raise
    except (TypeError, ValueError):
        raise GraphError(f"{what} must be {kind}, found {value!r}") from None


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
