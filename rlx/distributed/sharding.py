"""Graphs on a mesh: each rank takes its part of whole arrays, computes, and gives the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlx.base.mesh import Mesh
from rlx.distributed.connections import current_rank
from rlx.distributed.partition.whole import partitioned
from rlx.distributed.report import ShardingReport
from rlx.distributed.spec import Array, P, checked
from rlx.errors import GraphError, a_type, shown
from rlx.ir.builders import located, public
from rlx.ir.graph import Graph
from rlx.runtime.session import CompiledGraph, Session

__all__ = ["Sharded", "ShardedGraph", "shard"]


@located
def shard(
    graph: Graph,
    mesh: Mesh,
    specs: Mapping[str, P],
    *,
    out: P | Sequence[P] = (),
    manual: bool = False,
    strict: bool = False,
) -> Sharded:
    """A graph on the ranks of a mesh.

    ``specs`` say by name how inputs and params are cut, and ``out`` how outputs are where they are
    computed. What is not named is cut as its users need it; outputs without a spec are whole. Along
    which dims ops are cut follows from these specs and from the factors of the ops, with the fewest
    bytes of collectives, which are put in (``Sharded.report`` lists them). An op without a rule
    takes whole operands. ``strict`` refuses a gather whose op then computes the same on all ranks.

    Arrays are whole on every rank: ``run`` and ``set_param`` take the parts, and results are
    joined. A symbolic dim that is cut is the size on a rank.

    With ``manual`` the graph is that of a rank, as it is, with the collectives that it needs, and
    arrays are those of the rank; ``specs`` only say which parts these are (``Sharded.parts``).

    NameError for unknown names and axes; ShapeError for a spec of more dims than its tensor, and
    for a dim that cannot be cut in equal parts; GraphError for a gather that ``strict`` refuses;
    UnsupportedError for a graph that has collectives already.
    """
    if not isinstance(graph, Graph):
        raise GraphError(f"shard takes a Graph, found {a_type(graph)}")
    if not isinstance(mesh, Mesh):
        raise GraphError(f"shard: mesh is {shown(mesh)}, expected a Mesh")
    outs = [out] if isinstance(out, P) else list(out)
    if not manual:
        found = partitioned(graph, mesh, specs, outs, strict)
        return Sharded(found.graph, mesh, found.specs, found.values, found.report)
    if outs:
        raise GraphError("shard: with manual=True results are those of a rank; leave out away")
    return Sharded(graph, mesh, checked(graph, mesh, specs), {}, None)


@public
class Sharded:
    """What ``shard`` gives: ``graph`` is that of a rank, ``specs`` how its inputs and params are
    cut, and ``report`` what was put in (None with ``manual``)."""

    def __init__(
        self,
        graph: Graph,
        mesh: Mesh,
        specs: dict[str, P],
        values: dict[str, Array],
        report: ShardingReport | None,
    ) -> None:
        self.graph, self.mesh, self.specs, self.report = graph, mesh, specs, report
        self._values = values

    def parts(self, arrays: Mapping[str, Any], rank: int) -> dict[str, Any]:
        """What a rank has of whole arrays, by name. ShapeError for one that cannot be cut in equal
        parts."""
        return {
            name: self.specs[name].part(a, self.mesh, rank) if any(self.specs.get(name, ())) else a
            for name, a in arrays.items()
        }

    def compile(self, session: Session | None = None, **options: Any) -> ShardedGraph:
        """Compile it for the rank that this thread or process is (``rlx.distributed.connect``,
        ``run_threads``); ``options`` are those of ``Session.compile``."""
        compiled = (session or Session()).compile(self.graph, **options)
        found = ShardedGraph(self, compiled, current_rank(self.mesh))
        for name, value in self._values.items():
            found.set_param(name, value)
        return found


@public
class ShardedGraph:
    """A compiled graph of a rank. It takes and gives whole arrays; with ``manual`` those of the
    rank."""

    def __init__(self, source: Sharded, compiled: CompiledGraph, rank: int) -> None:
        self.source, self.compiled, self.rank = source, compiled, rank

    def _own(self, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
        return arrays if self.source.report is None else self.source.parts(arrays, self.rank)

    def set_param(self, name: str, value: Any) -> None:
        """Set a param from the whole of it, of which this rank keeps its part."""
        self.compiled.set_param(name, self._own({name: value})[name])

    def run(self, inputs: Mapping[str, Any]) -> list[Array]:
        """The whole outputs of whole inputs, by name; all ranks call it, with the same arrays."""
        return self.compiled.run(self._own(inputs))
