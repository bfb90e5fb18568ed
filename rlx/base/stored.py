"""Large arrays that ops have stored, which nobody changes: neither copied nor hashed again."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from rlx.base.digest import digest

__all__ = ["LARGE", "elements_digest", "elements_of", "is_stored", "store"]

Array = np.ndarray[Any, Any]

LARGE = 1 << 20
"""Bytes from which an array is worth remembering."""


class _Known:
    """An array that lives elsewhere, and the digest of its elements once it is known."""

    def __init__(self, a: Array) -> None:
        key = id(a)

        def forget(_: object) -> None:
            if _known.get(key) is self:
                del _known[key]

        self.array, self.digest = weakref.ref(a, forget), ""


_known: dict[int, _Known] = {}


def store(a: Array) -> Array:
    """``a``, made read-only. The caller has made it, and gives no one else the right to write."""
    a.setflags(write=False)
    if a.nbytes >= LARGE:
        _known[id(a)] = _Known(a)
    return a


def is_stored(a: object) -> bool:
    """Whether ``a`` is a large array that ``store`` was given."""
    return _find(a) is not None


def elements_of(a: Array) -> memoryview:
    """The elements of an array as bytes, row-major; of one in that order no copy."""
    # NumPy exports no buffer for bfloat16.
    return np.ascontiguousarray(a).reshape(-1).view(np.uint8).data


def elements_digest(a: Array) -> str:
    """The digest of the elements, row-major, without their type and shape."""
    known = _find(a)
    if known is None:
        return digest(elements_of(a))
    if not known.digest:
        known.digest = digest(elements_of(a))
    return known.digest


def _find(a: object) -> _Known | None:
    known = _known.get(id(a))
    return known if known is not None and known.array() is a else None
