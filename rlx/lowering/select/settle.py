"""Numbers for the dims in what kernels are compiled for.

Sizes are run-time arguments of kernels, but a few configs hold some: those of loop nests of the
common way, a number of lanes, a whole axis in registers. While a graph is lowered for all sizes
that meet guards, such a dim becomes the size at hand, and its guard says so.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from rlx.base.dims import SymDim
from rlx.base.guards import deciding

__all__ = ["settled"]

T = TypeVar("T")


def settled(value: T) -> T:
    """A value without symbolic dims: a dataclass, a tuple, a dim or anything that holds none."""
    return value if deciding() is None else _settled(value)


def _settled(value: Any) -> Any:
    if isinstance(value, SymDim):
        return int(value)
    if type(value) is tuple:
        found = tuple([_settled(v) for v in value])
        return value if all(a is b for a, b in zip(found, value, strict=True)) else found
    if isinstance(value, tuple):  # of a class with names
        return type(value)(*[_settled(v) for v in value])
    if is_dataclass(value) and not isinstance(value, type):
        changed = {
            f.name: new
            for f in fields(value)
            if (new := _settled(old := getattr(value, f.name))) is not old and f.init
        }
        return replace(value, **changed) if changed else value
    return value
