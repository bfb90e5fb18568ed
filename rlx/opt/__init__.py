"""The original's module of passes: fusion, compiles, inspection and derivatives, by name."""

from __future__ import annotations

from rlx.compat.names import exports

__all__, __getattr__, __dir__ = exports("opt")
