"""The multi-token prediction head of Qwen3.5 models."""

from __future__ import annotations

from typing import Any

from rlx.errors import DTypeError, ShapeError
from rlx.ir.op import attr, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.movement.slicing import Concat
from rlx.ops.nn.attention import Attention
from rlx.ops.nn.blocks import Block, SwiGLU
from rlx.ops.nn.heads import static
from rlx.ops.nn.normalization import RmsNorm
from rlx.ops.nn.rope import Rope, check_tables
from rlx.ops.pointwise.activation import Sigmoid
from rlx.types import TensorType

__all__ = ["Qwen35MtpHead"]

_TYPES = {
    "hidden": "2x3x6xT", "embedding": "2x3x6xT", "hidden_norm": "6xT", "embedding_norm": "6xT",
    "eh_proj": "12x6xT", "attention_norm": "6xT", "wq": "6x16xT", "wk": "6x4xT", "wv": "6x4xT",
    "q_norm": "4xT", "k_norm": "4xT", "wo": "8x6xT", "ffn_norm": "6xT", "gate": "6x5xT",
    "up": "6x5xT", "down": "5x6xT", "head_norm": "6xT", "lm_head": "6x7xT", "cos": "3x1xT",
    "sin": "3x1xT",
}  # fmt: skip
_HEADS: dict[str, Any] = {"num_heads": 2, "kv_heads": 1, "n_rot": 2, "eps": 1e-5}


def _types(t: str = "f32", **changed: str) -> tuple[str, ...]:
    """The types of a small head's operands; ``changed`` replaces some by name."""
    return tuple(v.replace("T", t) for v in (_TYPES | changed).values())


