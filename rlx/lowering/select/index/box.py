"""Selection of box kernels: boxes of a tensor at run-time starts, read or overwritten."""

from __future__ import annotations

from rlx.kernels.index import box
from rlx.kernels.index.box import Axis
from rlx.lowering.region import Region
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.selector import Selector
from rlx.lowering.select.views import View
from rlx.ops.movement.dynamic import DynamicSlice, DynamicUpdateSlice

__all__ = ["SELECTOR"]


class BoxSelector:
    """A dynamic_slice, or a dynamic_update_slice: a copy of the tensor, unless the result lies over
    it, and then the box."""

    def claim(self, region: Region) -> str | None:
        node = region.nodes[0]
        if len(region.nodes) != 1 or not isinstance(node, DynamicSlice | DynamicUpdateSlice):
            return "it is no box at run-time starts"
        return None

    def lower(self, region: Region, lowering: Lowering) -> None:
        node, out = region.nodes[0], region.op.results[0]
        assert isinstance(node, DynamicSlice | DynamicUpdateSlice)
        x = region.leaves[node.x]
        starts = lowering.dense(region.leaves[node.starts])
        if isinstance(node, DynamicSlice):
            source, target = lowering.view(x), lowering.result(out)
            _move(lowering, node.batch_dims, source, starts, target, writes=False)
            return
        update, old = lowering.view(region.leaves[node.update]), lowering.view(x)
        apart = all(v.memory is not old.memory for v in (update, starts))
        target = lowering.result_over(out, [(x, old)] if apart else [])
        if target != old:
            lowering.copy(old, target)
        _move(lowering, node.batch_dims, target, starts, update, writes=True)


def _move(
    lowering: Lowering, lead: int, tensor: View, starts: View, part: View, *, writes: bool
) -> None:
    """Launch the copy between a box of a tensor and ``part``; ``writes`` says whether it is
    written to the tensor."""
    tensor, part = tensor.as_bits(lowering.widest), part.as_bits(lowering.widest)
    axes: list[Axis] = []
    for d, sides in enumerate(zip(part.shape, tensor.shape, strict=True)):
        own = () if d < lead or sides[0] == sides[1] else (sides[1], d - lead)
        axes.append(Axis(sides[0], tensor.strides[d], part.strides[d], *own))
    config, launch = box.launch(
        tensor.dtype.bits, starts.dtype, axes[:lead], axes[lead:], starts.shape[-1],
        writes=writes, block=lowering.block,
    )  # fmt: skip
    views = [part, starts, tensor] if writes else [tensor, starts, part]
    lowering.launch("box", config, views, launch, moved=2 * part.bytes + starts.bytes)


SELECTOR: Selector = BoxSelector()
