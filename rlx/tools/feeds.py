"""Arrays for a graph that is run to be measured: the given ones, and random ones for the rest."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlx.errors import NameError, did_you_mean
from rlx.graph import Graph
from rlx.ops.cast import Cast
from rlx.ops.gather import Gather, ScatterAdd
from rlx.ops.movement import Expand, Reshape, Transpose
from rlx.ops.slicing import Slice
from rlx.ops.value import Value
from rlx.types import TensorType

__all__ = ["add_feed_arguments", "feeds", "index_limits", "random_array"]

Array = np.ndarray[Any, Any]

_SAME = (Cast, Expand, Reshape, Slice, Transpose)
"""Ops whose integers are those of their operand."""


def add_feed_arguments(p: argparse.ArgumentParser) -> None:
    """``--dim`` and ``--input``, which may be repeated."""
    p.add_argument(
        "--dim", action="append", default=[], type=_size, metavar="NAME=SIZE",
        help="the size of a symbolic dim",
    )  # fmt: skip
    p.add_argument(
        "--input", action="append", default=[], type=_array, metavar="NAME=FILE.npy",
        help="the array of an input or param; the others are random",
    )  # fmt: skip


def feeds(graph: Graph, given: Iterable[tuple[str, Array]]) -> dict[str, Array]:
    """An array for every input of a bound graph, and every param without a value.

    Floats are normal numbers, those of matrices so small that products keep their size. Integers
    are 0 or 1, but for indices of a gather, which are any that are in range.
    """
    arrays = dict(given)
    leaves = {str(v.name): v for v in (*graph.inputs, *graph.params)}
    for name in arrays:
        if name not in leaves:
            listed = ", ".join(map(repr, leaves)) or "none"
            hint = did_you_mean(name, leaves)
            raise NameError(f"--input: the graph has no {name!r}{hint}; it has {listed}")
    rng = np.random.default_rng(0)
    limits = index_limits(graph)
    for name, v in leaves.items():
        if name not in arrays and name not in graph.param_values:
            arrays[name] = random_array(v.type, limits.get(name, 2), rng)
    return arrays


def random_array(t: TensorType, limit: int, rng: np.random.Generator) -> Array:
    """An array of a static type; integers are below ``limit``."""
    shape, dt = t.static_shape, t.dtype
    if not dt.is_float:
        return rng.integers(0, min(limit, 2) if dt.name == "bool" else limit, shape).astype(
            dt.numpy
        )
    scale = 1 / math.sqrt(max(shape[-2], 1)) if len(shape) > 1 else 1.0
    return (rng.standard_normal(shape, np.float32) * np.float32(scale)).astype(dt.numpy)


def index_limits(graph: Graph) -> Mapping[str, int]:
    """The inputs and params that index something, with the size of what they index."""
    limits: dict[str, int] = {}
    for node in graph.nodes():
        if not isinstance(node, Gather | ScatterAdd):
            continue
        size = node.size[0] if isinstance(node, ScatterAdd) else node.table.shape[node.axis]
        source = _source(node.indices)
        if source.name is not None and isinstance(size, int):
            limits[source.name] = min(size, limits.get(source.name, size))
    return limits


def _source(v: Value) -> Value:
    while isinstance(v.op, _SAME):
        v = v.op.present[0]
    return v


def _size(text: str) -> tuple[str, int]:
    name, found, size = text.partition("=")
    if not found or not size.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=SIZE, such as batch=8")
    return name, int(size)


def _array(text: str) -> tuple[str, Array]:
    name, found, path = text.partition("=")
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FILE.npy")
    try:
        array = np.load(Path(path), allow_pickle=False)
    except (OSError, ValueError) as e:
        raise argparse.ArgumentTypeError(f"{path}: {e}") from None
    if not isinstance(array, np.ndarray):
        raise argparse.ArgumentTypeError(f"{path} holds several arrays; give a .npy file")
    return name, array
