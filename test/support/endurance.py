"""One compiled graph run for long: what ``tools/endure.py`` and its short test share."""

from __future__ import annotations

import gc
import os
import signal
import threading
from itertools import pairwise
from pathlib import Path

import numpy as np

import rlx

__all__ = ["Trial", "forked", "growth", "resident", "threaded"]


class Trial:
    """A compiled graph, inputs for it, and what it gives for each."""

    def __init__(self) -> None:
        g = rlx.Graph("endurance")
        x, table = g.input("x", [4, 32]), g.param("table", [16, 32])
        at = g.input("at", [4], "i64")
        g.set_outputs([(x @ g.param("w", [32, 32])).gelu().softmax(axis=-1) + table.gather(at), x])
        rng = np.random.default_rng(0)
        self.compiled = rlx.Session("cpu").compile(g)
        self.compiled.set_param("w", rng.standard_normal((32, 32), np.float32))
        self.compiled.set_param("table", rng.standard_normal((16, 32), np.float32))
        self.feeds = [
            {"x": rng.standard_normal((4, 32), np.float32), "at": rng.integers(0, 16, 4)}
            for _ in range(8)
        ]
        self.expected = [self.bits(n) for n in range(8)]

    def bits(self, n: int) -> bytes:
        """The outputs for input ``n``."""
        return b"".join(a.tobytes() for a in self.compiled.run(self.feeds[n % 8]))

    def wrong(self, first: int, count: int) -> int:
        """How many of ``count`` calls give other bits than the first call of their input did."""
        return sum(self.bits(n) != self.expected[n % 8] for n in range(first, first + count))


def threaded(trial: Trial, threads: int, calls: int) -> int:
    """How many calls differ when ``threads`` make ``calls`` each at the same time."""
    found: list[int] = []
    workers = [
        threading.Thread(target=lambda n=n: found.append(trial.wrong(n, calls)))
        for n in range(threads)
    ]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert len(found) == threads, "a thread ended with an error"
    return sum(found)


def resident() -> int:
    """Bytes of this process in memory."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def growth(trial: Trial, runs: int) -> int:
    """Bytes by which memory grows over ``runs`` calls, after some that warm up.

    What leaks does so in each third of them; the system joins pages to huge ones in any.
    """
    trial.wrong(0, 2000)
    sizes = [resident()]
    for _ in range(3):
        assert trial.wrong(0, runs // 3) == 0
        sizes.append(resident())
    return 3 * min(after - before for before, after in pairwise(sizes))


def forked(trial: Trial, seconds: int = 600) -> int:
    """The status of a forked child that makes calls: 0 if they give the same bits."""
    child = os.fork()
    if child == 0:
        signal.alarm(seconds)  # a deadlock ends it
        os._exit(0 if trial.wrong(0, 64) == 0 and threaded(trial, 2, 64) == 0 else 1)
    return os.waitpid(child, 0)[1]
