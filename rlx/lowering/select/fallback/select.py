"""The common way: an op by its own loop nest, on dense operands."""

from __future__ import annotations

from rlx.ir.op import Op
from rlx.kernels.fallback import emit as common
from rlx.kernels.fallback.config import CommonConfig, sized
from rlx.lowering.region import Region
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.selector import Selector
from rlx.lowering.select.views import View
from rlx.ops.nn.state_rows import StateRows
from rlx.types import i64

__all__ = ["SELECTOR"]


class Common:
    """A single op with a loop nest or a formula; what moves data alone has a loop nest too."""

    def claim(self, region: Region) -> str | None:
        node = region.nodes[0]
        if len(region.nodes) != 1:
            return "it is a fused region"
        if not (node.pointwise or hasattr(type(node), "loops")):
            return f"{node.short} has no loop nest"
        return None

    def lower(self, region: Region, lowering: Lowering) -> None:
        node = region.nodes[0]
        kernels = lowering.target.kernels
        unread = tuple(n for n, r in enumerate(region.op.results) if not any(True for _ in r.uses))
        config = CommonConfig.of(node, () if kernels.binds else unread)
        found = sized(config, lambda c: common.written(c, kernels))
        operands = [lowering.dense(region.leaves[v]) for v in node.present]
        results = [lowering.result(r) for r in region.op.results[: _fresh(node)]]
        if isinstance(node, StateRows):
            results.append(_state_of(node, region, operands, lowering))
        rooms = [
            lowering.fresh(t.dtype, t.static_shape)
            for t in common.workspaces(found.config, kernels.frame, found)
        ]
        messages = found.written.messages
        sites = [lowering.site(found.message(m)) for m in messages]
        error = [View.dense(lowering.error, i64, (2,))] if messages else []
        site = sites[0] if sites else 0
        launch = common.launch(found.config, site, kernels.frame, found, region.flops)
        views = [*operands, *results, *rooms, *error]
        moved = sum(v.bytes for v in (*operands, *results))
        lowering.launch("common", found.config, views, launch, region.flops, moved)


def _fresh(node: Op) -> int:
    """How many results are written whole."""
    return len(node.results) - isinstance(node, StateRows)


def _state_of(node: StateRows, region: Region, operands: list[View], lowering: Lowering) -> View:
    """Where the states lie after the rows: over those before, where nothing else needs them any
    more, else in a copy, of which the kernel changes the slots of the rows."""
    old, place = region.leaves[node.state_operand], region.op.results[len(node.results) - 1]
    own = operands[-3]
    apart = all(v.memory is not own.memory for v in (*operands[:-3], *operands[-2:]))
    over = [(old, own)] if apart and lowering.target.kernels.rebinds else []
    state = lowering.result_over(place, over)
    if state != own:
        lowering.copy(own, state)
    return state


SELECTOR: Selector = Common()
