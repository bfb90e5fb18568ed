"""The original's module of macros, which are decorators and functions here, by name."""

from __future__ import annotations

from rlx.compat.names import exports

__all__, __getattr__, __dir__ = exports("macros")
