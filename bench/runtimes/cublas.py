"""cuBLAS, by way of torch: the product alone, into memory that is there."""

from __future__ import annotations

import torch

from bench.case import Case
from bench.device import Started
from bench.runtimes.torch import on_device, started


def prepare_on(case: Case, device: str) -> Started:
    """The product of the two inputs of a case."""
    a, b = on_device(case, device)
    out = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
    return started(lambda: torch.mm(a, b, out=out))
