"""Build a small graph, run it on the reference interpreter, and give back arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.ir.graph import Graph
from rlx.ir.interpreter import interpret

__all__ = ["call"]


def call(f: Callable[..., Any], *arrays: Any) -> Any:
    """``f`` on Values that stand for the arrays, evaluated: an array, or a list of them."""
    g = Graph("call")
    given = [np.asarray(a) for a in arrays]
    leaves = [g.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(given)]
    out = f(*leaves)
    many = isinstance(out, list | tuple)
    g.set_outputs(list(out) if many else [out])
    results = interpret(g, {f"x{i}": a for i, a in enumerate(given)})
    return results if many else results[0]
