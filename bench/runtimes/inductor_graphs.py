"""PyTorch by torch.compile with CUDA graphs (mode "reduce-overhead")."""

from __future__ import annotations

from bench.case import Case
from bench.device import Started
from bench.runtimes.inductor import compiled_on


def prepare_on(case: Case, device: str) -> Started:
    """A call launches a graph; what the call before gave is overwritten."""
    return compiled_on(case, device, mode="reduce-overhead")
