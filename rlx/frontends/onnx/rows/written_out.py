"""Attention that a model writes out as products and a softmax, recognised as the op that it is."""

from __future__ import annotations

import math

from rlx.ir.value import Value
from rlx.ops.matmul.contraction import MatMul
from rlx.ops.movement.constant import Constant
from rlx.ops.movement.movement import Expand, Reshape, Transpose
from rlx.ops.nn.attention import Attention
from rlx.ops.nn.normalization import Softmax
from rlx.ops.pointwise.binary import Add, Div, Mul
from rlx.ops.pointwise.compare import IsNan, Where

__all__ = ["attended"]


def attended(weights: Value, v: Value) -> Value | None:
    """``softmax(scale * q kᵀ + bias) v`` as one op; None for any other product.

    q, k and v are ``[batch, heads, length, elements of a head]``; k and v may be heads that are
    repeated. What is 0 for nan in the weights, as torch has it, is the op's own for a row that is
    hidden whole.
    """
    softmax = _without_nan(weights).op
    if not isinstance(softmax, Softmax) or softmax.axis != weights.rank - 1 or weights.rank != 4:
        return None
    for whole, bias in _parted(softmax.x):
        scores, scale = _scaled(whole)
        if not isinstance(scores.op, MatMul):
            continue
        (q, first), (turned, second) = _scaled(scores.op.a), _scaled(scores.op.b)
        k, third = _scaled(_turned_back(turned))
        if whole.shape != softmax.x.shape or (bias is not None and bias.dtype is not q.dtype):
            continue  # a bias that adds rows or heads, or of another type
        few, own = _few(k), _few(v)
        if few.shape[1] != own.shape[1]:
            few, own = k, v
        if _fits(q, few, own):
            kind = "none" if bias is None else "bias"
            return Attention.build(
                q, few, own, bias, mask_kind=kind, layout="bhsd",
                scale=scale * first * second * third,
            )  # fmt: skip
    return None


def _fits(q: Value, k: Value, v: Value) -> bool:
    if not (q.rank == k.rank == v.rank == 4 and k.shape == v.shape and q.dtype.is_float):
        return False
    heads, few, width = q.shape[1], k.shape[1], q.shape[3]
    if not isinstance(heads, int) or not isinstance(few, int) or not isinstance(width, int):
        return False
    return q.shape[0] == k.shape[0] and width == k.shape[3] and few > 0 and heads % few == 0


def _without_nan(x: Value) -> Value:
    """What is chosen where x is no nan, and 0 where it is."""
    op = x.op
    if not (isinstance(op, Where) and isinstance(op.cond.op, IsNan) and op.cond.op.x is op.b):
        return x
    return op.b if _number(op.a) == 0.0 else x


def _parted(x: Value) -> list[tuple[Value, Value | None]]:
    """Scores, and what may be added to them."""
    if not isinstance(x.op, Add):
        return [(x, None)]
    return [(x.op.lhs, x.op.rhs), (x.op.rhs, x.op.lhs)]


def _number(x: Value) -> float | None:
    """The number that a value is, everywhere; None if it is not known."""
    while isinstance(x.op, Expand | Reshape):
        x = x.op.x
    if isinstance(x.op, Constant) and x.op.value.size == 1:
        return float(x.op.value.reshape(()))
    return None


def _scaled(x: Value) -> tuple[Value, float]:
    """A value without the finite numbers other than 0 that it is multiplied by, and their
    product."""
    factor = 1.0
    while isinstance(x.op, Mul | Div):
        left, right = _number(x.op.lhs), _number(x.op.rhs)
        if right is not None and x.op.lhs.shape == x.shape:
            number, rest = (right if isinstance(x.op, Mul) or not right else 1 / right), x.op.lhs
        elif left is not None and isinstance(x.op, Mul) and x.op.rhs.shape == x.shape:
            number, rest = left, x.op.rhs
        else:
            break
        if not math.isfinite(number) or number == 0.0:
            break
        factor, x = factor * number, rest
    return x, factor


def _turned_back(x: Value) -> Value:
    """Matrices turned, without a second turn of those that were turned already."""
    order = list(range(x.rank))
    order[-1], order[-2] = order[-2], order[-1]
    if isinstance(x.op, Transpose) and list(x.op.perm) == order:
        return x.op.x
    return x.swapaxes(-1, -2)


def _few(x: Value) -> Value:
    """The heads of which each is repeated for several queries, before they are."""
    wide = x.op.x if isinstance(x.op, Reshape) else x
    if not isinstance(wide.op, Expand) or wide.rank != 5 or x.rank != 4:
        return x
    few = wide.op.x
    batch, heads, times, *rest = wide.shape
    if list(few.shape) != [batch, heads, 1, *rest]:
        return x
    whole = isinstance(heads, int) and isinstance(times, int) and x.shape[1] == heads * times
    return few.reshape([batch, heads, *rest]) if whole else x
