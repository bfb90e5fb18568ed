"""How JAX's primitives become StableHLO for the platform."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["register_lowerings"]


def register_lowerings(platform: str) -> None:
    """Let JAX lower for a platform as it does for CPUs, with calls of LAPACK for linear algebra,
    which the reader of StableHLO knows; and let arguments be donated.

    JAX has no public way to say that a platform is like another, so this reads its tables.
    """
    mlir: Any = importlib.import_module("jax._src.interpreters.mlir")
    rules = mlir._platform_specific_lowerings
    rules[platform].update(rules["cpu"])
    if platform not in mlir._platforms_with_donation:
        mlir._platforms_with_donation.append(platform)
