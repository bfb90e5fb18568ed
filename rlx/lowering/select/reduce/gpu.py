"""Reductions on a GPU: by one launch, or of few long columns by two."""

from __future__ import annotations

from rlx.codegen.combine import ReduceKind
from rlx.codegen.strides import ceil_div
from rlx.kernels.reduce import gpu as reduce
from rlx.kernels.reduce.emit import accumulate_type
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.views import View

__all__ = ["reduce_by_blocks"]


def reduce_by_blocks(
    source: View, groups: tuple[int, int, int], kind: ReduceKind, result: View, lowering: Lowering,
    flops: int, count: int | None = None,
) -> None:  # fmt: skip
    """Reduce the middle one of three groups of dims. A mean divides by ``count``."""
    operand = source.reshape(groups) or lowering.copied(source).reshape(groups)
    assert operand is not None, "a dense view takes any shape"
    outer, reduced, inner = groups
    target, count = lowering.target.kernels, count or reduced
    rows = reduce.rows_of_part(target, groups)
    if rows < reduced:
        first: ReduceKind = "sum" if kind == "mean" else kind
        parts = (outer, ceil_div(reduced, rows), inner)
        part = lowering.fresh(accumulate_type(operand.dtype), parts)
        _launch(operand, first, part, lowering, flops, reduced, rows)
        operand, flops = part, part.size
    _launch(operand, kind, result, lowering, flops, count)


def _launch(
    operand: View, kind: ReduceKind, result: View, lowering: Lowering, flops: int, count: int,
    rows: int | None = None,
) -> None:  # fmt: skip
    config, launch = reduce.launch(
        kind, lowering.target.kernels, (operand.dtype, result.dtype), operand.shape,
        operand.strides, rows=rows, count=count,
    )  # fmt: skip
    lowering.launch("gpu_reduce", config, [operand, result], launch, flops)
