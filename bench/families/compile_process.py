"""One cold process of the family ``compile``: a file to run, which imports only what it measures.

Arguments: the model's directory, threads, whether new lengths follow (0 or 1), and the time at
which the process was started.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

SHAPES = ((1, 80), (3, 61), (2, 48), (5, 37), (1, 200))
"""New lengths, compiled in turn."""

Measures = dict[str, float]


def cpu_ms() -> float:
    """User and system time of this process and of those that it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used) * 1e3


def worker(model: Path, threads: int, shapes: tuple[tuple[int, int], ...], started: float) -> None:
    """What one cold process does, which began at ``started``; prints its measurements as JSON, and
    what the compile cache said and had."""
    start = time.perf_counter()
    first = {"interpreter": time.time() - started}
    import numpy as np

    from rlx.models.embed import Embed

    imported = time.perf_counter()
    embed = Embed.from_dir(model, threads=threads)
    built = time.perf_counter()
    embed.encode(["A cold process reaches its first embedding."], progress=False)
    done = time.perf_counter()
    first |= {
        "wall": time.time() - started,
        "import": imported - start,
        "build": built - imported,
        "first encode": done - built,
        **embed.reports[0].compilation.seconds,
    }
    cache = (embed.reports[0].cache, embed.reports[0].kernels_reused)
    cold = {name: s * 1e3 for name, s in first.items()} | {"cpu": cpu_ms()}
    cold["kernels made"] = embed.reports[0].kernels_made
    lengths: list[Measures] = []
    for batch, tokens in shapes:
        ids = np.full((batch, tokens), 1012, np.int64)
        start, used = time.perf_counter(), cpu_ms()
        embed.encode_ids(ids, np.ones_like(ids))
        took, cpu = time.perf_counter() - start, cpu_ms() - used
        start = time.perf_counter()
        embed.encode_ids(ids, np.ones_like(ids))
        run = time.perf_counter() - start
        report = embed.reports[-1]
        stages = {name: s * 1e3 for name, s in report.compilation.seconds.items()}
        row = {"wall": took * 1e3, "cpu": cpu, "one run": run * 1e3, **stages}
        lengths.append(row | {"kernels made": report.kernels_made})
    print(json.dumps({"cold": cold, "lengths": lengths, "cache": cache}))


if __name__ == "__main__":
    wanted = SHAPES if sys.argv[3] == "1" else ()
    worker(Path(sys.argv[1]), int(sys.argv[2]), wanted, float(sys.argv[4]))
