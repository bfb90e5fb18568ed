"""Graphs on the software devices of GPU APIs."""

from __future__ import annotations

from typing import Any

import pytest

import rlx
from rlx.targets.gpu import drivers
from support import cuda_emulator

__all__ = ["compiled", "session"]


def session(api: str) -> rlx.Session:
    """A session on the device of an API; without one the test is skipped. CUDA's is emulated."""
    if api == "cuda":
        return cuda_emulator.session()
    found = drivers.probe(api)
    if not found.found:
        pytest.skip(f"{api}: {found.why} (or run `make drivers`)")
    return rlx.Session(api)


def compiled(api: str, graph: rlx.Graph, **options: Any) -> rlx.CompiledGraph:
    """A graph compiled for an API and loaded on its device, as ``session`` says."""
    if api == "cuda":
        return cuda_emulator.compiled(graph, **options)
    return session(api).compile(graph, **options)
