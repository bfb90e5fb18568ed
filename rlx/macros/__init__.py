"""The original's module of macros, which are decorators and functions here, by name."""

from __future__ import annotations

from typing import Any

from rlx.compat.names import AREAS, MODULES, of_module

__all__ = [n for area in MODULES["macros"] for n in AREAS[area]]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    return of_module("macros", name)


def __dir__() -> list[str]:
    return __all__
