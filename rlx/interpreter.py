"""The reference interpreter: runs a graph from the numpy meaning of each op.

It is slow and plain on purpose: every other way of running a graph is tested against it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlx.errors import DTypeError, GraphError, NameError, RlxError, ShapeError
from rlx.graph import Graph, sizes_of
from rlx.ops.attrs import check_unmasked
from rlx.ops.base import Op
from rlx.ops.builders import located
from rlx.ops.location import caller
from rlx.ops.value import Value

__all__ = ["evaluate", "interpret"]

Array = np.ndarray[Any, Any]


def interpret(
    graph: Graph, feeds: Mapping[str, Any], params: Mapping[str, Any] | None = None
) -> list[Array]:
    """Run ``graph`` on named arrays and return its outputs.

    ``params`` add to, or replace, the values that the graph's params carry. Arrays are cast to the
    element types of the graph. NameError for one that is missing or unknown, ShapeError and
    DTypeError for one that does not fit.
    """
    if not isinstance(graph, Graph):
        raise GraphError(f"interpret takes a Graph, found a {type(graph).__name__}", caller())
    given = {**graph.param_values, **(params or {}), **feeds}
    for name in given:
        graph.leaf_location(name)
    arrays = {v: _leaf(v, given) for v in (*graph.inputs, *graph.params)}
    sizes = sizes_of((str(v.name), v.type, a.shape) for v, a in arrays.items())
    if graph.symbols:
        graph = graph.bind(sizes)
    env = dict(zip((*graph.inputs, *graph.params), arrays.values(), strict=True))
    for op in graph.nodes():
        env.update(
            zip(
                op.results,
                evaluate(op, [None if v is None else env[v] for v in op.operands]),
                strict=True,
            )
        )
    return [env[v] for v in graph.outputs]


def _leaf(v: Value, given: Mapping[str, Any]) -> Array:
    if v.name is None or v.name not in given:
        raise NameError(f"nothing was given for {v.name!r} ({v.type})", caller())
    located(check_unmasked)(given[v.name], repr(v.name))
    try:
        a = np.asarray(given[v.name], dtype=v.dtype.numpy)
    except (OverflowError, TypeError, ValueError) as e:
        raise DTypeError(f"{v.name!r} is {v.dtype}, found no such array: {e}", caller()) from None
    if v.type.is_static and a.shape != v.shape:
        if a.size != v.type.size or a.ndim != 1:
            found = f"found {list(a.shape)}"
            raise ShapeError(f"{v.name!r} has shape {list(v.shape)}, {found}", caller())
        a = a.reshape(v.type.static_shape)
    return a


def evaluate(op: Op, arrays: list[Array | None]) -> list[Array]:
    """The results of one node on arrays; checks that they are what ``infer`` promised."""
    with np.errstate(all="ignore"):
        if hasattr(op, "run"):
            out = op.run(_call, *arrays)
        else:
            out = op.reference(*arrays) if hasattr(op, "reference") else _expanded(op, arrays)
    many = list(out) if isinstance(out, tuple) else [out]
    results: list[Array] = []
    for v, given in zip(op.results, many, strict=True):
        a = np.asarray(given)
        if a.dtype != v.dtype.numpy or (v.type.is_static and a.shape != v.shape):
            raise RlxError(
                f"{op.name}: its reference gave {a.dtype}{list(a.shape)}, infer says {v.type}"
            )
        results.append(a)
    return results


def _call(body: Graph, arrays: Sequence[Array]) -> list[Array]:
    """The outputs of a body of a control op on its inputs by position."""
    return interpret(body, {str(v.name): a for v, a in zip(body.inputs, arrays, strict=True)})


def _expanded(op: Op, arrays: list[Array | None]) -> tuple[Array, ...]:
    """A composite without a reference of its own means what its expansion means."""
    g = Graph(op.name)
    leaves = [
        None if v is None else g.input(f"x{i}", v.shape, v.dtype) for i, v in enumerate(op.operands)
    ]
    out = op.with_operands(leaves).expand()
    g.set_outputs(list(out) if isinstance(out, tuple) else [out])
    feeds = {
        v.name: a
        for v, a in zip(leaves, arrays, strict=True)
        if v is not None and v.name is not None
    }
    return tuple(interpret(g, feeds))
