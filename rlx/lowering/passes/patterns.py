"""Fusion patterns: where a region starts, which ops join it, and what it may store.

A pattern is named after the kernel family that runs its regions; which of them that family runs is
said by its claim, and not here.
"""

from __future__ import annotations

from collections.abc import Callable

from rlx._mlir import ir
from rlx.base.frozen import frozen
from rlx.dialects.bridge import is_mir
from rlx.dialects.convert import from_type
from rlx.ir.op import op_class
from rlx.lowering.region import iter_users, producer
from rlx.lowering.rules import splat_of
from rlx.lowering.select.storage_types import is_format
from rlx.ops.conv.conv import Conv, ConvTranspose
from rlx.ops.conv.integer import ConvInteger
from rlx.ops.conv.max_pool import MaxPool
from rlx.ops.conv.pool import MeanPool
from rlx.ops.indexing.gather import Gather
from rlx.ops.matmul.contraction import MatMul
from rlx.ops.movement.constant import Constant, Iota
from rlx.ops.movement.movement import Expand, Reshape
from rlx.ops.nn.normalization import LayerNorm, RmsNorm, Softmax
from rlx.ops.nn.normalization_grad import LayerNormGrad, RmsNormGrad
from rlx.ops.reduction.reduce import ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum

__all__ = ["PATTERNS", "ROW_ROOTS", "Pattern", "counts", "is_pointwise", "region_leaf"]

ROW_ROOTS = {
    c.name
    for c in (
        Softmax, LayerNorm, RmsNorm, LayerNormGrad, RmsNormGrad,
        ReduceSum, ReduceMean, ReduceMax, ReduceMin, ReduceProd,
    )
}  # fmt: skip
CHEAP = {Constant.name, Expand.name}
"""Ops that cost nothing inside a region, where they are an immediate or an address: copied in."""


def is_pointwise(op: ir.Operation) -> bool:
    """Whether an op is one of mir that has a formula for an element."""
    return is_mir(op) and op.name not in ("mir.fused", "mir.yield") and op_class(op.name).pointwise


def counts(op: ir.Operation) -> bool:
    """Whether an op counts in integers: an elementwise kernel has the number of each element."""
    if op.name == Reshape.name:
        source = producer(op.operands[0])
        return source is not None and counts(source) and len(source.attributes["shape"]) == 1
    return op.name == Iota.name and from_type(op.results[0].type).dtype.is_int


def region_leaf(op: ir.Operation) -> bool:
    """Constants only as splats: other literals are buffers, read like any operand."""
    if op.name != Constant.name:
        return True
    return splat_of(op.results[0]) is not None


def _by_index(op: ir.Operation) -> bool:
    """Whether an op is a gather that pointwise ops may read from, each element by its index.

    What it reads must lie in memory. A pointwise op that others read too might join the region,
    so which of the two does would depend on their order.
    """
    if op.name != Gather.name:
        return False
    makers = ((v, producer(v)) for v in op.operands)
    return all(
        maker is None
        or not (is_pointwise(maker) or maker.name == Expand.name)
        or all(u.name == Gather.name for u in iter_users(v))
        for v, maker in makers
    )


@frozen
class Pattern:
    """How the regions of a family grow.

    ``roots`` says of an op whether a region starts there; a root in ``alone`` is worth one of its
    own. ``last_first`` asks the roots from the last op on. ``producers`` and ``users`` say whether
    pointwise ops join in front of the root and behind it, ``retypes`` whether those behind it may
    change the element type. Ops that are ``cheap`` are copied in, whoever else uses them.
    ``gathers`` says of an op whether the region may read it by index, which CPUs alone do.

    ``stores`` says that a pointwise op joins though others use its value: the region has that value
    as a further result. So a kernel needs no launch for it and does not read it again; it costs
    nothing, since what others use is stored anyway. ``siblings`` lets their pointwise users join.
    """

    name: str
    roots: Callable[[ir.Operation], bool]
    alone: frozenset[str] = frozenset()
    last_first: bool = False
    producers: bool = False
    users: bool = True
    retypes: bool = False
    cheap: Callable[[ir.Operation], bool] = lambda op: op.name in CHEAP
    gathers: Callable[[ir.Operation], bool] = lambda op: False
    stores: bool = False
    siblings: bool = False


PATTERNS: dict[str, Pattern] = {
    p.name: p
    for p in (
        Pattern(
            "contraction",
            lambda op: op.name == MatMul.name,
            retypes=True,
            cheap=lambda op: op.name in CHEAP or is_format(op),
        ),
        Pattern("conv", lambda op: op.name in (Conv.name, ConvTranspose.name), retypes=True),
        Pattern("integer_conv", lambda op: op.name == ConvInteger.name, retypes=True),
        Pattern("pool", lambda op: op.name in (MaxPool.name, MeanPool.name)),
        Pattern(
            "rowwise",
            lambda op: op.name in ROW_ROOTS,
            alone=frozenset(ROW_ROOTS),
            producers=True,
            stores=True,
        ),
        Pattern(
            "elementwise",
            is_pointwise,
            last_first=True,
            producers=True,
            users=False,
            cheap=lambda op: op.name in CHEAP or counts(op),
            gathers=_by_index,
            stores=True,
            siblings=True,
        ),
    )
}
"""The patterns in the order of asking: a product and a convolution with what follows, row-wise
reductions with the pointwise ops around them, and what is left of pointwise chains."""
