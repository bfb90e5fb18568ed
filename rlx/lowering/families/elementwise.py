"""Pointwise chains: one loop over the result, operands read through their strides."""

from __future__ import annotations

from rlx.kernels import elementwise
from rlx.kernels.reg import Number
from rlx.lowering.families.base import ProgramBuilder, Selector, spread_source
from rlx.lowering.lowering import Lowering
from rlx.lowering.region import Region
from rlx.lowering.rules import splat_of
from rlx.lowering.views import Memory, View
from rlx.ops.constant import Iota, literal
from rlx.ops.movement import Expand, Reshape
from rlx.ops.value import Value

__all__ = ["SELECTOR"]

_NOWHERE = Memory("arena")


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
            elif _counter(n.out) is not None:
                continue
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
        builder = ProgramBuilder(numbers=_numbers(region, lowering))
        for n in region.nodes:
            if n.pointwise:
                builder.add(n)
        out = region.outs[0]
        program = builder.build(out)
        shape = out.type.static_shape
        counters = [_counter(v) for v in builder.inputs]
        inputs = [
            (self._input(v, region, lowering) if c is None else c).expand(shape)
            for v, c in zip(builder.inputs, counters, strict=True)
        ]
        read = [
            (region.leaves[spread_source(v)], view)
            for v, view, c in zip(builder.inputs, inputs, counters, strict=True)
            if c is None
        ]
        result = lowering.result_over(region.op.results[0], read)
        views = [v for v in inputs if v.memory is not _NOWHERE]
        config, launch = elementwise.launch(
            program,
            shape,
            [v.strides for v in inputs],
            [result.strides],
            lowering.block,
            in_place=any(v.memory is result.memory for v in views),
            counted=[n for n, c in enumerate(counters) if c is not None],
        )
        lowering.launch("elementwise", config, [*views, result], launch, region.flops)

    def _input(self, v: Value, region: Region, lowering: Lowering) -> View:
        return lowering.view(region.leaves[spread_source(v)])


def _numbers(region: Region, lowering: Lowering) -> dict[Value, Number]:
    """The operands that repeat a number and stand outside the region, as they do beside an op that
    nothing fuses with: code has the number, where a memory of it would be read."""
    if lowering.target.kernels.frame == "gpu":
        return {}
    found = {v: splat_of(leaf) for v, leaf in region.leaves.items()}
    return {v: x.item() for v, x in found.items() if x is not None}


def _counter(v: Value) -> View | None:
    """The strides by which an iota of integers, also reshaped and broadcast, counts: its elements
    are the offsets in a memory that there is not. None for any other value."""
    match v.op:
        case Iota(dtype=dt, axis=axis) if dt.is_int:
            shape = v.type.static_shape
            steps = tuple(int(d == axis) for d in range(len(shape)))
            return View(_NOWHERE, dt, shape, steps)
        case Reshape(x=x):
            inner = _counter(x)
            return None if inner is None else inner.reshape(v.type.static_shape)
        case Expand(x=x):
            inner = _counter(x)
            return None if inner is None else inner.expand(v.type.static_shape)
        case _:
            return None


SELECTOR: Selector = Elementwise()
