"""Advice for a model that does not take all sizes of a dim, while its inputs say any."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice, product

import numpy as np

from rlx.base.dims import Dim, SymDim, bind_dim
from rlx.errors import RlxError
from rlx.frontends.onnx.edges import Edge, is_symbolic
from rlx.frontends.onnx.node import Node, Row
from rlx.ir.graph import Graph, inner_graph

__all__ = ["size_advice"]

SMALL = 1 << 10
"""The most elements of a literal that the node is tried on; a larger one is just its type."""
TRIES = 64


MULTIPLES = (2, 4, 8, 16, 32, 64)


def size_advice(n: Node, row: Row) -> str:
    """What to say to a node whose shapes do not fit: multiples of which dims of its inputs are to
    be, as where an image is halved and doubled again, or else a size of one at which they do, among
    the sizes that it meets there; empty if there is neither."""
    names, sizes = _met(n)
    for by in MULTIPLES if names else ():
        found = {name: by * SymDim.symbol(f"{name}_by_{by}") for name in names}
        if not _fits(n, row, found):
            continue
        for name in names:  # those that matter
            fewer = {other: d for other, d in found.items() if other != name}
            found = fewer if fewer and _fits(n, row, fewer) else found
        dims = ", ".join(f"{name!r}: {by} * rlx.Dim('{name}_by_{by}')" for name in found)
        what = "is a multiple" if len(found) == 1 else "are multiples"
        listed = " and ".join(found)
        return f"; it fits where {listed} {what} of {by}: give from_onnx dims={{{dims}}}"
    for name, size in islice(product(names, sizes), TRIES):
        if _fits(n, row, {name: size}):
            return (
                f"; it fits where {name} is {size}. If the model was exported for that size alone,"
                f" give from_onnx dims={{{name!r}: {size}}}"
            )
    return ""


def _fits(n: Node, row: Row, sizes: Mapping[str, Dim]) -> bool:
    """Whether a node takes its inputs with dims bound."""
    probe = inner_graph("probe")
    edges = [None if e is None else _bound(e, probe, i, sizes) for i, e in enumerate(n.inputs)]
    try:
        return row(n.on(edges)) is not NotImplemented
    except (RlxError, ArithmeticError, LookupError, TypeError, ValueError):
        return False


def _met(n: Node) -> tuple[list[str], list[int]]:
    """The symbols and the sizes of the inputs."""
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
    return list(names), list(sizes)


def _bound(e: Edge, probe: Graph, i: int, sizes: Mapping[str, Dim]) -> Edge:
    """The input of a node with dims bound; without what computes it."""
    if e.known is None or e.known.size > SMALL:
        t = e.type.bind(sizes)
        return Edge.of(probe.input(f"x{i}", t.shape, t.dtype))
    if not is_symbolic(e.known):
        return Edge.literal(e.known)
    out = np.empty(e.known.size, object)
    out[:] = [bind_dim(d, sizes) for d in e.known.reshape(-1).tolist()]
    return Edge.literal(out.reshape(e.known.shape))
