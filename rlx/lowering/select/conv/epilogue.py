"""Pointwise ops behind a convolution or a pooling: which may follow, and what they become."""

from __future__ import annotations

from rlx.codegen.program import Program
from rlx.ir.op import Op
from rlx.ir.value import Value
from rlx.kernels.conv.plan import OperandKind
from rlx.lowering.region import Region
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.selector import ProgramBuilder, spread_source
from rlx.lowering.select.views import View
from rlx.ops.movement.constant import literal
from rlx.ops.movement.movement import Expand
from rlx.types import Shape

__all__ = ["Epilogue", "epilogue_of", "root_of", "unfit"]

Epilogue = tuple[Program, tuple[OperandKind, ...], list[View]]
"""A program over a result, the kinds of what else it reads, and that."""


def root_of(region: Region) -> Op | None:
    """The op whose results the epilogue takes: the first that computes."""
    return next((n for n in region.nodes if _works(n)), None)


def _works(node: Op) -> bool:
    return not isinstance(node, Expand) and literal(node) is None


def unfit(region: Region, root: Op) -> str | None:
    """Why what follows ``root`` in a region is no epilogue of it, or None."""
    if any(spread_source(v) not in region.leaves for v in root.present):
        return f"an operand of {root.short} is computed inside"
    for n in region.nodes:
        if n is root or not _works(n):
            continue
        if not n.pointwise:
            return f"{n.short} is not pointwise"
        if n.out.shape != root.out.shape:
            return f"{n.short} is on another shape than {root.short}"
        for v in n.present:
            reason = _unfit_operand(v, root.out.shape)
            if reason is not None:
                return reason
    return None


def _unfit_operand(v: Value, out: Shape) -> str | None:
    source = spread_source(v)
    if source.op is not None:
        number = literal(source.op) is not None
        if v.shape == out and (source is v or number):
            return None
        if not number:
            return "an operand is broadcast from inside"
    if _kind(source.shape, out) is None:
        return f"an operand {list(source.shape)} is no number a channel of the result"
    return None


def epilogue_of(region: Region, root: Op, lowering: Lowering) -> Epilogue:
    """The program over the result of ``root`` and what else it reads, with the kinds of that."""
    builder = ProgramBuilder([root.out])
    for n in region.nodes:
        if n.pointwise:
            builder.add(n)
    program = builder.build(region.outs[0])
    kinds: list[OperandKind] = []
    views: list[View] = []
    for v in builder.inputs[1:]:
        source = spread_source(v)
        kind = _kind(source.shape, root.out.shape)
        assert kind is not None
        kinds.append(kind)
        views.append(lowering.dense(region.leaves[source]))
    return program, tuple(kinds), views


def _kind(shape: Shape, out: Shape) -> OperandKind | None:
    """How an operand that broadcasts to ``out`` is addressed."""
    own = (*([1] * (len(out) - len(shape))), *shape)
    if own == out:
        return "full"
    if all(d == 1 for d in own):
        return "scalar"
    return "channel" if own == (1, out[1], *[1] * (len(out) - 2)) else None
