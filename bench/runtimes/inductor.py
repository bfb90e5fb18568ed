"""PyTorch by torch.compile, with the weights frozen into what is compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch._inductor import config

from bench.case import Case, Run
from bench.device import Started
from bench.runtimes.torch import GPU, arguments, module, on_device, started


def prepare(case: Case, threads: int, folder: Path) -> Run:
    """The compiled module; shapes are fixed. Freezing needs no_grad, and not inference_mode."""
    torch._dynamo.reset()
    config.freezing = True
    torch.set_num_threads(threads)
    f, given = torch.compile(module(case), dynamic=False), arguments(case)

    def run() -> Any:
        with torch.no_grad():
            return f(*given)

    return run


def compiled_on(case: Case, device: str, mode: str = "default") -> Started:
    """The module compiled for the GPU that its inputs lie on."""
    torch._dynamo.reset()
    config.freezing = True
    given, f = on_device(case, device), module(case).to(GPU)
    compiled = torch.compile(f, dynamic=False, mode=mode)

    def call() -> Any:
        with torch.no_grad():
            return compiled(*given)

    return started(call)


def prepare_on(case: Case, device: str) -> Started:
    """torch.compile's default mode."""
    return compiled_on(case, device)
