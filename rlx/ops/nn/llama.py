"""The decoder layer of Llama models."""

from __future__ import annotations

from typing import Any

from rlx.errors import DTypeError, GraphError, ShapeError
from rlx.ir.op import attr, bad, operand, optional, sample
from rlx.ir.value import Value
from rlx.ops.nn.attention import Attention
from rlx.ops.nn.attention_mask import check_kind, check_mask
from rlx.ops.nn.blocks import Block, SwiGLU
from rlx.ops.nn.heads import static
from rlx.ops.nn.normalization import RmsNorm
from rlx.ops.nn.rope import Rope, check_tables
from rlx.types import TensorType

__all__ = ["LlamaDecoderBlock"]

_TYPES = {
    "x": "2x3x8xT", "ln1_gamma": "8xT", "ln1_beta": None, "wq": "8x8xT", "wk": "8x4xT",
    "wv": "8x4xT", "wo": "8x8xT", "ln2_gamma": "8xT", "ln2_beta": None, "gate": "8x6xT",
    "up": "8x6xT", "down": "6x8xT", "cos": "3x1xT", "sin": "3x1xT",
}  # fmt: skip
_HEADS: dict[str, Any] = {"num_heads": 4, "kv_heads": 2, "eps": 1e-5}


def _types(t: str = "f32", **changed: str) -> tuple[str | None, ...]:
    """The types of a small layer's operands; ``changed`` replaces some by name."""
    return tuple(v and v.replace("T", t) for v in (_TYPES | changed).values())


class LlamaDecoderBlock(Block, name="hir.llama_decoder_block"):
    """A pre-norm decoder layer as Llama has it (Touvron et al., 2023).

    y = x + attention(rope(q), rope(k), v) wo with q, k, v products of rms_norm(x); the result is
    y + swiglu(rms_norm(y)). Key heads may be fewer than query heads.
    """

    x: Value = operand("[B, S, E]")
    ln1_gamma: Value = operand("[E]")
    ln1_beta: Value | None = optional("[E]; most checkpoints have none")
    wq: Value = operand("[E, H D]")
    wk: Value = operand("[E, HK D]")
    wv: Value = operand("[E, HK D]")
    wo: Value = operand("[H D, E]")
    ln2_gamma: Value = operand("[E]")
    ln2_beta: Value | None = optional("[E]; most checkpoints have none")
    gate: Value = operand("[E, F]")
    up: Value = operand("[E, F]")
    down: Value = operand("[F, E]")
    cos: Value = operand("[S, D/2]: the rows of the tokens' positions")
    sin: Value = operand("[S, D/2]")
    mask: Value | None = optional("as attention takes it, with mask_kind")
    num_heads: int = attr(doc="query heads H")
    kv_heads: int = attr(doc="key and value heads HK; divides num_heads")
    eps: float = attr(1e-5, "of both norms")
    mask_kind: str = attr("causal", "as attention has it")
    window: int = attr(0, "as attention has it")
    transposed: bool = attr(False, "the weights are [out, in], as PyTorch checkpoints keep them")

    samples = (
        sample(*_types("T"), **_HEADS),
        sample(
            *_types("T", ln1_beta="8xT"), "2x3xi32",
            mask_kind="custom", data={14: "index:2"}, **_HEADS,
        ),
        sample(
            *_types("T", wk="4x8xT", wv="4x8xT", gate="6x8xT", up="6x8xT", down="8x6xT"),
            mask_kind="sliding_window", window=1, transposed=True, **_HEADS,
        ),
    )  # fmt: skip
    bads = (
        bad(*_types(x="3x8xf32"), match="rank 3", error=ShapeError, **_HEADS),
        bad(*_types(), match="multiple", error=ShapeError, num_heads=4, kv_heads=3),
        bad(*_types(wk="8x8xf32"), match="wk must be", error=ShapeError, **_HEADS),
        bad(*_types(wo="6x8xf32"), match="wo must be", error=ShapeError, **_HEADS),
        bad(*_types(up="8x5xf32"), match="up must be", error=ShapeError, **_HEADS),
        bad(*_types(ln2_beta="7xf32"), match="ln2_beta must be", error=ShapeError, **_HEADS),
        bad(*_types(cos="2x1xf32"), match="cos must be", error=ShapeError, **_HEADS),
        bad(*_types(ln1_gamma="8xf16"), match="one type", error=DTypeError, **_HEADS),
        bad(*_types(), match="needs a mask", error=GraphError, mask_kind="bias", **_HEADS),
    )

    @classmethod
    def build(
        cls, *operands: Any, num_heads: int, kv_heads: int | None = None, **rest: Any
    ) -> Value:
        """``kv_heads`` is num_heads unless given; mask_kind is "custom" with a mask, else
        "causal"."""
        has_mask = rest.get("mask", operands[14] if len(operands) > 14 else None) is not None
        rest.setdefault("mask_kind", "custom" if has_mask else "causal")
        return cls(*operands, num_heads=num_heads, kv_heads=kv_heads or num_heads, **rest).out

    def infer(self) -> TensorType:
        self.check_types(self.mask, self.cos, self.sin)
        self.check_rank("x", 3)
        b, s, e = self.x.shape
        h, hk = self.num_heads, self.kv_heads
        width = static(self.outputs_of("wq", e))
        if h < 1 or hk < 1 or h % hk or width % h:
            raise ShapeError(
                f"{self.short}: num_heads must be a multiple of kv_heads and divide the {width}"
                f" outputs of wq, found {h} and {hk}"
            )
        d = width // h
        inner, grouped = self.outputs_of("gate", e), self.weight_shape(e, hk * d)
        self.check(
            ("wk", grouped), ("wv", grouped), ("wo", self.weight_shape(width, e)),
            ("up", self.weight_shape(e, inner)), ("down", self.weight_shape(inner, e)),
            *((name, (e,)) for name in ("ln1_gamma", "ln1_beta", "ln2_gamma", "ln2_beta")),
        )  # fmt: skip
        check_tables(self.short, self.x, s, {d // 2}, (("cos", self.cos), ("sin", self.sin)))
        check_kind(self.mask_kind, self.window)
        check_mask(self.mask_kind, self.mask, (b, h, s, s))
        return self.x.type

    def expand(self) -> Value:
        y = self.x + self._attention(self._norm(self.x, self.ln1_gamma, self.ln1_beta))
        z = self._norm(y, self.ln2_gamma, self.ln2_beta)
        return y + SwiGLU.build(z, self.up, self.gate, self.down, transposed=self.transposed)

    def _attention(self, x: Value) -> Value:
        h, hk = self.num_heads, self.kv_heads
        q, k, v = (self.dense(x, w) for w in (self.wq, self.wk, self.wv))
        d = static(q.shape[2]) // h
        q, k = (Rope.build(part, self.cos, self.sin, d) for part in (q, k))
        context = Attention.build(
            q, k, v, self.mask, num_heads=h, kv_heads=hk,
            mask_kind=self.mask_kind, window=self.window,
        )  # fmt: skip
        return self.dense(context, self.wo)

    def _norm(self, x: Value, gamma: Value, beta: Value | None) -> Value:
        return RmsNorm.build(x, gamma, beta, eps=self.eps)
