"""Attention by blocks of queries and keys, with an online softmax (FlashAttention-2, Dao 2023).

A task is one head and a few blocks of query rows. For every block of keys and of query rows it
makes the scores, turns them into weights, and adds the weighted rows of V to the sums. The last
block of keys divides them by the total and writes them out. K, read in order, stays in place unless
its elements must be converted. The first rows that need a row of V read it in place, and store it
into scratch for the others, in the time of their multiply-adds (dense, as the compute type: in
place, rows a multiple of 4 KB apart would evict each other).

Queries lie side by side in the lanes: Q is transposed once, scores are ``[key][query]``, and the
softmax goes over keys without crossing a lane. So no length needs a mask or a tail: keys come one
by one, and lanes beyond the last query repeat it. Scores count in 1 / ln 2, so that weights are
powers of two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from rlx.kernels.attention_args import positions
from rlx.kernels.attention_lanes import transpose
from rlx.kernels.attention_mask import visible
from rlx.kernels.attention_sums import Pair, Sums
from rlx.kernels.math.exponential import exp2_share
from rlx.kernels.reg import Buffer, Reg
from rlx.types import i32

__all__ = ["Blocks"]

CACHE_LINE = 64


class Blocks(Sums):
    """Emits the body of the kernel, a phase a method."""

    # -- the order of work -------------------------------------------------------------------

    def task(self, t: Reg) -> None:
        """One head's query rows ``[first, first + rows)``."""
        k, a, size = self.k, self.args, self.tile.queries
        head = t // a.splits
        self.b, self.h = head // a.heads, head % a.heads
        self.kv_head = self.h // a.group
        first = t % a.splits * a.per_task * size
        rows = k.minimum(a.queries - first, a.per_task * size)
        k.loop(0, rows, size, lambda r: self.start(r, first + r, k.minimum(rows - r, size)))
        low, high = visible(k, a, self.config, first, rows)

        def key_block(at: Reg) -> None:
            count = k.minimum(a.key_block, high - at)
            self.copy_keys(at, count)

            def query_block(r: Reg, copied: Reg) -> list[Reg]:
                return self.meet(r, first + r, k.minimum(rows - r, size), at, count, copied)

            k.loop(0, rows, size, query_block, [k.index(0)])

        k.loop(low - low % a.key_block, high, a.key_block, key_block)

    def meet(self, r: Reg, first: Reg, rows: Reg, at: Reg, count: Reg, copied: Reg) -> list[Reg]:
        """Keys ``[at, at + count)`` on a block of query rows, if they see any; how many of the rows
        of V are then in scratch."""
        k, a, lanes = self.k, self.args, self.lanes
        low, high = visible(k, a, self.config, first, rows)
        end = at + count
        seen = k.minimum(end, high) - at
        begins, ends = k.compare("le", at, low), k.compare("ge", end, high)
        pair = Pair(r, first, rows, at, seen, copied, begins, ends)

        def work() -> list[Reg]:
            if self.config.mask == "bias":
                self.copy_bias(pair)
            # The last block may have few queries: then one vector of them is enough.
            narrow, wide = (partial(self.weights, pair, some) for some in (lanes[:1], lanes))
            k.when(rows <= self.tile.lanes, narrow, wide)
            self.add(pair)
            return [k.maximum(copied, seen)]

        wanted = k.compare("gt", seen, 0) & k.compare("lt", low, end)
        return k.when(wanted, work, lambda: [copied], [copied])

    # -- copies into scratch -----------------------------------------------------------------

    def start(self, r: Reg, first: Reg, rows: Reg) -> None:
        """Copy a block of query rows into scratch; they have seen no key yet."""
        k, t, dt = self.k, self.tile, self.config.compute
        self.copy_queries(r, first, rows)
        for v in self.lanes:
            k.store(k.const(-math.inf, dt, t.lanes), self.scratch["peak"], r + v)
            k.store(k.const(0.0, dt, t.lanes), self.scratch["total"], r + v)

    def copy_queries(self, r: Reg, first: Reg, rows: Reg) -> None:
        """Transpose a block of query rows into scratch, scaled."""
        k, a, t = self.k, self.args, self.tile
        scale = k.splat(self.masking.scaled("scale"), t.lanes)
        into, start = r * a.dim, a.at("q", self.b, self.h, first)

        def some(lane: Reg) -> None:
            ids = [k.minimum(lane + n, rows - 1) for n in range(t.lanes)]
            at = [start + n * a.q_row for n in ids]
            to = into + lane
            self.request(a.q, [x + t.lanes * a.q_row for x in at])

            def put(column: Reg, x: Reg) -> None:
                k.store(x * scale, self.scratch["queries"], to + column * t.queries)

            transpose(k, a.q, at, a.dim, put)

        k.loop(0, rows, t.lanes, some)

    def copy_keys(self, at: Reg, count: Reg) -> None:
        """Convert ``count`` rows of K, and what a custom mask says of them, where need be."""
        k, a, keys = self.k, self.args, self.scratch.get("keys")
        start = a.at("k", self.b, self.kv_head, at)

        def row(j: Reg) -> None:
            source, to = start + j * a.k_row, j * a.dim

            def part(d: Reg, n: int) -> None:
                assert keys is not None
                k.store(k.load(a.k, source + d, n), keys, to + d)

            if keys is not None:
                k.vector_loop(a.dim, self.tile.lanes, part)
            if self.config.mask == "custom":
                self.note(at, j)

        if keys is not None or self.config.mask == "custom":
            k.loop(0, count, 1, row)

    def note(self, at: Reg, j: Reg) -> None:
        """Note whether a custom mask keeps the key ``at + j``."""
        self.k.store(self.masking.kept(self.b, at + j), self.scratch["kept"], j)

    def copy_bias(self, p: Pair) -> None:
        """Transpose the pair's part of the bias into scratch."""
        k, a, t = self.k, self.args, self.tile
        assert a.mask is not None
        bias, source = self.scratch["bias"], a.mask

        def some(lane: Reg) -> None:
            ids = [k.minimum(lane + n, p.rows - 1) for n in range(t.lanes)]
            starts = [a.at("mask", self.b, self.h, p.first + n) + p.at for n in ids]

            def put(j: Reg, x: Reg) -> None:
                k.store(k.cast(x, self.config.compute), bias, j * t.queries + lane)

            transpose(k, source, starts, p.keys, put)

        k.loop(0, p.rows, t.lanes, some)

    # -- the weights -------------------------------------------------------------------------

    def weights(self, p: Pair, lanes: list[int]) -> None:
        """The weights of the pair's keys for the vectors of queries at ``lanes``, into scratch."""
        self.soften(p, lanes, self.score(p, lanes))

    def score(self, p: Pair, lanes: list[int]) -> list[Reg]:
        """scores[key][query] = K . (scale Q), capped and masked, for the pair's keys rounded up to
        whole tiles; returns the highest that each query has met so far."""
        k, a, t = self.k, self.args, self.tile
        queries, keys, base = self.scratch["queries"], self.scratch.get("keys"), p.r * a.dim
        start, stride = k.index(0), a.dim
        if keys is None:
            keys, start, stride = a.k, a.at("k", self.b, self.kv_head, p.at), a.k_row

        def some(j: Reg, *most: Reg) -> list[Reg]:
            # The last tile repeats the last key rather than read beyond it.
            ids = [k.minimum(j + n, p.keys - 1) for n in range(t.keys)]
            rows = [start + n * stride for n in ids]
            if lanes == self.lanes:
                k.when(p.copied <= j, lambda: self.request_keys(p, ids))

            def step(d: Reg, *sums: Reg) -> list[Reg]:
                column = base + d * t.queries
                q = [k.load(queries, column + v, t.lanes) for v in lanes]
                out = []
                for n, row in enumerate(rows):
                    key = k.splat(k.load(keys, row + d), t.lanes)
                    out += [k.fma(key, x, sums[n * len(q) + v]) for v, x in enumerate(q)]
                return out

            zero = k.const(0.0, self.config.compute, t.lanes)
            sums = k.loop(0, a.dim, 1, step, [zero] * (t.keys * len(lanes)))
            return self.seen(p, j, ids, lanes, sums, most)

        before = [k.load(self.scratch["peak"], p.r + v, t.lanes) for v in lanes]
        return k.loop(0, p.keys, t.keys, some, before)

    def request(self, source: Buffer, rows: list[Reg]) -> None:
        """Ask for rows that are read next. No machine looks ahead from row to row by itself where
        they lie far apart."""
        k, step = self.k, CACHE_LINE // self.config.dtype.bytes

        def line(d: Reg) -> None:
            for row in rows:
                k.prefetch(source, row + d)

        k.loop(0, self.args.dim, step, line)

    def request_keys(self, p: Pair, ids: list[Reg]) -> None:
        """What the first query rows ask for: the keys after ``ids``, and the rows of V of these."""
        a = self.args
        k_start, v_start = (a.at(x, self.b, self.kv_head, p.at) for x in ("k", "v"))
        self.request(a.v, [v_start + n * a.v_row for n in ids])
        if "keys" not in self.scratch:
            self.request(a.k, [k_start + (n + len(ids)) * a.k_row for n in ids])

    def seen(
        self, p: Pair, j: Reg, ids: list[Reg], lanes: list[int], sums: list[Reg],
        most: tuple[Reg, ...],
    ) -> list[Reg]:  # fmt: skip
        """Cap, mask and store a tile's scores of the keys ``ids``, which go to ``j`` and so on; the
        highest so far."""
        k, t, scores = self.k, self.tile, self.scratch["scores"]
        adjust = self.adjustment(p)

        def key(to: Reg, number: Reg, values: list[Reg], *most: Reg) -> list[Reg]:
            out = []
            for n, x in enumerate(values):
                s = adjust(x, number, n)
                k.store(s, scores, to * t.queries + lanes[n])
                # Unlike k.maximum this drops nan, which the weights then bring back.
                out.append(k.select(s > most[n], s, most[n]))
            return out

        width = len(lanes)
        if not self.config.softcap:
            for n, number in enumerate(ids):
                most = tuple(key(j + n, number, sums[n * width : (n + 1) * width], *most))
            return list(most)
        # A cap is long code: one key at a time.
        for n, x in enumerate(sums):
            k.store(x, scores, (j + n // width) * t.queries + lanes[n % width])

        def capped(i: Reg, *most: Reg) -> list[Reg]:
            values = [k.load(scores, i * t.queries + lane, t.lanes) for lane in lanes]
            return key(i, k.minimum(i, p.keys - 1), values, *most)

        return k.loop(j, j + t.keys, 1, capped, list(most))

    def adjustment(self, p: Pair) -> Callable[[Reg, Reg, int], Reg]:
        """What happens to a vector of scores (key ``at + j``, queries of vector ``v``)."""
        k, t, masking = self.k, self.tile, self.masking
        last = k.cast(masking.position(p.first + p.rows - 1), i32)
        first = masking.position(p.first)
        own = [k.minimum(positions(k, first + v, t.lanes), last) for v in self.lanes]

        def adjust(s: Reg, j: Reg, v: int) -> Reg:
            def extra() -> Reg:
                if self.config.mask == "custom":
                    return k.splat(k.load(self.scratch["kept"], j), t.lanes)
                return k.load(self.scratch["bias"], j * t.queries + self.lanes[v], t.lanes)

            return masking.adjust(s, k.splat(k.cast(p.at + j, i32), t.lanes), own[v], extra)

        return adjust

    def soften(self, p: Pair, lanes: list[int], most: list[Reg]) -> None:
        """Turn the pair's scores into weights 2^(score - peak); update peaks and totals.

        ``fade`` is what the earlier sums count for under the new peak. A peak of -inf means that
        no key had a finite score so far; 0 in its place makes their weights 0 and not nan.
        """
        k, t = self.k, self.tile
        peak, total = self.scratch["peak"], self.scratch["total"]
        safe = [k.select(k.compare("eq", m, -math.inf), 0.0, m) for m in most]
        faded = []
        for v, m in zip(lanes, safe, strict=True):
            fade = exp2_share(k.load(peak, p.r + v, t.lanes) - m)
            k.store(fade, self.scratch["fade"], v)
            faded.append(k.load(total, p.r + v, t.lanes) * fade)
        sums = self.exponentials(p, lanes, safe, faded)
        for v, m, x in zip(lanes, most, sums, strict=True):
            k.store(m, peak, p.r + v)
            k.store(x, total, p.r + v)
            k.store(1.0 / x, self.scratch["inverse"], v)

    def exponentials(
        self, p: Pair, lanes: list[int], peaks: list[Reg], totals: list[Reg]
    ) -> list[Reg]:
        """Put 2^(score - peak) in the place of scores; ``totals`` and what they add to."""
        k, t, scores = self.k, self.tile, self.scratch["scores"]

        def weight(j: Reg, *sums: Reg) -> list[Reg]:
            out = []
            for v, m, before in zip(lanes, peaks, sums, strict=True):
                at = j * t.queries + v
                w = exp2_share(k.load(scores, at, t.lanes) - m)
                k.store(w, scores, at)
                out.append(before + w)
            return out

        return k.loop(0, p.keys, 1, weight, totals)
