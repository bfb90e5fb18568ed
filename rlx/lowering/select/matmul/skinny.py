"""Products with few columns, by a kernel whose lanes go along K (``rlx.kernels.matmul.skinny``).
What takes this way depends on all but the number of rows, whose bits do not depend on how many
they are.
"""

from __future__ import annotations

from rlx.codegen.program import Program
from rlx.codegen.strides import ceil_div
from rlx.ir.op import Op
from rlx.ir.value import Value
from rlx.kernels.matmul import skinny
from rlx.kernels.matmul.dot import group_of
from rlx.kernels.matmul.tile import accumulate_type
from rlx.kernels.reduce import emit as reduce
from rlx.kernels.reduce.emit import ReduceConfig
from rlx.lowering.region import Region
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.matmul.batched_small import is_small
from rlx.lowering.select.matmul.gemv import lower_rest
from rlx.lowering.select.matmul.pack_rhs import Geometry
from rlx.lowering.select.views import View

__all__ = ["lower_skinny"]

LEAST = 64
"""Steps of k from which on that pays: in the end the lanes of each sum are added."""


def lower_skinny(
    region: Region, lowering: Lowering, product: Op, program: Program, operands: list[Value],
    g: Geometry,
) -> bool:  # fmt: skip
    """Lower a product with few columns; False if it has many, is of few steps, or lies as suits no
    kernel. ``program`` follows the product, on it and its ``operands``."""
    found = _operands(region, lowering, product, g)
    if found is None:
        return False
    a, b = found
    dt, target = a.dtype, lowering.target.kernels
    dense = b.strides[1] != 1
    parts = ceil_div(g.k, skinny.steps_of(target, dt, g.k))
    result = lowering.result(region.op.results[0])
    total = lowering.fresh(dt, result.shape) if program.steps else result
    wide = accumulate_type(dt) if parts > 1 else dt
    sums = lowering.fresh(wide, (g.batch, parts, g.m * g.n)) if parts > 1 else total
    config = skinny.config_of(target, dt, wide, g.m, g.n, dense)
    places = a.strides[:2], (b.strides[0], b.strides[2])
    launch = skinny.launch(config, target, (g.batch, g.m, g.n, g.k), *places)
    lowering.launch("skinny", config, [a, b, sums], launch, region.flops)
    if parts > 1:
        last = ReduceConfig("sum", wide, dt).for_rows(target, parts)
        lowering.launch(
            "reduce", last, [sums, total], reduce.launch(sums.shape, sums.strides), sums.size
        )
    if program.steps:
        lower_rest(region, lowering, program, operands, total, result)
    return True


def _operands(
    region: Region, lowering: Lowering, product: Op, g: Geometry
) -> tuple[View, View] | None:
    """A as [batch, m, K] and B as [batch, K, n], if the kernel can read them where they lie."""
    left, right = product.present
    dt, target = product.out.dtype, lowering.target.kernels
    if any(v not in region.leaves or v.dtype is not dt for v in (left, right)):
        return None
    wide = accumulate_type(dt)
    if dt.is_complex or not (dt.is_float or dt is wide):
        return None
    if lowering.static_of(region.leaves[right]) is not None and group_of(target, dt, dt) > 1:
        return None  # it is packed once, for instructions that multiply more than one pair
    if lowering.view(region.leaves[left]).strides[-2] == 1:
        return None  # it lies across K, of which a single row only seems to lie along it
    lanes = target.lanes(wide)
    if not 1 < g.n <= lanes or g.k < max(LEAST, lanes):
        return None
    lead = product.out.type.static_shape[:-2]
    leads = ((), ()) if g.shared else (lead, lead)
    views: list[View] = []
    for v, front, shape in zip(
        (left, right), leads, ((g.batch, g.m, g.k), (g.batch, g.k, g.n)), strict=True
    ):
        own = v.type.static_shape
        view = lowering.view(region.leaves[v]).expand((*front, *own[-2:]) if front else own)
        flat = view.reshape(shape)
        if flat is None:
            return None
        views.append(flat)
    a, b = views
    lies_along, lies_dense = b.strides[1] == 1, b.strides[1:] == (g.n, 1)
    if a.strides[2] != 1 or not (lies_along or lies_dense):
        return None
    many = lies_dense and is_small(region, lowering, product, g)
    return None if many else (a, b)
