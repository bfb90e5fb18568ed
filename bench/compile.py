"""Compile time of MiniLM: a cold process to its first embedding, and a new length in a running one.

    python bench/compile.py --rounds 7

A cold process is a new interpreter that imports RLX, builds the encoder, compiles it, packs the
weights, and embeds one sentence; no compiled code is kept between processes. A new length is a
shape of batch x tokens that the process has not met before. The table gives medians in ms, the
wall clock and the CPU time of the process and its helpers, then the stages of both compiles.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SHAPES = ((1, 80), (3, 61), (2, 48), (5, 37), (1, 200))
"""New lengths, compiled in turn."""

Row = dict[str, float]


def cpu_ms() -> float:
    """User and system time of this process and of those that it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used) * 1e3


def worker(model: Path, threads: int, started: float) -> None:
    """What one cold process does, which began at ``started``; prints its measurements as JSON."""
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
    cold = {name: s * 1e3 for name, s in first.items()} | {"cpu": cpu_ms()}
    cold["kernels made"] = embed.reports[0].kernels_made
    lengths: list[Row] = []
    for batch, tokens in SHAPES:
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
    print(json.dumps({"cold": cold, "lengths": lengths}))


def measure(model: Path, threads: int) -> dict[str, Any]:
    """One cold process; its wall clock runs from before the interpreter is started."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, __file__, "--worker", str(model), "--threads", str(threads)]
    command += ["--started", repr(time.time())]
    environment = {**os.environ, "PYTHONPATH": path, "RLX_CACHE": "off"}
    found = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    return json.loads(found.stdout)


def table(title: str, rows: list[Row]) -> str:
    """Median and least of every measure."""
    names = dict.fromkeys(name for row in rows for name in row)
    lines = [f"{title:24s}{'median':>10s}{'least':>10s}"]
    for name in names:
        values = [row.get(name, 0.0) for row in rows]
        lines.append(f"  {name:22s}{statistics.median(values):10.1f}{min(values):10.1f}")
    return "\n".join(lines)


def main(argv: list[str]) -> int:
    sys.path.insert(0, str(ROOT / "tools"))
    from find_model import minilm_dir

    form = argparse.RawDescriptionHelpFormatter
    args = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    args.add_argument("--model", type=Path, help="a model directory; by default MiniLM's")
    args.add_argument("--rounds", type=int, default=5)
    args.add_argument("--threads", type=int, default=2)
    args.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    args.add_argument("--started", type=float, help=argparse.SUPPRESS)
    chosen = args.parse_args(argv)
    if chosen.worker:
        worker(chosen.worker, chosen.threads, chosen.started)
        return 0
    model = chosen.model or minilm_dir()
    if model is None:
        sys.exit("no model found; name its directory by --model")
    found = [measure(model, chosen.threads) for _ in range(chosen.rounds)]
    print(table("cold process, ms", [f["cold"] for f in found]))
    print(table("new length, ms", [row for f in found for row in f["lengths"]]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
