"""The torch package, which is imported here and nowhere else in RLX, once something of it is asked
for."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["part", "torch"]


class _Package:
    """A package that is imported when a name of it is first read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        found = getattr(importlib.import_module(self._name), name)
        setattr(self, name, found)
        return found


torch: Any = _Package("torch")


def part(name: str) -> Any:
    """A module of the package that is no attribute of it before it is imported."""
    return importlib.import_module(f"torch.{name}")
