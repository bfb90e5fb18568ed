"""Products and models in fewer bits: speed, weights read a second, and accuracy, per mode.

    python -m bench precision --threads 2                      products, then models in bf16
    python -m bench precision --rows 1 8 --shapes 768x3072 --no-models

The error of a product is the largest of its elements against f64 on the unrounded operands, over
the root mean square of the result; rounding the operands to the mode's types is part of it. How
much of the weights is read a second is said as a part of what the machine reads from memory, too,
measured here; beyond that they came from a cache. Peers (``bench.precision_peers``) take part where
they are installed. The models are those of the family ``bf16``: their error is the largest over
the largest element.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.case import Run
from bench.families import cases
from bench.measure import Bench, Failure, Options
from bench.precision_peers import PEERS, quantised

Array = np.ndarray[Any, Any]

MODES: dict[str, tuple[str, str]] = {
    "f32": ("f32", "f32"),
    "bf16": ("bf16", "bf16"),
    "f16": ("f16", "f16"),
    "weights bf16": ("f32", "bf16"),
    "weights f16": ("f32", "f16"),
    "weights i8": ("f32", "i8"),
    "i8": ("i8", "i8"),
}
"""The element types of rows and of weights. Integers have a scale for all rows, and one a column of
weights."""

WIDTHS = {"f32": 4, "bf16": 2, "f16": 2, "i8": 1}


@dataclass(frozen=True)
class Product:
    """A mode, or a peer, on one product; ``width`` is the bytes of a weight."""

    name: str
    run: Run
    result: Callable[[], Array]
    width: int


def measure(runs: dict[str, Run], seconds: float, rounds: int) -> dict[str, list[float]]:
    """Seconds a call, per round, the runs in turn."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(rounds):
        for name, run in runs.items():
            run()
            count, spent, start = 0, 0.0, time.perf_counter()
            while count == 0 or spent < seconds:
                run()
                count += 1
                spent = time.perf_counter() - start
            times[name].append(spent / count)
    return times


def runner(mode: str, a: Array, b: Array) -> Product:
    """One product in a mode."""
    import rlx
    from rlx.types import dtype

    left, right = MODES[mode]
    scale = np.ones(b.shape[1], np.float32)
    if left == "i8":
        a, row_scale = quantised(a, None)
        scale = scale * row_scale
    if right == "i8":
        b, column_scale = quantised(b, 0)
        scale = scale * column_scale
    x, w = a.astype(dtype(left).numpy), b.astype(dtype(right).numpy)
    sums = "i32" if left == "i8" else "f32"
    g = rlx.Graph(mode)
    y = g.input("x", x.shape, left).cast(sums) @ g.param("w", value=w).cast(sums)
    g.set_outputs([y.cast("f32") * g.param("s", value=scale) if right == "i8" else y])
    f = rlx.Session().compile(g)
    c = np.empty((x.shape[0], w.shape[1]), np.float32)
    executable = f._executable({})
    run = lambda: executable.run_into([x], [c])  # noqa: E731
    return Product(mode, run, lambda: f.run({"x": x})[0], WIDTHS[right])


def products(args: argparse.Namespace, a: Array, b: Array) -> Iterator[Product]:
    """What is timed on one product; peers that are not installed are left out."""
    for mode in args.modes:
        yield runner(mode, a, b)
    for name in args.peers:
        make, kind = PEERS[name]
        try:
            run = make(a, b, args.threads)
        except ImportError:
            continue
        yield Product(name, run, run, WIDTHS[kind])


def of_products(args: argparse.Namespace) -> None:
    """A table a shape."""
    from rlx import roofline

    reads = roofline.measure().bytes
    rng = np.random.default_rng(0)
    for shape in args.shapes:
        k, n = map(int, shape.split("x"))
        b = rng.standard_normal((k, n), np.float32) / np.float32(k**0.5)
        print(f"K = {k}, N = {n}, {args.threads} threads, {reads / 1e9:.1f} GB/s from memory")
        head = f"{'M':>5} {'mode':>20} {'min us':>9} {'median':>9} {'GF/s':>8} {'GB/s of w':>10}"
        print(f"{head} {'memory':>7} {'over f32':>9} {'error':>9}")
        for m in args.rows:
            a = rng.standard_normal((m, k), np.float32)
            exact = a.astype(np.float64) @ b.astype(np.float64)
            made = list(products(args, a, b))
            times = measure({p.name: p.run for p in made}, args.seconds, args.rounds)
            first = min(times[made[0].name])
            for p in made:
                best, median = min(times[p.name]), statistics.median(times[p.name])
                rate = k * n * p.width / best
                error = np.abs(p.result() - exact).max() / np.sqrt((exact**2).mean())
                line = f"{m:>5} {p.name:>20} {best * 1e6:9.1f} {median * 1e6:9.1f}"
                line += f" {2e-9 * m * k * n / best:8.1f} {rate / 1e9:10.1f} {rate / reads:7.0%}"
                print(f"{line} {first / best:9.2f} {error:9.1e}", flush=True)


def of_models(args: argparse.Namespace) -> None:
    """The family ``bf16``, with the error of each library."""
    options = Options(threads=(args.threads,), rounds=args.rounds)
    print(f"models in bf16, {args.threads} threads")
    print(f"{'model':>14} {'library':>12} {'min ms':>9} {'median':>9} {'over RLX':>9} {'error':>9}")
    with Bench(options, args.threads) as bench:
        for case in cases("bf16").values():
            first = 0.0
            for row in bench.run("bf16", case):
                if isinstance(row, Failure):
                    print(f"{case.name:>14} {row.runtime:>12} did not run: {row.reason}")
                    continue
                first = first or row.least
                line = f"{case.name:>14} {row.runtime:>12} {row.least * 1e3:9.2f}"
                line += f" {row.median * 1e3:9.2f} {row.least / first:9.2f} {row.error:9.1e}"
                print(line, flush=True)


def main(argv: list[str]) -> int:
    """Measure what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.01, help="a run's share of a round")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 4, 8, 128])
    parser.add_argument("--shapes", nargs="+", default=["4096x14336"], metavar="KxN")
    parser.add_argument("--modes", nargs="+", choices=list(MODES), default=list(MODES))
    parser.add_argument("--peers", nargs="*", choices=list(PEERS), default=list(PEERS))
    parser.add_argument("--no-products", action="store_true")
    parser.add_argument("--no-models", action="store_true")
    args = parser.parse_args(argv)
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RLX_NUM_THREADS"):
        os.environ.setdefault(variable, str(args.threads))
    if not args.no_products:
        of_products(args)
    if not args.no_models:
        of_models(args)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
