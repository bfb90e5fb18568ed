"""The reference interpreter: runs a graph from the numpy meaning of each op.

It is slow and plain on purpose: every other way of running a graph is tested against it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlx.errors import GraphError, NameError, OutOfMemoryError, RlxError, ShapeError, a_type
from rlx.ir.attrs import carried_out, check_unmasked, unread
from rlx.ir.builders import located
from rlx.ir.graph import Graph, sizes_of
from rlx.ir.location import caller
from rlx.ir.op import Op
from rlx.ir.replay import replay
from rlx.ir.results import by_name
from rlx.ir.value import Value

__all__ = ["evaluate", "interpret"]

Array = np.ndarray[Any, Any]
Call = Callable[[Graph, Sequence[Array]], list[Array]]


@located
def interpret(
    graph: Graph, feeds: Mapping[str, Any], params: Mapping[str, Any] | None = None
) -> list[Array]:
    """Run ``graph`` on named arrays and return its outputs, in order and by their names.

    ``params`` add to, or replace, the values that the graph's params carry. Arrays are cast to the
    element types of the graph. NameError for one that is missing or unknown, ShapeError and
    DTypeError for one that does not fit.
    """
    if not isinstance(graph, Graph):
        raise GraphError(f"interpret takes a Graph, found {a_type(graph)}", caller())
    given = {**graph.param_values, **(params or {}), **feeds}
    for name in given:
        graph.leaf_location(name)
    arrays = {v: _leaf(v, given) for v in (*graph.inputs, *graph.params)}
    sizes = sizes_of((str(v.name), v.type, a.shape) for v, a in arrays.items())
    if graph.symbols:
        graph = graph.bind(sizes)
    env = dict(zip((*graph.inputs, *graph.params), arrays.values(), strict=True))
    replay(graph.nodes(), env, evaluate)
    return by_name([env[v] for v in graph.outputs], graph.output_names)


def _leaf(v: Value, given: Mapping[str, Any]) -> Array:
    if v.name is None or v.name not in given:
        raise NameError(f"nothing was given for {v.name!r} ({v.type})", caller())
    located(check_unmasked)(given[v.name], repr(v.name))
    try:
        a = np.asarray(carried_out(given[v.name]), dtype=v.dtype.numpy)
    except RlxError:
        raise
    except Exception as e:  # also what an __array__ of somebody else's raises
        raise unread(e, repr(v.name), f"is {v.dtype}, found no such array", caller()) from None
    if v.type.is_static and a.shape != v.shape:
        if a.size != v.type.size or a.ndim != 1:
            found = f"found {list(a.shape)}"
            raise ShapeError(f"{v.name!r} has shape {list(v.shape)}, {found}", caller())
        a = a.reshape(v.type.static_shape)
    return a


def evaluate(op: Op, arrays: list[Array | None], call: Call | None = None) -> list[Array]:
    """The results of one node on arrays; checks that they are what ``infer`` promised. ``call``
    runs a body of a control op, in place of ``interpret``."""
    try:
        with np.errstate(all="ignore"):
            if hasattr(op, "run"):
                out = op.run(call or _call, *arrays)
            else:
                out = op.reference(*arrays) if hasattr(op, "reference") else _expanded(op, arrays)
    except OutOfMemoryError:
        raise  # an op of a body says more
    except MemoryError:
        types = [v.type for v in op.results]
        taken = " and ".join(f"{t} ({t.nbytes} bytes)" if t.is_static else str(t) for t in types)
        raise OutOfMemoryError(
            f"{op.name}: NumPy has no memory for its result {taken}, or on the way there; make its"
            " operands smaller",
            op.location,
        ) from None
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
    g.set_outputs(list(op.with_operands(leaves).expansion()))
    feeds = {
        v.name: a
        for v, a in zip(leaves, arrays, strict=True)
        if v is not None and v.name is not None
    }
    return tuple(interpret(g, feeds))
