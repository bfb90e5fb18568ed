"""Scaled dot-product attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rlx.errors import DTypeError, GraphError, RlxError, ShapeError
from rlx.ops.attention_mask import (
    HIDDEN,
    batch_bias,
    check_kind,
    check_mask,
    pairs,
    seen,
    seen_array,
)
from rlx.ops.base import Array, Bad, Cost, Op, attr, bad, operand, optional, sample
from rlx.ops.elementwise import sum_to
from rlx.ops.heads import (
    canonical,
    check_floats,
    check_layout,
    compute_type,
    fold_batch,
    head_sizes,
    layout_of,
    merge_heads,
    split_heads,
    static,
    total,
)
from rlx.ops.lift import lift, promoted
from rlx.ops.movement import listed, zeros
from rlx.ops.value import Value
from rlx.types import FLOATS, Dim, Shape, TensorType

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


class Attention(Op, name="mir.attention"):
    """Attention: softmax(scale * q k^T) v for every head, with masks and grouped key heads.

    Layout "bshd" is q ``[B, Sq, H*D]`` with k and v ``[B, Sk, HK*D]`` (the D elements of a head
    lie together); "bhsd" is q ``[B, H, Sq, D]`` with k and v ``[B, HK, Sk, D]``. The result has
    q's type. Query head h reads key head ``h // (H / HK)`` (grouped-query attention).

    Scores are ``scale * q . k``, then ``softcap * tanh(score / softcap)`` if softcap is not 0,
    then the mask; the score of a hidden key becomes -1e9, so a row in which nothing is visible
    averages all values. Query row i stands at position ``i + Sk - Sq``: the last query sees the
    last key.

    - "causal": a query sees the keys at and before its position;
    - "sliding_window": of those, the keys at most ``window`` positions back;
    - "custom": mask ``[B, Sk]`` of any type; keys with mask >= 0.5 (or true) are seen;
    - "bias": a float mask that broadcasts to ``[B, H, Sq, Sk]`` is added to the scores.

    A value that is not finite makes the results of those that see it not finite, and where it is
    hidden maybe those too: hidden keys are left out, or weighed by 0.

    16-bit floats are computed in f32 and the result is rounded once.
    """

    q: Value = operand("queries")
    k: Value = operand("keys")
    v: Value = operand("values, of the keys' shape")
    mask: Value | None = optional("which keys are seen, or what is added to the scores")
    num_heads: int = attr(doc="query heads H")
    kv_heads: int = attr(doc="key and value heads HK; divides num_heads")
    scale: float = attr(doc="factor of the scores, usually 1 / sqrt(head_dim)")
    mask_kind: str = attr("none", '"none", "causal", "sliding_window", "custom" or "bias"')
    window: int = attr(0, "positions that a sliding window reaches back; 0 for other mask kinds")
    softcap: float = attr(0.0, "bound of the scores; 0 for none")
    layout: str = attr("bshd", '"bshd" or "bhsd"')

    dtypes = FLOATS
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

    # -- types -----------------------------------------------------------------------------

    def infer(self) -> TensorType:
        self._check_attributes()
        check_floats("attention", (self.q, self.k, self.v))
        check_layout("attention", self.layout, self.q)
        self._check_heads()
        batch, keys, hk, dim = self.q.shape[0], self._keys, self.kv_heads, self.head_dim
        want = (batch, keys, hk * dim) if self.layout == "bshd" else (batch, hk, keys, dim)
        for name, x in (("k", self.k), ("v", self.v)):
            if x.shape != want:
                raise ShapeError(f"attention: {name} must be {listed(want)}, found {x.type}")
        if keys == 0:
            raise ShapeError("attention needs at least one key, found k " + str(self.k.type))
        check_mask(self.mask_kind, self.mask, (batch, self.num_heads, self.q.shape[-2], keys))
        return self.q.type

    def _check_attributes(self) -> None:
        check_kind(self.mask_kind, self.window)
        h, hk = self.num_heads, self.kv_heads
        if h < 1 or hk < 1 or h % hk:
            raise ShapeError(
                f"attention: num_heads must be a multiple of kv_heads, found {h} and {hk}"
            )
        if not 0.0 <= self.softcap < math.inf:
            raise GraphError(
                f"attention: softcap must be 0 or a positive number, found {self.softcap}"
            )

    def _check_heads(self) -> None:
        packed = self.layout == "bshd"
        found = static(self.q.shape[-1 if packed else 1])
        if found % self.num_heads if packed else found != self.num_heads:
            raise ShapeError(
                f"attention: {self.num_heads} heads do not divide q {self.q.type} ({self.layout})"
            )

    @property
    def _keys(self) -> Dim:
        """Sk; ShapeError if k has no such axis."""
        if self.k.rank != self.q.rank:
            raise ShapeError(
                f"attention: k must have the rank of q, found {self.k.type} and {self.q.type}"
            )
        return self.k.shape[-2]

    @property
    def head_dim(self) -> int:
        """Elements of one head, D."""
        last = self.q.shape[-1]
        return static(last // self.num_heads if self.layout == "bshd" else last)

    def cost(self) -> Cost:
        """Two products for every score that the kind of mask leaves (one that is data leaves all);
        scores are not counted as memory traffic."""
        moved = super().cost().bytes
        queries, keys = self.q.shape[-2], self._keys
        batch = self.q.shape[0]
        if not (isinstance(queries, int) and isinstance(keys, int) and isinstance(batch, int)):
            return Cost(0, moved)
        scores = batch * self.num_heads * pairs(self.mask_kind, self.window, queries, keys)
        return Cost(4 * scores * self.head_dim, moved)

    # -- meaning ---------------------------------------------------------------------------

    def reference(self, q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
        wide = compute_type(self.q.dtype).numpy
        group = self.num_heads // self.kv_heads
        qh = split_heads(q, self.layout, self.num_heads).astype(wide)
        kh, vh = (
            np.repeat(split_heads(x, self.layout, self.kv_heads).astype(wide), group, axis=1)
            for x in (k, v)
        )
        scores = np.matmul(qh, kh.swapaxes(-1, -2)) * wide.type(self.scale)
        if self.softcap:
            scores = wide.type(self.softcap) * np.tanh(scores / wide.type(self.softcap))
        if self.mask_kind == "bias":
            assert mask is not None
            scores = scores + mask.astype(wide)
        visible = seen_array(self.mask_kind, self.window, mask, *scores.shape[-2:])
        scores = np.where(visible, scores, wide.type(HIDDEN))
        p = np.exp(scores - scores.max(axis=-1, keepdims=True))
        out = np.matmul(p / p.sum(axis=-1, keepdims=True), vh)
        return np.ascontiguousarray(merge_heads(out, self.layout).astype(q.dtype))

    def expand(self) -> Value:
        s = self._softmax()
        return self._result(self._per_head(s.p, s.v))

    def _softmax(self) -> _Softmax:
        """The probabilities as primitive ops; what the gradient recomputes too."""
        wide = compute_type(self.q.dtype)
        q = split_heads(self.q.cast(to=wide), self.layout, self.num_heads)
        k, v = (split_heads(x.cast(to=wide), self.layout, self.kv_heads) for x in (self.k, self.v))
        scores = self._per_head(q, k.T) * self.scale
        slope = None
        if self.softcap:
            bounded = (scores / self.softcap).tanh()
            scores, slope = bounded * self.softcap, 1.0 - bounded * bounded
        visible = seen(self.mask_kind, self.window, self.mask, self.q.shape[-2], self._keys)
        if visible is not None:
            scores = visible.where(scores, HIDDEN)
        elif self.mask is not None:
            scores = scores + self.mask.cast(to=wide)
        return _Softmax(q, k, v, scores.softmax(axis=-1), visible, slope, self.scale)

    def _per_head(self, a: Value, b: Value) -> Value:
        """``a[b, h] @ b[b, h // group]``: the rows of a group's query heads make one matrix."""
        batch, heads, rows, inner = a.shape
        if self.num_heads != self.kv_heads:
            a = a.reshape(self._grouped(rows, inner))
        out = a.matmul(b)
        return out if heads == self.kv_heads else out.reshape((batch, heads, rows, b.shape[-1]))

    def _over_heads(self, a: Value, b: Value) -> Value:
        """``a[b, h]^T @ b[b, h]`` summed over the query heads of every group."""
        if self.num_heads != self.kv_heads:
            a = a.reshape(self._grouped(*a.shape[2:]))
            b = b.reshape(self._grouped(*b.shape[2:]))
        return a.T.matmul(b)

    def _grouped(self, rows: Dim, inner: Dim) -> Shape:
        return (self.q.shape[0], self.kv_heads, self.num_heads // self.kv_heads * rows, inner)

    def _result(self, heads: Value) -> Value:
        return merge_heads(heads, self.layout).cast(to=self.q.dtype)

    # -- transforms ------------------------------------------------------------------------

    def vjp(self, g: Value) -> tuple[Value | None, ...]:
        """With o = p v and p = softmax(s): dv = p^T g and ds = p (dp - sum(dp p)), dp = g v^T."""
        s = self._softmax()
        g = split_heads(g.cast(to=s.q.dtype), self.layout, self.num_heads)
        dp = self._per_head(g, s.v.T)
        dscores = s.p * (dp - (dp * s.p).sum(axes=-1, keep_dim=True))
        draw = s.through(dscores)
        dmask = None
        if self.mask is not None and self.mask_kind == "bias":
            dmask = sum_to(dscores, self.mask).cast(to=self.mask.dtype)
        return (
            self._result(self._per_head(draw, s.k)),
            self._result(self._over_heads(draw, s.q)),
            self._result(self._over_heads(s.p, g)),
            dmask,
        )

    def jvp(
        self, tq: Value | None, tk: Value | None, tv: Value | None, tmask: Value | None = None
    ) -> Value:
        s = self._softmax()
        wide, layout = s.q.dtype, self.layout
        scores: list[Value] = []
        if tq is not None:
            q = split_heads(tq.cast(to=wide), layout, self.num_heads)
            scores.append(s.through(self._per_head(q, s.k.T)))
        if tk is not None:
            k = split_heads(tk.cast(to=wide), layout, self.kv_heads)
            scores.append(s.through(self._per_head(s.q, k.T)))
        if tmask is not None and self.mask_kind == "bias":
            scores.append(tmask.cast(to=wide).expand(s.p.shape))
        out: list[Value] = []
        if scores:
            t = total(scores)
            tp = s.p * (t - (t * s.p).sum(axes=-1, keep_dim=True))
            out.append(self._per_head(tp, s.v))
        if tv is not None:
            out.append(self._per_head(s.p, split_heads(tv.cast(to=wide), layout, self.kv_heads)))
        return self._result(total(out)) if out else zeros(self.q.shape, self.q.dtype)

    def batch(self, operands: Sequence[Value | None], batched: Sequence[bool]) -> Value:
        """The new axis is folded into B."""
        pairs = list(zip(operands, batched, strict=True))
        n = next(x.shape[0] for x, has in pairs if has and x is not None)
        folded: list[Value | None] = [
            None if x is None else fold_batch(x, has, n) for x, has in pairs[:3]
        ]
        mask, has = pairs[3]
        if mask is not None and self.mask_kind == "bias":
            mask = batch_bias(mask, has, n, self.q.shape[0])
        elif mask is not None:
            mask = fold_batch(mask, has, n)
        return self.with_operands([*folded, mask]).out.reshape((n, *self.q.shape))


class _Softmax(NamedTuple):
    """The inside of an attention as values: heads ``[B, H or HK, S, D]``, and the probabilities."""

    q: Value
    k: Value
    v: Value
    p: Value
    visible: Value | None
    slope: Value | None
    scale: float

    def through(self, d: Value) -> Value:
        """Scale a change of ``q . k`` to the change of the scores, or a cotangent the way back:
        the map is diagonal, so it is its own transpose."""
        if self.visible is not None:
            d = self.visible.where(d, 0.0)
        return (d if self.slope is None else d * self.slope) * self.scale
