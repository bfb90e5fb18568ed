"""A new process with a language model, to the first token of a prompt of 128, and its memory.

RLX's compile cache is warm. The time runs from the start of the interpreter to the token, of a file
that the system has in memory; memory is the largest resident set then. The row "1.25 x needed" is
that many times the file and the cache of keys and values: the goal is at least 1 against it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bench.families.llm import CONTEXT, cache_bytes, call, llama_step, model_file, rlx_step
from bench.llm_models import MIXES, SHAPES
from bench.measure import OURS, Bench, Failure, Options, Row, environment
from bench.worker import peak_mib

PROMPT = 128
STEPS = {OURS: partial(rlx_step, warm=False), "llama_cpp": llama_step}


def first_token(runtime: str, path: Path, threads: int, vocab: int, fills: bool) -> None:
    """What a process does; prints its CPU time and its peak. One that ``fills`` RLX's cache stays
    until what is compiled in the background is there too."""
    logits = call(STEPS[runtime](path, threads, 1), vocab, PROMPT, 0, 1)()
    print(json.dumps([int(logits[0].argmax()), time.process_time(), peak_mib()]), flush=True)
    if fills and runtime == OURS:
        from rlx.runtime.background import waited

        waited()
    os._exit(0)


def rows(options: Options) -> Iterator[Row | Failure]:
    """Seconds and MiB of each engine and model."""
    for shape in [*SHAPES][: 1 if options.quick else None]:
        for mix in [*MIXES][: 1 if options.quick else None]:
            if options.names(f"{shape} {mix}"):
                for threads in options.threads:
                    yield from _model(options, shape, mix, threads)


def _model(options: Options, shape: str, mix: str, threads: int) -> Iterator[Row | Failure]:
    path, label = model_file(shape, mix), f"{shape} {mix}"
    times: dict[str, list[float]] = {}
    memory: dict[str, list[float]] = {}
    with Bench(options, threads) as bench:
        names = [name for name in STEPS if name in bench.workers]
        for n in range(1 + max(1, options.rounds // 2)):
            for name in names:
                begin = time.perf_counter()
                done = _run(bench, name, path, SHAPES[shape].vocab, fills=n == 0)
                wall = time.perf_counter() - begin
                if isinstance(done, str):
                    yield Failure("llm_process", label, threads, name, done)
                    names = [other for other in names if other != name]
                elif n:  # the first fills the compile cache
                    spent = done[1] if bench.clock == "cpu" else wall
                    times.setdefault(name, []).append(spent)
                    memory.setdefault(name, []).append(done[2])
    needed = 1.25 * (path.stat().st_size + cache_bytes(SHAPES[shape], CONTEXT)) / 2**20
    if memory:
        memory["1.25 x needed"] = [needed]
    for what, unit, found in (("first token", "s", times), ("memory", "MiB", memory)):
        for name, values in found.items():
            row = Row("llm_process", f"{label}, {what}", threads, name, values, min(values), unit)
            yield row


def _run(bench: Bench, name: str, path: Path, vocab: int, *, fills: bool) -> list[float] | str:
    python = bench.options.pythons.get(name, sys.executable)
    given = [name, str(path), str(bench.threads), str(vocab), "fills" if fills else ""]
    count = str(bench.threads)
    env = environment(
        RLX_CACHE="on", RLX_CACHE_DIR=str(bench.folder / "cache"), RLX_NUM_THREADS=count,
        OMP_NUM_THREADS=count,
    )  # fmt: skip
    done = subprocess.run(
        [python, "-m", "bench.families.llm_process", *given],
        capture_output=True, text=True, env=env, check=False,
    )  # fmt: skip
    if done.returncode:
        return " ".join(done.stderr.split())[-300:]
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[3])])
    first_token(
        sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), bool(sys.argv[5])
    )
