"""The leaves of a graph that a front end builds."""

from __future__ import annotations

from rlx.ir.graph import Graph

__all__ = ["drop_unused_params"]


def drop_unused_params(graph: Graph) -> None:
    """Take out the params that nothing reads, such as those that only shapes needed."""
    used = {v for op in graph.nodes() for v in op.present} | set(graph.outputs)
    params = graph.params
    graph.params = [p for p in params if p in used]
    for v in (p for p in params if p not in used):
        graph.param_values.pop(str(v.name), None)
        del graph._names[str(v.name)]
