"""Attention in f32 against torch's scaled_dot_product_attention, in turn in one process.

    python bench/kernels/attention.py --threads 2 --rounds 11

Prints GFLOP/s of RLX (a causal mask counts half), its GB/s of keys and values, and torch's time
over RLX's time, each in its best round: above 1, RLX is faster. ``--layout qkv`` reads the heads
from one product of [batch, tokens, heads, dim] rows, as a model does.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Run = Callable[[], object]


@dataclass(frozen=True)
class Case:
    batch: int
    heads: int
    key_heads: int
    queries: int
    keys: int
    dim: int
    causal: bool = False

    def arrays(self, layout: str) -> tuple[Array, Array, Array]:
        """q, k and v as [batch, heads, rows, dim]."""
        rng = np.random.default_rng(0)
        rows = max(self.queries, self.keys)
        counts = (self.heads, self.key_heads, self.key_heads)
        if layout == "qkv":
            product = rng.standard_normal((self.batch, rows, sum(counts), self.dim), np.float32)
            parts = np.split(product, np.cumsum(counts[:-1]), axis=2)
            whole = [x.swapaxes(1, 2) for x in parts]
        else:
            whole = [
                rng.standard_normal((self.batch, n, rows, self.dim), np.float32) for n in counts
            ]
        q, k, v = whole
        return q[:, :, : self.queries], k[:, :, : self.keys], v[:, :, : self.keys]


CASES = (
    Case(1, 12, 12, 16, 16, 32),
    Case(1, 12, 12, 128, 128, 32),
    Case(8, 12, 12, 128, 128, 32),
    Case(1, 12, 12, 384, 384, 64),
    Case(1, 12, 12, 512, 512, 64),
    Case(1, 32, 8, 1024, 1024, 128, causal=True),
    Case(1, 12, 12, 1, 512, 64),
    Case(1, 12, 12, 1, 4096, 64),
    Case(1, 32, 8, 1, 4096, 128),
)


def rlx_runner(case: Case, arrays: tuple[Array, Array, Array]) -> tuple[Run, Array]:
    """The kernel on views of q, k and v, run by the native thread pool."""
    from rlx.kernels import attention
    from rlx.runtime import _native
    from rlx.targets.cpu.emit import compile_kernels
    from rlx.targets.cpu.features import detect
    from rlx.targets.cpu.target import kernel_target

    out = np.empty((case.batch, case.queries, case.heads, case.dim), np.float32).swapaxes(1, 2)
    strides = [attention.Strides(*(s // 4 for s in x.strides[:3])) for x in (*arrays, out)]
    sizes = attention.AttentionSizes(
        case.batch, case.heads, case.key_heads, case.queries, case.keys, case.dim,
        case.dim**-0.5, *strides,
    )  # fmt: skip
    features = detect()
    target = kernel_target(features)
    config = attention.AttentionConfig(mask="causal" if case.causal else "none")
    config = replace(config, decode=attention.decodes(config, target, sizes))
    kernel = attention.emit("attention", config, target)
    code = _native.Object(compile_kernels([kernel], features))
    launch = attention.launch(config, target, sizes)
    flat = [spanned(x) for x in (*arrays, out)]
    first = _native.BASE_FIRST_PARAM
    step = (
        "launch", code.symbol("attention"), launch.range, launch.grain, launch.scratch,
        tuple((first + i, 0) for i in range(4)), launch.sizes,
    )  # fmt: skip
    program = _native.Program(
        objects=[code],
        inputs=[(f"in{i}", "f32", x.shape) for i, x in enumerate(flat[:3])],
        outputs=[("out", "f32", flat[3].shape)],
        main=[step],
    )
    return lambda: program.run_into(flat[:3], flat[3:]), out


def spanned(x: Array) -> Array:
    """The memory from the first to the last element of a view, as one flat array."""
    count = 1 + sum((n - 1) * s // x.itemsize for n, s in zip(x.shape, x.strides, strict=True))
    return np.lib.stride_tricks.as_strided(x, (count,), (x.itemsize,))


def torch_runner(case: Case, arrays: tuple[Array, Array, Array], threads: int) -> Run:
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    q, k, v = map(torch.from_numpy, arrays)
    grouped = case.heads != case.key_heads
    return lambda: F.scaled_dot_product_attention(
        q, k, v, is_causal=case.causal, enable_gqa=grouped
    )


def measure(runs: list[Run], seconds: float, rounds: int) -> list[float]:
    """Seconds a call in the best round, the runs in turn."""
    best = [float("inf")] * len(runs)
    for _ in range(rounds):
        for i, run in enumerate(runs):
            run()
            count, start = 0, time.perf_counter()
            while (spent := time.perf_counter() - start) < seconds:
                run()
                count += 1
            best[i] = min(best[i], spent / count)
    return best


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.02, help="a run's share of a round")
    parser.add_argument("--layout", choices=["heads", "qkv"], default="heads")
    args = parser.parse_args(argv)
    # Read when the libraries are loaded, which is after this.
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RLX_NUM_THREADS"):
        os.environ.setdefault(variable, str(args.threads))
    print(f"{'B, H, HK, Sq, Sk, D':>32}  {'us':>9}  {'GF/s':>6}  {'GB/s':>6}  {'torch':>6}  error")
    for case in CASES:
        arrays = case.arrays(args.layout)
        ours, out = rlx_runner(case, arrays)
        torch = torch_runner(case, arrays, args.threads)
        mine, theirs = measure([ours, torch], args.seconds, args.rounds)
        error = np.abs(out - torch().numpy()).max()  # type: ignore[attr-defined]
        products = case.batch * case.heads * case.queries * case.keys * case.dim
        speed = (2e-9 if case.causal else 4e-9) * products / mine
        read = 8e-9 * case.batch * case.key_heads * case.keys * case.dim / mine
        sizes = (case.batch, case.heads, case.key_heads, case.queries, case.keys, case.dim)
        name = ", ".join(map(str, sizes)) + (" causal" if case.causal else "")
        print(
            f"{name:>32}  {mine * 1e6:9.1f}  {speed:6.1f}  {read:6.1f}  {theirs / mine:6.2f}"
            f"  {error:.1e}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
