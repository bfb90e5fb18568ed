"""A process that embeds with MiniLM, for the families ``busy`` and ``speedup``: a file to run.

Arguments: the model's directory, batch, tokens and threads. For each line of standard input, a
number, it makes so many calls and answers with a line of JSON: a ``Call`` for each.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from bench.families.minilm import model_dir
from bench.measure import environment


class Call(NamedTuple):
    """What a call took."""

    seconds: float
    waited: float | None
    """Seconds of them in which the calling thread could have run, but something else had its CPU;
    None where the system does not tell."""


def median(calls: Iterable[Call]) -> float:
    """The seconds of the middle one."""
    return statistics.median(call.seconds for call in calls)


class Calls:
    """Such a process, from the side of who asks."""

    def __init__(self, batch: int, tokens: int, threads: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, model_dir(), *map(str, (batch, tokens, threads))],
            env=environment(), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.time(3)

    def begin(self, count: int) -> None:
        """Have it make so many calls."""
        assert self._process.stdin
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()

    def end(self) -> list[Call]:
        """The calls that were begun."""
        assert self._process.stdout
        return [Call(*call) for call in json.loads(self._process.stdout.readline())]

    def time(self, count: int) -> list[Call]:
        """So many calls."""
        self.begin(count)
        return self.end()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


def waiting() -> Callable[[], int] | None:
    """A function that reads how many ns this thread has waited for a CPU, being ready to run; None
    where the system does not tell."""
    try:
        file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    except OSError:
        return None

    def read() -> list[int]:
        return [int(field) for field in os.pread(file, 100, 0).split()]

    # Where nothing is counted, it has not run either.
    return (lambda: read()[1]) if read()[0] else None


def serve(model: Path, batch: int, tokens: int, threads: int) -> None:
    """What the process does until its input ends."""
    import numpy as np

    from rlx.models.embed import Embed

    encoder = Embed.from_dir(model, threads=threads)
    ids = np.full((batch, tokens), 2000)
    mask = np.ones_like(ids)
    waited = waiting()
    for line in sys.stdin:
        calls: list[Call] = []
        for _ in range(int(line)):
            before = waited() if waited else 0
            start = time.perf_counter()
            encoder.encode_ids(ids, mask)
            seconds = time.perf_counter() - start
            calls.append(Call(seconds, (waited() - before) / 1e9 if waited else None))
        print(json.dumps(calls), flush=True)


if __name__ == "__main__":
    serve(Path(sys.argv[1]), *map(int, sys.argv[2:]))
