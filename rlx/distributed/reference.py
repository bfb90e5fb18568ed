"""The reference of graphs with collectives: each rank in the interpreter, on a thread."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from rlx.base.meeting import Meeting, Place, take
from rlx.base.mesh import Mesh
from rlx.errors import GraphError, RlxError, shown
from rlx.ir.arrays import Array
from rlx.ir.builders import located
from rlx.ir.graph import Graph
from rlx.ir.interpreter import interpret as interpret_one

__all__ = ["interpret"]


@located
def interpret(
    graph: Graph | Sequence[Graph],
    mesh: Mesh,
    feeds: Sequence[Mapping[str, Any]],
    params: Sequence[Mapping[str, Any]] | None = None,
) -> list[list[Array]]:
    """What each rank of ``mesh`` gives, in the order of the ranks, by the NumPy meaning of the ops.

    ``graph`` is the same for all, or there is one for each; ``feeds`` has for each rank its inputs
    by name, and ``params`` its params. The error of a rank ends all of them. GraphError if they are
    not as many as there are ranks.
    """
    if not isinstance(mesh, Mesh):
        raise GraphError(f"interpret: mesh is {shown(mesh)}, expected a Mesh")
    graphs = [graph] * mesh.size if isinstance(graph, Graph) else list(graph)
    own = [{}] * mesh.size if params is None else list(params)
    for what, many in (("graphs", graphs), ("feeds", feeds), ("params", own)):
        if len(many) != mesh.size:
            raise GraphError(f"interpret: {len(many)} {what} for the {mesh.size} ranks of {mesh}")
    meeting = Meeting(mesh)
    results: list[list[Array]] = [[] for _ in graphs]
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        take(Place(meeting, rank))
        try:
            results[rank] = interpret_one(graphs[rank], feeds[rank], own[rank])
        except BaseException as error:
            errors.append(error)
            meeting.end()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(mesh.size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        # Those that waited for the rank that failed say nothing.
        told = [e for e in errors if not isinstance(e, threading.BrokenBarrierError)]
        raise (told or [RlxError("interpret: a rank waited for others, which never came")])[0]
    return results
