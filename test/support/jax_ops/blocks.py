"""What a model builder says in one word: dense layers, gates, whole layers of models."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from rlx.ir.op import op_class
from support.jax_ops import pointwise
from support.jax_ops.networks import (
    attention,
    layer_norm,
    merged_heads,
    rms_norm,
    rotated,
    split_heads,
)
from support.jax_ops.peer import Table, jnp, lax, nn

__all__ = ["OPS"]

Norm = Callable[..., Any]


def _named(f: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """A function of a node and of its operands by name."""

    def counterpart(n: Any, *arrays: Any) -> Any:
        names = (field.name for field in n.operand_fields)
        return f(n, SimpleNamespace(**dict(zip(names, arrays, strict=True))))

    return counterpart


def _activated(name: str, x: Any) -> Any:
    """A function that is given by name, with its attributes as they are by default."""
    if name == "none":
        return x
    op = f"mir.{name}"
    defaults = {a.name: a.default for a in op_class(op).attr_fields}
    return pointwise.OPS[op](SimpleNamespace(**defaults), x)


def _dense(n: Any, x: Any, w: Any, b: Any = None) -> Any:
    y = jnp.einsum("...k,nk->...n" if n.attrs.get("transposed") else "...k,kn->...n", x, w)
    return y if b is None else y + b


def _linear(n: Any, x: Any, w: Any, b: Any) -> Any:
    return _activated(n.activation, _dense(n, x, w, b))


def _swiglu(n: Any, x: Any, up: Any, gate: Any, down: Any) -> Any:
    return _dense(n, _dense(n, x, up) * nn.silu(_dense(n, x, gate)), down)


def _residual(norm: Norm) -> Callable[..., Any]:
    def normed(n: Any, x: Any, residual: Any, gamma: Any, beta: Any, bias: Any) -> Any:
        return norm(x + residual + (0 if bias is None else bias), gamma, beta, n.eps)

    return normed


def _depthwise(n: Any, x: Any, w: Any, left: Any) -> Any:
    """A grouped convolution over the sequence with what lies before it."""
    taps = w.shape[2]
    left = jnp.zeros((x.shape[0], taps - 1, x.shape[2])) if left is None else left
    line = jnp.concatenate([left, x], 1).swapaxes(1, 2)
    return lax.conv_general_dilated(
        line, w, (1,), [(0, 0)], feature_group_count=x.shape[2]
    ).swapaxes(1, 2)


def _turned(x: Any, heads: int, cos: Any, sin: Any, n_rot: int | None = None) -> Any:
    """Rotary embedding of heads [B, S, H D], or none without tables."""
    if cos is None:
        return x
    split = split_heads(x, heads)
    return merged_heads(rotated(split, cos, sin, n_rot or split.shape[-1]))


def _attended(n: Any, q: Any, k: Any, v: Any, mask: Any = None, **changes: Any) -> Any:
    """Attention with the attributes of a block; a head's size gives the scale."""
    attrs = {"mask_kind": "none" if mask is None else "custom", "window": 0, "softcap": 0.0}
    attrs |= {"kv_heads": n.num_heads, "layout": "bshd", **n.attrs, **changes}
    attrs["scale"] = (q.shape[-1] // n.num_heads) ** -0.5
    return attention(SimpleNamespace(**attrs), q, k, v, mask)


def _attention_block(n: Any, p: Any) -> Any:
    qkv = _dense(n, p.hidden, p.qkv_w, p.qkv_b)
    d = qkv.shape[-1] // (n.num_heads + 2 * n.kv_heads)
    q, k, v = jnp.split(qkv, [n.num_heads * d, (n.num_heads + n.kv_heads) * d], -1)
    q, k = _turned(q, n.num_heads, p.cos, p.sin), _turned(k, n.kv_heads, p.cos, p.sin)
    return _dense(n, _attended(n, q, k, v, p.mask), p.out_w, p.out_b)


def _bert_layer(n: Any, p: Any) -> Any:
    parts = ((p.wq, p.bq), (p.wk, p.bk), (p.wv, p.bv))
    context = _attended(n, *(_dense(n, p.x, w, b) for w, b in parts), p.mask)
    y = layer_norm(p.x + _dense(n, context, p.wo, p.bo), p.ln1_gamma, p.ln1_beta, n.eps)
    inner = _activated(n.activation, _dense(n, y, p.fc1_w, p.fc1_b))
    return layer_norm(y + _dense(n, inner, p.fc2_w, p.fc2_b), p.ln2_gamma, p.ln2_beta, n.eps)


def _llama_decoder_block(n: Any, p: Any) -> Any:
    x = rms_norm(p.x, p.ln1_gamma, p.ln1_beta, n.eps)
    q, k, v = (_dense(n, x, w) for w in (p.wq, p.wk, p.wv))
    q, k = _turned(q, n.num_heads, p.cos, p.sin), _turned(k, n.kv_heads, p.cos, p.sin)
    y = p.x + _dense(n, _attended(n, q, k, v, p.mask), p.wo)
    return y + _swiglu(n, rms_norm(y, p.ln2_gamma, p.ln2_beta, n.eps), p.up, p.gate, p.down)


def _qwen35_mtp_head(n: Any, p: Any) -> Any:
    norm = lambda x, gamma: rms_norm(x, gamma, None, n.eps)
    each = lambda x, heads: x.reshape(*x.shape[:2], heads, -1)
    flat = lambda x: x.reshape(*x.shape[:2], -1)
    both = [norm(p.hidden, p.hidden_norm), norm(p.embedding, p.embedding_norm)]
    x = _dense(n, jnp.concatenate(both, -1), p.eh_proj)
    inner = norm(x, p.attention_norm)
    q, gate = jnp.split(each(_dense(n, inner, p.wq), n.num_heads), 2, -1)
    k = each(_dense(n, inner, p.wk), n.kv_heads)
    q = _turned(flat(norm(q, p.q_norm)), n.num_heads, p.cos, p.sin, n.n_rot)
    k = _turned(flat(norm(k, p.k_norm)), n.kv_heads, p.cos, p.sin, n.n_rot)
    seen = _attended(n, q, k, _dense(n, inner, p.wv), mask_kind="causal")
    y = x + _dense(n, seen * nn.sigmoid(flat(gate)), p.wo)
    y = y + _swiglu(n, norm(y, p.ffn_norm), p.up, p.gate, p.down)
    return _dense(n, norm(y[:, -1], p.head_norm), p.lm_head)


OPS: Table = {
    "hir.attention_block": _named(_attention_block),
    "hir.bert_layer": _named(_bert_layer),
    "hir.depthwise_conv1d_causal": _depthwise,
    "hir.linear": _linear,
    "hir.linear_fused": _linear,
    "hir.llama_decoder_block": _named(_llama_decoder_block),
    "hir.lora_matmul": lambda n, x, w, a, b: x @ (w + n.scale * (a @ b)),
    "hir.qwen35_mtp_head": _named(_qwen35_mtp_head),
    "hir.residual_layer_norm": _residual(layer_norm),
    "hir.residual_rms_norm": _residual(rms_norm),
    "hir.shared_linear_pair": lambda n, x, w1, w2: (x @ w1, x @ w2),
    "hir.swiglu": _swiglu,
}
