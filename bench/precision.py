"""Products in fewer bits: speed, weights read a second, and accuracy, per mode.

    python -m bench precision --threads 2 --rows 1 8 128

The error is the largest of a product's elements against f64 on the unrounded operands, over the
root mean square of the result; rounding the operands to the mode's types is part of it. ``torch``
is its linear layer on bf16 operands, where it is installed.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.kernels.gemm import Run, measure

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


def quantised(a: Array, axis: int | None) -> tuple[Array, Array]:
    """Symmetric 8-bit integers, and their scale."""
    scale = np.abs(a).max(axis=axis) / np.float32(127)
    return np.rint(a / scale).astype(np.int8), np.asarray(scale, np.float32)


def runner(mode: str, a: Array, b: Array) -> tuple[Run, Callable[[], Array]]:
    """A run of one product, and what gives its result."""
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
    return lambda: executable.run_into([x], [c]), lambda: f.run({"x": x})[0]


def torch_bf16(a: Array, b: Array, threads: int) -> Run:
    """PyTorch's linear layer on bf16."""
    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    x, w = (torch.from_numpy(v.copy()).bfloat16() for v in (a, b.T))
    return lambda: torch.nn.functional.linear(x, w)


def _peers(a: Array, b: Array, threads: int) -> dict[str, Run]:
    try:
        return {"torch bf16": torch_bf16(a, b, threads)}
    except ImportError:
        return {}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.01, help="a run's share of a round")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 4, 8, 128])
    parser.add_argument("--shape", type=int, nargs=2, default=[4096, 4096], metavar=("K", "N"))
    parser.add_argument("--modes", nargs="+", choices=list(MODES), default=list(MODES))
    args = parser.parse_args(argv)
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RLX_NUM_THREADS"):
        os.environ.setdefault(variable, str(args.threads))
    k, n = args.shape
    rng = np.random.default_rng(0)
    b = rng.standard_normal((k, n), np.float32) / np.float32(k**0.5)
    head = f"{'M':>5} {'mode':>13} {'min us':>9} {'median':>9} {'GF/s':>8} {'GB/s of w':>10}"
    print(f"K = {k}, N = {n}, {args.threads} threads\n{head} {'over f32':>9} {'error':>9}")
    for m in args.rows:
        a = rng.standard_normal((m, k), np.float32)
        exact = a.astype(np.float64) @ b.astype(np.float64)
        made = {mode: runner(mode, a, b) for mode in args.modes}
        runs = {mode: run for mode, (run, _) in made.items()} | _peers(a, b, args.threads)
        times = measure(runs, args.seconds, args.rounds)
        first = min(times[args.modes[0]])
        for mode, found in times.items():
            best, median = min(found), sorted(found)[len(found) // 2]
            width = {"f32": 4, "i8": 1}.get(MODES.get(mode, ("", "bf16"))[1], 2)
            line = f"{m:>5} {mode:>13} {best * 1e6:9.1f} {median * 1e6:9.1f}"
            line += f" {2e-9 * m * k * n / best:8.1f} {1e-9 * k * n * width / best:10.1f}"
            line += f" {first / best:9.2f}"
            if mode in made:
                error = np.abs(made[mode][1]() - exact).max() / np.sqrt((exact**2).mean())
                line += f" {error:9.1e}"
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
