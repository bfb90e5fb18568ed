"""What a call costs: an addition to four floats, also by RLX's other ways to call."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.case import Case, Run, Tensor
from bench.measure import OURS


def named(case: Case, threads: int) -> Run:
    """``run``, with arrays by name."""
    from bench.runtimes.rlx import compiled

    f, feeds = compiled(case, threads), case.feeds()
    return lambda: f.run(feeds)


def into(case: Case, threads: int) -> Run:
    """``run_into``, with the array for the result."""
    from bench.runtimes.rlx import compiled

    f, feeds = compiled(case, threads), case.feeds()
    out = [np.empty(4, np.float32)]

    def run() -> Any:
        f.run_into(feeds, out)
        return out

    return run


def numpy_into(case: Case, threads: int) -> Run:
    """``np.add`` with the array for the result."""
    x, out = case.feeds()["x"], np.empty(4, np.float32)
    return lambda: np.add(x, 1.0, out=out)


def cases() -> list[Case]:
    """By position in all libraries; by name, and into given arrays."""
    of: dict[str, Any] = {"build": lambda f, x: x + 1.0, "inputs": {"x": Tensor((4,))}}
    pair = (OURS, "numpy")
    return [
        Case("new result", **of, quick=True),
        Case("by name", **of, own={"rlx": named}, runtimes=pair, quick=True),
        Case(
            "into arrays", **of, own={"rlx": into, "numpy": numpy_into}, runtimes=pair, quick=True
        ),
    ]
