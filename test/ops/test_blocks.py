"""Blocks against the same formulas in numpy, and what their builders fill in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlx.errors import GraphError
from rlx.ir.graph import Graph
from rlx.ops import BUILDERS
from rlx.ops.nn.llama import LlamaDecoderBlock
from rlx.ops.nn.qwen import Qwen35MtpHead
from rlx.ops.nn.transformer import BertLayer
from rlx.ops.pointwise.functions import activations
from support.evaluate import call

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
G = Graph()


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape) * 0.5


def close(found: Array, want: Array) -> None:
    np.testing.assert_allclose(found, want, rtol=1e-11, atol=1e-12)


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def rms(x: Array, gamma: Array, eps: float) -> Array:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * gamma


def layer_norm(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    c = x - x.mean(-1, keepdims=True)
    return c / np.sqrt((c * c).mean(-1, keepdims=True) + eps) * gamma + beta


def attend(q: Array, k: Array, v: Array, heads: int, hidden: Array) -> Array:
    """Attention of [B, S, heads * D]; ``hidden`` broadcasts to [B, heads, S, S]."""
    b, s, _ = q.shape
    q, k, v = (x.reshape(b, s, heads, -1).transpose(0, 2, 1, 3) for x in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    p = np.exp(np.where(hidden, -1e9, scores))
    out = p / p.sum(-1, keepdims=True) @ v
    return out.transpose(0, 2, 1, 3).reshape(b, s, -1)


def turn(x: Array, cos: Array, sin: Array, heads: int) -> Array:
    b, s, f = x.shape
    a, c = np.split(x.reshape(b, s, heads, -1), 2, axis=-1)
    cos, sin = cos[:, None], sin[:, None]
    return np.concatenate([a * cos - c * sin, c * cos + a * sin], -1).reshape(b, s, f)


def test_every_activation_of_the_library_has_a_name() -> None:
    x = np.abs(normal(2, 3)) + 0.5
    w = np.eye(3)
    for name, op in activations().items():
        assert BUILDERS[name] == op.name
        close(
            call(lambda x, w, n=name: G.linear(x, w, activation=n), x, w),
            call(lambda x, o=op: o(x).out, x),
        )


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(5, 3), (2, 5, 3)])
def test_linear(shape: tuple[int, ...], bias: bool) -> None:
    x, w, b = normal(*shape), normal(3, 4), normal(4)
    more = [b] if bias else []
    want = np.maximum(x @ w + (b if bias else 0), 0)
    close(call(lambda *v: G.linear(*v, activation="relu"), x, w, *more), want)
    close(call(lambda *v: G.linear(*v, activation="relu", transposed=True), x, w.T, *more), want)
    if bias:
        close(call(lambda *v: G.linear_fused(*v, activation="relu"), x, w, b), want)


def test_linear_fused_needs_its_bias() -> None:
    with pytest.raises(GraphError, match="needs its operand 'b'"):
        call(G.linear_fused, normal(2, 3), normal(3, 4))


def test_shared_linear_pair() -> None:
    x, w1, w2 = normal(2, 3), normal(3, 4), normal(3, 5)
    first, second = call(G.shared_linear_pair, x, w1, w2)
    close(first, x @ w1)
    close(second, x @ w2)


@pytest.mark.parametrize("transposed", [False, True])
def test_swiglu(transposed: bool) -> None:
    x, up, gate, down = normal(2, 3), normal(3, 4), normal(3, 4), normal(4, 2)
    want = (x @ up * silu(x @ gate)) @ down
    weights = [w.T if transposed else w for w in (up, gate, down)]
    close(call(lambda *v: G.swiglu(*v, transposed=transposed), x, *weights), want)


def test_residual_rms_norm() -> None:
    x, r, gamma, beta = normal(2, 4), normal(2, 4), normal(4), normal(4)
    close(call(lambda *v: G.residual_rms_norm(*v, eps=0.1), x, r, gamma), rms(x + r, gamma, 0.1))
    found = call(G.residual_rms_norm, x, r, gamma, beta)
    close(found, rms(x + r, gamma, 1e-5) + beta)


def test_residual_norms_with_a_bias() -> None:
    x, r, gamma, beta, bias = normal(2, 4), normal(2, 4), normal(4), normal(4), normal(4)
    summed = x + r + bias
    found = call(G.residual_rms_norm, x, r, gamma, beta, bias)
    close(found, rms(summed, gamma, 1e-5) + beta)
    found = call(lambda *v: G.residual_layer_norm(*v, eps=0.1), x, r, gamma, beta, bias)
    close(found, layer_norm(summed, gamma, beta, 0.1))


@pytest.mark.parametrize("gate_first", [False, True])
def test_gated_silu(gate_first: bool) -> None:
    x, w = normal(2, 3), normal(3, 8)
    first, second = np.split(x @ w, 2, -1)
    want = second * silu(first) if gate_first else first * silu(second)
    close(call(lambda x, w: (x @ w).gated_silu(gate_first=gate_first), x, w), want)


@pytest.mark.parametrize("rope", [False, True])
def test_attention_block(rope: bool) -> None:
    x, qkv, bias, out, out_bias = (
        normal(2, 3, 4),
        normal(4, 24),
        normal(24),
        normal(8, 5),
        normal(5),
    )
    mask, tables = np.array([[1, 1, 0], [1, 0, 1]]), [np.cos(normal(3, 2)), np.sin(normal(3, 2))]
    q, k, v = np.split(x @ qkv + bias, 3, -1)
    if rope:
        q, k = (turn(part, *tables, 2) for part in (q, k))
    want = attend(q, k, v, 2, mask[:, None, None] == 0) @ out + out_bias
    operands = [x, qkv, out, mask, bias, out_bias, *(tables if rope else [])]
    close(call(lambda *v: G.attention_block(*v, num_heads=2), *operands), want)


def bert_operands() -> list[Array]:
    square, row = (4, 4), (4,)
    shapes = [(2, 3, 4), *[square, row] * 4, row, row, (4, 6), (6,), (6, 4), row, row, row]
    return [normal(*s) for s in shapes]


def test_bert_layer() -> None:
    operands, mask = bert_operands(), np.array([[1, 1, 0], [1, 1, 1]])
    x, wq, bq, wk, bk, wv, bv, wo, bo, g1, h1, w1, b1, w2, b2, g2, h2 = operands
    context = attend(x @ wq + bq, x @ wk + bk, x @ wv + bv, 2, mask[:, None, None] == 0)
    y = layer_norm(x + context @ wo + bo, g1, h1, 1e-3)
    want = layer_norm(y + np.maximum(y @ w1 + b1, 0) @ w2 + b2, g2, h2, 1e-3)
    how = {"num_heads": 2, "activation": "relu", "eps": 1e-3}
    close(call(lambda *v: G.bert_layer(*v, **how), *operands, mask), want)
    names = [f.name for f in BertLayer.operand_fields]
    weights = ("wq", "wk", "wv", "wo", "fc1_w", "fc2_w")
    flipped = [v.T if n in weights else v for n, v in zip(names, operands, strict=False)]
    close(call(lambda *v: G.bert_layer(*v, **how, transposed=True), *flipped, mask), want)


def test_llama_decoder_block() -> None:
    x, g1, g2 = normal(2, 3, 8), normal(8), normal(8)
    wq, wk, wv, wo = normal(8, 16), normal(8, 8), normal(8, 8), normal(16, 8)
    gate, up, down = normal(8, 6), normal(8, 6), normal(6, 8)
    tables = [np.cos(normal(3, 2)), np.sin(normal(3, 2))]
    z = rms(x, g1, 1e-5)
    q, k = turn(z @ wq, *tables, 4), turn(z @ wk, *tables, 2)
    k, v = (np.repeat(p.reshape(2, 3, 2, 4), 2, axis=2).reshape(2, 3, 16) for p in (k, z @ wv))
    y = x + attend(q, k, v, 4, np.triu(np.ones((3, 3)), 1) > 0) @ wo
    z = rms(y, g2, 1e-5)
    want = y + (z @ up * silu(z @ gate)) @ down
    named = {
        "x": x, "ln1_gamma": g1, "wq": wq, "wk": wk, "wv": wv, "wo": wo, "ln2_gamma": g2,
        "gate": gate, "up": up, "down": down, "cos": tables[0], "sin": tables[1],
    }  # fmt: skip

    def block(*values: Any) -> Any:
        operands = dict(zip(named, values, strict=True))
        return LlamaDecoderBlock.build(**operands, num_heads=4, kv_heads=2)

    close(call(block, *named.values()), want)


def test_qwen35_mtp_head() -> None:
    """Four query heads of 6 elements, of which the first 4 turn; two key heads."""
    eps = 1e-3
    named = {
        "hidden": normal(2, 3, 8), "embedding": normal(2, 3, 8), "hidden_norm": normal(8),
        "embedding_norm": normal(8), "eh_proj": normal(16, 8), "attention_norm": normal(8),
        "wq": normal(8, 48), "wk": normal(8, 12), "wv": normal(8, 12), "q_norm": normal(6),
        "k_norm": normal(6), "wo": normal(24, 8), "ffn_norm": normal(8), "gate": normal(8, 5),
        "up": normal(8, 5), "down": normal(5, 8), "head_norm": normal(8), "lm_head": normal(8, 9),
        "cos": np.cos(normal(3, 2)), "sin": np.sin(normal(3, 2)),
    }  # fmt: skip
    p = SimpleNamespace(**named)

    def turned(x: Array, gamma: Array) -> Array:
        heads = x.shape[2]
        x = rms(x, gamma, eps)
        front = turn(x[..., :4].reshape(2, 3, -1), p.cos, p.sin, heads).reshape(2, 3, heads, 4)
        return np.concatenate([front, x[..., 4:]], -1)

    x = np.concatenate(
        [rms(p.hidden, p.hidden_norm, eps), rms(p.embedding, p.embedding_norm, eps)], -1
    )
    x = x @ p.eh_proj
    z = rms(x, p.attention_norm, eps)
    both = (z @ p.wq).reshape(2, 3, 4, 12)
    q, gate = turned(both[..., :6], p.q_norm), both[..., 6:]
    k = np.repeat(turned((z @ p.wk).reshape(2, 3, 2, 6), p.k_norm), 2, axis=2)
    v = np.repeat((z @ p.wv).reshape(2, 3, 2, 6), 2, axis=2)
    later = np.triu(np.ones((3, 3)), 1) > 0
    seen = attend(*(part.reshape(2, 3, 24) for part in (q, k, v)), 4, later)
    y = x + (seen / (1 + np.exp(-gate.reshape(2, 3, 24)))) @ p.wo
    z = rms(y, p.ffn_norm, eps)
    y = y + (z @ p.up * silu(z @ p.gate)) @ p.down
    want = rms(y[:, -1], p.head_norm, eps) @ p.lm_head

    def head(*values: Any) -> Any:
        operands = dict(zip(named, values, strict=True))
        return Qwen35MtpHead.build(**operands, num_heads=4, kv_heads=2, n_rot=4, eps=eps)

    close(call(head, *named.values()), want)
