"""Compile time of MiniLM: a cold process to its first embedding, and a new length in a running one.

A cold process is a new interpreter that imports RLX, builds the encoder, compiles it, packs the
weights, and embeds one sentence; no compiled code is kept between processes. A new length is a
shape of batch x tokens that the process has not met before. The rows are the
wall clock and the CPU time of the process and its helpers, then the stages of both compiles.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.families.minilm import model_dir
from bench.measure import OURS, ROOT, Failure, Options, Row

PROCESS = Path(__file__).with_name("compile_process.py")

Measures = dict[str, float]


def measure(model: Path, threads: int) -> dict[str, Any]:
    """One cold process; its wall clock runs from before the interpreter is started."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-P", str(PROCESS), str(model), str(threads)]
    environment = {**os.environ, "PYTHONPATH": path, "RLX_CACHE": "off"}
    command.append(repr(time.time()))
    found = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    return json.loads(found.stdout)


def rows(options: Options) -> Iterator[Row | Failure]:
    """Every measure of both, by its name."""
    for threads in options.threads:
        count = max(1, options.rounds // 2)
        found = [measure(Path(model_dir()), threads) for _ in range(count)]
        yield from _rows("cold process", threads, [f["cold"] for f in found])
        yield from _rows("new length", threads, [row for f in found for row in f["lengths"]])


def _rows(what: str, threads: int, found: list[Measures]) -> Iterator[Row]:
    """Milliseconds, but the number of kernels that were compiled."""
    for name in dict.fromkeys(name for measures in found for name in measures):
        unit = "kernels" if name == "kernels made" else "s"
        values = [m.get(name, 0.0) / (1 if unit == "kernels" else 1e3) for m in found]
        yield Row("compile", f"{what}: {name}", threads, OURS, values, min(values), unit)
