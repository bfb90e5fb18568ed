"""Movement that cannot be a view: joins and padding."""

from __future__ import annotations

from collections.abc import Sequence

from rlx._mlir import ir
from rlx.lowering.families.base import Selector
from rlx.lowering.lowering import Lowering
from rlx.lowering.region import Region
from rlx.lowering.views import View
from rlx.ops.slicing import Concat, Pad
from rlx.types import Dim

__all__ = ["SELECTOR"]


class Copy:
    """concat, each part copied to its place, and pad, a fill and a copy."""

    def claim(self, region: Region) -> str | None:
        node = region.nodes[0]
        if len(region.nodes) != 1 or not isinstance(node, Concat | Pad):
            return "it is no concat or pad"
        return None

    def lower(self, region: Region, lowering: Lowering) -> None:
        node = region.nodes[0]
        result = lowering.result(region.op.results[0])
        if isinstance(node, Concat):
            _concat(lowering, region.op, result, node.axis)
        else:
            assert isinstance(node, Pad)
            self._pad(lowering, region, node, result)

    def _pad(self, lowering: Lowering, region: Region, node: Pad, result: View) -> None:
        fill = lowering.view(region.leaves[node.present[1]])
        lowering.copy(fill.expand(result.shape), result)
        steps = [n + 1 for n in node.interior]
        source = lowering.view(region.leaves[node.present[0]])
        lowering.copy(source, result.slice(static_dims(node.low), source.shape, steps))


def _concat(lowering: Lowering, op: ir.Operation, target: View, axis: int) -> None:
    """Copy the operands side by side."""
    at = 0
    for operand in op.operands:
        size = ir.RankedTensorType(operand.type).shape[axis]
        starts = [at if d == axis else 0 for d in range(len(target.shape))]
        sizes = [size if d == axis else n for d, n in enumerate(target.shape)]
        part = target.slice(starts, sizes, [1] * len(sizes))
        lowering.copy(lowering.view(operand), part)
        at += size


def static_dims(dims: Sequence[Dim]) -> list[int]:
    """Dims of a bound graph, which are ints."""
    return [d for d in dims if isinstance(d, int)]


SELECTOR: Selector = Copy()
