"""The original's module of devices: their names, which are here, and streams of runs."""

from __future__ import annotations

from rlx.compat.names import exports

__all__, __getattr__, __dir__ = exports("driver")
