"""Reductions: by columns, or by rows where nothing lies behind the axes. Axes that are apart are
reduced one run of neighbours after the other, the last first."""

from __future__ import annotations

import math

from rlx.base.guards import is_one
from rlx.codegen.combine import REDUCTIONS, ReduceKind
from rlx.codegen.program import Step
from rlx.codegen.strides import ceil_div
from rlx.kernels.reduce import emit as reduce
from rlx.kernels.reduce.emit import ReduceConfig
from rlx.kernels.rowwise import config as rowwise
from rlx.kernels.rowwise.config import RowProgram
from rlx.lowering.region import Region
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.selector import Selector
from rlx.lowering.select.views import View
from rlx.ops.pointwise.cast import Cast
from rlx.ops.reduction.reduce import Reduce
from rlx.types import DType, bool_, u8

__all__ = ["SELECTOR", "contiguous"]


class ReduceSelector:
    """A single reduction."""

    def claim(self, region: Region) -> str | None:
        node = region.nodes[0]
        if len(region.nodes) != 1 or node.name not in REDUCTIONS:
            return "it is no single reduction"
        assert isinstance(node, Reduce)
        if node.x.dtype.is_complex:
            return f"it is on {node.x.dtype}"
        if len(_runs(node)) > 1 and math.prod(node.x.type.static_shape) == 0:
            return "the axes are apart, and a dim is empty"
        return None

    def lower(self, region: Region, lowering: Lowering) -> None:
        node = region.nodes[0]
        assert isinstance(node, Reduce)
        source, runs = lowering.view(region.leaves[node.x]), _runs(node)
        kind, dt = REDUCTIONS[node.name], source.dtype
        wide = reduce.accumulate_type(dt)
        for outer, reduced, inner in runs[:-1]:
            part = lowering.fresh(wide, (outer, inner))
            first = "sum" if kind == "mean" else kind
            _reduce(source, (outer, reduced, inner), first, part, lowering, outer * inner * reduced)
            source = part
        count = math.prod(reduced for _, reduced, _ in runs)
        result = lowering.result(region.op.results[0])
        flops = region.flops if len(runs) == 1 else source.size
        _reduce(source, runs[-1], kind, result, lowering, flops, count)


def _reduce(
    source: View, groups: tuple[int, int, int], kind: ReduceKind, result: View, lowering: Lowering,
    flops: int, count: int | None = None,
) -> None:  # fmt: skip
    """Reduce the middle one of three groups of dims. A mean divides by ``count``."""
    if lowering.shares:
        # Imported here, as in other families: compiling for a CPU needs no GPU's kernels.
        from rlx.lowering.select.reduce.gpu import reduce_by_blocks

        reduce_by_blocks(source, groups, kind, result, lowering, flops, count)
        return
    turned = source.reshape(groups)
    if turned is not None and groups[2] == 1 and turned.strides[0] == 1 != turned.strides[1]:
        # Rows that lie across are columns, side by side.
        source, groups = turned.transpose((2, 1, 0)), (1, groups[1], groups[0])
    source = contiguous(source, groups, lowering)
    outer, reduced, inner = groups
    dt = result.dtype
    if inner == 1 and reduced > 0:
        program = _of_rows(kind, source.dtype, dt)
        source = source.as_bits() if dt is bool_ else source
        strides = [source.strides[:2]], [(1, 0)]
        serial = lowering.target.kernels.serial
        config, launch = rowwise.launch(program, (outer, reduced), *strides, serial=serial)
        lowering.launch("rowwise", config, [source, result], launch, flops)
        return
    if reduce.rows_of_part(groups) < reduced:
        source = _in_parts(source, groups, kind, lowering)
        flops = source.size
        launch = reduce.launch(source.shape, source.strides, count=count or reduced)
    else:
        launch = reduce.launch(groups, source.strides, count=count)
    config = ReduceConfig(kind, source.dtype, dt)
    config = config.for_rows(lowering.target.kernels, source.shape[1])
    lowering.launch("reduce", config, [source, result], launch, flops)


def _of_rows(kind: ReduceKind, source: DType, dt: DType) -> RowProgram:
    """The reduction of a row. A bool is read as the byte that it lies in: bytes have lanes for
    extremes, and any but 0 is true."""
    if dt is bool_:
        extreme = rowwise.Reduce(kind, 0, u8, u8)
        truth = Step(Cast.name, (1,), (u8,), bool_, (("to", bool_),))
        return RowProgram((u8,), (extreme, truth), (2,))
    return RowProgram((source,), (rowwise.Reduce(kind, 0, reduce.accumulate_type(dt), dt),), (1,))


def _in_parts(
    source: View, groups: tuple[int, int, int], kind: ReduceKind, lowering: Lowering
) -> View:
    """Few long columns reduced by parts: what is left to be reduced."""
    outer, reduced, inner = groups
    rows, wide = reduce.rows_of_part(groups), reduce.accumulate_type(source.dtype)
    parts = lowering.fresh(wide, (outer, ceil_div(reduced, rows), inner))
    config = ReduceConfig("sum" if kind == "mean" else kind, source.dtype, wide)
    config = config.for_rows(lowering.target.kernels, rows)
    launch = reduce.launch(groups, source.strides, rows=rows)
    lowering.launch("reduce", config, [source, parts], launch, outer * reduced * inner)
    return parts


def _runs(node: Reduce) -> list[tuple[int, int, int]]:
    """The operand's size before, along and behind each run of neighbouring axes, from the last to
    the first, those behind being gone."""
    shape = node.x.type.static_shape
    dims = [(n, a in node.axes) for a, n in enumerate(shape) if not _counts_for_nothing(node, a)]
    runs: list[tuple[int, int, int]] = []
    behind = 1
    while any(gone for _, gone in dims):
        while not dims[-1][1]:
            behind *= dims.pop()[0]
        reduced = 1
        while dims and dims[-1][1]:
            reduced *= dims.pop()[0]
        runs.append((math.prod(n for n, _ in dims), reduced, behind))
    return runs or [(1, 1, math.prod(shape))]


def _counts_for_nothing(node: Reduce, axis: int) -> bool:
    """Whether an axis is of one element. Between axes that are reduced it decides the order of
    sums, and so is decided in any schedule."""
    size, axes = node.x.type.static_shape[axis], node.axes
    between = axis not in axes and any(a < axis for a in axes) and any(a > axis for a in axes)
    return size == 1 if between else is_one(size)


def contiguous(view: View, groups: tuple[int, int, int], lowering: Lowering) -> View:
    """The operand as [outer, reduced, inner], the last contiguous, by a copy if need be."""
    found = view.reshape(groups)
    if found is None or (groups[2] > 1 and found.strides[2] != 1):
        found = lowering.copied(view).reshape(groups)
    assert found is not None, "a dense view takes any shape"
    return found


SELECTOR: Selector = ReduceSelector()
