"""Usage of a mixture's experts: the chosen experts as outputs of a graph, and their counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlx.errors import GraphError, ShapeError
from rlx.ir.builders import located, public
from rlx.ir.graph import Graph, names_of_outputs
from rlx.ir.value import Value
from rlx.ops.matmul.experts import GroupedMatMul

__all__ = ["ExpertUsage", "with_expert_outputs"]

PREFIX = "experts."


@located
def with_expert_outputs(graph: Graph) -> Graph:
    """A graph that also gives the numbers of the experts of its rows, as outputs "experts.0" and so
    on: one for every choice that products by experts follow, in their order. GraphError for a
    graph without one."""
    chosen = dict.fromkeys(op.experts for op in graph.nodes() if isinstance(op, GroupedMatMul))
    if not chosen:
        raise GraphError(f"graph {graph.name!r} has no product by experts (grouped_matmul)")
    found = graph.snapshot()
    named: dict[str, Value] = dict(zip(names_of_outputs(graph), graph.outputs, strict=True))
    found.outputs = [*graph.outputs, *chosen]
    found.output_names = (*named, *(f"{PREFIX}{i}" for i in range(len(chosen))))
    found.origin = None
    return found


@public
class ExpertUsage:
    """How many rows went to each of ``count`` experts, by layer, over the runs that were added."""

    def __init__(self, count: int) -> None:
        if count < 1:
            raise GraphError(f"there is 1 expert or more, found {count}")
        self.count = count
        self.rows: dict[str, np.ndarray[Any, Any]] = {}

    def add(self, outputs: Any) -> None:
        """Count the rows of a run of a graph ``with_expert_outputs``; GraphError for outputs
        without such names, ShapeError for an expert that is not there."""
        names = [n for n in getattr(outputs, "names", ()) if n.startswith(PREFIX)]
        if not names:
            raise GraphError("these are no outputs of a graph with_expert_outputs")
        for name in names:
            chosen = np.asarray(outputs[name]).reshape(-1).astype(np.int64)
            if chosen.size and not 0 <= chosen.min() <= chosen.max() < self.count:
                raise ShapeError(f"{name} has an expert out of range for {self.count} experts")
            hits = np.bincount(chosen, minlength=self.count)
            self.rows[name] = self.rows.get(name, np.zeros(self.count, np.int64)) + hits

    def most_used(self, k: int) -> dict[str, list[int]]:
        """The ``k`` experts with the most rows of each layer, most first; of equal ones the
        first."""
        return {n: np.argsort(-r, kind="stable")[:k].tolist() for n, r in self.rows.items()}

    def resident_share(self, resident: Mapping[str, Sequence[int]]) -> float:
        """The part of all rows whose expert is among those that are said of its layer."""
        total = sum(int(r.sum()) for r in self.rows.values())
        held = sum(int(r[list(resident.get(n, ()))].sum()) for n, r in self.rows.items())
        return held / total if total else 0.0
