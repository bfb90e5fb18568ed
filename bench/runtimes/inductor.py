"""PyTorch by torch.compile, with the weights frozen into what is compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch._inductor import config

from bench.case import Case, Run
from bench.runtimes.torch import arguments, module


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
