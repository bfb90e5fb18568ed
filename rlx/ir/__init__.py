"""The IR: graphs, values, ops and their attributes, and what walks over them.

The names that the original's module of this name has are here too: ``rlx.ir.Graph``.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    from rlx.compat.names import of_module

    return of_module("ir", name)
