"""Scaled dot-product attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import DTypeError, GraphError, RlxError, ShapeError
from rlx.ir.lift import lift, promoted
from rlx.ir.op import Array, Bad, Cost, Op, bad, sample
from rlx.ir.value import Value
from rlx.ops.movement.movement import zeros
from rlx.ops.nn.attention_grad import AttentionGrad
from rlx.ops.nn.attention_heads import Heads
from rlx.ops.nn.heads import (
    canonical,
    head_sizes,
    layout_of,
    merge_heads,
    split_heads,
    static,
    total,
)
from rlx.types import TensorType

__all__ = ["Attention"]

_ONE: dict[str, Any] = {"num_heads": 1, "kv_heads": 1, "scale": 0.5}
_TWO: dict[str, Any] = {"num_heads": 2, "kv_heads": 2, "scale": 0.5}
_GROUPED: dict[str, Any] = {"num_heads": 4, "kv_heads": 2, "scale": 0.7}
_QKV = ("2x3x8xf32", "2x3x8xf32", "2x3x8xf32")

_SAMPLES = (
    sample("2x3x8xT", "2x3x8xT", "2x3x8xT", **_TWO),
    sample("1x2x4xT", "1x5x4xT", "1x5x4xT", mask_kind="causal", **_ONE),
    # More queries than keys: the first query stands before every key.
    sample("1x3x2xT", "1x2x2xT", "1x2x2xT", mask_kind="causal", **_ONE),
    sample(
        "2x4x3x2xT", "2x2x5x2xT", "2x2x5x2xT",
        mask_kind="sliding_window", window=1, layout="bhsd", **_GROUPED,
    ),
    sample(
        "2x3x8xT", "2x4x4xT", "2x4x4xT", "2x4xi64",
        data={3: "index:2"}, mask_kind="custom", **_GROUPED,
    ),
    sample("1x2x4xT", "1x3x4xT", "1x3x4xT", "1x3xbool", mask_kind="custom", softcap=1.5, **_TWO),
    sample(
        "2x4x2x2xT", "2x2x3x2xT", "2x2x3x2xT", "4x1x3xT",
        softcap=2.0, mask_kind="bias", layout="bhsd", **_GROUPED,
    ),
    sample("2x2x4xT", "2x3x4xT", "2x3x4xT", "2x1x1x3xT", mask_kind="bias", **_TWO),
    sample(
        "2x3x4xT", "2x3x4xT", "2x3x4xT", "2x1x3x3xT", mask_kind="bias", data={3: "hidden"}, **_TWO
    ),
    sample("0x2x4xT", "0x2x4xT", "0x2x4xT", **_TWO),
)  # fmt: skip


def _bad(*types: str, match: str, error: type[RlxError] = GraphError, **attrs: Any) -> Bad:
    return bad(*types, match=match, error=error, **{**_TWO, **attrs})


_BADS = (
    _bad("2x3x8xi32", "2x3x8xi32", "2x3x8xi32", match="attention takes f16", error=DTypeError),
    _bad(*_QKV[:2], "2x3x8xf64", match="one type", error=DTypeError),
    _bad(*_QKV, match="layout must be one of", layout="bhds"),
    _bad(*_QKV, match="did you mean 'causal'", mask_kind="casual"),
    _bad(*_QKV, match="needs rank 4", error=ShapeError, layout="bhsd"),
    _bad(*_QKV, match="multiple of kv_heads", error=ShapeError, num_heads=4, kv_heads=3),
    _bad(*_QKV, match="do not divide", error=ShapeError, num_heads=3, kv_heads=3),
    _bad(*_QKV, match="k must be", error=ShapeError, kv_heads=1),
    _bad("2x3x8xf32", "3x8xf32", "3x8xf32", match="the rank of q", error=ShapeError),
    _bad(*_QKV[:2], "2x4x8xf32", match="v must be", error=ShapeError),
    _bad("2x3x8xf32", "2x0x8xf32", "2x0x8xf32", match="at least one key", error=ShapeError),
    _bad(*_QKV, match="window of 1 or more", mask_kind="sliding_window"),
    _bad(*_QKV, match="takes no window", window=3),
    _bad(*_QKV, match="softcap", softcap=-1.0),
    _bad(*_QKV, match="needs a mask", mask_kind="custom"),
    _bad(*_QKV, "2x3xf32", match="takes no mask", mask_kind="causal"),
    _bad(*_QKV, "3xf32", match=r"\[2, 3\]", error=ShapeError, mask_kind="custom"),
    _bad(*_QKV, "2x3xi32", match="a bias is a float", error=DTypeError, mask_kind="bias"),
    _bad(*_QKV, "5xf32", match="bias must broadcast", error=ShapeError, mask_kind="bias"),
    _bad(*_QKV, "2x2x2x3x3xf32", match="bias must broad", error=ShapeError, mask_kind="bias"),
)


class Attention(Heads, name="mir.attention"):
    """Attention: softmax(scale * q k^T) v for every head, with masks and grouped key heads.

    Layout "bshd" is q ``[B, Sq, H*D]`` with k and v ``[B, Sk, HK*D]`` (the D elements of a head
    lie together); "bhsd" is q ``[B, H, Sq, D]`` with k and v ``[B, HK, Sk, D]``. The result has
    q's type. Query head h reads key head ``h // (H / HK)`` (grouped-query attention).

    Scores are ``scale * q . k``, then ``softcap * tanh(score / softcap)`` if softcap is not 0,
    then the mask; the score of a key that it hides becomes -1e9, so a row in which nothing is
    visible averages all values (for "bias" see below). Query row i stands at position
    ``i + Sk - Sq``: the last query sees the last key.

    - "causal": a query sees the keys at and before its position;
    - "sliding_window": of those, the keys at most ``window`` positions back;
    - "custom": mask ``[B, Sk]`` of any type; keys with mask >= 0.5 (or true) are seen;
    - "bias": a float mask that broadcasts to ``[B, H, Sq, Sk]`` is added to the scores, both in the
      type that is computed in. It may hide keys in two ways, as in PyTorch. A row of the least
      finite number of f32 or bf16 alone averages all values, since beside it no score counts; its
      gradients flow. (That of f16 leaves scores some digits.) A row of -inf alone weighs no key:
      its result and its gradients are 0.

    A value that is not finite makes the results of those that see it not finite, and where it is
    hidden maybe those too: hidden keys are left out, or weighed by 0.

    16-bit floats are computed in f32 and the result is rounded once.
    """

    samples = _SAMPLES
    bads = _BADS

    @classmethod
    def build(
        cls,
        q: Value,
        k: Any,
        v: Any,
        mask: Any = None,
        num_heads: int | None = None,
        head_dim: int | None = None,
        *,
        kv_heads: int | None = None,
        mask_kind: str | None = None,
        window: int = 0,
        scale: float | None = None,
        softcap: float = 0.0,
        layout: str | None = None,
    ) -> Value:
        """Attention of q over k and v; see the class for layouts and masks.

        One of ``num_heads`` and ``head_dim`` may be left out, and both for "bhsd". ``kv_heads``
        is num_heads unless given, scale is ``1 / sqrt(head_dim)``, and mask_kind is "custom" with
        a mask and "none" without. Rank 2 is a batch of one; rank 4 needs ``layout``, where
        "bshd" means ``[B, S, H, D]``.
        """
        q, k, v = promoted(q, k, v)
        if not q.rank == k.rank == v.rank:
            found = " and ".join(str(x.type) for x in (q, k, v))
            raise ShapeError(f"attention: q, k and v are of one rank, found {found}")
        shape, layout = q.shape, layout_of("attention", q, layout)
        heads, dim = head_sizes("attention", q, layout, num_heads, head_dim)
        if kv_heads is None:
            kv_heads = heads if q.rank < 4 else static(k.shape[1 if layout == "bhsd" else 2])
        q, k, v = (canonical(x, layout) for x in (q, k, v))
        if mask is not None:
            mask = lift(mask, q)
            if len(shape) == 2 and mask.rank == 1 and mask_kind in (None, "custom"):
                mask = mask.reshape((1, *mask.shape))
        out = cls(
            q, k, v, mask,
            num_heads=heads, kv_heads=kv_heads,
            scale=1.0 / math.sqrt(dim) if scale is None else scale,
            mask_kind=mask_kind or ("none" if mask is None else "custom"),
            window=window, softcap=softcap, layout=layout,
        ).out  # fmt: skip
        return out if out.shape == shape else out.reshape(shape)

    def infer(self) -> TensorType:
        self.check()
        return self.q.type

    def cost(self) -> Cost:
        """Two products."""
        return self.products(2)

    def reference(self, q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
        s = self.arrays(q, k, v, mask)
        return np.ascontiguousarray(merge_heads(np.matmul(s.p, s.v), self.layout).astype(q.dtype))

    def expand(self) -> Value:
        s = self.softmax()
        return self.merged(self.per_head(s.p, s.v))

    # -- transforms ------------------------------------------------------------------------

    def record(self) -> tuple[Sequence[Value], dict[Op, Sequence[Value]]]:
        """Nothing is kept; the probabilities are computed again."""
        return self.results, dict.fromkeys([self], ())

    def vjp(
        self,
        g: Value,
        record: Sequence[Value] = (),
        wanted: Sequence[bool] | None = None,
    ) -> tuple[Value | None, ...]:
        """Those of q, k and v together; and by primitive ops where that of a bias is wanted."""
        grad = AttentionGrad(self.q, self.k, self.v, self.mask, g=g, **self.attrs)
        if self.mask_kind == "bias" and (wanted is None or wanted[3]):
            return grad.parts()
        return (*grad.results, None)

    def jvp(
        self, tq: Value | None, tk: Value | None, tv: Value | None, tmask: Value | None = None
    ) -> Value:
        s = self.softmax()
        wide, layout = s.q.dtype, self.layout
        scores: list[Value] = []
        if tq is not None:
            q = split_heads(tq.cast(to=wide), layout, self.num_heads)
            scores.append(s.through(self.per_head(q, s.k.mT)))
        if tk is not None:
            k = split_heads(tk.cast(to=wide), layout, self.kv_heads)
            scores.append(s.through(self.per_head(s.q, k.mT)))
        if tmask is not None and self.mask_kind == "bias":
            scores.append(tmask.cast(to=wide).expand(s.p.shape))
        out: list[Value] = []
        if scores:
            t = total(scores)
            tp = s.p * (t - (t * s.p).sum(axes=-1, keep_dim=True))
            out.append(self.per_head(tp, s.v))
        if tv is not None:
            out.append(self.per_head(s.p, split_heads(tv.cast(to=wide), layout, self.kv_heads)))
        return self.merged(total(out)) if out else zeros(self.q.shape, self.q.dtype)

    def batch(self, operands: Sequence[Value | None], batched: Sequence[bool]) -> Value:
        """The new axis is folded into B."""
        node, n = self.folded(operands, batched)
        return node.out.reshape((n, *self.q.shape))
