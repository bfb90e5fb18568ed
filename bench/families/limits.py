"""What the machine reaches at most, by threads: multiply-adds in f32 on registers, and bytes from
memory beyond the caches (``rlx.roofline``). Tables of the same run say what part of it a case has.

RLX times it by kernels that do nothing else, in a new process each round.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

from bench.measure import OURS, Failure, Options, Row, environment

MEASURE = """
import json
from rlx import roofline
found = roofline.measure()
print(json.dumps([found.flops, found.bytes]))
"""
UNIT = 1e9
"""A row's time is that of so many operations or bytes."""


def rows(options: Options) -> Iterator[Row | Failure]:
    """Two rows for each number of threads."""
    for threads in options.threads:
        found = [_measured(threads) for _ in range(options.rounds)]
        flops, moved = ([UNIT / rate for rate in rates] for rates in zip(*found, strict=True))
        yield Row("limits", "multiply-adds", threads, OURS, flops, min(flops), flops=UNIT)
        yield Row("limits", "memory", threads, OURS, moved, min(moved), moved=UNIT)


def _measured(threads: int) -> tuple[float, float]:
    done = subprocess.run(
        [sys.executable, "-P", "-c", MEASURE],
        env=environment(RLX_NUM_THREADS=str(threads)),
        text=True, stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    flops, moved = json.loads(done.stdout)
    return flops, moved
