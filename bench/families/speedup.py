"""What a second thread gains: MiniLM 8x128 by one thread over two.

A machine that is shared gives two threads less than two CPUs. So a round counts only if two
processes of one thread, side by side, each keep 95 % of the speed of one alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

from bench.families.calls_process import Calls, median
from bench.measure import OURS, Failure, Options, Row

SHAPE = (8, 128)
CALLS = 3
KEPT = 0.95


def rows(options: Options) -> Iterator[Row | Failure]:
    """The speed-up, by the rounds that count, and how many they are."""
    name, gains = "{}x{}".format(*SHAPE), list[float]()
    with ExitStack() as stack:
        one, other, two = (
            stack.enter_context(closing(Calls(*SHAPE, threads))) for threads in (1, 1, 2)
        )
        for _ in range(options.rounds):
            alone = median(one.time(CALLS))
            one.begin(CALLS)
            other.begin(CALLS)
            beside = max(median(p.end()) for p in (one, other))
            together = median(two.time(CALLS))
            if alone >= KEPT * beside:
                gains.append(alone / together)
    if gains:
        yield Row("speedup", f"{name}, speed-up", 2, OURS, gains, min(gains), "x")
    count = float(len(gains))
    yield Row("speedup", f"{name}, rounds that count", 2, OURS, [count], count, "rounds")
