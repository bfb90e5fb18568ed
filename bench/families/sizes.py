"""Calls of ever new sizes: the first and the second call at each, what was compiled, and memory.

The model is an encoder of MiniLM's sizes with symbolic batch and tokens, as an ONNX file that each
library reads (``bench.families.sizes_process``). The clock is that of the calling thread; RLX has
prepared the ranges before.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.families.sizes_process import LIBRARIES, write
from bench.measure import Bench, Failure, Options, Row, environment


def rows(options: Options) -> Iterator[Row | Failure]:
    """The rows of each library that is installed."""
    names = [name for name in options.installed() if name in LIBRARIES]
    with Bench(options, 1) as bench:
        path, count = bench.folder / "encoder.onnx", 30 if options.quick else 300
        write(str(path))
        found = {name: _measured(options, name, path, count) for name in names}
    for name, answer in found.items():
        if isinstance(answer, str):
            yield Failure("sizes", "encoder", 1, name, answer)
            continue
        first, second = answer["first"], answer["second"]
        more = sorted(a - b for a, b in zip(first, second, strict=True))
        numbers = {
            ("second call, median", "s"): statistics.median(second),
            ("first call more, median", "s"): statistics.median(more),
            ("first call more, 95 of 100", "s"): more[int(0.95 * len(more))],
            ("compiled before", ""): answer["before"],
            ("compiled meanwhile", ""): answer["compiles"],
            ("memory", "MiB"): answer["peak_mib"],
        }
        for (what, unit), number in numbers.items():
            yield Row("sizes", what, 1, name, [number], number, unit)


def _measured(options: Options, name: str, path: Path, count: int) -> dict[str, Any] | str:
    python = options.pythons.get(name, sys.executable)
    command = [python, "-m", "bench.families.sizes_process", name, str(path), str(count)]
    env = environment(RLX_NUM_THREADS="1", **options.environment)
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        return done.stderr.strip().rpartition("\n")[2]
    return json.loads(done.stdout.splitlines()[-1])
