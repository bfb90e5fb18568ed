"""Random arrays for a graph that is run to be measured."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from rlx.errors import ShapeError
from rlx.ir.graph import Graph, sizes_of, symbols_of
from rlx.ir.value import Value
from rlx.ops.indexing.along import Position
from rlx.ops.indexing.gather import Gather
from rlx.ops.indexing.scatter import Scatter, ScatterAdd
from rlx.ops.movement.movement import Expand, Reshape, Transpose
from rlx.ops.movement.slicing import Slice
from rlx.ops.pointwise.cast import Cast
from rlx.types import TensorType

__all__ = ["index_limits", "random_arrays"]

Array = np.ndarray[Any, Any]

_SAME = (Cast, Expand, Reshape, Slice, Transpose)
"""Ops whose integers are those of their operand."""


def random_arrays(
    graph: Graph,
    given: Mapping[str, Array] | None = None,
    dims: Mapping[str, int] | None = None,
    carried: Collection[str] = (),
) -> dict[str, Array]:
    """An array for every input and param of a graph that is not ``given``, has no value and is not
    ``carried``. Symbolic dims have the sizes of what is given, or else those of ``dims``;
    ShapeError for one that has no size.

    Floats are normal numbers, those of matrices so small that products keep their size. Integers
    are 0 or 1, but for indices, which are any that are in range.
    """
    rng = np.random.default_rng(0)
    limits = index_limits(graph)
    leaves = {str(v.name): v.type for v in (*graph.inputs, *graph.params)}
    given = given or {}
    sizes = sizes_of((n, leaves[n], a.shape) for n, a in given.items() if n in leaves)
    sizes = {**(dims or {}), **sizes}
    there = {*given, *graph.param_values, *carried}
    wanted = {name: t for name, t in leaves.items() if name not in there}
    unknown = sorted({s.name for s in symbols_of(wanted.values())} - {*sizes})
    if unknown:
        listed = " ".join(f"--dim {name}=SIZE" for name in unknown)
        named = ", ".join(unknown)
        raise ShapeError(f"random arrays have dims without a size: {named}; give {listed}")
    return {n: _random(t.bind(sizes), limits.get(n, 2), rng) for n, t in wanted.items()}


def _random(t: TensorType, limit: int, rng: np.random.Generator) -> Array:
    shape, dt = t.static_shape, t.dtype
    if dt.is_int or dt.kind == "bool":
        most = {"bool": 2, "i8": 1 << 7, "u8": 1 << 8}.get(dt.name, limit)
        return rng.integers(0, min(limit, most), shape).astype(dt.numpy)
    scale = 1 / math.sqrt(max(shape[-2], 1)) if len(shape) > 1 else 1.0
    a = rng.standard_normal(shape, np.float32) * np.float32(scale)
    if dt.is_complex:
        a = a + 1j * rng.standard_normal(shape) * scale
    return np.asarray(a).astype(dt.numpy)


def index_limits(graph: Graph) -> Mapping[str, int]:
    """The inputs and params that index something, with the size of what they index."""
    limits: dict[str, int] = {}
    for node in graph.nodes():
        if isinstance(node, Gather):
            size = node.table.shape[node.axis]
        elif isinstance(node, Scatter | ScatterAdd):
            size = node.out.shape[node.axis]
        elif isinstance(node, Position):
            size = node.size[0]
        else:
            continue
        source = _source(node.indices)
        if source.name is not None and isinstance(size, int):
            limits[source.name] = min(size, limits.get(source.name, size))
    return limits


def _source(v: Value) -> Value:
    while isinstance(v.op, _SAME):
        v = v.op.present[0]
    return v
