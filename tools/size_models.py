"""Count the variants of whole models of symbolic sizes, and compare results with other compiles.

    python tools/size_models.py [--model NAME ...] [--sizes N] [--bits N] [--timed N] [--speed N]

A table of Markdown: how many variants ``prepare`` makes for the ranges of a model, how many more
are compiled for ``--sizes`` random sizes after that, at how many of ``--bits`` sizes the results
have the bits of the program that is compiled for the size alone, and over ``--timed`` sizes what a
first call takes more than a second one. Over ``--speed`` sizes it has the speed of the model as a
multiple of that of the program compiled for the size alone, its geometric mean and the least; the
two run in turn. Times are CPU time of the calling thread, and one thread runs. The exit code is 1
if bits differ.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / part) for part in ("test", "")]

import numpy as np  # noqa: E402 -- found by the path above

import rlx  # noqa: E402
from rlx.ir.graph import symbols_of  # noqa: E402
from rlx.runtime.background import waited  # noqa: E402
from support import size_models  # noqa: E402

Sizes = dict[str, int]
MODELS: dict[str, Callable[[], rlx.Graph]] = {
    "encoder": size_models.encoder,
    "decoder": lambda: size_models.decoder(512, 8, past=4096, new=1),
    "prefill": lambda: size_models.decoder(512, 8, past=4096, new=64),
    "resnet": size_models.resnet,
    "unet": lambda: size_models.unet(32, 32),
    "training": lambda: size_models.training(784, 256, 512),
    "training_on_images": size_models.training_on_images,
}


def drawn(symbols: Any, draw: random.Random) -> Sizes:
    """Sizes in the ranges of symbols, small ones as often as large ones."""
    return {
        s.name: min(s.most, int(s.least * ((s.most + 1) / s.least) ** draw.random()))
        for s in symbols
    }


def inputs_of(graph: rlx.Graph, sizes: Sizes) -> dict[str, Any]:
    """Arrays for the inputs at sizes."""
    draw, found = np.random.default_rng(0), dict[str, Any]()
    for v in graph.bind(sizes).inputs:
        shape, dt = v.type.static_shape, v.dtype
        made = draw.integers(0, 2, shape) if dt.is_int else draw.standard_normal(shape)
        found[str(v.name)] = made.astype(dt.numpy)
    return found


def mean_time(run: Callable[[], object], seconds: float = 0.1) -> float:
    """The CPU time of one call: the mean of as many as fill some seconds."""
    calls, start = 0, time.thread_time()
    while time.thread_time() - start < seconds:
        run()
        calls += 1
    return (time.thread_time() - start) / calls


def speed(graph: rlx.Graph, f: Any, at: Sizes, rounds: int = 5) -> float:
    """The time of the program compiled for sizes, as a multiple of that of ``f``: the least of some
    rounds, in which the two run in turn."""
    given = inputs_of(graph, at)
    own = rlx.Session("cpu", threads=1).compile(graph, dims=at)
    found: tuple[list[float], ...] = [], []
    for _ in range(rounds):
        for times, program in zip(found, (own, f), strict=True):
            program.run(given)
            times.append(mean_time(lambda program=program: program.run(given)))
    return min(found[0]) / min(found[1])


def row(name: str, sizes: int, bits: int, timed: int, speeds: int) -> tuple[str, bool]:
    """The row of a model, and whether all bits are equal."""
    graph = MODELS[name]()
    symbols = symbols_of(v.type for v in graph.inputs)
    draw = random.Random(0)
    f = rlx.Session("cpu", threads=1).compile(graph)
    start = time.process_time()
    f.prepare(dims={})
    seconds, before = time.process_time() - start, len(f.variants)
    variants: Any = f._variants
    for _ in range(sizes):
        variants.provide(drawn(symbols, draw))
    equal, more = 0, list[float]()
    for n in range(max(bits, timed)):
        at = drawn(symbols, draw)
        given = inputs_of(graph, at)
        start = time.thread_time()
        found = f.run(given)
        middle = time.thread_time()
        f.run(given)
        more.append(2 * middle - start - time.thread_time())
        if n < bits:
            own = rlx.Session("cpu", threads=1).compile(graph, dims=at).run(given)
            equal += [a.tobytes() for a in own] == [a.tobytes() for a in found]
    waited()
    more.sort()
    later = len(f.variants) - before
    median, most = statistics.median(more) * 1e3, more[int(0.95 * len(more))] * 1e3
    ratios = [speed(graph, f, drawn(symbols, draw)) for _ in range(speeds)] or [math.nan]
    cells = [
        name, str(before), f"{sum(v.general for v in variants.found)}", str(later),
        f"{equal} of {bits}", f"{median:.2f} ms", f"{most:.2f} ms", f"{seconds:.1f} s",
        f"{statistics.geometric_mean(ratios):.3f}", f"{min(ratios):.3f}",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |", equal == bits


def main() -> int:
    """Print the table; 1 if bits differ."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", action="append", choices=list(MODELS))
    parser.add_argument("--sizes", type=int, default=300)
    parser.add_argument("--bits", type=int, default=5)
    parser.add_argument("--timed", type=int, default=100)
    parser.add_argument("--speed", type=int, default=20)
    given = parser.parse_args()
    heads = "model|variants|general|more|bits|first call more|95 of 100|compiles|speed|least speed"
    print(f"| {heads.replace('|', ' | ')} |\n|{'---|' * (heads.count('|') + 1)}", flush=True)
    right = True
    for name in given.model or MODELS:
        text, equal = row(name, given.sizes, given.bits, given.timed, given.speed)
        right &= equal
        print(text, flush=True)
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
