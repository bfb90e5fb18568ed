"""Batches of products whose right operands are small: each is read where it lies, and many are one
launch. In panels most lanes would be zeros, and to pack takes as long as to multiply."""

from __future__ import annotations

from collections.abc import Sequence

from rlx.base.guards import prefers
from rlx.codegen.program import Program
from rlx.ir.op import Op
from rlx.ir.value import Value
from rlx.kernels.matmul import batched_small
from rlx.kernels.matmul.plan import OperandKind
from rlx.kernels.matmul.tile import accumulate_type
from rlx.lowering.region import Region
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.matmul.pack_rhs import Geometry
from rlx.lowering.select.views import View

__all__ = ["Operand", "is_small", "lower_small"]

Operand = tuple[View, OperandKind, tuple[int, int]]
"""What the epilogue reads: its view, its kind, and its distances between rows and batch elements.
"""

BATCH = 16
"""Products from which on they are work for several threads."""

RIGHT_BYTES = 8 << 10
"""Size of a right operand up to which it pays: it is in the L1 cache for all rows. Of 64x64 in f32
panels are a fifth faster."""


def is_small(region: Region, lowering: Lowering, product: Op, g: Geometry) -> bool:
    """Whether a product is such a batch. That depends on all but the rows, whose bits do not depend
    on how many they are; each element is summed as by panels, which take any batch."""
    dt = product.out.dtype
    wide, target = accumulate_type(dt), lowering.target.kernels
    plain = all(v in region.leaves and v.dtype is dt for v in product.present)
    if not plain or g.shared or target.lanes(wide) <= 1:
        return False
    return prefers(
        lambda: g.batch >= BATCH and g.n > 1 and g.n * g.k * wide.bytes <= RIGHT_BYTES,
        otherwise=False,
    )


def lower_small(
    region: Region,
    lowering: Lowering,
    product: Op,
    program: Program,
    operands: Sequence[Operand],
    g: Geometry,
) -> None:
    """Lower a batch of small products; ``program`` follows each, on it and the ``operands``."""
    left, right = product.present
    a = _flat(lowering, region, left, product, (g.batch, g.m, g.k))
    b = _flat(lowering, region, right, product, (g.batch, g.k, g.n))
    if b.strides[-1] != 1:
        b = lowering.copied(b)
    result = lowering.result(region.op.results[0])
    target = lowering.target.kernels
    kinds: list[OperandKind] = [kind for _, kind, _ in operands]
    config = batched_small.config_of(target, left.dtype, program, kinds, g.m, g.n)
    launch = batched_small.launch(
        (g.batch, g.m, g.n, g.k), a.strides, b.strides[:2], (g.m * g.n, g.n),
        [strides for _, _, strides in operands],
    )  # fmt: skip
    views = [a, b, *(v for v, _, _ in operands), result]
    lowering.launch("batched_small", config, views, launch, region.flops)


def _flat(
    lowering: Lowering, region: Region, v: Value, product: Op, shape: tuple[int, int, int]
) -> View:
    """An operand as [batch, rows, columns], by a copy where it broadcasts along some dims alone."""
    batch = product.out.type.static_shape[:-2]
    wide = lowering.view(region.leaves[v]).expand((*batch, *v.type.static_shape[-2:]))
    found = wide.reshape(shape) or lowering.copied(wide).reshape(shape)
    assert found is not None, "a dense view takes any shape"
    return found
