"""Stalls: MiniLM at two threads while another process is busy on one of their two CPUs.

A thread that the system puts aside keeps what it has begun for some milliseconds, and the call
waits. The rows are a call of one thread on a machine at rest, then calls beside the busy process by
their rank, of one thread and of two, and the longest of two threads as a multiple of the first
row: the goal is at most 2. What one thread has there is what the machine itself does.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager

from bench.families.calls_process import Calls
from bench.measure import OURS, Failure, Options, Row

SHAPES = ((1, 16), (1, 128), (8, 128))
CALLS = 200
SETTLING_SECONDS = 0.5
"""In which the system gives the threads their CPUs."""
SPIN = "import os, sys; os.sched_setaffinity(0, [int(sys.argv[1])])\nwhile True: pass"


@contextmanager
def _busy(cpu: int) -> Generator[None]:
    process = subprocess.Popen([sys.executable, "-c", SPIN, str(cpu)])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def rows(options: Options) -> Iterator[Row | Failure]:
    """The rows of each shape; none on a machine of one CPU, or that pins no process."""
    cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    for batch, tokens in SHAPES if len(cpus) > 1 else ():
        name = f"{batch}x{tokens}"
        if options.names(name):
            yield from _of_shape(name, batch, tokens, cpus[1])


def _of_shape(name: str, batch: int, tokens: int, cpu: int) -> Iterator[Row]:
    def row(what: str, threads: int, value: float, unit: str = "s") -> Row:
        return Row("busy", f"{name}, {what}", threads, OURS, [value], value, unit)

    alone = longest = 0.0
    for threads in (1, 2):
        with closing(Calls(batch, tokens, threads)) as process:
            settling = max(3, int(SETTLING_SECONDS / min(process.time(3))))
            if threads == 1:
                alone = statistics.median(process.time(settling))
                yield row("alone", threads, alone)
            with _busy(cpu):
                process.time(settling)
                calls = sorted(process.time(CALLS))
        longest = calls[-1]
        for what, rank in (("median", CALLS // 2), ("p99", CALLS * 99 // 100)):
            yield row(f"beside a busy process, {what} of {CALLS}", threads, calls[rank])
        yield row(f"beside a busy process, longest of {CALLS}", threads, longest)
    yield row("longest / alone", 2, longest / alone, "x")
