"""Ops that bring a kernel of their own."""

from __future__ import annotations

from rlx.kernels.fallback import foreign as custom
from rlx.kernels.fallback.foreign import CustomConfig
from rlx.lowering.region import Region
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.selector import Selector
from rlx.lowering.select.views import View
from rlx.types import i64

__all__ = ["SELECTOR"]


class Custom:
    """A single op whose class has a ``kernel``, on dense operands."""

    def claim(self, region: Region) -> str | None:
        if len(region.nodes) != 1:
            return "it is a fused region"
        node = region.nodes[0]
        return None if hasattr(type(node), "kernel") else f"{node.short} brings no kernel"

    def lower(self, region: Region, lowering: Lowering) -> None:
        node = region.nodes[0]
        config = CustomConfig.of(node)
        operands = [lowering.dense(region.leaves[v]) for v in node.present]
        results = [lowering.result(r) for r in region.op.results]
        sites = [lowering.site(m) for m in custom.faults(config)]
        error = [View.dense(lowering.error, i64, (2,))] if sites else []
        launch = custom.launch(config, sites[0] if sites else 0)
        lowering.launch("custom", config, [*operands, *results, *error], launch, region.flops)


SELECTOR: Selector = Custom()
