"""Reductions over any neighbouring axes: by columns, or by rows where nothing lies behind them."""

from __future__ import annotations

import math

from rlx.kernels import reduce, rowwise
from rlx.kernels.folding import REDUCTIONS, ReduceKind
from rlx.kernels.reduce import ReduceConfig
from rlx.kernels.rowwise import RowProgram
from rlx.kernels.strides import ceil_div
from rlx.lowering.families.base import Selector
from rlx.lowering.lowering import Lowering
from rlx.lowering.region import Region
from rlx.lowering.views import View
from rlx.ops.reduce import Reduce
from rlx.types import bool_

__all__ = ["SELECTOR"]


class ReduceSelector:
    """A single reduction whose axes are neighbours."""

    def claim(self, region: Region) -> str | None:
        node = region.nodes[0]
        if len(region.nodes) != 1 or node.name not in REDUCTIONS:
            return "it is no single reduction"
        assert isinstance(node, Reduce)
        if node.x.dtype.is_complex:
            return f"it is on {node.x.dtype}"
        if _groups(node) is None:
            return f"the axes {list(node.axes)} are apart"
        return None

    def lower(self, region: Region, lowering: Lowering) -> None:
        node = region.nodes[0]
        assert isinstance(node, Reduce)
        groups = _groups(node)
        assert groups is not None
        source = _contiguous(lowering.view(region.leaves[node.x]), groups, lowering)
        result = lowering.result(region.op.results[0])
        kind, dt = REDUCTIONS[node.name], source.dtype
        outer, reduced, inner = groups
        if inner == 1 and reduced > 0 and dt is not bool_:
            step = rowwise.Reduce(kind, 0, reduce.accumulate_type(dt), dt)
            program = RowProgram((dt,), (step,), (1,))
            config, launch = rowwise.launch(
                program, (outer, reduced), [source.strides[:2]], [(1, 0)]
            )
            lowering.launch("rowwise", config, [source, result], launch, region.flops)
            return
        if reduce.rows_of_part(groups) < reduced:
            source = _in_parts(source, groups, kind, lowering)
            launch = reduce.launch(source.shape, source.strides, count=reduced)
            flops = source.size
        else:
            launch, flops = reduce.launch(groups, source.strides), region.flops
        config = ReduceConfig(kind, source.dtype, dt)
        lowering.launch("reduce", config, [source, result], launch, flops)


def _in_parts(
    source: View, groups: tuple[int, int, int], kind: ReduceKind, lowering: Lowering
) -> View:
    """Few long columns reduced by parts: what is left to be reduced."""
    outer, reduced, inner = groups
    rows, wide = reduce.rows_of_part(groups), reduce.accumulate_type(source.dtype)
    parts = lowering.fresh(wide, (outer, ceil_div(reduced, rows), inner))
    config = ReduceConfig("sum" if kind == "mean" else kind, source.dtype, wide)
    launch = reduce.launch(groups, source.strides, rows=rows)
    lowering.launch("reduce", config, [source, parts], launch, outer * reduced * inner)
    return parts


def _groups(node: Reduce) -> tuple[int, int, int] | None:
    """The operand's size before, along and behind the axes; None if other dims lie between."""
    shape = node.x.type.static_shape
    axes = [a for a in node.axes if shape[a] != 1]
    if not axes:
        return 1, 1, math.prod(shape)
    first, last = axes[0], axes[-1]
    if any(shape[d] != 1 for d in range(first, last) if d not in axes):
        return None
    return (
        math.prod(shape[:first]),
        math.prod(shape[first : last + 1]),
        math.prod(shape[last + 1 :]),
    )


def _contiguous(view: View, groups: tuple[int, int, int], lowering: Lowering) -> View:
    """The operand as [outer, reduced, inner], the last contiguous, by a copy if need be."""
    found = view.reshape(groups)
    if found is None or (groups[2] > 1 and found.strides[2] != 1):
        found = lowering.copied(view).reshape(groups)
    assert found is not None, "a dense view takes any shape"
    return found


SELECTOR: Selector = ReduceSelector()
