"""A graph compiled in every way, held against the reference interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx
from rlx.ir.interpreter import interpret
from rlx.types import TensorType
from support.samples import array_of
from support.tolerances import assert_close

__all__ = ["agrees", "arrays"]

Array = np.ndarray[Any, Any]


def arrays(g: rlx.Graph, seed: int = 0) -> dict[str, Array]:
    """An array for every input and param."""
    rng = np.random.default_rng(seed)
    types = {str(v.name): v.type for v in (*g.inputs, *g.params)}
    return {n: array_of(TensorType.of(t.shape, t.dtype), "normal", rng) for n, t in types.items()}


def agrees(g: rlx.Graph, given: dict[str, Array] | None = None) -> list[Array]:
    """Check native, unfused and common runs of a graph; returns the native results."""
    given = arrays(g) if given is None else given
    feeds = {str(v.name): given[str(v.name)] for v in g.inputs}
    params = {str(v.name): given[str(v.name)] for v in g.params}
    expected = interpret(g, feeds, params)
    results = []
    for options in ({"dispatch": "common"}, {"fuse": False}, {}):
        f = rlx.Session("cpu").compile(g, **options)
        for name, a in params.items():
            f.set_param(name, a)
        results = f.run(feeds)
        for found, e in zip(results, expected, strict=True):
            assert_close(found, e)
    return results
