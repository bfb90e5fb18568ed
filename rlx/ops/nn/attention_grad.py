"""The gradients of attention by queries, keys and values: a composite with a kernel of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx.errors import DTypeError, ShapeError
from rlx.ir.op import Array, Cost, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.nn.attention_heads import Heads
from rlx.ops.nn.heads import merge_heads, split_heads
from rlx.ops.pointwise.base import sum_to
from rlx.types import TensorType

__all__ = ["AttentionGrad"]

_QKV = ("2x3x8xf32", "2x3x8xf32", "2x3x8xf32")


class AttentionGrad(Heads, name="mir.attention_grad"):
    """The gradients of ``attention`` by q, k and v, for the cotangent g of its result.

    With p the probabilities and dp = g v^T: dv = p^T g, and with ds = p (dp - sum(dp p)) times the
    slope of the scores, dq = ds k and dk = ds^T q. The probabilities are computed again; the kernel
    keeps those of a few queries at a time. 16-bit floats are computed in f32 and rounded once.
    Where a key is hidden from a query, what is not finite in either may count as 0 or give nan.
    """

    g: Value = operand("the cotangent of attention's result, of q's type")

    result_count = 3
    samples = (
        sample("2x3x8xT", "2x3x8xT", "2x3x8xT", None, "2x3x8xT",
               num_heads=2, kv_heads=2, scale=0.5),
        # The first query stands before every key.
        sample("1x3x4xT", "1x2x2xT", "1x2x2xT", None, "1x3x4xT",
               num_heads=2, kv_heads=1, scale=0.7, mask_kind="causal", softcap=1.5),
        sample("1x2x2x3xT", "1x1x2x3xT", "1x1x2x3xT", "2x1x2xT", "1x2x2x3xT",
               num_heads=2, kv_heads=1, scale=0.5, mask_kind="bias", layout="bhsd"),
        sample("2x3x4xT", "2x3x4xT", "2x3x4xT", "2x1x3x3xT", "2x3x4xT", data={3: "hidden"},
               num_heads=2, kv_heads=2, scale=0.5, mask_kind="bias"),
    )  # fmt: skip
    bads = (
        bad(*_QKV, None, "2x3x8xf64", match="g is of the type of q", error=DTypeError,
            num_heads=2, kv_heads=2, scale=0.5),
        bad(*_QKV, None, "2x4x8xf32", match="g is of the type of q", error=ShapeError,
            num_heads=2, kv_heads=2, scale=0.5),
    )  # fmt: skip

    def infer(self) -> tuple[TensorType, ...]:
        self.check()
        if self.g.type != self.q.type:
            error = DTypeError if self.g.dtype is not self.q.dtype else ShapeError
            raise error(
                f"attention_grad: g is of the type of q, found {self.g.type} and {self.q.type}"
            )
        return self.q.type, self.k.type, self.v.type

    def cost(self) -> Cost:
        """Five products."""
        return self.products(5)

    def reference(
        self, q: Array, k: Array, v: Array, mask: Array | None, g: Array
    ) -> tuple[Array, Array, Array]:
        s = self.arrays(q, k, v, mask)
        wide = split_heads(g, self.layout, self.num_heads).astype(s.p.dtype)
        dp = np.matmul(wide, s.v.swapaxes(-1, -2))
        ds = s.p * (dp - (dp * s.p).sum(axis=-1, keepdims=True)) * s.slope

        def heads(x: Array) -> Array:
            return np.ascontiguousarray(merge_heads(x, self.layout).astype(q.dtype))

        def keys(x: Array) -> Array:
            """The sum over the query heads that read a key head."""
            b, _, *rest = x.shape
            group = self.num_heads // self.kv_heads
            return heads(x.reshape((b, self.kv_heads, group, *rest)).sum(axis=2))

        return (
            heads(np.matmul(ds, s.k)),
            keys(np.matmul(ds.swapaxes(-1, -2), s.q)),
            keys(np.matmul(s.p.swapaxes(-1, -2), wide)),
        )

    def expand(self) -> tuple[Value, ...]:
        dq, dk, dv, _ = self.parts()
        return dq, dk, dv

    def parts(self) -> tuple[Value, Value, Value, Value | None]:
        """The gradients by primitive ops, and that of a bias."""
        s = self.softmax()
        g = split_heads(self.g.cast(to=s.q.dtype), self.layout, self.num_heads)
        dp = self.per_head(g, s.v.mT)
        dscores = s.p * (dp - (dp * s.p).sum(axes=-1, keep_dim=True))
        draw = s.through(dscores)
        dmask = None
        if self.mask is not None and self.mask_kind == "bias":
            dmask = sum_to(dscores, self.mask).cast(to=self.mask.dtype)
        return (
            self.merged(self.per_head(draw, s.k)),
            self.merged(self.over_heads(draw, s.q)),
            self.merged(self.over_heads(s.p, g)),
            dmask,
        )

    def batch(self, operands: Sequence[Value | None], batched: Sequence[bool]) -> tuple[Value, ...]:
        """The new axis is folded into B."""
        node, n = self.folded(operands, batched)
        own = (self.q, self.k, self.v)
        return tuple(r.reshape((n, *x.shape)) for r, x in zip(node.results, own, strict=True))
