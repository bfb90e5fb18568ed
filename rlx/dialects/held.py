"""Large constants beside MLIR: within a compile an attribute names an array, which stays where it
is. MLIR would copy it and keep the copy as long as the context, and as text it takes several times
its memory. What is written for people has the elements."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from rlx._mlir import ir
from rlx.base.stored import LARGE, elements_digest

__all__ = ["array_of", "hold", "holding"]

Array = np.ndarray[Any, Any]

_KEY, _TYPE = "rlx.held", "rlx.type"

_arrays: ContextVar[dict[str, Array] | None] = ContextVar("held", default=None)


@contextmanager
def holding() -> Generator[None]:
    """Hold the large arrays of what is written and read inside, on this thread."""
    token = _arrays.set({})
    try:
        yield
    finally:
        _arrays.reset(token)


def hold(a: Array, kind: ir.Type) -> ir.Attribute | None:
    """The attribute that names an array of a tensor type; None for one that MLIR is to have."""
    arrays = _arrays.get()
    if arrays is None or a.nbytes < LARGE:
        return None
    # The name says what it holds: equal constants are equal attributes.
    name = elements_digest(a)
    arrays[f"{name}{kind}"] = a
    return ir.DictAttr.get({_KEY: ir.StringAttr.get(name), _TYPE: ir.TypeAttr.get(kind)})


def array_of(a: ir.Attribute) -> Array | None:
    """The array that an attribute names; None for one that names none that is held."""
    arrays = _arrays.get()
    if not arrays or not isinstance(a, ir.DictAttr) or _KEY not in a or _TYPE not in a:
        return None
    name, kind = a[_KEY], a[_TYPE]
    if not isinstance(name, ir.StringAttr) or not isinstance(kind, ir.TypeAttr):
        return None
    return arrays.get(f"{name.value}{kind.value}")
