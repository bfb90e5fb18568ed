"""Stalls: MiniLM at two threads while another process is busy on one of their two CPUs.

A thread that the system puts aside keeps what it has begun for some milliseconds, and the call
waits. What the pool is to see to is that a worker put aside delays no call: none should take twice
what one thread takes on a machine at rest. No pool helps a caller that is put aside itself, by a
third process (a daemon, another user's) on its own CPU, and a program of one thread has this too.
So such calls are told apart, by what the system counts of the calling thread's waits, and a process
of one thread makes as many calls beside the same busy process, in turns.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager

from bench.families.calls_process import Call, Calls, median
from bench.measure import OURS, Failure, Options, Row

SHAPES = {(1, 16): 3000, (1, 128): 500, (8, 128): 100}
"""By batch and tokens, how many calls by each number of threads: as many seconds, about."""
BLOCKS = 10
SETTLING_SECONDS = 0.1
"""Before each block, in which the system gives the threads their CPUs."""
PUT_ASIDE = 0.05
"""The part of the time alone from which on a caller that waited for its CPU was put aside."""
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
    for (batch, tokens), count in SHAPES.items() if len(cpus) > 1 else ():
        name = f"{batch}x{tokens}"
        if options.names(name):
            yield from _of_shape(name, batch, tokens, count, cpus[1])


def _of_shape(name: str, batch: int, tokens: int, count: int, cpu: int) -> Iterator[Row]:
    with ExitStack() as stack:
        processes = {
            threads: stack.enter_context(closing(Calls(batch, tokens, threads)))
            for threads in (1, 2)
        }
        settling = max(3, int(SETTLING_SECONDS / median(processes[1].time(3))))
        alone = median(processes[1].time(5 * settling))
        yield Row("busy", f"{name}, alone", 1, OURS, [alone], alone)
        found: dict[int, list[Call]] = {threads: [] for threads in processes}
        stack.enter_context(_busy(cpu))
        for _ in range(BLOCKS):
            for threads, process in processes.items():
                process.time(settling)
                found[threads] += process.time(count // BLOCKS)
    for threads, calls in found.items():
        yield from of_calls(f"{name}, beside a busy process", threads, calls, alone)


def of_calls(name: str, threads: int, calls: Sequence[Call], alone: float) -> Iterator[Row]:
    """The rows of calls by so many threads; ``alone`` are the seconds of one at rest."""

    def row(what: str, value: float, unit: str = "s") -> Row:
        return Row("busy", f"{name}, {what}", threads, OURS, [value], value, unit)

    count = len(calls)
    seconds = sorted(call.seconds for call in calls)
    for what, rank in (("median", count // 2), ("p99", count * 99 // 100), ("longest", -1)):
        yield row(f"{what} of {count}", seconds[rank])
    yield row("longest / alone", seconds[-1] / alone, "x")
    if any(call.waited is None for call in calls):
        return
    others = [c.seconds for c in calls if (c.waited or 0.0) <= PUT_ASIDE * alone]
    yield row(f"caller put aside, of {count}", count - len(others), "calls")
    if others:
        yield row("longest of the others", max(others))
        yield row("longest of the others / alone", max(others) / alone, "x")
