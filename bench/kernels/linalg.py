"""Linear algebra in f64 against numpy.linalg (LAPACK), in turn in one process.

    python -m bench linalg --threads 1 --rounds 5

Prints microseconds a call of RLX, inputs bound and results allocated, and of NumPy, and NumPy's
time over RLX's, each in its best round: above 1, RLX is faster. A matrix is the work of one thread
in RLX; a batch is shared among them.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from typing import Any

SIZES = ((1, 4), (1, 32), (1, 128), (1, 512), (4096, 4), (64, 32))
"""Batch and order of the matrices."""

Run = Callable[[], object]


def functions() -> dict[str, tuple[Callable[..., Any], Callable[..., Any]]]:
    """By name: what builds the graph, and what NumPy computes. The operands are a general and a
    symmetric positive definite matrix."""
    import numpy as np

    from rlx import linalg as ours

    theirs = np.linalg
    return {
        "cholesky": (lambda a, s: ours.cholesky(s, False), lambda a, s: theirs.cholesky(s)),
        "solve": (ours.solve, theirs.solve),
        "inv": (lambda a, s: ours.inv(a), lambda a, s: theirs.inv(a)),
        "slogdet": (lambda a, s: ours.slogdet(a), lambda a, s: theirs.slogdet(a)),
        "qr": (lambda a, s: ours.qr(a), lambda a, s: theirs.qr(a)),
        "eigh": (lambda a, s: ours.eigh(s, False), lambda a, s: theirs.eigh(s)),
        "eigvalsh": (lambda a, s: ours.eigvalsh(s, False), lambda a, s: theirs.eigvalsh(s)),
        "svd": (lambda a, s: ours.svd(a), lambda a, s: theirs.svd(a)),
        "svdvals": (lambda a, s: ours.svdvals(a), lambda a, s: theirs.svd(a, compute_uv=False)),
    }


def best_of(runs: list[Run], seconds: float, rounds: int) -> list[float]:
    """Seconds a call in the best round, the runs in turn."""
    best = [float("inf")] * len(runs)
    for _ in range(rounds):
        for i, run in enumerate(runs):
            count, start = 0, time.perf_counter()
            while not count or time.perf_counter() - start < seconds:
                run()
                count += 1
            best[i] = min(best[i], (time.perf_counter() - start) / count)
    return best


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser("bench linalg", description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.02, help="a run's share of a round")
    parser.add_argument("--only", help="functions, with commas between them")
    args = parser.parse_args(argv)
    # Read when NumPy is loaded, which is after this.
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[variable] = str(args.threads)
    import numpy as np

    import rlx

    chosen = args.only.split(",") if args.only else list(functions())
    print(f"{'':>10}  {'batch, n':>9}  {'RLX us':>10}  {'NumPy us':>10}  {'ratio':>6}")
    session = rlx.Session("cpu", threads=args.threads)
    for name in chosen:
        build, judge = functions()[name]
        for batch, n in SIZES:
            a = np.random.default_rng(0).standard_normal((batch, n, n))
            s = a @ np.swapaxes(a, 1, 2) + n * np.eye(n)
            g = rlx.Graph(name)
            out = build(g.input("a", a.shape, "f64"), g.input("s", s.shape, "f64"))
            g.set_outputs(list(out) if isinstance(out, tuple) else [out])
            compiled, feeds = session.compile(g), {"a": a, "s": s}
            compiled.run(feeds)
            runs = [lambda c=compiled, f=feeds: c.run(f), lambda j=judge, a=a, s=s: j(a, s)]
            mine, theirs = best_of(runs, args.seconds, args.rounds)
            where = f"{batch}, {n}"
            print(
                f"{name:>10}  {where:>9}  {mine * 1e6:10.1f}  {theirs * 1e6:10.1f}"
                f"  {theirs / mine:6.2f}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
