"""Compile time: a cold process to its first embedding, and a new length in a running one.

A cold process is a new interpreter that imports RLX, builds the encoder, compiles it, packs the
weights, and embeds one sentence. It is a failure if the compile cache, a new directory each time,
had anything of it. The models are MiniLM and a BERT-base of random weights, which were read before.
A new length is a shape of batch x tokens that a process of MiniLM has not met before. The rows are
the wall clock and the CPU time of the process and its helpers, then the stages of both compiles.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.families.minilm import model_dir
from bench.families.resident import write_base
from bench.measure import OURS, Failure, Options, Row, environment

PROCESS = Path(__file__).with_name("compile_process.py")

MISSED = ("miss (there is no such entry)", 0)
"""What the first compile of a cold process says: of the artifact, and of kernels found."""

Measures = dict[str, float]


def measure(model: Path, threads: int, *, lengths: bool = True) -> dict[str, Any]:
    """One cold process; its wall clock runs from before the interpreter is started."""
    command = [sys.executable, "-P", str(PROCESS), str(model), str(threads), str(int(lengths))]
    with TemporaryDirectory(prefix="rlx-cold-") as cache:
        env = environment(RLX_CACHE="on", RLX_CACHE_DIR=cache)
        command.append(repr(time.time()))
        found = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True)
    return json.loads(found.stdout)


def rows(options: Options) -> Iterator[Row | Failure]:
    """Every measure of both models, by its name; a quick run has MiniLM alone."""
    count = max(1, options.rounds // 2)
    with TemporaryDirectory(prefix="rlx-bench-") as folder:
        models = {"cold process": Path(model_dir())}
        if not options.quick:
            models["cold process of BERT-base"] = write_base(Path(folder, "base"))
        for model in models.values():
            measure(model, 1, lengths=False)  # reads the files, and Python translates sources
        for threads in options.threads:
            for what, model in models.items():
                small = what == "cold process"
                found = [measure(model, threads, lengths=small) for _ in range(count)]
                if any(tuple(f["cache"]) != MISSED for f in found):
                    told = f"the compile cache was not empty: {[f['cache'] for f in found]}"
                    yield Failure("compile", what, threads, OURS, told)
                yield from _rows(what, threads, [f["cold"] for f in found])
                yield from _rows("new length", threads, [r for f in found for r in f["lengths"]])


def _rows(what: str, threads: int, found: list[Measures]) -> Iterator[Row]:
    """Milliseconds, but the number of kernels that were compiled."""
    for name in dict.fromkeys(name for measures in found for name in measures):
        unit = "kernels" if name == "kernels made" else "s"
        values = [m.get(name, 0.0) / (1 if unit == "kernels" else 1e3) for m in found]
        yield Row("compile", f"{what}: {name}", threads, OURS, values, min(values), unit)
