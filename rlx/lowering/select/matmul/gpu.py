"""Products on a GPU: operands are read where they lie, and nothing is packed."""

from __future__ import annotations

from collections.abc import Sequence

from rlx._mlir import ir
from rlx.codegen.program import Program
from rlx.ir.op import Op
from rlx.kernels.matmul import gpu as contraction
from rlx.lowering.region import Region
from rlx.lowering.select import triton
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.views import View

__all__ = ["lower_product"]


def lower_product(
    region: Region,
    lowering: Lowering,
    product: Op,
    program: Program,
    sides: Sequence[ir.Value],
    extra: Sequence[ir.Value],
) -> None:
    """Launch a product of the values ``sides``, whose epilogue reads the values ``extra``."""
    out = product.out.type.static_shape
    left, right = (v.type.static_shape for v in product.present)
    (*lead, m, n), k = out, left[-1]
    if len(right) == 2:  # one matrix that all rows meet
        for d in lead:
            m *= d
        lead = []

    def shaped(v: ir.Value, whole: Sequence[int], shape: Sequence[int]) -> View:
        """A value that is broadcast to ``whole``, in the shape in which it is read."""
        for view in (lowering.view(v), None):
            found = (view or lowering.dense(v)).expand(whole).reshape(shape)
            if found is not None:
                return found
        dense = lowering.copied(lowering.view(v).expand(whole)).reshape(shape)
        assert dense is not None, "a dense view takes any shape"
        return dense

    a = shaped(sides[0], (*out[:-2], *left[-2:]), (*lead, m, k))
    b = shaped(sides[1], (*lead, *right[-2:]), (*lead, k, n))
    operands = [shaped(v, out, (*lead, m, n)) for v in extra]
    result = lowering.result(region.op.results[0])
    c = result.reshape((*lead, m, n))
    assert c is not None, "results are dense"
    if contraction.turns(m, n):
        (a, b), (m, n) = (_turned(b), _turned(a)), (n, m)
        operands, c = [_turned(v) for v in operands], _turned(c)
    views = [a, b, *operands, c]
    if triton.product(lowering, program, views, (*lead, m, n, k), region.flops):
        return
    config, launch = contraction.launch(
        program, lowering.target.kernels, (a.dtype, b.dtype), (*lead, m, n, k),
        [v.strides for v in views],
    )  # fmt: skip
    lowering.launch("gpu_contraction", config, views, launch, region.flops)


def _turned(v: View) -> View:
    """Each matrix with rows for columns."""
    last = len(v.shape) - 1
    return v.transpose([*range(last - 1), last, last - 1])
