"""A graph over a new axis: what it gives for every example of a batch, as one computation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlx.base.dims import Dim, SymDim, as_dim
from rlx.errors import GraphError, NameError, a_type, among
from rlx.ir.builders import located
from rlx.ir.clone import leaves_of
from rlx.ir.graph import Graph
from rlx.ir.value import Value
from rlx.ops import rules
from rlx.ops.movement.movement import axis_of
from rlx.types import TensorType

__all__ = ["vmap"]

Axes = int | Sequence[int | None]


@located
def vmap(
    graph: Graph,
    in_axes: Mapping[str, int] | Iterable[str] | str,
    axis_size: int | str | SymDim,
    out_axes: Axes = 0,
    axis_name: str = "",
) -> Graph:
    """The graph for ``axis_size`` examples at once (a number, or the name of a dim).

    ``in_axes`` says which inputs and params differ from example to example, and at which axis of
    theirs the examples lie; names alone stand for axis 0. The others are the same for all.
    ``out_axes`` is the axis of the examples in every output, or an axis or None for each: None
    takes an output without it, which must then be the same for all. Negative axes count from the
    end of the shape with the new axis.

    With ``axis_name`` the examples are the ranks along the axis of that name of a mesh: collectives
    along it are computed, so that one machine runs what many would. Then ``in_axes`` may be empty.

    NameError for an unknown name, ShapeError for an axis out of range, GraphError for a param that
    has a value already, and for an output that differs where None is asked for; UnsupportedError
    for an op from outside that has no batching rule.
    """
    if not isinstance(graph, Graph):
        raise GraphError(f"vmap takes a Graph, found {a_type(graph)}")
    graph.nodes()  # a graph without outputs is refused
    size = as_dim(axis_size)
    places = _places(graph, in_axes)
    if not places and not axis_name:
        raise GraphError("vmap: in_axes names nothing that differs from example to example")
    outs = _out_axes(graph, out_axes)

    def wide(v: Value) -> TensorType:
        if v not in places:
            return v.type
        shape = list(v.shape)
        shape.insert(places[v], size)
        return v.type.with_shape(tuple(shape))

    made, env = leaves_of(graph, wide)
    made.name = f"{graph.name}_vmap"
    leaves = {
        v: (_moved(env[v], places[v], 0), True) if v in places else (env[v], False) for v in env
    }
    with rules.named_axis(axis_name, size):
        pairs = rules.batch(graph.outputs, leaves)
    made.set_outputs(
        [_placed(v, has, axis, size) for (v, has), axis in zip(pairs, outs, strict=True)]
    )
    made.output_names = graph.output_names
    return made


def _places(graph: Graph, in_axes: Any) -> dict[Value, int]:
    """The axis of the examples in each leaf that has one."""
    if isinstance(in_axes, Mapping):
        given = dict(in_axes)
    elif isinstance(in_axes, Iterable):
        given = dict.fromkeys([in_axes] if isinstance(in_axes, str) else in_axes, 0)
    else:
        kind = a_type(in_axes)
        raise GraphError(f"vmap: in_axes is {kind}, expected names, each with its axis")
    named = {str(v.name): v for v in (*graph.inputs, *graph.params)}
    found: dict[Value, int] = {}
    for name, axis in given.items():
        if name not in named:
            others = among(name, named)
            raise NameError(f"vmap: no input or param is called {name!r}{others}")
        if axis is None:
            continue
        if name in graph.param_values:
            raise GraphError(
                f"vmap: the param {name!r} has a value, which has no axis for the examples; declare"
                " it without one and set it for all of them (set_param)",
                graph.leaf_location(name),
            )
        v = named[name]
        found[v] = axis_of(axis, v.rank + 1, f"vmap: in_axes of {name!r}")
    return found


def _out_axes(graph: Graph, out_axes: Any) -> list[int | None]:
    count = len(graph.outputs)
    if not isinstance(out_axes, int | Iterable):
        raise GraphError(f"vmap: out_axes is {out_axes!r}, expected an axis, or one an output")
    given: list[int | None] = [out_axes] * count if isinstance(out_axes, int) else list(out_axes)
    if len(given) != count:
        raise GraphError(f"vmap: out_axes has {len(given)} axes for {count} outputs")
    return [
        None if axis is None else axis_of(axis, v.rank + 1, f"vmap: out_axes of output {i}")
        for i, (axis, v) in enumerate(zip(given, graph.outputs, strict=True))
    ]


def _placed(v: Value, has: bool, axis: int | None, size: Dim) -> Value:
    """An output with the axis of the examples where it is wanted."""
    if axis is None:
        if has:
            raise GraphError(
                f"vmap: {v!r} differs from example to example, so its out_axes cannot be None",
                v.op.location if v.op is not None else None,
            )
        return v
    return _moved(v if has else v.expand((size, *v.shape)), 0, axis)


def _moved(v: Value, source: int, to: int) -> Value:
    """The value with one axis elsewhere."""
    if source == to:
        return v
    order = [i for i in range(v.rank) if i != source]
    order.insert(to, source)
    return v.transpose(order)
