"""Each collective as a graph of one rank, and what it is of the arrays of all ranks in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import rlx
from rlx.ir.value import Value
from rlx.ops.collective.exchange import AxisIndex

__all__ = ["CASES", "RANKS", "Array", "Build", "arrays", "graph", "shift"]

RANKS = (2, 3, 4, 8)
LENGTH = 24
"""Of every axis: each number of ranks divides it."""

Array = np.ndarray[Any, Any]
Build = Callable[[Value, Any], Value]


def shift(n: int) -> list[tuple[int, int]]:
    """The pairs that move what each rank has to the next one."""
    return [(i, i + 1) for i in range(n - 1)]


def _everywhere(x: Array, one: Array) -> Array:
    return np.stack([one] * len(x))


def _cut(x: Array, axis: int) -> Array:
    """The blocks along an axis of what each rank has: [rank, block, ...]."""
    return np.stack([np.stack(np.split(v, len(x), axis)) for v in x])


def _exchanged(x: Array, split: int, concat: int) -> Array:
    blocks = _cut(x, split).swapaxes(0, 1)
    return np.stack([np.concatenate(list(to), concat) for to in blocks])


CASES: dict[str, tuple[Build, Callable[[Array], Array]]] = {
    "sum": (lambda x, d: x.all_reduce(d), lambda x: _everywhere(x, x.sum(0, dtype=x.dtype))),
    "prod": (
        lambda x, d: x.all_reduce(d, "prod"),
        lambda x: _everywhere(x, x.prod(0, dtype=x.dtype)),
    ),
    "max": (lambda x, d: x.all_reduce(d, "max"), lambda x: _everywhere(x, x.max(0))),
    "min": (lambda x, d: x.all_reduce(d, "min"), lambda x: _everywhere(x, x.min(0))),
    "gather": (lambda x, d: x.all_gather(d), lambda x: _everywhere(x, np.concatenate(list(x), 0))),
    "gather along 1": (
        lambda x, d: x.all_gather(d, -1),
        lambda x: _everywhere(x, np.concatenate(list(x), 1)),
    ),
    "scatter": (
        lambda x, d: x.reduce_scatter(d),
        lambda x: np.stack(np.split(x.sum(0, dtype=x.dtype), len(x), 0)),
    ),
    "scatter along 1": (
        lambda x, d: x.reduce_scatter(d, -1),
        lambda x: np.stack(np.split(x.sum(0, dtype=x.dtype), len(x), 1)),
    ),
    "exchange": (lambda x, d: x.all_to_all(d), lambda x: _exchanged(x, 0, 0)),
    "exchange 0 to 1": (lambda x, d: x.all_to_all(d, 0, 1), lambda x: _exchanged(x, 0, 1)),
    "exchange 1 to 0": (lambda x, d: x.all_to_all(d, 1, 0), lambda x: _exchanged(x, 1, 0)),
    "shift": (
        lambda x, d: x.collective_permute(d, shift(d.ranks)),
        lambda x: np.concatenate([np.zeros_like(x[:1]), x[:-1]]),
    ),
    "broadcast": (lambda x, d: x.collective_broadcast(d, 1), lambda x: _everywhere(x, x[1])),
    "index": (
        lambda x, d: AxisIndex.build(d).cast(x.dtype).expand(x.shape),
        lambda x: np.stack([np.full_like(v, n) for n, v in enumerate(x)]),
    ),
}


def arrays(n: int, dtype: Any = np.float32) -> Array:
    """What each of so many ranks has: small numbers, which sums and products of a few keep exact
    where ``dtype`` is wide enough."""
    rng = np.random.default_rng(n)
    return rng.integers(0, 4, (n, LENGTH, LENGTH)).astype(dtype)


def graph(build: Build, n: int, dtype: str = "f32") -> rlx.Graph:
    """The graph of one of so many ranks along ``data``."""
    g = rlx.Graph("rank")
    g.set_outputs(build(g.input("x", [LENGTH, LENGTH], dtype), rlx.Mesh(data=n)["data"]))
    return g
