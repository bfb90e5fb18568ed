"""Pointwise chains: one loop over the result, operands read through their strides."""

from __future__ import annotations

from rlx.kernels import elementwise
from rlx.lowering.families.base import ProgramBuilder, Selector, spread_source
from rlx.lowering.lowering import Lowering
from rlx.lowering.region import Region
from rlx.lowering.views import View
from rlx.ops.constant import literal
from rlx.ops.movement import Expand
from rlx.ops.value import Value

__all__ = ["SELECTOR"]


class Elementwise:
    """Regions of pointwise ops of one shape; what broadcasts comes from outside the region."""

    def claim(self, region: Region) -> str | None:
        shape = region.outs[0].shape
        work = [n for n in region.nodes if n.pointwise]
        if not work:
            return "it holds no pointwise op"
        if work[-1].out is not region.outs[0]:
            return "its result is not pointwise"
        for n in region.nodes:
            if n.pointwise:
                if any(v.shape != shape for v in (n.out, *n.present)):
                    return f"{n.short} is on another shape than the result"
            elif isinstance(n, Expand):
                source = spread_source(n.out)
                if source not in region.leaves and (
                    source.op is None or literal(source.op) is None
                ):
                    return f"{n.short} broadcasts a value that is computed inside"
            elif literal(n) is None:
                return f"{n.short} is not pointwise"
        return None

    def lower(self, region: Region, lowering: Lowering) -> None:
        builder = ProgramBuilder()
        for n in region.nodes:
            if n.pointwise:
                builder.add(n)
        out = region.outs[0]
        program = builder.build(out)
        shape = out.type.static_shape
        views = [self._input(v, region, lowering, shape) for v in builder.inputs]
        result = lowering.result(region.op.results[0])
        strides = [v.strides for v in views]
        in_place = any(v.memory is result.memory for v in views)
        config, launch = elementwise.launch(
            program, shape, strides, [result.strides], lowering.block, in_place=in_place
        )
        lowering.launch("elementwise", config, [*views, result], launch, region.flops)

    def _input(self, v: Value, region: Region, lowering: Lowering, shape: tuple[int, ...]) -> View:
        return lowering.view(region.leaves[spread_source(v)]).expand(shape)


SELECTOR: Selector = Elementwise()
