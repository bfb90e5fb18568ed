"""Copying a graph, or its leaves alone, with changed types: the way symbolic dims are bound."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlx.base.dims import Dim, bind_dim
from rlx.ir.attrs import DIMS, OFFSETS
from rlx.ir.graph import Binding, Graph
from rlx.ir.op import Op
from rlx.ir.replay import replay
from rlx.ir.value import Value
from rlx.types import TensorType

__all__ = ["leaves_of", "rebuild"]


def leaves_of(
    graph: Graph, type_of: Callable[[Value], TensorType]
) -> tuple[Graph, dict[Value, Value]]:
    """A graph without nodes that has the inputs and params of another, with their names, values and
    places in the user's code; and which of its leaves stands for which of the other's."""
    out = Graph(graph.name)
    out._names = dict(graph._names)
    out.param_values = dict(graph.param_values)
    env: dict[Value, Value] = {}
    for old, new in ((graph.inputs, out.inputs), (graph.params, out.params)):
        for v in old:
            env[v] = Value(type_of(v), graph=out, name=v.name)
            new.append(env[v])
    return out, env


def rebuild(
    graph: Graph, leaf: Callable[[TensorType], TensorType], dims: Mapping[str, Dim]
) -> Graph:
    """Build ``graph`` again on leaves of changed type; attributes that hold dims are bound."""
    out, env = leaves_of(graph, lambda v: leaf(v.type))

    def bound(op: Op, operands: Sequence[Value | None]) -> Sequence[Value]:
        fields = [a for a in op.attr_fields if a.kind in _BOUND]
        attrs = {a.name: _BOUND[a.kind](op.attrs[a.name], dims) for a in fields}
        return op.with_operands(operands, **attrs).results

    replay(graph.nodes(), env, bound)
    out.outputs, out.output_names = [env[v] for v in graph.outputs], graph.output_names
    out.origin = Binding.of(graph, dims)
    return out


def _body(body: Graph, dims: Mapping[str, Dim]) -> Graph:
    return rebuild(body, lambda t: t.bind(dims), dims)


_BOUND: dict[str, Callable[[Any, Mapping[str, Dim]], Any]] = {
    DIMS: lambda shape, dims: tuple(bind_dim(d, dims) for d in shape),
    OFFSETS: lambda shape, dims: tuple(bind_dim(d, dims) for d in shape),
    "Graph": _body,
}
"""How attributes that hold dims are bound, by kind."""
