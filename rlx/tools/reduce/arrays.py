"""The arrays that a graph is run on: random ones, and files of them."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from rlx.errors import GraphError
from rlx.ir.graph import Graph
from rlx.tools.arrays import many_arrays
from rlx.tools.reduce.change import Array
from rlx.types import TensorType

__all__ = ["arrays_for", "read_arrays", "write_arrays"]


def arrays_for(graph: Graph, seed: int = 0) -> dict[str, Array]:
    """Arrays for the inputs and params, the same for a seed: standard normal floats, and small
    integers that are indices nearly anywhere. A param that carries a value keeps it."""
    rng = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for v in (*graph.inputs, *graph.params):
        made = _random(v.type, rng)
        found[str(v.name)] = graph.param_values.get(str(v.name), made)
    return found


def _random(t: TensorType, rng: np.random.Generator) -> Array:
    shape = t.static_shape
    whole = t.dtype.is_int or t.dtype.kind == "bool"
    a = rng.integers(0, 2, shape) if whole else rng.standard_normal(shape)
    if t.dtype.is_complex:
        a = a + 1j * rng.standard_normal(shape)
    return np.asarray(a).astype(t.dtype.numpy)


def read_arrays(path: str | Path, graph: Graph) -> dict[str, Array]:
    """The arrays of a file that a graph has leaves for. GraphError for one that does not fit."""
    types = {str(v.name): v.type for v in (*graph.inputs, *graph.params)}
    found = many_arrays(str(path), {name: t.dtype.name for name, t in types.items()})
    for name, a in found.items():
        t = types[name]
        if a.dtype != t.dtype.numpy or a.shape != t.static_shape:
            raise GraphError(f"{path}: {name!r} is {a.dtype}{list(a.shape)}, expected {t}")
    return found


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write an .npz file. ``np.savez`` takes names as arguments, and has some of its own."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, a in arrays.items():
            with file.open(f"{name}.npy", "w") as entry:
                np.lib.format.write_array(entry, np.asarray(a), allow_pickle=False)
