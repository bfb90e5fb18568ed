"""Attention: the cases that are one op here; ONNX's own function of the op type does the others."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.frontends.common.values import constant, size_value
from rlx.frontends.onnx.node import Node, Result, Rows
from rlx.ir.value import Value
from rlx.ops.movement.constant import Iota
from rlx.ops.movement.slicing import Concat
from rlx.ops.nn.attention import Attention
from rlx.types import Dim, DType, SymDim, bool_, i64

__all__ = ["ROWS"]


def attention(n: Node) -> Any:
    """Of heads that are equally wide in keys and values; masks become what is added to scores.
    A query that sees no key gives zeros."""
    q, k, v = n[0], n[1], n[2]
    heads, kv_heads = _heads(n, q, "q_num_heads"), _heads(n, k, "kv_num_heads")
    if n.has(6) or n.wants(3) or isinstance(heads, SymDim) or isinstance(kv_heads, SymDim):
        return NotImplemented
    n.ignore("softmax_precision", "qk_matmul_output_mode")  # 16-bit floats are computed in f32
    flat, past = q.rank == 3, 0
    q, k, v = (_split(x, h) if flat else x for x, h in ((q, heads), (k, kv_heads), (v, kv_heads)))
    if n.has(4) and n.has(5):
        past = n[4].shape[2]
        k, v = Concat(n[4], k, 2).out, Concat(n[5], v, 2).out
    if not q.dtype is k.dtype is v.dtype or k.shape != v.shape or k.shape[3] != q.shape[3]:
        return NotImplemented
    mask = _mask(n, q, k, past)
    if mask is NotImplemented:
        return NotImplemented
    kind, bias = mask
    out = Attention.build(
        q, k, v, bias, mask_kind=kind, layout="bhsd",
        scale=n.attr("scale", None), softcap=n.attr("softcap", 0.0),
    )  # fmt: skip
    if bias is not None:
        none = bias.max(axes=[bias.rank - 1], keepdims=True).eq(constant(-np.inf, bias.dtype))
        out = none.where(constant(0, out.dtype), out)
    batch, length = q.shape[0], q.shape[2]
    packed = out.transpose([0, 2, 1, 3]).reshape([batch, length, heads * q.shape[3]])
    results: list[Result] = [packed if flat else out, k, v]
    return results


def _heads(n: Node, x: Value, name: str) -> Dim:
    said = n.attr(name, 0)
    return said if x.rank == 3 else x.shape[1]


def _split(x: Value, heads: int) -> Value:
    """[B, S, H * D] as [B, H, S, D]."""
    batch, length, width = x.shape
    return x.reshape([batch, length, heads, width // heads]).transpose([0, 2, 1, 3])


def _mask(n: Node, q: Value, k: Value, past: Dim) -> Any:
    """The kind of mask that attention has for the node's, and its tensor; NotImplemented if it
    has none."""
    mask, causal = n.optional(3), bool(n.attr("is_causal", 0))
    queries, keys = q.shape[2], k.shape[2]
    # From opset 25 on: how far back and ahead a query sees.
    if n.attr("left_window_size", -1) >= 0 or n.attr("right_window_size", -1) >= 0:
        return NotImplemented
    if mask is None:
        if not causal or past + queries == keys:
            return ("causal" if causal else "none"), None
        return "bias", _hidden(_causal(queries, keys, past), q.dtype)
    if mask.rank < 2 or mask.shape[-1] != keys:
        return NotImplemented
    if causal:
        seen = _causal(queries, keys, past)
        if mask.dtype is bool_:
            mask = mask.logical_and(seen)
        else:
            mask = seen.where(mask, constant(-np.inf, mask.dtype))
    return "bias", _hidden(mask, q.dtype) if mask.dtype is bool_ else mask


def _causal(queries: Dim, keys: Dim, past: Dim) -> Value:
    """Which keys a query sees: those at and before its position, the first one being at 0 behind
    the keys of the past."""
    row, column = (Iota((queries, keys), axis, i64).out for axis in (0, 1))
    return column.le(row + size_value(past))


def _hidden(seen: Value, dt: DType) -> Value:
    return seen.where(constant(0, dt), constant(-np.inf, dt))


ROWS: Rows = {"Attention": attention}
