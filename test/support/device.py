"""Graphs on the software devices of GPU APIs."""

from __future__ import annotations

from typing import Any

import pytest

import rlx
from rlx.targets.gpu import drivers

__all__ = ["compiled"]


def compiled(api: str, graph: rlx.Graph, **options: Any) -> rlx.CompiledGraph:
    """A graph compiled for an API and loaded on its device; without one the test is skipped."""
    found = drivers.probe(api)
    if not found.found:
        pytest.skip(f"{api}: {found.why} (or run `make drivers`)")
    return rlx.Session(api).compile(graph, **options)
