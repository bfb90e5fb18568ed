"""Collectives: steps of the schedule, for which there are no kernels."""

from __future__ import annotations

from typing import Any

from rlx._mlir import ir
from rlx.dialects.bridge import is_mir, node_of
from rlx.ir.op import op_class
from rlx.lowering.compilation import Compilation
from rlx.lowering.region import Region
from rlx.lowering.select.builder import Lowering
from rlx.schedule.steps import COLLECTIVES, REDUCTIONS, Collective, axis_words
from rlx.targets.base import Target
from rlx.types import DTYPES

__all__ = ["is_step", "lower_collective"]


def is_step(op: ir.Operation, compilation: Compilation) -> bool:
    """Whether an op becomes a step as it is: a collective of several ranks, of whole blocks."""
    if not is_mir(op) or op.name in ("mir.fused", "mir.yield"):
        return False
    if not op_class(op.name).meets or not compilation.target.communicates:
        return False
    node: Any = node_of(op)
    return node.along.ranks > 1 and node.flat()


def _way(target: Target) -> str:
    """What the report says of how the ranks of a target exchange tensors."""
    if target.kernels.serial:
        return "collective"
    # Asked of GPUs alone: a compile for CPUs loads nothing of theirs.
    from rlx.targets.gpu.connections import CONNECTIONS

    by = CONNECTIONS.get(target.name)
    return f"collective by {by.name} or the host" if by else "collective by way of the host"


def lower_collective(region: Region, lowering: Lowering) -> None:
    """Append the step."""
    # What an op says of itself: a compile of other ops loads none of these.
    node: Any = region.nodes[0]
    along = node.along
    source = lowering.dense(region.leaves[node.x]) if node.present else None
    result = lowering.result(region.op.results[0])
    target = result if result.is_dense else lowering.fresh(result.dtype, result.shape)
    step = Collective(
        COLLECTIVES.index(node.kind),
        REDUCTIONS.index(node.reduction()),
        list(DTYPES).index(result.dtype.name),
        node.block(),
        along.ranks,
        axis_words(along.name),
        node.peers(),
        lowering.site(f"{node.short} over the {along.ranks} ranks along {along.name!r}"),
        False,
        source,
        target,
        lowering.origin,
    )
    lowering.meet(step)
    compilation = lowering.compilation
    compilation.dispatch.native[f"{_way(compilation.target)}: {node.short}"] += 1
    if target is not result:
        lowering.copy(target, result)
