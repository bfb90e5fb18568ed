"""Numbers for the dims in what kernels are compiled for.

Sizes are run-time arguments of kernels, but a few configs hold some: those of loop nests of the
common way, a number of lanes, a whole axis in registers. While a graph is lowered for all sizes
that meet guards, such a dim becomes the size at hand, and its guard says so.
"""

from __future__ import annotations

import operator
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any, TypeVar

from rlx.base.dims import SymDim
from rlx.base.guards import deciding
from rlx.types import DType

__all__ = ["settled"]

T = TypeVar("T")
_PLAIN = frozenset({int, bool, str, float, bytes, type(None), DType})
"""Classes without dims, which most values are of."""


def settled(value: T) -> T:
    """A value without symbolic dims: a dataclass, a tuple, a dim or anything that holds none."""
    return value if deciding() is None else _settled(value)


def _settled(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is SymDim:
        return int(value)
    if kind is tuple:
        found = tuple([_settled(v) for v in value])
        return value if all(map(operator.is_, found, value)) else found
    if isinstance(value, tuple):  # of a class with names
        return kind(*[_settled(v) for v in value])
    changed = {
        name: new
        for name in _field_names(kind)
        if (new := _settled(old := getattr(value, name))) is not old
    }
    return replace(value, **changed) if changed else value


@cache
def _field_names(kind: type) -> tuple[str, ...]:
    """The fields of a dataclass that it is made of; none of another class."""
    return tuple([f.name for f in fields(kind) if f.init]) if is_dataclass(kind) else ()
