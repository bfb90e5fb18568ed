"""Graphs of one rank on whole arrays: each rank takes its part, and gives the whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rlx.base.mesh import Mesh
from rlx.distributed.connections import current_rank
from rlx.errors import GraphError, NameError, ShapeError, UnsupportedError, did_you_mean, shown
from rlx.ir.builders import located, public
from rlx.ir.clone import leaves_of
from rlx.ir.graph import Graph
from rlx.ir.replay import cloned, replay
from rlx.ir.value import Value
from rlx.ops.collective.exchange import AllGather
from rlx.runtime.session import CompiledGraph, Session

__all__ = ["P", "Sharded", "ShardedGraph", "shard"]

Array = np.ndarray[Any, Any]


class P(tuple[str | None, ...]):
    """How a tensor lies on a mesh: for each dim the axis along which it is cut, or None.

    ``P("data", None)`` cuts rows in as many blocks as there are ranks along ``data``. Dims that are
    left out at the end are whole, and so is a tensor of ``P()``. GraphError for an axis that is
    named twice.
    """

    __slots__ = ()

    def __new__(cls, *axes: str | None) -> P:
        named = [a for a in axes if a is not None]
        for a in named:
            if not isinstance(a, str):
                raise GraphError(f"P takes names of axes, or None, found {shown(a)}")
        if len(set(named)) < len(named):
            raise GraphError(f"P names an axis twice in {tuple(axes)}; an axis cuts one dim")
        return super().__new__(cls, axes)

    def cuts(self, mesh: Mesh, rank: int, what: str) -> list[tuple[int, str, int]]:
        """The dims that are cut for a tensor of so many dims: each with its axis and the ranks
        along it. ShapeError if there are fewer, NameError for an axis that the mesh has not."""
        if len(self) > rank:
            raise ShapeError(f"{what} has {rank} dims, and {self!r} is for {len(self)}")
        return [(d, a, mesh[a].ranks) for d, a in enumerate(self) if a is not None]

    def part(self, array: Any, mesh: Mesh, rank: int) -> Array:
        """What a rank has of a whole array. ShapeError for a dim that cannot be cut evenly."""
        found = np.asarray(array)
        at = mesh.coordinates(rank)
        for dim, axis, ranks in self.cuts(mesh, found.ndim, "an array"):
            length = found.shape[dim]
            if length % ranks:
                raise ShapeError(
                    f"dim {dim} of an array of {list(found.shape)} is no multiple of {ranks}, the"
                    f" ranks along {axis!r}"
                )
            each = length // ranks
            found = found.take(range(at[axis] * each, (at[axis] + 1) * each), dim)
        return np.ascontiguousarray(found)

    def __repr__(self) -> str:
        return f"P({', '.join(map(repr, self))})"


@located
def shard(
    graph: Graph,
    mesh: Mesh,
    specs: Mapping[str, P],
    *,
    out: P | Sequence[P] = (),
    manual: bool = False,
) -> Sharded:
    """A graph of one rank, to be run on whole arrays.

    ``graph`` has the shapes of a rank's parts, and the collectives where they belong. ``specs`` say
    by name how its inputs and params are cut, ``out`` how its outputs are; what is not named is
    whole, the same on all ranks. ``manual=True`` says that the graph is so written: no other is
    taken yet. NameError for unknown names and axes, ShapeError for a spec of more dims than its
    tensor.
    """
    if not isinstance(graph, Graph):
        raise GraphError(f"shard takes a Graph, found a {type(graph).__name__}")
    if not isinstance(mesh, Mesh):
        raise GraphError(f"shard: mesh is {shown(mesh)}, expected a Mesh")
    if not manual:
        raise UnsupportedError(
            "shard finds no collectives by itself; write the graph of one rank with those that it"
            " needs, and pass manual=True"
        )
    return Sharded(graph, mesh, dict(specs), [out] if isinstance(out, P) else list(out))


@public
class Sharded:
    """What ``shard`` gives: ``graph`` is that of a rank, with whole outputs."""

    def __init__(self, graph: Graph, mesh: Mesh, specs: dict[str, P], out: list[P]) -> None:
        leaves = {str(v.name): v for v in (*graph.inputs, *graph.params)}
        for name, spec in specs.items():
            if name not in leaves:
                hint = did_you_mean(name, leaves)
                raise NameError(f"shard: no input or param is called {shown(name)}{hint}")
            if not isinstance(spec, P):
                raise GraphError(f"shard: the spec of {name!r} is {shown(spec)}, expected a P")
            spec.cuts(mesh, leaves[name].rank, repr(name))
        if len(out) > len(graph.outputs):
            raise GraphError(f"shard: {len(out)} specs for {len(graph.outputs)} outputs")
        self.mesh, self.specs = mesh, specs
        self.graph, env = leaves_of(graph, lambda v: v.type)
        self.graph.name = graph.name
        replay(graph.nodes(), env, cloned)
        whole = [*out, *[P()] * (len(graph.outputs) - len(out))]
        outputs = zip((env[v] for v in graph.outputs), whole, strict=True)
        self.graph.set_outputs([_gathered(v, spec, mesh) for v, spec in outputs])
        self.graph.output_names = graph.output_names

    def compile(self, session: Session | None = None, **options: Any) -> ShardedGraph:
        """Compile it for the rank that this thread or process is (``rlx.distributed.connect``,
        ``run_threads``); ``options`` are those of ``Session.compile``."""
        compiled = (session or Session()).compile(self.graph, **options)
        return ShardedGraph(self, compiled, current_rank(self.mesh))


@public
class ShardedGraph:
    """A compiled graph of a rank that takes and gives whole arrays."""

    def __init__(self, source: Sharded, compiled: CompiledGraph, rank: int) -> None:
        self.source, self.compiled, self.rank = source, compiled, rank

    def _part(self, name: str, array: Any) -> Any:
        spec = self.source.specs.get(name, P())
        return spec.part(array, self.source.mesh, self.rank) if any(spec) else array

    def set_param(self, name: str, value: Any) -> None:
        """Set a param from the whole of it, of which this rank keeps its part."""
        self.compiled.set_param(name, self._part(name, value))

    def run(self, inputs: Mapping[str, Any]) -> list[Array]:
        """The whole outputs of whole inputs, by name; all ranks call it, with the same arrays."""
        return self.compiled.run({name: self._part(name, a) for name, a in inputs.items()})


def _gathered(v: Value, spec: Iterable[str | None], mesh: Mesh) -> Value:
    assert isinstance(spec, P)
    for dim, axis, _ in spec.cuts(mesh, v.rank, f"output {v!r}"):
        v = AllGather.build(v, mesh[axis], dim)
    return v
