"""What the namespace says of itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.ir.builders import located, public
from rlx.xp.function import check_device

__all__ = ["Info", "__array_namespace_info__"]

_TYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32",
    "float64", "complex64", "complex128",
)  # fmt: skip
_DEFAULTS = {
    "real floating": "float64", "complex floating": "complex128", "integral": "int64",
    "indexing": "int64",
}  # fmt: skip


@public
class Info:
    """The devices, types and capabilities of the namespace."""

    def capabilities(self) -> dict[str, Any]:
        """Whether shapes may depend on elements, and the greatest rank."""
        return {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 64}

    def default_device(self) -> str:
        """The host."""
        return "cpu"

    def devices(self) -> list[str]:
        """The host: a function runs elsewhere by ``rlx.jit(device=...)``."""
        return ["cpu"]

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype[Any]]:
        """The types of arrays that are made without saying one."""
        check_device(device)
        return {kind: np.dtype(name) for kind, name in _DEFAULTS.items()}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, np.dtype[Any]]:
        """The types of the standard, or those of a kind of them."""
        check_device(device)
        known = {name: np.dtype(name) for name in _TYPES}
        return known if kind is None else {k: v for k, v in known.items() if np.isdtype(v, kind)}


@located
def __array_namespace_info__() -> Info:
    """What the namespace says of itself."""
    return Info()
