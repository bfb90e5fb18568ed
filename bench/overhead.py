"""What a call costs: a graph on four floats, by name, by position, and into given outputs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import rlx


def per_call(call: Callable[[], Any], count: int = 20_000, rounds: int = 9) -> float:
    """Median microseconds of a call."""
    times: list[float] = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(count):
            call()
        times.append((time.perf_counter() - start) / count * 1e6)
    return statistics.median(times)


def main(argv: list[str]) -> int:
    """Print microseconds a call."""
    g = rlx.Graph("four")
    x = g.input("x", [4])
    g.set_outputs(x + 1.0)
    f = rlx.Session("cpu").compile(g)
    a, out = np.arange(4, dtype=np.float32), np.empty(4, np.float32)
    rows = {
        "run_slots": lambda: f.run_slots(a),
        "run_into": lambda: f.run_into({"x": a}, [out]),
        "run": lambda: f.run({"x": a}),
        "numpy add": lambda: np.add(a, 1.0),
    }
    print("| call | us |\n|---|---|")
    for name, call in rows.items():
        print(f"| {name} | {per_call(call):.2f} |")
    return 0
