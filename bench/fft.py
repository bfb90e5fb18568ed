"""Fourier transforms against scipy.fft, in turn in one process, on as many threads.

    python -m bench fft --threads 1 --rounds 31

Prints microseconds of RLX and scipy.fft's time over them, each by its median round and (in
parentheses) by its fastest: above 1, RLX is faster. Both make a new array for the result. Every
result is compared with that of scipy.fft in f64 first.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
OTHERS = (1000, 1001, 1021, 12288)
BATCHES = (1, 8, 64)
ROUND_SECONDS = 0.002
"""Of one library in a round: short, so that what else the machine does hits both alike."""


def main(argv: list[str]) -> int:
    """Print a table a kind of transform."""
    try:
        import scipy.fft  # noqa: F401
    except ImportError:
        print("the benchmark needs scipy: pip install scipy", file=sys.stderr)
        return 2
    args = _arguments(argv)
    for kind in args.kind:
        for dtype in args.dtype:
            print(f"\n### {kind}, {dtype}, {args.threads} threads\n")
            print("| n |" + "".join(f" batch {b} |" for b in args.batch))
            print("|---|" + "---|" * len(args.batch), flush=True)
            for n in args.n:
                cells = [_cell(kind, dtype, n, b, args) for b in args.batch]
                print(f"| {n} | {' | '.join(cells)} |", flush=True)
    return 0


def _arguments(argv: list[str]) -> argparse.Namespace:
    p = argparse.ArgumentParser(prog="bench fft", description=__doc__)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--rounds", type=int, default=31)
    p.add_argument("--n", type=int, nargs="+", default=[*LENGTHS, *OTHERS])
    p.add_argument("--batch", type=int, nargs="+", default=BATCHES)
    p.add_argument("--kind", nargs="+", default=["fft", "rfft"])
    p.add_argument("--dtype", nargs="+", default=["f32", "f64"])
    return p.parse_args(argv)


def _cell(kind: str, dtype: str, n: int, batch: int, args: argparse.Namespace) -> str:
    import scipy.fft

    import rlx

    rng = np.random.default_rng(0)
    x = rng.standard_normal((batch, n))
    if kind in ("fft", "ifft"):
        x = x + 1j * rng.standard_normal((batch, n))
    real_type = np.dtype({"f32": np.float32, "f64": np.float64}[dtype])
    x = x.astype(np.result_type(real_type, np.complex64) if np.iscomplexobj(x) else real_type)
    g = rlx.Graph(kind)
    leaf = g.input("x", x.shape, x.dtype)
    g.set_outputs(getattr(leaf, kind)())
    compiled = rlx.Session("cpu", threads=args.threads).compile(g)
    peer = getattr(scipy.fft, kind)
    wide = x.astype(np.complex128 if np.iscomplexobj(x) else np.float64)
    _check(compiled.run_slots(x)[0], peer(wide), dtype, f"{kind} {dtype} {batch}x{n}")
    ours, theirs = _interleaved(
        lambda: compiled.run_slots(x), lambda: peer(x, workers=args.threads), args.rounds
    )
    ratio = statistics.median(theirs) / statistics.median(ours)
    return f"{statistics.median(ours) * 1e6:.1f} us, {ratio:.2f} ({min(theirs) / min(ours):.2f})"


def _check(found: Array, expected: Array, dtype: str, what: str) -> None:
    error = np.abs(found - expected).max() / np.abs(expected).max()
    limit = {"f32": 1e-5, "f64": 1e-12}[dtype]
    if not error < limit:
        raise SystemExit(f"{what}: off by {error:.1e} of the largest element, more than {limit}")


def _interleaved(
    a: Callable[[], object], b: Callable[[], object], rounds: int
) -> tuple[list[float], list[float]]:
    """Seconds a call of both, by rounds that take turns."""
    times: tuple[list[float], list[float]] = ([], [])
    counts = [max(1, int(ROUND_SECONDS / _seconds(f, 3))) for f in (a, b)]
    for _ in range(rounds):
        for f, count, out in zip((a, b), counts, times, strict=True):
            out.append(_seconds(f, count))
    return times


def _seconds(f: Callable[[], object], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        f()
    return (time.perf_counter() - start) / count
