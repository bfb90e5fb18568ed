"""Transformer blocks: self-attention with its projections, and the layer of BERT encoders."""

from __future__ import annotations

from typing import Any

from rlx.errors import DTypeError, GraphError, ShapeError
from rlx.ir.op import attr, bad, operand, optional, sample
from rlx.ir.value import Value
from rlx.ops.nn.attention import Attention
from rlx.ops.nn.attention_mask import check_kind, check_mask
from rlx.ops.nn.blocks import Block
from rlx.ops.nn.heads import static
from rlx.ops.nn.normalization import LayerNorm
from rlx.ops.nn.rope import Rope, check_tables
from rlx.types import TensorType

__all__ = ["AttentionBlock", "BertLayer"]


_TWO: dict[str, Any] = {"num_heads": 2, "kv_heads": 2}
_SMALL = ("2x3x4xf32", "4x12xf32", "4x4xf32")


class AttentionBlock(Block, name="hir.attention_block"):
    """Self-attention with its projections.

    One product makes q, k and v, which rotary embedding turns if there are tables; attention's
    result goes through the output product.

    The columns of ``qkv_w`` are those of q (H heads), then k and v (HK heads each). Masks are
    those of attention.
    """

    hidden: Value = operand("[B, S, E]")
    qkv_w: Value = operand("[E, (H + 2 HK) D]")
    out_w: Value = operand("[H D, N]")
    mask: Value | None = optional("as attention takes it")
    qkv_b: Value | None = optional("[(H + 2 HK) D]")
    out_b: Value | None = optional("[N]")
    cos: Value | None = optional("[S, D/2], with sin")
    sin: Value | None = optional("[S, D/2], with cos")
    num_heads: int = attr(doc="query heads H")
    kv_heads: int = attr(doc="key and value heads HK; divides num_heads")
    mask_kind: str = attr("none", "as attention has it")
    window: int = attr(0, "as attention has it")
    transposed: bool = attr(False, "the weights are [out, in], as PyTorch checkpoints keep them")

    samples = (
        sample("2x3x4xT", "4x12xT", "4x4xT", **_TWO),
        sample(
            "1x3x4xT", "16x4xT", "5x8xT", None, "16xT", "5xT", "3x1xT", "3x1xT",
            num_heads=4, kv_heads=2, mask_kind="causal", transposed=True,
        ),
        sample("2x3x4xT", "4x12xT", "4x4xT", "2x3xbool", mask_kind="custom", **_TWO),
    )  # fmt: skip
    bads = (
        bad("3x4xf32", *_SMALL[1:], match="rank 3", error=ShapeError, **_TWO),
        bad(*_SMALL, match="3 query heads", error=ShapeError, num_heads=3, kv_heads=2),
        bad(_SMALL[0], "4x13xf32", "4x4xf32", match="13 outputs", error=ShapeError, **_TWO),
        bad(*_SMALL[:2], "5x4xf32", match="out_w must be", error=ShapeError, **_TWO),
        bad(*_SMALL, *[None] * 3, "3x1xf32", match="cos and sin", error=GraphError, **_TWO),
        bad(*_SMALL, match="needs a mask", error=GraphError, mask_kind="custom", **_TWO),
        bad(*_SMALL[:2], "4x4xf16", match="one type", error=DTypeError, **_TWO),
    )

    @classmethod
    def build(
        cls, *operands: Any, num_heads: int, kv_heads: int | None = None, **rest: Any
    ) -> Value:
        """``kv_heads`` is num_heads unless given; mask_kind is "custom" with a mask, else
        "none"."""
        has_mask = rest.get("mask", operands[3] if len(operands) > 3 else None) is not None
        rest.setdefault("mask_kind", "custom" if has_mask else "none")
        return cls(*operands, num_heads=num_heads, kv_heads=kv_heads or num_heads, **rest).out

    def infer(self) -> TensorType:
        self.check_types(self.mask, self.cos, self.sin)
        self.check_rank("hidden", 3)
        b, s, e = self.hidden.shape
        packed = self.outputs_of("qkv_w", e)
        h, hk = self.num_heads, self.kv_heads
        if h < 1 or hk < 1 or h % hk or static(packed) % (h + 2 * hk):
            raise ShapeError(
                f"{self.short}: {h} query heads and {hk} key heads do not part {packed} outputs"
            )
        check_kind(self.mask_kind, self.window)
        check_mask(self.mask_kind, self.mask, (b, h, s, s))
        if (self.cos is None) != (self.sin is None):
            raise GraphError(f"{self.short}: cos and sin must be given together")
        if self.cos is not None and self.sin is not None:
            tables = (("cos", self.cos), ("sin", self.sin))
            check_tables(self.short, self.hidden, s, {self.head_dim // 2}, tables)
        outputs = self.outputs_of("out_w", h * self.head_dim)
        self.check(("qkv_b", (packed,)), ("out_b", (outputs,)))
        return self.hidden.type.with_shape((b, s, outputs))

    @property
    def head_dim(self) -> int:
        """Elements of one head, D."""
        packed = self.qkv_w.shape[0 if self.transposed else 1]
        return static(packed) // (self.num_heads + 2 * self.kv_heads)

    def expand(self) -> Value:
        d, h, hk = self.head_dim, self.num_heads, self.kv_heads
        qkv = self.dense(self.hidden, self.qkv_w, self.qkv_b)
        q, k, v = qkv.split([h * d, hk * d, hk * d], -1)
        if self.cos is not None and self.sin is not None:
            q, k = (Rope.build(x, self.cos, self.sin, d) for x in (q, k))
        context = Attention.build(
            q, k, v, self.mask, num_heads=h, kv_heads=hk,
            mask_kind=self.mask_kind, window=self.window,
        )  # fmt: skip
        return self.dense(context, self.out_w, self.out_b)


_TYPES = {
    "x": "2x3x4xT", "wq": "4x4xT", "bq": "4xT", "wk": "4x4xT", "bk": "4xT", "wv": "4x4xT",
    "bv": "4xT", "wo": "4x4xT", "bo": "4xT", "ln1_gamma": "4xT", "ln1_beta": "4xT",
    "fc1_w": "4x6xT", "fc1_b": "6xT", "fc2_w": "6x4xT", "fc2_b": "4xT",
    "ln2_gamma": "4xT", "ln2_beta": "4xT",
}  # fmt: skip


def _types(t: str = "f32", **changed: str) -> tuple[str, ...]:
    """The types of a small layer's operands; ``changed`` replaces some by name."""
    return tuple(v.replace("T", t) for v in (_TYPES | changed).values())


class BertLayer(Block, name="hir.bert_layer"):
    """A post-norm encoder layer as BERT has it (Devlin et al., 2018).

    y = layer_norm(x + attention(x)); the result is layer_norm(y + fc2(activation(fc1(y)))).
    Attention is over all tokens, or over those where the mask is 1.
    """

    x: Value = operand("[B, S, E]")
    wq: Value = operand("[E, E]")
    bq: Value = operand("[E]")
    wk: Value = operand("[E, E]")
    bk: Value = operand("[E]")
    wv: Value = operand("[E, E]")
    bv: Value = operand("[E]")
    wo: Value = operand("[E, E]")
    bo: Value = operand("[E]")
    ln1_gamma: Value = operand("[E]")
    ln1_beta: Value = operand("[E]")
    fc1_w: Value = operand("[E, F]")
    fc1_b: Value = operand("[F]")
    fc2_w: Value = operand("[F, E]")
    fc2_b: Value = operand("[E]")
    ln2_gamma: Value = operand("[E]")
    ln2_beta: Value = operand("[E]")
    mask: Value | None = optional("[B, S] of any type: tokens with mask >= 0.5 are seen")
    num_heads: int = attr(doc="heads; divides E")
    activation: str = attr("gelu", "an activation op")
    eps: float = attr(1e-12, "of both norms")
    transposed: bool = attr(False, "the weights are [out, in], as PyTorch checkpoints keep them")

    samples = (
        sample(*_types("T"), num_heads=2, activation="gelu_approx", eps=1e-5),
        sample(*_types("T"), "2x3xi64", data={17: "index:2"}, num_heads=1),
        sample(
            *_types("T", fc1_w="6x4xT", fc2_w="4x6xT"),
            num_heads=2, activation="silu", transposed=True, eps=1e-5,
        ),
    )  # fmt: skip
    bads = (
        bad(*_types(x="3x4xf32"), match="rank 3", error=ShapeError, num_heads=2),
        bad(*_types(), match="3 heads", error=ShapeError, num_heads=3),
        bad(*_types(wk="4x5xf32"), match="wk must be", error=ShapeError, num_heads=2),
        bad(*_types(fc2_w="4x6xf32"), match="fc2_w must be", error=ShapeError, num_heads=2),
        bad(*_types(ln2_beta="5xf32"), match="ln2_beta must be", error=ShapeError, num_heads=2),
        bad(*_types(bo="4xf64"), match="one type", error=DTypeError, num_heads=2),
        bad(*_types(), "2x4xi64", match="mask must be", error=ShapeError, num_heads=2),
        bad(*_types(), match="activation must", error=GraphError, num_heads=2, activation="id"),
    )

    def infer(self) -> TensorType:
        self.check_activation(self.activation)
        self.check_types(self.mask)
        self.check_rank("x", 3)
        b, s, e = self.x.shape
        if self.num_heads < 1 or static(e) % self.num_heads:
            raise ShapeError(f"{self.short}: {self.num_heads} heads do not divide {e} features")
        inner = self.outputs_of("fc1_w", e)
        self.check(*((w, self.weight_shape(e, e)) for w in ("wq", "wk", "wv", "wo")))
        self.check(("fc1_b", (inner,)), ("fc2_w", self.weight_shape(inner, e)), ("mask", (b, s)))
        rows = ("bq", "bk", "bv", "bo", "fc2_b", "ln1_gamma", "ln1_beta", "ln2_gamma", "ln2_beta")
        self.check(*((name, (e,)) for name in rows))
        return self.x.type

    def expand(self) -> Value:
        x = self.x
        q = self.dense(x, self.wq, self.bq)
        k = self.dense(x, self.wk, self.bk)
        v = self.dense(x, self.wv, self.bv)
        context = Attention.build(q, k, v, self.mask, num_heads=self.num_heads)
        y = self._norm(x + self.dense(context, self.wo, self.bo), self.ln1_gamma, self.ln1_beta)
        inner = self.dense(y, self.fc1_w, self.fc1_b, self.activation)
        return self._norm(
            y + self.dense(inner, self.fc2_w, self.fc2_b), self.ln2_gamma, self.ln2_beta
        )

    def _norm(self, x: Value, gamma: Value, beta: Value) -> Value:
        return LayerNorm.build(x, gamma, beta, eps=self.eps)
