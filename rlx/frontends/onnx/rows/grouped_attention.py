"""Attention of grouped heads over a cache (``com.microsoft.GroupQueryAttention``)."""

from __future__ import annotations

import numpy as np

from rlx.base.dims import maximum
from rlx.errors import ModelError, UnsupportedError
from rlx.frontends.common.values import constant, scalar, size_value
from rlx.frontends.onnx.node import Node, Result
from rlx.ir.value import Value
from rlx.ops.movement.constant import Iota
from rlx.ops.nn.attention import Attention
from rlx.ops.sugar import concat
from rlx.types import Dim, i64

__all__ = ["group_query", "joined", "rotated", "split_heads"]


def split_heads(x: Value, heads: int, width: int) -> Value:
    """[B, S, H * D] as [B, H, S, D], D being ``width``."""
    batch, length, _ = x.shape
    return x.reshape([batch, length, heads, width]).transpose([0, 2, 1, 3])


def joined(x: Value) -> Value:
    """[B, H, S, D] as [B, S, H * D]."""
    batch, heads, length, width = x.shape
    assert isinstance(heads, int) and isinstance(width, int), "they were split"
    return x.transpose([0, 2, 1, 3]).reshape([batch, length, heads * width])


def rotated(x: Value, c: Value, s: Value, end: int, pairs: bool) -> Value:
    """The first ``end`` elements of each row of x [B, H, S, D] turned by angles whose cosines and
    sines [..., S, end / 2] are given: pairs of neighbours, or of the two halves."""
    shape, half = list(x.shape[:-1]), end // 2
    if pairs:
        both = x[..., :end].reshape([*shape, half, 2])
        a, b = both[..., 0], both[..., 1]
        mixed = [(a * c - b * s).unsqueeze(-1), (b * c + a * s).unsqueeze(-1)]
        out = concat(mixed, -1).reshape([*shape, end])
    else:
        a, b = x[..., :half], x[..., half:end]
        out = concat([a * c - b * s, b * c + a * s], -1)
    rest = x[..., end:]
    return concat([out, rest], -1) if end < x.type.with_shape(x.shape[-1:]).static_shape[0] else out


def group_query(n: Node) -> list[Result]:
    """Queries, keys and values, apart or in one; the keys and values of before; the places of the
    new ones, which a batch may have behind pasts of different lengths; rotary embedding."""
    if n.has(11) or n.has(12) or n.has(13) or n.attr("smooth_softmax", 0) > 0 or n.wants(3):
        raise UnsupportedError("it has sinks, a smooth softmax, scales of a cache or scores as a"
                               " result, which are not there")  # fmt: skip
    if not n.has(5) or n.has(1) != n.has(2) or n.has(3) != n.has(4):
        raise ModelError("its lengths, its values, or one of its pasts is not given")
    n.ignore("kv_cache_bit_width", "qk_output", "k_quant_type", "v_quant_type")
    heads, few = int(n.need("num_heads")), int(n.need("kv_num_heads"))
    q, k, v = _parts(n, heads, few)
    start = _start(n, q.shape[2])
    if n.attr("do_rotary", 0):
        q, k = _turned(n, start, q, k)
    if not n.has(3):
        window = n.attr("local_window_size", -1)
        kind = "sliding_window" if window > 0 else "causal"
        keys, values = k, v
        bias = n.optional(10)
        if bias is not None:
            kind, bias = "bias", bias + _hidden(n, start, q, k.shape[2])
    else:
        keys, values = (_appended(n, n[i], new, start) for i, new in ((3, k), (4, v)))
        kind, bias, window = "bias", _hidden(n, start, q, keys.shape[2]), -1
        bias = bias if n.optional(10) is None else bias + n[10]
    out = Attention.build(
        q, keys, values, bias, mask_kind=kind, layout="bhsd", scale=n.attr("scale", 0.0) or None,
        softcap=n.attr("softcap", 0.0), **({"window": window - 1} if kind[0] == "s" else {}),
    )  # fmt: skip
    return [joined(out), keys, values]


def _parts(n: Node, heads: int, few: int) -> tuple[Value, Value, Value]:
    if n.has(1):
        width = n[0].type.with_shape(n[0].shape[2:]).static_shape[0] // heads
        return (split_heads(n[0], heads, width), split_heads(n[1], few, width),
                split_heads(n[2], few, width))  # fmt: skip
    width = n[0].type.with_shape(n[0].shape[2:]).static_shape[0] // (heads + 2 * few)
    both = split_heads(n[0], heads + 2 * few, width)
    return (both.narrow(1, 0, heads), both.narrow(1, heads, few), both.narrow(1, heads + few, few))


def _start(n: Node, length: Dim) -> Value:
    """How many keys each sequence has from before, [B]."""
    total = n[5].cast(i64).reshape([n[0].shape[0]]) + 1
    if not n.has(3):
        return total.zeros_like()
    if not n.has(6):
        raise ModelError("its total length is not given")
    # Where all is new, sequences may be shorter than the tensor.
    new = size_value(length)
    return n[6].cast(i64).reshape([1]).eq(new).where(scalar(0, total), total - new)


def _turned(n: Node, start: Value, q: Value, k: Value) -> tuple[Value, Value]:
    if not n.has(7) or not n.has(8):
        raise ModelError("it turns its queries and keys, and cosines or sines are not given")
    batch, length = q.shape[0], q.shape[2]
    behind = start.unsqueeze(-1) + Iota((batch, length), 1, i64).out
    places = n[9].cast(i64) if n.has(9) else behind
    c, s = (n[i].gather(places, axis=0).unsqueeze(1) for i in (7, 8))
    end = 2 * n[7].type.with_shape(n[7].shape[1:]).static_shape[0]
    pairs = bool(n.attr("rotary_interleaved", 0))
    return rotated(q, c, s, end, pairs), rotated(k, c, s, end, pairs)


def _appended(n: Node, past: Value, new: Value, start: Value) -> Value:
    """The keys or values of before with the new ones behind those that count, and 0 behind
    these."""
    (total,) = n.dims(6)
    before, added = past.shape[2], new.shape[2]
    after = maximum(before, total)
    batch, heads, _, width = new.shape
    at = Iota((batch, after), 1, i64).out
    first = start.unsqueeze(-1)
    is_new = at.ge(first).logical_and(at.lt(first + size_value(added)))
    source = is_new.where(at - first + size_value(before), at)
    kept = at.lt(first + size_value(added))
    both = concat([past, new], 2)
    index = kept.where(source, scalar(0, source)).reshape([batch, 1, after, 1])
    found = both.take_along_axis(index.expand([batch, heads, after, width]), axis=2)
    return kept.reshape([batch, 1, after, 1]).where(found, scalar(0, found))


def _hidden(n: Node, start: Value, q: Value, keys: Dim) -> Value:
    """What is added to scores: queries see the keys at and before them, so many of them."""
    batch, length = q.shape[0], q.shape[2]
    row = start.reshape([batch, 1, 1, 1]) + Iota((1, 1, length, 1), 2, i64).out
    column = Iota((1, 1, 1, keys), 3, i64).out
    seen, window = column.le(row), n.attr("local_window_size", -1)
    if window > 0:
        seen = seen.logical_and(column.gt(row - window))
    return seen.where(constant(0, q.dtype), constant(-np.inf, q.dtype))
