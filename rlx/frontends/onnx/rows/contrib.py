"""Op types of the domain com.microsoft, which ONNX Runtime's optimisers write into models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.errors import ModelError, ShapeError, UnsupportedError
from rlx.frontends.common.values import constant, scalar, size_value
from rlx.frontends.onnx.node import Node, Result, Row, Rows
from rlx.frontends.onnx.rows import contraction, window
from rlx.frontends.onnx.rows.few_bits import gather_of_blocks, matmul_of_blocks
from rlx.frontends.onnx.rows.grouped_attention import group_query, joined, rotated
from rlx.frontends.onnx.rows.quantization import rounded
from rlx.ir.value import Value
from rlx.ops.matmul.contraction import MatMul
from rlx.ops.matmul.quantized import matmul_integer
from rlx.ops.movement.constant import Iota
from rlx.ops.nn.attention import Attention
from rlx.ops.nn.normalization import LayerNorm, RmsNorm
from rlx.ops.pointwise.activation import Gelu, GeluApprox, Sigmoid, Tanh
from rlx.ops.pointwise.rectifiers import HardSigmoid, LeakyRelu
from rlx.ops.pointwise.unary import Relu
from rlx.ops.sugar import concat
from rlx.types import bool_, f32, i32, i64, u8

__all__ = ["DOMAIN", "ROWS"]

DOMAIN = "com.microsoft."


def taking(least: int, most: int, row: Row) -> Row:
    """A row for so many inputs; ONNX has no schema that says it."""

    def checked(n: Node) -> Any:
        given = len(n.inputs)
        if not least <= given <= most or any(n.optional_edge(i) is None for i in range(least)):
            raise ModelError(f"it has {given} inputs, expected {least} to {most}")
        return row(n)

    return checked


# -- products ------------------------------------------------------------------------------


def matmul(n: Node) -> Value:
    if n.attr("transBatchA", 0) or n.attr("transBatchB", 0):
        raise UnsupportedError("it turns batch axes, which is not there")
    a, b = n[0], n[1]
    a = a.swapaxes(-1, -2) if n.attr("transA", 0) and a.rank > 1 else a
    b = b.swapaxes(-1, -2) if n.attr("transB", 0) and b.rank > 1 else b
    found, alpha = MatMul.build(a, b), n.attr("alpha", 1.0)
    return found if alpha == 1 else found * scalar(alpha, found)


def activated(n: Node, x: Value) -> Value:
    """What the attribute ``activation`` says of a fused product."""
    kind = n.attr("activation", "")
    params = n.attr("activation_params", ()) or (n.attr("activation_alpha", 0.0),
                                                 n.attr("activation_beta", 0.0))  # fmt: skip
    n.ignore("activation_gamma")
    known: dict[str, Callable[[], Value]] = {
        "": lambda: x,
        "Relu": lambda: Relu.build(x),
        "Tanh": lambda: Tanh.build(x),
        "Sigmoid": lambda: Sigmoid.build(x),
        "LeakyRelu": lambda: LeakyRelu.build(x, params[0]),
        "Clip": lambda: x.clip(params[0], params[1]),
        "HardSigmoid": lambda: HardSigmoid.build(x, params[0], params[1]),
    }
    if kind not in known:
        raise UnsupportedError(f"its activation is {kind!r}; there are {', '.join(known)[2:]}")
    return known[kind]()


def gemm(n: Node) -> Value:
    return activated(n, contraction.gemm(n))


def conv(n: Node) -> Value:
    found = window.conv(n)
    more = n.optional(3)
    return activated(n, found if more is None else found + more)


def _integers(n: Node, a: Value, b: Value, a_zero: int, b_zero: int) -> Value:
    return matmul_integer(a, b, n.zero_point(a_zero), n.zero_point(b_zero)).cast(f32)


def gemm_quantized(n: Node) -> Value:
    """8-bit integers; a bias in i32, of the scale of both factors; a float unless a scale of the
    result is there."""
    a, b = n[0], n[3]
    a = a.T if n.attr("transA", 0) else a
    b = b.T if n.attr("transB", 0) else b
    total = matmul_integer(a, b, n.zero_point(2), n.zero_point(5))
    bias, scale = n.optional(6), n[1] * n[4] * scalar(n.attr("alpha", 1.0), n[1])
    total = total if bias is None else total + bias
    found = total.cast(f32) * scale
    return found if not n.has(7) else rounded(found / n[7], n.optional(8), _code(n, 8))


def _code(n: Node, i: int) -> Any:
    zero = n.optional(i)
    return u8 if zero is None else zero.dtype


def integers_as_floats(n: Node) -> Value:
    found = _integers(n, n[0], n[1], 4, 5) * n[2] * n[3]
    bias = n.optional(6)
    return found if bias is None else found + bias


def rows_as_integers(n: Node) -> Value:
    """The left factor gets a scale and a zero point of its own, from its ends."""
    x = n[0]
    low, high = x.min().minimum(0.0), x.max().maximum(0.0)
    scale = (high - low) / 255.0
    scale = scale.eq(0.0).where(1.0, scale)
    zero = rounded(-low / scale, None, u8)
    q = rounded(x / scale, zero, u8)
    found = matmul_integer(q, n[1], zero, n.zero_point(3)).cast(f32) * scale * n[2]
    bias = n.optional(4)
    return found if bias is None else found + bias


# -- elements ------------------------------------------------------------------------------


def biased(op: type[Gelu] | type[GeluApprox]) -> Row:
    """An activation of an operand, with something added to it if that is there."""

    def row(n: Node) -> Value:
        bias = n.optional(1)
        return op.build(n[0] if bias is None else n[0] + bias)

    return row


def quick_gelu(n: Node) -> Value:
    return n[0] * Sigmoid.build(n[0] * scalar(n.attr("alpha", 1.702), n[0]))


def _float(n: Node, at: int) -> Value:
    """Integers with the scale and the zero point behind them, as floats."""
    zero = n.zero_point(at + 2)
    wide = n[at].cast(i32)
    return (wide if zero is None else wide - zero.cast(i32)).cast(f32) * n[at + 1]


def of_floats(function: Callable[..., Value], count: int) -> Row:
    """A function of integers that stand for floats, as such integers."""

    def row(n: Node) -> Value:
        found = function(n, *(_float(n, 3 * i) for i in range(count)))
        end = 3 * count
        return rounded(found / n[end], n.optional(end + 1), n[0].dtype)

    return row


# -- norms ---------------------------------------------------------------------------------


def skipped(op: type[LayerNorm] | type[RmsNorm], usual: float) -> Row:
    """A norm of a sum, which is a result too."""

    def row(n: Node) -> list[Result]:
        if n.wants(1) or n.wants(2):
            raise UnsupportedError("its mean and deviation are results, which is not there")
        at = 4 if op is LayerNorm else 3
        total, bias = n[0] + n[1], n.optional(at)
        total = total if bias is None else total + bias
        beta = n.optional(3) if op is LayerNorm else None
        found = op.build(total, n[2], beta, total.rank - 1, n.attr("epsilon", usual))
        return [found, None, None, total]

    return row


def simplified(n: Node) -> Value:
    n.ignore("stash_type")
    x = n[0]
    axis = n.axis(-1)
    if axis != x.rank - 1:
        raise UnsupportedError(f"it normalises from axis {axis} on; the last alone is there")
    return RmsNorm.build(x, n[1], None, axis, n.attr("epsilon", 1e-5))


# -- attention -----------------------------------------------------------------------------


def _split(x: Value, heads: int) -> Value:
    """[B, S, H * D] as [B, H, S, D]."""
    batch, length, width = x.shape
    if not isinstance(width, int) or width % heads:
        raise ShapeError(f"{x.type} does not hold {heads} heads")
    return x.reshape([batch, length, heads, width // heads]).transpose([0, 2, 1, 3])


def _hidden(n: Node, mask: Value | None, keys: Any, q: Value) -> Value | None:
    """What a mask of keys adds to scores: [B, keys], 0 for hidden ones, or [B] lengths."""
    least = n.attr("mask_filter_value", -10000.0)
    if mask is None:
        return None
    if mask.rank == 1 and mask.shape[0] == q.shape[0]:
        mask = Iota((1, keys), 1, i64).out.lt(mask.cast(i64).unsqueeze(-1))
    if mask.rank != 2:
        raise UnsupportedError(f"its mask is {mask.type}; one of [batch, keys] or [batch] is there")
    seen = mask if mask.dtype is bool_ else mask.ne(scalar(0, mask))
    return seen.where(constant(0, q.dtype), constant(least, q.dtype)).unsqueeze(1).unsqueeze(1)


def _attended(n: Node, q: Value, k: Value, v: Value, biases: list[Value | None]) -> Value:
    if k.shape != v.shape:
        raise UnsupportedError(f"its keys {k.type} and values {v.type} are of different widths")
    bias: Value | None = None
    if n.attr("unidirectional", 0):
        row, column = (Iota((q.shape[2], k.shape[2]), i, i64).out for i in (0, 1))
        seen = column.le(row + (size_value(k.shape[2]) - size_value(q.shape[2])))
        biases = [*biases, seen.where(constant(0, q.dtype), constant(-np.inf, q.dtype))]
    for b in biases:
        bias = b if bias is None else bias if b is None else bias + b
    scale = n.attr("scale", 0.0) or None
    kind = "none" if bias is None else "bias"
    return joined(Attention.build(q, k, v, bias, mask_kind=kind, layout="bhsd", scale=scale))


def multi_head(n: Node) -> list[Result]:
    """Queries, keys and values apart, with the keys and values of before in front."""
    if not n.has(1) or not n.has(2) or n[0].rank != 3:
        raise UnsupportedError("its queries, keys and values are packed; give them apart")
    heads = int(n.need("num_heads"))
    parts = [n[0], n[1], n[2]]
    bias, at = n.optional(3), 0
    for i, x in enumerate(parts):
        if bias is not None and x.rank == 3:
            width = x.type.with_shape(x.shape[2:]).static_shape[0]
            parts[i] = x + bias.narrow(0, at, width)
            at += width
    q, k, v = (_split(x, heads) if x.rank == 3 else x for x in parts)
    past = n.optional(6), n.optional(7)
    k, v = (new if old is None else concat([old, new], 2)
            for old, new in zip(past, (k, v), strict=True))  # fmt: skip
    if n.wants(3):
        raise UnsupportedError("the scores are a result of it, which is not there")
    found = _attended(n, q, k, v, [_hidden(n, n.optional(4), k.shape[2], q), n.optional(5)])
    return [found, k, v]


def packed(n: Node) -> list[Result]:
    """One product for queries, keys and values."""
    n.ignore("past_present_share_buffer")
    heads = int(n.need("num_heads"))
    sizes = n.attr("qkv_hidden_sizes", ())
    if n.attr("do_rotary", 0) or len(set(sizes)) > 1:
        raise UnsupportedError("it turns its queries, or has parts of different widths")
    both, bias = n[0].matmul(n[1]), n.optional(2)
    both = both if bias is None else both + bias
    q, k, v = (_split(x, heads) for x in both.split(3, -1))
    past = n.optional(4)
    if past is not None:
        k, v = concat([past[0], k], 2), concat([past[1], v], 2)
    found = _attended(n, q, k, v, [_hidden(n, n.optional(3), k.shape[2], q), n.optional(5)])
    return [found, concat([k.unsqueeze(0), v.unsqueeze(0)], 0)]


def turned(n: Node) -> Value:
    """Rotary embedding by the positions of a batch, of pairs or of halves."""
    x, places, cos, sin = n[0], n[1], n[2], n[3]
    heads, part = n.attr("num_heads", 0), n.attr("rotary_embedding_dim", 0)
    if n.attr("is_packed_batching", 0) or n.attr("scale", 1.0) != 1:
        raise UnsupportedError("it packs sequences or scales, which is not there")
    half = cos.type.static_shape[1]
    flat = x.rank == 3
    if flat:
        width = x.type.with_shape(x.shape[2:]).static_shape[0]
        x = _split(x, heads or width // (2 * half))
    if places.type.size == 1 and places.rank == 1:
        places = places.cast(i64) + Iota((1, x.shape[2]), 1, i64).out
    c, s = (t.gather(places, axis=0).unsqueeze(1) for t in (cos, sin))
    out = rotated(x, c, s, part or 2 * half, bool(n.attr("interleaved", 0)))
    return joined(out) if flat else out


ROWS: Rows = {
    **{f"{DOMAIN}{name}": taking(*row) for name, row in {
        "FusedMatMul": (2, 2, matmul), "FusedGemm": (2, 3, gemm), "FusedConv": (2, 4, conv),
        "QGemm": (6, 9, gemm_quantized), "MatMulIntegerToFloat": (4, 7, integers_as_floats),
        "DynamicQuantizeMatMul": (3, 5, rows_as_integers),
        "MatMulNBits": (3, 6, matmul_of_blocks), "GatherBlockQuantized": (3, 4, gather_of_blocks),
        "Gelu": (1, 1, biased(Gelu)),
        "BiasGelu": (2, 2, biased(Gelu)), "FastGelu": (1, 2, biased(GeluApprox)),
        "QuickGelu": (1, 1, quick_gelu),
        "QLinearAdd": (7, 8, of_floats(lambda n, a, b: a + b, 2)),
        "QLinearMul": (7, 8, of_floats(lambda n, a, b: a * b, 2)),
        "QLinearSigmoid": (4, 5, of_floats(lambda n, a: a.sigmoid(), 1)),
        "QLinearLeakyRelu": (4, 5, of_floats(
            lambda n, a: a.leaky_relu(n.attr("alpha", 0.01)), 1)),
        "SkipLayerNormalization": (3, 5, skipped(LayerNorm, 1e-12)),
        "SkipSimplifiedLayerNormalization": (3, 4, skipped(RmsNorm, 1e-12)),
        "MultiHeadAttention": (1, 8, multi_head), "Attention": (2, 6, packed),
        "RotaryEmbedding": (4, 4, turned), "GroupQueryAttention": (1, 14, group_query),
    }.items()},
    "SimplifiedLayerNormalization": taking(2, 2, simplified),
}  # fmt: skip
