"""Common base of attention and its gradient: operands, attributes, and the probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rlx.base.dims import is_known
from rlx.errors import GraphError, ShapeError
from rlx.ir.factors import Factor, Factors, Parts
from rlx.ir.op import Array, Cost, Op, attr, operand, optional
from rlx.ir.value import Value
from rlx.ops.movement.movement import listed
from rlx.ops.nn.attention_mask import (
    HIDDEN,
    batch_bias,
    check_kind,
    check_mask,
    pairs,
    seen,
    seen_array,
)
from rlx.ops.nn.heads import (
    check_floats,
    check_layout,
    compute_type,
    fold_batch,
    merge_heads,
    split_heads,
    static,
)
from rlx.types import FLOATS, Dim, Shape

__all__ = ["Heads", "Softmax"]


class Heads(Op):
    """An op on the scores of attention: those of every query over the keys, head by head."""

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

    def check(self) -> None:
        """Refuse operands and attributes that do not fit."""
        self._check_attributes()
        check_floats("attention", (self.q, self.k, self.v))
        check_layout("attention", self.layout, self.q)
        self._check_heads()
        batch, keys, hk, dim = self.q.shape[0], self.keys, self.kv_heads, self.head_dim
        want = (batch, keys, hk * dim) if self.layout == "bshd" else (batch, hk, keys, dim)
        for name, x in (("k", self.k), ("v", self.v)):
            if x.shape != want:
                raise ShapeError(f"attention: {name} must be {listed(want)}, found {x.type}")
        if keys == 0:
            raise ShapeError("attention needs at least one key, found k " + str(self.k.type))
        check_mask(self.mask_kind, self.mask, (batch, self.num_heads, self.q.shape[-2], keys))

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
    def keys(self) -> Dim:
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

    def products(self, count: int) -> Cost:
        """The cost of so many products for every score that the kind of mask leaves (one that is
        data leaves all); scores are not counted as memory traffic."""
        moved = super().cost().bytes
        queries, keys, batch = self.q.shape[-2], self.keys, self.q.shape[0]
        if not (is_known(queries) and is_known(keys) and is_known(batch)):
            return Cost(0, moved)
        scores = batch * self.num_heads * pairs(self.mask_kind, self.window, queries, keys)
        return Cost(2 * count * scores * self.head_dim, moved)

    # -- the probabilities ------------------------------------------------------------------

    def arrays(self, q: Array, k: Array, v: Array, mask: Array | None) -> SoftmaxArrays:
        """The probabilities of operand arrays, in the type that is computed in."""
        wide = compute_type(self.q.dtype).numpy
        group = self.num_heads // self.kv_heads
        q = split_heads(q, self.layout, self.num_heads).astype(wide)
        k, v = (
            np.repeat(split_heads(x, self.layout, self.kv_heads).astype(wide), group, axis=1)
            for x in (k, v)
        )
        scores = np.matmul(q, k.swapaxes(-1, -2)) * wide.type(self.scale)
        slope = wide.type(self.scale)
        if self.softcap:
            bounded = np.tanh(scores / wide.type(self.softcap))
            scores, slope = wide.type(self.softcap) * bounded, slope * (1 - bounded * bounded)
        if self.mask_kind == "bias":
            assert mask is not None
            scores = scores + mask.astype(wide)
        visible = seen_array(self.mask_kind, self.window, mask, *scores.shape[-2:])
        scores = np.where(visible, scores, wide.type(HIDDEN))
        peak = scores.max(axis=-1, keepdims=True)
        # Rows that a bias of -inf alone leaves no key to weigh.
        empty = (peak == -math.inf) & (self.mask_kind == "bias")
        p = np.exp(scores - np.where(empty, wide.type(0), peak))
        p = p / np.where(empty, wide.type(1), p.sum(axis=-1, keepdims=True))
        return SoftmaxArrays(q, k, v, p, np.where(visible, slope, wide.type(0)))

    def softmax(self) -> Softmax:
        """The probabilities as primitive ops; what the gradient recomputes too."""
        wide = compute_type(self.q.dtype)
        q = split_heads(self.q.cast(to=wide), self.layout, self.num_heads)
        k, v = (split_heads(x.cast(to=wide), self.layout, self.kv_heads) for x in (self.k, self.v))
        scores = self.per_head(q, k.mT) * self.scale
        slope = None
        if self.softcap:
            bounded = (scores / self.softcap).tanh()
            scores, slope = bounded * self.softcap, 1.0 - bounded * bounded
        visible = seen(self.mask_kind, self.window, self.mask, self.q.shape[-2], self.keys)
        if visible is not None:
            scores = visible.where(scores, HIDDEN)
        elif self.mask is not None:
            scores = scores + self.mask.cast(to=wide)
        if self.mask_kind != "bias":
            return Softmax(q, k, v, scores.softmax(axis=-1), visible, slope, self.scale)
        # Twice, so that no derivative meets the nan of a softmax of -inf alone.
        empty = scores.max(axes=-1, keep_dim=True).eq(-math.inf)
        p = empty.where(0.0, empty.where(0.0, scores).softmax(axis=-1))
        return Softmax(q, k, v, p, visible, slope, self.scale)

    def per_head(self, a: Value, b: Value) -> Value:
        """``a[b, h] @ b[b, h // group]``: the rows of a group's query heads make one matrix."""
        batch, heads, rows, inner = a.shape
        if self.num_heads != self.kv_heads:
            a = a.reshape(self._grouped(rows, inner))
        out = a.matmul(b)
        return out if heads == self.kv_heads else out.reshape((batch, heads, rows, b.shape[-1]))

    def over_heads(self, a: Value, b: Value) -> Value:
        """``a[b, h]^T @ b[b, h]`` summed over the query heads of every group."""
        if self.num_heads != self.kv_heads:
            a = a.reshape(self._grouped(*a.shape[2:]))
            b = b.reshape(self._grouped(*b.shape[2:]))
        return a.mT.matmul(b)

    def _grouped(self, rows: Dim, inner: Dim) -> Shape:
        return (self.q.shape[0], self.kv_heads, self.num_heads // self.kv_heads * rows, inner)

    def merged(self, heads: Value) -> Value:
        """Heads ``[B, H or HK, S, D]`` in the layout and type of the operands."""
        return merge_heads(heads, self.layout).cast(to=self.q.dtype)

    # -- batches ---------------------------------------------------------------------------

    def folded(
        self, operands: Sequence[Value | None], batched: Sequence[bool]
    ) -> tuple[Heads, Dim]:
        """The op on batches, whose new axis is folded into B, and its size."""
        given = list(zip(operands, batched, strict=True))
        n = next(x.shape[0] for x, has in given if has and x is not None)
        found = [None if x is None else fold_batch(x, has, n) for x, has in given]
        mask, has = given[3]
        if mask is not None and self.mask_kind == "bias":
            found[3] = batch_bias(mask, has, n, self.q.shape[0])
        return self.with_operands(found), n  # type: ignore[return-value]

    def factors(self) -> Factors:
        packed = self.layout == "bshd"
        q: list[Any] = ["b", "s", ("h", "g", "d")] if packed else ["b", ("h", "g"), "s", "d"]
        k: list[Any] = ["b", "t", ("h", "d")] if packed else ["b", "h", "t", "d"]
        mask = self._mask_factors()
        named = {"q": q, "k": k, "v": k, "mask": mask, "g": q}
        sizes: dict[Factor, Dim] = {
            "h": self.kv_heads, "g": self.num_heads // self.kv_heads, "d": self.head_dim,
        }  # fmt: skip
        # Where a query stands decides what it sees.
        whole = ["t", "d"] if self.mask_kind in ("none", "custom", "bias") else ["s", "t", "d"]
        results = [q, k, k][: len(self.results)]
        given = [named[f.name] for f in self.operand_fields]
        return Factors(self, given, results, sums=["s", "t", "d", "g"], whole=whole, sizes=sizes)

    def _mask_factors(self) -> list[Any] | None:
        if self.mask is None:
            return None
        if self.mask_kind == "custom":
            return ["b", "t"]
        full: list[Any] = ["b", ("h", "g"), "s", "t"][4 - self.mask.rank :]
        return [None if d == 1 else f for d, f in zip(self.mask.shape, full, strict=True)]

    def on_parts(self, operands: Sequence[Value | None], parts: Parts) -> Sequence[Value]:
        kv = static(parts.length("h"))
        heads = kv * static(parts.length("g"))
        return self.with_operands(operands, num_heads=heads, kv_heads=kv).results


class SoftmaxArrays(NamedTuple):
    """The inside of an attention as arrays: all have H heads, and ``slope`` is that of a score by
    its ``q . k``."""

    q: Array
    k: Array
    v: Array
    p: Array
    slope: Array


class Softmax(NamedTuple):
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
