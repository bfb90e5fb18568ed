"""What each scheme of packed blocks loses, and how fast products by it are: a table.

    python -m bench schemes --weights MODEL/model.safetensors

The error is that of the file's matrices, the root mean square of the differences over that of the
weights; without a file it is of normal numbers. Speed is that of one thread with a weight of 14336
outputs and 4096 inputs and rows rounded to 8 bits, as a multiple of the same product with the
weight in f32: the least CPU time of some rounds, in each of which every scheme has its turn.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import rlx
from bench.case import Case, Tensor
from bench.families import blocks
from rlx.kernels.matmul.block_weights import DECODERS
from rlx.models.safetensors import SafeTensors
from rlx.quant import BlockScheme, dequantize, quantize, schemes

Array = np.ndarray[Any, Any]

SHAPE = (14336, 4096)
ROWS = (1, 4, 128)
INNER = 0.05
"""Seconds of a round's calls."""


def weights(path: str) -> Array:
    """Rows of 256 numbers of the matrices whose rows are whole blocks of every scheme."""
    if not path:
        return np.random.default_rng(0).standard_normal((4096, 256), np.float32)
    matrices = [a for a in SafeTensors(path).values() if a.ndim == 2 and a.dtype.kind == "f"]
    whole = [a for a in matrices if a.shape[1] % 256 == 0]
    return np.concatenate([a.reshape(-1, 256) for a in whole]).astype(np.float32)


def error(scheme: BlockScheme, x: Array) -> float:
    """Of weights in a scheme, relative."""
    y = dequantize(quantize(x, scheme), scheme, x.shape)
    squares = [float(np.sum(np.square(a, dtype=np.float64))) for a in (x - y, x)]
    return (squares[0] / squares[1]) ** 0.5


def calls(m: int) -> dict[str, Callable[[], Any]]:
    """A call of each scheme's product."""
    n, k = SHAPE
    case = Case(f"{m}", lambda: None, {"x": Tensor((m, k))}, tolerance=1)
    made: dict[str, Callable[[], Any]] = {}
    for scheme in (*DECODERS, "int8"):
        made[scheme] = blocks.ours(scheme, n, k, case, 1)
    g = rlx.Graph("f32")
    x = g.input("x", (m, k))
    g.set_outputs(x @ g.param("w", (k, n)))
    f = rlx.Session("cpu", threads=1).compile(g)
    f.set_param("w", np.random.default_rng(0).standard_normal((k, n), np.float32))
    rows = case.feeds()["x"]
    return {"f32": lambda: f.run_slots(rows), **made}


def times(m: int, rounds: int) -> dict[str, float]:
    """The least CPU time of a call, by scheme."""
    made, least = calls(m), dict[str, float]()
    for call in made.values():
        call()
    for _ in range(rounds):
        for name, call in made.items():
            count, start = 0, time.thread_time()
            while (spent := time.thread_time() - start) < INNER or not count:
                call()
                count += 1
            least[name] = min(least.get(name, np.inf), spent / count)
    return least


def table(x: Array, rounds: int) -> str:
    """The rows of the table as Markdown."""
    found = {m: times(m, rounds) for m in ROWS}
    heads = [f"{m} row{'s' * (m > 1)}" for m in ROWS]
    lines = [f"| scheme | bits | error | {' | '.join(heads)} |", "|---" * (3 + len(ROWS)) + "|"]
    for name in (*DECODERS, "int8"):
        scheme = schemes().get(name)
        bits = scheme.bits if isinstance(scheme, BlockScheme) else 8
        lost = error(scheme, x) if isinstance(scheme, BlockScheme) else per_row(x)
        speed = " | ".join(f"{found[m]['f32'] / found[m][name]:.1f}" for m in ROWS)
        lines.append(f"| {name} | {bits:.4g} | {lost:.3g} | {speed} |")
    return "\n".join(lines) + "\n"


def per_row(x: Array) -> float:
    """The error of int8 with a scale for each row."""
    d = np.abs(x).max(1, keepdims=True) / 127
    y = np.rint(x / d) * d
    return float(np.sqrt(np.mean((x - y) ** 2) / np.mean(x**2)))


def main(argv: Sequence[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser("python -m bench schemes")
    parser.add_argument("--weights", default="", metavar="FILE", help="a safetensors file")
    parser.add_argument("--rounds", type=int, default=8)
    args = parser.parse_args(argv)
    print(table(weights(args.weights), args.rounds))
    return 0
