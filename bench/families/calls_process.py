"""A process that embeds with MiniLM, for the families ``busy`` and ``speedup``: a file to run.

Arguments: the model's directory, batch, tokens and threads. For each line of standard input, a
number, it makes so many calls and answers with a line of JSON: the seconds of each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from bench.families.minilm import model_dir
from bench.measure import ROOT


class Calls:
    """Such a process, from the side of who asks."""

    def __init__(self, batch: int, tokens: int, threads: int) -> None:
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, model_dir(), *map(str, (batch, tokens, threads))],
            env={**os.environ, "PYTHONPATH": path}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.time(3)

    def begin(self, count: int) -> None:
        """Have it make so many calls."""
        assert self._process.stdin
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()

    def end(self) -> list[float]:
        """The seconds of each of the calls that were begun."""
        assert self._process.stdout
        return json.loads(self._process.stdout.readline())

    def time(self, count: int) -> list[float]:
        """The seconds of each of so many calls."""
        self.begin(count)
        return self.end()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


def serve(model: Path, batch: int, tokens: int, threads: int) -> None:
    """What the process does until its input ends."""
    import numpy as np

    from rlx.models.embed import Embed

    encoder = Embed.from_dir(model, threads=threads)
    ids = np.full((batch, tokens), 2000)
    mask = np.ones_like(ids)
    for line in sys.stdin:
        seconds: list[float] = []
        for _ in range(int(line)):
            start = time.perf_counter()
            encoder.encode_ids(ids, mask)
            seconds.append(time.perf_counter() - start)
        print(json.dumps(seconds), flush=True)


if __name__ == "__main__":
    serve(Path(sys.argv[1]), *map(int, sys.argv[2:]))
