"""Graphs on the software devices of GPU APIs."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

import rlx
from rlx.runtime.device import DeviceBackend
from rlx.targets.gpu import drivers

__all__ = ["compiled"]


def compiled(api: str, graph: rlx.Graph, **options: Any) -> rlx.CompiledGraph:
    """A graph compiled for an API and loaded on its device; without one the test is skipped."""
    importlib.import_module("rlx.compiler")  # before a driver (see DeviceBackend)
    found = drivers.probe(api)
    if not found.found:
        pytest.skip(f"{api}: {found.why} (or run `make drivers`)")
    backend: Any = DeviceBackend(api)
    return rlx.CompiledGraph(graph, backend, options)
