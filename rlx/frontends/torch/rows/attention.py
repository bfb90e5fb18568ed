"""Scaled dot-product attention, whole where the heads of keys and values are equally wide."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rlx.frontends.common.values import constant
from rlx.frontends.torch.node import Node, Rows
from rlx.frontends.torch.rows.random import dropped
from rlx.ir.value import Value
from rlx.ops.movement.constant import Iota
from rlx.ops.movement.rearrange import repeat
from rlx.ops.nn.attention import Attention
from rlx.ops.pointwise.compare import Where
from rlx.types import Dim, bool_, i64

__all__ = ["ROWS"]


def attention(
    n: Node,
    q: Value,
    k: Value,
    v: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    """A query that sees no key gives zeros, as in torch."""
    scale = 1 / math.sqrt(int(q.shape[-1])) if scale is None else scale
    lead = q.shape[:-3]
    if q.rank > 4 and k.shape[:-3] == v.shape[:-3] == lead:
        q, k, v = (x.reshape([-1, *x.shape[-3:]]) for x in (q, k, v))
        attn_mask = _folded(attn_mask, lead)
    bias = _bias(n, q, k, attn_mask, is_causal)
    causal = is_causal and bias is None
    if dropout_p:
        out = _written_out(q, k, v, bias, causal, scale, lambda x: dropped(n, x, dropout_p))
    elif _whole(q, k, v):
        kind = "causal" if causal else "none" if bias is None else "bias"
        out = Attention.build(q, k, v, bias, mask_kind=kind, layout="bhsd", scale=scale)
    else:
        out = _written_out(q, k, v, bias, causal, scale)
    return out.reshape(n.shape)


def _folded(mask: Value | None, lead: tuple[Dim, ...]) -> Value | None:
    if mask is None or mask.rank <= 3:
        return mask
    return mask.expand([*lead, *mask.shape[-3:]]).reshape([-1, *mask.shape[-3:]])


def _whole(q: Value, k: Value, v: Value) -> bool:
    same = q.rank == 4 and k.shape == v.shape and k.shape[-1] == q.shape[-1]
    return same and q.shape[0] == k.shape[0] and q.dtype is k.dtype is v.dtype


def _bias(n: Node, q: Value, k: Value, mask: Value | None, causal: bool) -> Value | None:
    """What is added to the scores; none for a causal mask that attention has itself: torch's sees
    the first keys from the first query on, ours the last from the last."""
    queries, keys = q.shape[-2], k.shape[-2]
    if causal and queries != keys:
        row, column = (Iota((queries, keys), axis, i64).out for axis in (0, 1))
        mask = column.le(row)
    if mask is None:
        return None
    if mask.dtype is bool_:
        return Where.build(mask, constant(0, q.dtype), constant(-math.inf, q.dtype))
    return n.cast(mask, q.dtype)


def _written_out(
    q: Value, k: Value, v: Value, bias: Value | None, causal: bool, scale: float,
    drop: Callable[[Value], Value] = lambda x: x,
) -> Value:  # fmt: skip
    """By products: shapes that the op does not take, and dropout of the weights."""
    if q.rank > 2 and k.shape[-3] != q.shape[-3]:
        groups = int(q.shape[-3]) // int(k.shape[-3])
        k, v = repeat(k, groups, k.rank - 3), repeat(v, groups, v.rank - 3)
    scores = (q @ k.swapaxes(-1, -2)) * scale
    if causal:
        row, column = (Iota(scores.shape[-2:], axis, i64).out for axis in (0, 1))
        hidden = constant(-math.inf, scores.dtype)
        bias = Where.build(column.le(row), constant(0, scores.dtype), hidden)
    if bias is None:
        return drop(scores.softmax(-1)) @ v
    scores = scores + bias
    none = scores.reduce_max([scores.rank - 1], True).eq(constant(-math.inf, scores.dtype))
    return drop(Where.build(none, constant(0, scores.dtype), scores.softmax(-1))) @ v


def attention_of_cpu(
    n: Node, q: Value, k: Value, v: Value, dropout_p: float = 0.0, is_causal: bool = False,
    *, attn_mask: Value | None = None, scale: float | None = None,
) -> tuple[Value, Any]:  # fmt: skip
    """The kernel's form: the logarithms of the sums are for its derivative."""
    if dropout_p:
        n.refuse("it has dropout, whose mask the derivative would not see")
    out = attention(n, q, k, v, attn_mask, dropout_p, is_causal, scale=scale)
    scores = (q @ k.swapaxes(-1, -2)) * (
        1 / math.sqrt(int(q.shape[-1])) if scale is None else scale
    )
    if is_causal:
        row, column = (Iota(scores.shape[-2:], axis, i64).out for axis in (0, 1))
        scores = Where.build(column.le(row), scores, constant(-math.inf, scores.dtype))
    if attn_mask is not None:
        scores = scores + attn_mask
    return out, scores.logsumexp([scores.rank - 1])


ROWS: Rows = {
    "scaled_dot_product_attention": attention,
    "_scaled_dot_product_flash_attention_for_cpu": attention_of_cpu,
}
