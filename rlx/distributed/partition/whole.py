"""From a graph of whole tensors and the user's specs to the graph of a rank and its report."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import NamedTuple

from rlx.base.dims import Dim, SymDim, exact_quotient, is_known
from rlx.base.mesh import Mesh
from rlx.distributed.partition.build import Builder
from rlx.distributed.partition.combine import combined
from rlx.distributed.partition.expansion import decided
from rlx.distributed.partition.problem import Problem
from rlx.distributed.report import ShardingReport
from rlx.distributed.spec import Array, P, checked
from rlx.errors import GraphError, ShapeError, UnsupportedError, shown
from rlx.ir.clone import leaves_of, rebuild
from rlx.ir.graph import Graph, symbols_of, with_bodies
from rlx.ir.value import Value
from rlx.ops.collective.all_reduce import Vary
from rlx.types import TensorType

__all__ = ["Partitioned", "on_rank", "partitioned"]


class Partitioned(NamedTuple):
    """The graph of a rank, the specs of its leaves, the whole values of params that are cut, and
    what was put in."""

    graph: Graph
    specs: dict[str, P]
    values: dict[str, Array]
    report: ShardingReport


def partitioned(
    graph: Graph, mesh: Mesh, specs: Mapping[str, P], out: list[P], strict: bool
) -> Partitioned:
    """As ``rlx.shard`` without ``manual``."""
    own = checked(graph, mesh, specs)
    for op in with_bodies(graph.nodes()):
        if op.meets or isinstance(op, Vary):
            raise UnsupportedError(
                f"shard: the graph has a collective, {op.short}, so it is that of a rank; pass"
                " manual=True",
                op.location,
            )
    own = {name: _of_many(spec, mesh) for name, spec in own.items()}
    whole = _per_rank_symbols(graph, mesh, own)
    pinned = {v: own[str(v.name)] for v in (*whole.inputs, *whole.params) if v.name in own}
    for v, spec in pinned.items():
        _check_even(spec, mesh, v, repr(v.name))
    _check_outputs(whole, mesh, out)
    every = [_of_many(spec, mesh) for spec in out]
    problem = decided(whole, mesh, pinned, every, strict)
    found = _built(problem, whole)
    if strict:
        found.report.refuse_unasked()
    return found


def _of_many(spec: P, mesh: Mesh) -> P:
    """A spec without the axes along which there is one rank."""
    return P(*[a if a is not None and mesh[a].ranks > 1 else None for a in spec])


def _check_outputs(graph: Graph, mesh: Mesh, out: list[P]) -> None:
    if len(out) > len(graph.outputs):
        raise GraphError(f"shard: {len(out)} specs for {len(graph.outputs)} outputs")
    for i, (v, spec) in enumerate(zip(graph.outputs, out, strict=False)):
        if not isinstance(spec, P):
            raise GraphError(f"shard: the spec of output {i} is {shown(spec)}, expected a P")
        _check_even(spec, mesh, v, f"output {i}")


def _check_even(spec: P, mesh: Mesh, v: Value, what: str) -> None:
    for dim, axis, ranks in spec.cuts(mesh, v.rank, what):
        size = v.shape[dim]
        if is_known(size) and size % ranks:
            raise ShapeError(
                f"shard: dim {dim} of {what} has {size} elements, which are not cut in equal parts"
                f" for the {ranks} ranks along {axis!r}; pad it to a multiple"
            )


def _per_rank_symbols(graph: Graph, mesh: Mesh, specs: Mapping[str, P]) -> Graph:
    """The graph where a symbol that a spec cuts is the size on a rank: the whole is so many times
    that."""
    axes: dict[str, set[str]] = {}
    for v in (*graph.inputs, *graph.params):
        for dim, axis, _ in specs.get(str(v.name), P()).cuts(mesh, v.rank, repr(v.name)):
            size = v.shape[dim]
            if not isinstance(size, SymDim):
                continue
            if size.lone is None:
                raise ShapeError(
                    f"shard: dim {dim} of {v.name!r} is {size}; only a number or a name is cut over"
                    f" the ranks along {axis!r}"
                )
            axes.setdefault(size.lone.name, set()).add(axis)
    if not axes:
        return graph
    leaves = symbols_of(v.type for v in (*graph.inputs, *graph.params))
    dims: dict[str, Dim] = {}
    for name, cut in axes.items():
        ranks = prod(mesh[a].ranks for a in cut)
        s = next(s for s in leaves if s.name == name)
        most = None if s.most is None else s.most // ranks
        dims[name] = SymDim.symbol(name, -(-s.least // ranks), most) * ranks
    found = rebuild(graph, lambda t: t.bind(dims), dims)
    found.origin = None
    return found


def _built(problem: Problem, whole: Graph) -> Partitioned:
    """The graph of a rank, whose outputs are joined."""
    builder = Builder(problem)
    leaves = (*whole.inputs, *whole.params)
    specs = {str(v.name): builder.spec(builder.leaf_state(v)) for v in leaves}
    graph, env = leaves_of(whole, lambda v: on_rank(v, specs[str(v.name)], problem.mesh))
    outputs = [builder.joined(i, v) for i, v in enumerate(builder.run(env))]
    graph.outputs, made = combined(outputs, builder.mover.made)
    graph.output_names = whole.output_names
    cut = {name for name, spec in specs.items() if any(spec)}
    values = {n: a for n, a in whole.param_values.items() if n in cut}
    graph.param_values = {n: a for n, a in whole.param_values.items() if n not in cut}
    return Partitioned(graph, specs, values, ShardingReport(problem.mesh, made, builder.placed()))


def on_rank(v: Value, spec: P, mesh: Mesh) -> TensorType:
    """The type of what a rank has of a value."""
    shape = list(v.shape)
    for dim, _, ranks in spec.cuts(mesh, v.rank, repr(v.name)):
        shape[dim] = exact_quotient(shape[dim], ranks)
    return v.type.with_shape(tuple(shape))
