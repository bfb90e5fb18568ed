"""Graphs as the input of a lit test: each function under ``@case`` prints one module of a split
input, named by the function."""

from collections.abc import Callable
from typing import Any

import rlx

__all__ = ["case", "layer"]

_printed: list[str] = []


def case(build: Callable[[rlx.Graph], Any]) -> None:
    """Print the HIR of the graph that ``build`` fills; it returns the output or outputs."""
    g = rlx.Graph(build.__name__)
    out = build(g)
    g.set_outputs(list(out) if isinstance(out, tuple) else [out])
    if _printed:
        print("// -----")
    _printed.append(g.name)
    print(g.to_mlir())


def layer(g: rlx.Graph, x: rlx.Value, features: int, name: str = "") -> tuple[rlx.Value, rlx.Value]:
    """A weight for ``x`` and a bias, as params."""
    rows = x.shape[-1]
    return g.param(f"w{name}", [rows, features]), g.param(f"b{name}", [features])