class Qwen35MtpHead(Block, name="hir.qwen35_mtp_head"):
    """The layer by which Qwen3.5 predicts a token more, and the logits of its last token.

    x is the product of eh_proj and the norms of the trunk's hidden states and of the embeddings of
    the tokens that follow them, side by side. y = x + wo (attention sigmoid(gate)): causal
    attention with a norm and partial rotary embedding of each head's query and key, and a gate for
    every output of it. The result is the product of lm_head and the norm of y + swiglu(y), for the
    last token. All norms are RMS norms.
    """

    hidden: Value = operand("[B, S, E]: the last hidden states of the trunk")
    embedding: Value = operand("[B, S, E]: the embeddings of the next tokens")
    hidden_norm: Value = operand("[E]")
    embedding_norm: Value = operand("[E]")
    eh_proj: Value = operand("[2 E, E]: its first E inputs are those of hidden")
    attention_norm: Value = operand("[E]")
    wq: Value = operand("[E, H 2 D]: for each head the query, then the gate")
    wk: Value = operand("[E, HK D]")
    wv: Value = operand("[E, HK D]")
    q_norm: Value = operand("[D]")
    k_norm: Value = operand("[D]")
    wo: Value = operand("[H D, E]")
    ffn_norm: Value = operand("[E]")
    gate: Value = operand("[E, F]")
    up: Value = operand("[E, F]")
    down: Value = operand("[F, E]")
    head_norm: Value = operand("[E]")
    lm_head: Value = operand("[E, V]")
    cos: Value = operand("[S, n_rot/2]: the rows of the tokens' positions")
    sin: Value = operand("[S, n_rot/2]")
    num_heads: int = attr(doc="query heads H")
    kv_heads: int = attr(doc="key and value heads HK; divides num_heads")
    n_rot: int = attr(doc="elements of a head that rotary embedding turns; even, at most D")
    eps: float = attr(1e-6, "of all norms")
    transposed: bool = attr(False, "the weights are [out, in], as PyTorch checkpoints keep them")

    samples = (
        sample(*_types("T"), **_HEADS),
        sample(
            *_types(
                "T", eh_proj="6x12xT", wq="16x6xT", wk="4x6xT", wv="4x6xT", wo="6x8xT",
                gate="5x6xT", up="5x6xT", down="6x5xT", lm_head="7x6xT", cos="3x2xT", sin="3x2xT",
            ),
            num_heads=2, kv_heads=1, n_rot=4, transposed=True,
        ),
    )  # fmt: skip
    bads = (
        bad(*_types(hidden="3x6xf32"), match="rank 3", error=ShapeError, **_HEADS),
        bad(*_types(hidden="2x0x6xf32", embedding="2x0x6xf32"), match="no last token",
            error=ShapeError, **_HEADS),
        bad(*_types(embedding="2x3x5xf32"), match="embedding must be", error=ShapeError, **_HEADS),
        bad(*_types(eh_proj="6x6xf32"), match="eh_proj must be", error=ShapeError, **_HEADS),
        bad(*_types(wk="6x8xf32"), match="wk must be", error=ShapeError, **_HEADS),
        bad(*_types(q_norm="3xf32"), match="q_norm must be", error=ShapeError, **_HEADS),
        bad(*_types(head_norm="5xf32"), match="head_norm must be", error=ShapeError, **_HEADS),
        bad(*_types(cos="3x2xf32"), match="cos must be", error=ShapeError, **_HEADS),
        bad(*_types(up="6x5xf64"), match="one type", error=DTypeError, **_HEADS),
        bad(*_types(), match="multiple of kv_heads", error=ShapeError, **_HEADS | {"kv_heads": 3}),
        bad(*_types(), match="n_rot must be even", error=ShapeError, **_HEADS | {"n_rot": 6}),
    )  # fmt: skip

    def infer(self) -> TensorType:
        self.check_types(self.cos, self.sin)
        self.check_rank("hidden", 3)
        b, s, e = self.hidden.shape
        if s == 0:
            raise ShapeError(f"{self.short}: hidden {self.hidden.type} has no last token")
        h, hk, d = self.num_heads, self.kv_heads, self._head_dim(e)
        grouped, inner = self.weight_shape(e, hk * d), self.outputs_of("gate", e)
        self.check(
            ("embedding", (b, s, e)), ("eh_proj", self.weight_shape(2 * e, e)),
            ("wk", grouped), ("wv", grouped), ("q_norm", (d,)), ("k_norm", (d,)),
            ("wo", self.weight_shape(h * d, e)), ("up", self.weight_shape(e, inner)),
            ("down", self.weight_shape(inner, e)),
        )  # fmt: skip
        norms = ("hidden_norm", "embedding_norm", "attention_norm", "ffn_norm", "head_norm")
        self.check(*((name, (e,)) for name in norms))
        tables = (("cos", self.cos), ("sin", self.sin))
        check_tables(self.short, self.hidden, s, {self.n_rot // 2}, tables)
        return self.hidden.type.with_shape((b, self.outputs_of("lm_head", e)))

    def _head_dim(self, e: Any) -> int:
        h, hk, outputs = self.num_heads, self.kv_heads, static(self.outputs_of("wq", e))
        if h < 1 or hk < 1 or h % hk or outputs % (2 * h):
            raise ShapeError(
                f"{self.short}: num_heads must be a multiple of kv_heads, and the {outputs} outputs"
                f" of wq a query and a gate for each; found {h} and {hk}"
            )
        d = outputs // (2 * h)
        if not 0 < self.n_rot <= d or self.n_rot % 2:
            raise ShapeError(
                f"{self.short}: n_rot must be even and at most the {d} elements of a head, found"
                f" {self.n_rot}"
            )
        return d

    def expand(self) -> Value:
        both = Concat(
            self._norm(self.hidden, self.hidden_norm),
            self._norm(self.embedding, self.embedding_norm), 2,
        ).out  # fmt: skip
        x = self.dense(both, self.eh_proj)
        y = x + self._attention(self._norm(x, self.attention_norm))
        inner = self._norm(y, self.ffn_norm)
        y = y + SwiGLU.build(inner, self.up, self.gate, self.down, transposed=self.transposed)
        return self.dense(self._norm(y[:, -1], self.head_norm), self.lm_head)

    def _attention(self, x: Value) -> Value:
        b, s, e = x.shape
        h, hk, d = self.num_heads, self.kv_heads, self._head_dim(e)
        q, gate = self.dense(x, self.wq).reshape((b, s, h, 2 * d)).split(2, -1)
        k = self.dense(x, self.wk).reshape((b, s, hk, d))
        q, k = (
            Rope.build(self._norm(part, gamma).reshape((b, s, n * d)), self.cos, self.sin, d,
                       self.n_rot)
            for part, gamma, n in ((q, self.q_norm, h), (k, self.k_norm, hk))
        )  # fmt: skip
        seen = Attention.build(
            q, k, self.dense(x, self.wv), num_heads=h, kv_heads=hk, mask_kind="causal"
        )
        return self.dense(seen * Sigmoid.build(gate.reshape((b, s, h * d))), self.wo)

    def _norm(self, x: Value, gamma: Value) -> Value:
        return RmsNorm.build(x, gamma, eps=self.eps)
