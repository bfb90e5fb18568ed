"""The original's module of devices: their names, which are here, and streams of runs."""

from __future__ import annotations

from typing import Any

from rlx.compat.names import AREAS, MODULES, of_module

__all__ = [n for area in MODULES["driver"] for n in AREAS[area]]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    return of_module("driver", name)


def __dir__() -> list[str]:
    return __all__
