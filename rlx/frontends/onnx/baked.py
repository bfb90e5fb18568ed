"""Advice for a model that was exported at one size of a dim, while its inputs say any size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlx.base.dims import SymDim, bind_dim
from rlx.errors import RlxError
from rlx.frontends.onnx.edges import Edge, is_symbolic
from rlx.frontends.onnx.node import Node, Row
from rlx.ir.graph import Graph, inner_graph

__all__ = ["size_advice"]

SMALL = 1 << 10
"""The most elements of a literal that the node is tried on; a larger one is just its type."""
TRIES = 64


def size_advice(n: Node, row: Row) -> str:
    """What to say to a node whose shapes do not fit: a size of a dim of its inputs at which they
    do, among the sizes that it meets there; empty if there is none."""
    for _, (name, size) in zip(range(TRIES), _candidates(n), strict=False):
        probe = inner_graph("probe")
        edges = [None if e is None else _bound(e, probe, i, name, size)
                 for i, e in enumerate(n.inputs)]  # fmt: skip
        try:
            found = row(n.on(edges))
        except (RlxError, ArithmeticError, LookupError, TypeError, ValueError):
            continue
        if found is not NotImplemented:
            return (
                f"; it fits where {name} is {size}. If the model was exported for that size alone,"
                f" give from_onnx dims={{{name!r}: {size}}}"
            )
    return ""


def _candidates(n: Node) -> Iterator[tuple[str, int]]:
    """Symbols of the inputs, each with the sizes of other dims."""
    names: dict[str, None] = {}
    sizes: dict[int, None] = {}
    for e in n.inputs:
        if e is None:
            continue
        known = [] if e.known is None or e.known.size > SMALL else e.known.reshape(-1).tolist()
        for d in (*e.shape, *known):
            if isinstance(d, SymDim):
                names |= dict.fromkeys(sorted(d.symbols))
            elif isinstance(d, int) and not isinstance(d, bool) and d > 1:
                sizes[d] = None
    return ((name, size) for name in names for size in sizes)


def _bound(e: Edge, probe: Graph, i: int, name: str, size: int) -> Edge:
    """The input of a node with a dim bound; without what computes it."""
    if e.known is None or e.known.size > SMALL:
        t = e.type.bind({name: size})
        return Edge.of(probe.input(f"x{i}", t.shape, t.dtype))
    if not is_symbolic(e.known):
        return Edge.literal(e.known)
    out = np.empty(e.known.size, object)
    out[:] = [bind_dim(d, {name: size}) for d in e.known.reshape(-1).tolist()]
    return Edge.literal(out.reshape(e.known.shape))
