"""Attention over keys and values in pages, for rows of several sequences at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.base.dims import is_known
from rlx.errors import DTypeError, FaultError, GraphError, RlxError, ShapeError
from rlx.ir.factors import Factor, Factors, Parts
from rlx.ir.op import Array, Bad, Cost, attr, bad, operand, optional, sample
from rlx.ir.value import Value
from rlx.ops.indexing.gather import Gather
from rlx.ops.movement.constant import Iota
from rlx.ops.movement.movement import listed
from rlx.ops.nn.heads import static
from rlx.ops.nn.inference import ForInference
from rlx.ops.reduction.reduce import as_value
from rlx.ops.rules import batch
from rlx.ops.sugar import concat
from rlx.types import Dim, TensorType, bf16, f16, f32, i32

__all__ = ["PagedAttention"]

_TWO: dict[str, Any] = {"num_heads": 2, "kv_heads": 1, "page_size": 4, "scale": 0.5}
_PAGES = ("12x4xf32", "12x4xf32", "2x2xi32")
_ROWS = ("3xi32", "3xi32")
_DATA = {3: "index:3", 4: "index:2", 5: "index:8"}


def _bad(*types: str, match: str, error: type[RlxError] = GraphError, **attrs: Any) -> Bad:
    return bad(*types, match=match, error=error, **{**_TWO, **attrs})


class PagedAttention(ForInference, name="mir.paged_attention"):
    """Attention of rows of several sequences, each over the keys of its sequence up to its own.

    ``keys`` and ``values`` are a cache of rows, ``page_size`` to a page. Position p of sequence s
    is row ``table[s, p // page_size] * page_size + p % page_size`` of it. Row t of q is at
    ``positions[t]`` of the sequence ``sequence[t]``, and sees the keys of the positions up to that,
    with a ``window`` of w the last w of them. A row whose position is negative has the result 0.

    Scores are ``scale * q . k``, then ``softcap * tanh(score / softcap)`` if softcap is not 0.
    With ``sinks`` each head has one score more, whose value is 0: what a row need not attend to.
    Query head h reads key head ``h // (H / HK)``. All is computed in f32. The result of a row
    depends neither on the other rows nor on which pages its sequence has. A position without a
    page, or a page or sequence that there is not, is a FaultError; entries of the table beyond a
    sequence's rows are not looked at. (W. Kwon et al., "PagedAttention", 2023.)
    """

    q: Value = operand("queries f32 [T, H*D]")
    keys: Value = operand("f32, f16 or bf16 [slots, HK*D], slots being whole pages")
    values: Value = operand("of the keys' type")
    table: Value = operand("i32 [S, P]: the pages of each sequence")
    sequence: Value = operand("i32 [T]: the sequence of each row")
    positions: Value = operand("i32 [T]: where a row stands in its sequence")
    sinks: Value | None = optional("f32 [H]: a score of each head that no key has")
    num_heads: int = attr(doc="query heads H")
    kv_heads: int = attr(doc="key and value heads HK; divides num_heads")
    page_size: int = attr(doc="rows of a page")
    scale: float = attr(doc="factor of the scores, usually 1 / sqrt(head_dim)")
    window: int = attr(0, "how many keys a row sees at most; 0 for all")
    softcap: float = attr(0.0, "bound of the scores; 0 for none")

    instead = "attention"
    samples = (
        sample("3x8xf32", *_PAGES, *_ROWS, data=_DATA, **_TWO),
        sample("3x64xf32", "12x32xf16", "12x32xf16", "2x2xi32", *_ROWS, data=_DATA, **_TWO),
        sample(
            "5x64xf32", "24x32xbf16", "24x32xbf16", "3x8xi32", "5xi32", "5xi32",
            data={3: "index:8", 4: "index:3", 5: "index:24"},
            num_heads=4, kv_heads=2, page_size=3, scale=0.3, window=5, softcap=2.0,
        ),
        sample(
            "4x32xf32", "600x16xf32", "600x16xf32", "1x1xi32", "4xi32", "4xi32",
            data={3: "index:1", 4: "index:1", 5: "index:600"},
            num_heads=2, kv_heads=1, page_size=600, scale=1.0,
        ),
        sample("0x8xf32", *_PAGES, "0xi32", "0xi32", **_TWO),
        sample("3x8xf32", *_PAGES, *_ROWS, "2xf32", data=_DATA, **{**_TWO, "window": 3}),
        sample("3x6xf32", "12x3xf32", "12x3xf32", "2x2xi32", *_ROWS, "2xf32", data=_DATA, **_TWO),
    )  # fmt: skip
    bads = (
        _bad("3x8xf16", *_PAGES, *_ROWS, match="q must be f32", error=DTypeError),
        _bad("3x8xf32", "12x4xi8", "12x4xi8", "2x2xi32", *_ROWS, match="keys are f32, f16 or bf16",
             error=DTypeError),
        _bad("3x8xf32", "12x4xf32", "12x4xf16", "2x2xi32", *_ROWS, match="values must be"),
        _bad("3x8xf32", *_PAGES[:2], "2x2xi64", *_ROWS, match="table must be i32",
             error=DTypeError),
        _bad("3x8xf32", *_PAGES, "2xi32", "3xi32", match=r"sequence must be i32 \[3\]",
             error=ShapeError),
        _bad("8xf32", *_PAGES, *_ROWS, match="q is .T, H.D.", error=ShapeError),
        _bad("3x8xf32", *_PAGES[:2], "4xi32", *_ROWS, match="table is .S, P.", error=ShapeError),
        _bad("3x8xf32", *_PAGES, *_ROWS, match="multiple of kv_heads", kv_heads=3,
             error=ShapeError),
        _bad("3x9xf32", *_PAGES, *_ROWS, match="2 heads do not divide", error=ShapeError),
        _bad("3x8xf32", "12x5xf32", "12x5xf32", "2x2xi32", *_ROWS, match=r"rows of 4, found",
             error=ShapeError),
        _bad("3x8xf32", *_PAGES, *_ROWS, match="whole pages of 5", page_size=5, error=ShapeError),
        _bad("3x8xf32", *_PAGES, *_ROWS, match="page_size is 1 or more", page_size=0),
        _bad("3x8xf32", *_PAGES, *_ROWS, match="window is 0 or more", window=-1),
        _bad("3x8xf32", *_PAGES, *_ROWS, match="softcap must be 0 or a positive", softcap=-1.0),
        _bad("3x8xf32", *_PAGES, *_ROWS, "3xf32", match=r"sinks must be f32 \[2\]",
             error=ShapeError),
    )  # fmt: skip

    def infer(self) -> TensorType:
        self._check_attributes()
        q, keys = self.q, self.keys
        if q.dtype is not f32:
            raise DTypeError(f"paged_attention: q must be f32, found {q.dtype}; cast it first")
        if q.rank != 2:
            raise ShapeError(f"paged_attention: q is [T, H*D], found {q.type}")
        if static(q.shape[1]) % self.num_heads:
            raise ShapeError(f"paged_attention: {self.num_heads} heads do not divide q {q.type}")
        if keys.dtype not in (f32, f16, bf16):
            raise DTypeError(f"paged_attention: keys are f32, f16 or bf16, found {keys.dtype}")
        width = self.kv_heads * self.head_dim
        if keys.rank != 2 or keys.shape[1] != width:
            raise ShapeError(f"paged_attention: keys have rows of {width}, found {keys.type}")
        slots = keys.shape[0]
        if is_known(slots) and (slots % self.page_size or not slots):
            raise ShapeError(
                f"paged_attention: keys are whole pages of {self.page_size}, found {keys.type}"
            )
        if self.values.type != keys.type:
            raise GraphError(
                f"paged_attention: values must be {keys.type}, found {self.values.type}"
            )
        self._check_rows()
        return q.type

    def _check_attributes(self) -> None:
        if self.num_heads < 1 or self.kv_heads < 1 or self.num_heads % self.kv_heads:
            raise ShapeError(
                "paged_attention: num_heads must be a multiple of kv_heads, found"
                f" {self.num_heads} and {self.kv_heads}"
            )
        if self.page_size < 1:
            raise GraphError(f"paged_attention: page_size is 1 or more, found {self.page_size}")
        if self.window < 0:
            raise GraphError(f"paged_attention: window is 0 or more, found {self.window}")
        if not 0.0 <= self.softcap < math.inf:
            raise GraphError(
                f"paged_attention: softcap must be 0 or a positive number, found {self.softcap}"
            )

    def _check_rows(self) -> None:
        if self.table.rank != 2:
            raise ShapeError(f"paged_attention: table is [S, P], found {self.table.type}")
        if self.table.dtype is not i32:
            raise DTypeError(f"paged_attention: table must be i32, found {self.table.dtype}")
        want = TensorType((self.q.shape[0],), i32)
        for name, x in (("sequence", self.sequence), ("positions", self.positions)):
            if x.type != want:
                raise ShapeError(
                    f"paged_attention: {name} must be i32 {listed(want.shape)}, found {x.type}"
                )
        if self.sinks is not None and self.sinks.type != TensorType((self.num_heads,), f32):
            raise ShapeError(
                f"paged_attention: sinks must be f32 [{self.num_heads}], found {self.sinks.type}"
            )

    @property
    def head_dim(self) -> int:
        """Elements of one head, D."""
        return static(self.q.shape[1]) // self.num_heads

    def cost(self) -> Cost:
        """That of all rows over the whole of their tables, which a call takes at most; 0 for a
        symbolic number of rows."""
        rows, (_, pages) = self.q.shape[0], self.table.shape
        if not is_known(rows) or not is_known(pages):
            return Cost(0, 0)
        seen = rows * min(pages * self.page_size, self.window or pages * self.page_size)
        width = self.kv_heads * self.head_dim
        return Cost(4 * seen * static(self.q.shape[1]), 2 * seen * width * self.keys.dtype.bytes)

    # -- meaning ---------------------------------------------------------------------------

    def reference(
        self, q: Array, keys: Array, values: Array, table: Array, sequence: Array,
        positions: Array, sinks: Array | None,
    ) -> Array:  # fmt: skip
        out = np.zeros(q.shape, np.float32)
        for t, (s, p) in enumerate(zip(sequence.tolist(), positions.tolist(), strict=True)):
            if p >= 0:
                slots = self._slots(s, p, table, len(keys))
                out[t] = self._row(q[t], keys[slots], values[slots], sinks)
        return out

    def _slots(self, s: int, p: int, table: Array, count: int) -> Array:
        """The rows of the cache that a row sees."""
        size = self.page_size
        if not 0 <= s < len(table) or p >= size * table.shape[1]:
            raise FaultError(f"paged_attention: {_OUTSIDE}")
        seen = np.arange(max(0, p + 1 - self.window) if self.window else 0, p + 1)
        pages = table[s, seen // size].astype(np.int64)
        if pages.min() < 0 or pages.max() >= count // size:
            raise FaultError(f"paged_attention: {_OUTSIDE}")
        return pages * size + seen % size

    def _row(self, q: Array, keys: Array, values: Array, sinks: Array | None) -> Array:
        """The result of a row, in f64."""
        h, hk, d = self.num_heads, self.kv_heads, self.head_dim
        q, k, v = (
            x.astype(np.float64).reshape(shape)
            for x, shape in ((q, (hk, h // hk, d)), (keys, (-1, hk, d)), (values, (-1, hk, d)))
        )
        scores = np.einsum("xgd,nxd->xgn", q, k) * self.scale
        if self.softcap:
            scores = self.softcap * np.tanh(scores / self.softcap)
        if sinks is not None:
            extra = sinks.astype(np.float64).reshape(hk, h // hk, 1)
            scores = np.concatenate([scores, extra], -1)
            v = np.concatenate([v, np.zeros((1, hk, d))])
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        found = np.einsum("xgn,nxd->xgd", weights / weights.sum(-1, keepdims=True), v)
        return found.reshape(h * d).astype(np.float32)

    @property
    def fault(self) -> str:
        """What a fault says."""
        return f"paged_attention: {_OUTSIDE}"

    def expand(self) -> Value:
        """Each row's keys and values gathered, all of its table; those it does not see are 0."""
        (t, _), h, hk, d = self.q.shape, self.num_heads, self.kv_heads, self.head_dim
        _, pages = self.table.shape
        size, span = self.page_size, pages * self.page_size
        place, row = Iota((span,), 0, i32).out, (t, span)
        last = self.positions.reshape((t, 1)).expand(row)
        at = place.reshape((1, span)).expand(row)
        seen = at <= last
        if self.window:
            seen = seen & (at > last - self.window)
        # Where nothing is seen, nothing is looked up that a fault could be of.
        mine = (self.positions >= 0).where(self.sequence, 0)
        known = (self.positions < _count(span)) & (mine >= 0)
        none = -1 - _count(self.table.shape[0])
        own = Gather(self.table, known.where(mine, none), 0, "fault", 0).out
        slots = own.reshape((t, pages, 1)).expand((t, pages, size)).reshape(row)
        inside = Iota((span,), 0, i32).out % size
        slots = slots * size + inside.reshape((1, span)).expand(row)
        wrong = (slots < 0).where(-1 - _count(self.keys.shape[0]), slots)
        slots = seen.where(wrong, 0)
        k, v = (
            Gather(x, slots, 0, "fault", 0).out.cast(to=f32).reshape((t, span, hk, d))
            for x in (self.keys, self.values)
        )
        v = seen.reshape((t, span, 1, 1)).expand(v.shape).where(v, 0.0)
        q = self.q.reshape((t, hk, h // hk, d))
        scores = (q @ k.transpose((0, 2, 3, 1))) * self.scale
        if self.softcap:
            scores = (scores * (1.0 / self.softcap)).tanh() * self.softcap
        shown = seen.reshape((t, 1, 1, span)).expand(scores.shape)
        scores = shown.where(scores, -math.inf)
        if self.sinks is not None:
            sinks = self.sinks.reshape((1, hk, h // hk, 1)).expand((t, hk, h // hk, 1))
            scores = concat([scores, sinks], 3)
        weights = scores.softmax(axis=-1)[:, :, :, :span]
        out = (weights @ v.transpose((0, 2, 1, 3))).reshape(self.q.shape)
        known = (self.positions >= 0).reshape((t, 1)).expand(out.shape)
        return known.where(out, 0.0)

    def factors(self) -> Factors:
        q, cache = ["t", ("h", "g", "d")], [None, ("h", "d")]
        heads, kv = self.num_heads, self.kv_heads
        sizes: dict[Factor, Dim] = {"h": kv, "g": heads // kv, "d": self.q.shape[1] // heads}
        sinks = None if self.sinks is None else [("h", "g")]
        given = [q, cache, cache, [None, None], ["t"], ["t"], sinks]
        # A sum over d, so that it counts as a product.
        return Factors(self, given, [q], sums="d", whole="d", sizes=sizes)

    def on_parts(self, operands: Sequence[Value | None], parts: Parts) -> Sequence[Value]:
        kv = static(parts.length("h"))
        heads = kv * static(parts.length("g"))
        return self.with_operands(operands, num_heads=heads, kv_heads=kv).results

    def batch(self, operands: Sequence[Value | None], batched: Sequence[bool]) -> Value:
        """The new axis is folded into the rows, whose caches and tables lie one after another; not
        where each element has sinks of its own."""
        sinks = operands[-1]
        if batched[-1]:
            return self._batch_by_formula(operands, batched)
        operands = [v for v in operands[:-1] if v is not None]
        batched = batched[:-1]
        count = next(v.shape[0] for v, b in zip(operands, batched, strict=True) if b)
        own = (self.q, self.keys, self.values, self.table, self.sequence, self.positions)
        whole = [
            v if b else v.reshape((1, *v.shape)).expand((count, *v.shape))
            for v, b in zip(operands, batched, strict=True)
        ]
        # Pages and sequences count on from one to the next.
        number = Iota((count,), 0, i32).out
        pages = _count(self.keys.shape[0] // self.page_size)
        starts = number.reshape((count, 1, 1)).expand(whole[3].shape)
        outside = (whole[3] < 0) | (whole[3] >= pages)
        whole[3] = outside.where(-1, whole[3] + starts * pages)
        firsts = number.reshape((count, 1)).expand(whole[4].shape) * _count(self.table.shape[0])
        outside = (whole[4] < 0) | (whole[4] >= _count(self.table.shape[0]))
        whole[4] = outside.where(-1, whole[4] + firsts)
        flat = [
            v.reshape((count * like.shape[0], *like.shape[1:]))
            for v, like in zip(whole, own, strict=True)
        ]
        return self.with_operands([*flat, sinks]).out.reshape((count, *self.q.shape))

    def _batch_by_formula(self, operands: Sequence[Value | None], batched: Sequence[bool]) -> Value:
        pairs = list(zip(self.present, operands, batched, strict=True))
        # One element of what has the axis is stood for by a value that nothing gives.
        leaves = [Value(own.type) if has else own for own, _, has in pairs]
        given = {
            leaf: (v, has) for leaf, (_, v, has) in zip(leaves, pairs, strict=True) if v is not None
        }
        return batch([self.with_operands(leaves).expand()], given)[0][0]


def _count(d: Dim) -> Value | int:
    """A size to reckon with: an i32 scalar where it is symbolic."""
    return d if isinstance(d, int) else as_value(d).cast(to=i32)


_OUTSIDE = "a row's sequence, position or page is outside the table or the cache"
