"""Collectives: steps of the schedule, for which there are no kernels."""

from __future__ import annotations

from typing import Any

from rlx._mlir import ir
from rlx.dialects.bridge import is_mir, node_of
from rlx.ir.op import op_class
from rlx.lowering.base import Compilation
from rlx.lowering.region import Region
from rlx.lowering.select.builder import Lowering
from rlx.ops.collective.all_reduce import AllReduce, ReduceScatter
from rlx.ops.collective.base import Collective, Moving
from rlx.ops.collective.exchange import AllGather, AllToAll, AxisIndex, Broadcast, Permute
from rlx.schedule.steps import COLLECTIVES, REDUCTIONS, axis_words
from rlx.schedule.steps import Collective as Step
from rlx.types import DTYPES

__all__ = ["is_step", "lower_collective"]

_KINDS: dict[type[Collective], str] = {
    AllReduce: "all_reduce",
    ReduceScatter: "reduce_scatter",
    AllGather: "all_gather",
    AllToAll: "all_to_all",
    Permute: "permute",
    Broadcast: "broadcast",
    AxisIndex: "axis_index",
}


def is_step(op: ir.Operation, compilation: Compilation) -> bool:
    """Whether an op becomes a step as it is: a collective of several ranks, of whole blocks."""
    if not is_mir(op) or op.name in ("mir.fused", "mir.yield"):
        return False
    if not op_class(op.name).meets or not compilation.target.communicates:
        return False
    node: Any = node_of(op)
    return node.along.ranks > 1 and node.flat()


def lower_collective(region: Region, lowering: Lowering) -> None:
    """Append the step."""
    node = region.nodes[0]
    assert isinstance(node, Collective)
    kind, along, source = _KINDS[type(node)], node.along, None
    count: Any = 0
    if isinstance(node, Moving):
        source = lowering.dense(region.leaves[node.x])
        count = (node.out if isinstance(node, ReduceScatter) else node.x).type.size
        count = count // along.ranks if isinstance(node, AllToAll) else count
    result = lowering.result(region.op.results[0])
    target = result if result.is_dense else lowering.fresh(result.dtype, result.shape)
    step = Step(
        COLLECTIVES.index(kind),
        REDUCTIONS.index(node.op) if isinstance(node, AllReduce) else 0,
        list(DTYPES).index(result.dtype.name),
        count,
        along.ranks,
        axis_words(along.name),
        _peers(node),
        lowering.site(f"{node.short} over the {along.ranks} ranks along {along.name!r}"),
        source,
        target,
        lowering.origin,
    )
    lowering.append(step)
    lowering.touch(*[v for v in (source, target) if v is not None])
    lowering.compilation.dispatch.native[f"collective: {node.short}"] += 1
    if target is not result:
        lowering.copy(target, result)


def _peers(node: Collective) -> tuple[int, ...]:
    if isinstance(node, Permute):
        return node.pairs
    return (node.root,) if isinstance(node, Broadcast) else ()
