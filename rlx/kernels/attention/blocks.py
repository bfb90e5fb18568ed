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
powers of two. They are made in the loop of the next scores, whose multiply-adds leave most of the
machine's other instructions free. Under a bias, which may be the least finite number, they count
as they are, and what they lack to their peak is what is scaled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from operator import or_

import numpy as np

from rlx.codegen.math.exponential import exp2_share
from rlx.codegen.reg import Buffer, Reg
from rlx.kernels.attention.args import positions
from rlx.kernels.attention.lanes import transpose
from rlx.kernels.attention.mask import inverse_of, visible
from rlx.kernels.attention.sums import Pair, Sums
from rlx.types import i32

__all__ = ["Blocks"]

CACHE_LINE = 64

_SLACK = 8.0
"""How far above the scores a new peak is set, in powers of two, so that later scores rarely need
another. No weight is above 1: weighted values overflow only where values do."""


class Blocks(Sums):
    """Emits the body of the kernel, a phase a method."""

    @property
    def weaves(self) -> bool:
        """Whether weights are made in the loop of the next scores: where the sums of these leave
        half of the registers."""
        return 2 * self.tile.keys * self.tile.query_vectors <= self.k.target.registers

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
            # The last block may have few queries: then the vectors of a tile's rows are enough.
            few = lanes[: -(-self.tile.rows // self.tile.lanes)]
            narrow, wide = (partial(self.weights, pair, some) for some in (few, lanes))
            k.when(rows <= self.tile.lanes * len(few), narrow, wide)
            self.add(pair)
            return [k.maximum(copied, seen)]

        wanted = k.compare("gt", seen, 0) & k.compare("lt", low, end)
        return k.when(wanted, work, lambda: [copied], [copied])

    # -- copies into scratch -----------------------------------------------------------------

    def start(self, r: Reg, first: Reg, rows: Reg) -> None:
        """Copy a block of query rows into scratch; they have seen no key yet."""
        k, t, dt = self.k, self.tile, self.config.compute
        lowest = float(np.finfo(dt.numpy).min)
        self.copy_queries(r, first, rows)
        for v in self.lanes:
            # Not -inf, less which no score is a number.
            k.store(k.const(lowest, dt, t.lanes), self.scratch["peak"], r + v)
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

        k.loop(0, self.covered(rows), t.lanes, some)

    def covered(self, rows: Reg) -> Reg:
        """Query rows of which sums are made, the last one over again: whole tiles of rows, where
        those are more than a vector has lanes."""
        tile = self.tile.rows
        return rows if tile <= self.tile.lanes else (rows + (tile - 1)) // tile * tile

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

        k.loop(0, self.covered(p.rows), t.lanes, some)

    # -- the weights -------------------------------------------------------------------------

    def weights(self, p: Pair, lanes: list[int]) -> None:
        """The weights of the pair's keys for the vectors of queries at ``lanes``, into scratch:
        2^(score - peak). ``fade`` is what the earlier sums count for under the new peak.

        The weights of a tile are made in the time of the next one's multiply-adds. So a peak is not
        the highest score, but near enough to it: some ``_SLACK`` above it.
        """
        k, t, n = self.k, self.tile, len(lanes)
        for v in lanes:
            k.store(k.const(1.0, self.config.compute, t.lanes), self.scratch["fade"], v)

        def tile(j: Reg, done: Reg, *carried: Reg) -> list[Reg]:
            # The last tile repeats the last key rather than read beyond it.
            ids = [k.minimum(j + i, p.keys - 1) for i in range(t.keys)]
            if lanes == self.lanes:
                k.when(p.copied <= j, lambda: self.request_keys(p, ids))
            peaks, totals = list(carried[:n]), list(carried[n:])
            done, totals, sums = self.score(p, lanes, ids, done, j - done, peaks, totals)
            tops = self.seen(p, j, ids, lanes, sums, peaks)
            if self.weaves:
                return [done, *self.lift(lanes, done, tops, peaks, totals)]
            return [done, *tops, *totals]

        before = [k.load(self.scratch["peak"], p.r + v, t.lanes) for v in lanes]
        zeros = [k.const(0.0, self.config.compute, t.lanes)] * n
        done, *after = k.loop(0, p.keys, t.keys, tile, [k.index(0), *before, *zeros])
        if not self.weaves:
            after = self.lift(lanes, done, after[:n], before, zeros)
        peaks, totals = after[:n], self.exponentials(p, lanes, done, after[:n], after[n:])
        for v, m, x in zip(lanes, peaks, totals, strict=True):
            k.store(m, self.scratch["peak"], p.r + v)
            # A block of keys is a chain of its own here too.
            fade = k.load(self.scratch["fade"], v, t.lanes)
            total = k.fma(k.load(self.scratch["total"], p.r + v, t.lanes), fade, x)
            k.store(total, self.scratch["total"], p.r + v)
            k.store(inverse_of(total, self.config), self.scratch["inverse"], v)

    def score(
        self, p: Pair, lanes: list[int], ids: list[Reg],
        done: Reg, waiting: Reg, peaks: list[Reg], totals: list[Reg],
    ) -> tuple[Reg, list[Reg], list[Reg]]:  # fmt: skip
        """The sums of a tile, K . (scale Q) for the keys ``ids``; and meanwhile weights of the
        ``waiting`` scores from key ``done`` on: how many are done then, and the totals."""
        k, a, t, n = self.k, self.args, self.tile, len(lanes)
        queries, keys, base = self.scratch["queries"], self.scratch.get("keys"), p.r * a.dim
        start, stride = k.index(0), a.dim
        if keys is None:
            keys, start, stride = a.k, a.at("k", self.b, self.kv_head, p.at), a.k_row
        rows = [start + i * stride for i in ids]

        def step(d: Reg, *sums: Reg) -> list[Reg]:
            column = base + d * t.queries
            q = [k.load(queries, column + v, t.lanes) for v in lanes]
            out = []
            for i, row in enumerate(rows):
                key = k.splat(k.load(keys, row + d), t.lanes)
                out += [k.fma(key, x, sums[i * n + v]) for v, x in enumerate(q)]
            return out

        def both(d: Reg, *state: Reg) -> list[Reg]:
            return [*self.weigh(done + d, lanes, peaks, state[:n]), *step(d, *state[n:])]

        sums = [k.const(0.0, self.config.compute, t.lanes)] * (t.keys * n)
        if not self.weaves:
            return done, totals, k.loop(0, a.dim, 1, step, sums)
        first = k.minimum(waiting, a.dim)
        state = k.loop(0, first, 1, both, [*totals, *sums])
        return done + first, state[:n], k.loop(first, a.dim, 1, step, state[n:])

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
        self, p: Pair, j: Reg, ids: list[Reg], lanes: list[int], sums: list[Reg], most: list[Reg]
    ) -> list[Reg]:
        """Cap, mask and store a tile's scores of the keys ``ids``, which go to ``j`` and so on; the
        highest of them and of ``most``."""
        k, t, scores = self.k, self.tile, self.scratch["scores"]
        adjust, width = self.adjustment(p), len(lanes)

        def key(to: Reg, number: Reg, values: list[Reg], most: Sequence[Reg]) -> list[Reg]:
            out = []
            for n, x in enumerate(values):
                s = adjust(x, number, n)
                k.store(s, scores, to * t.queries + lanes[n])
                # Unlike k.maximum this drops nan, which the weights then bring back.
                out.append(k.select(s > most[n], s, most[n]))
            return out

        if not self.config.softcap:
            for n, number in enumerate(ids):
                most = key(j + n, number, sums[n * width : (n + 1) * width], most)
            return most
        # A cap is long code: one key at a time.
        for n, x in enumerate(sums):
            k.store(x, scores, (j + n // width) * t.queries + lanes[n % width])

        def capped(i: Reg, *most: Reg) -> list[Reg]:
            values = [k.load(scores, i * t.queries + lane, t.lanes) for lane in lanes]
            return key(i, k.minimum(i, p.keys - 1), values, most)

        return k.loop(j, j + t.keys, 1, capped, most)

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

    def lift(
        self, lanes: list[int], done: Reg, tops: list[Reg], peaks: list[Reg], totals: list[Reg]
    ) -> list[Reg]:
        """The peaks and totals once scores up to ``tops`` are known. Where one is above its peak
        that becomes a whole number beyond it, by which the first ``done`` weights are scaled."""
        k, t, scores, now = self.k, self.tile, self.scratch["scores"], [*peaks, *totals]
        high = [top > m for top, m in zip(tops, peaks, strict=True)]

        def lifted() -> list[Reg]:
            found = zip(high, tops, peaks, strict=True)
            new = [k.select(above, k.ceil(top) + _SLACK, m) for above, top, m in found]
            fades = [exp2_share(self.below(m, old)) for old, m in zip(peaks, new, strict=True)]

            def fade(buffer: Buffer, at: Reg | int) -> None:
                for v, x in zip(lanes, fades, strict=True):
                    k.store(k.load(buffer, at + v, t.lanes) * x, buffer, at + v)

            if self.weaves:
                k.loop(0, done, 1, lambda i: fade(scores, i * t.queries))
            fade(self.scratch["fade"], k.index(0))
            return [*new, *(x * f for x, f in zip(totals, fades, strict=True))]

        return k.when(k.any(reduce(or_, high)), lifted, lambda: now, now)

    def below(self, peak: Reg, score: Reg) -> Reg:
        """How far a score is from its peak, as a power of two."""
        found = score - peak
        return found * (1.0 / math.log(2.0)) if self.unit == 1.0 else found

    def exponentials(
        self, p: Pair, lanes: list[int], done: Reg, peaks: list[Reg], totals: list[Reg]
    ) -> list[Reg]:
        """Weights in the place of the scores from key ``done`` on; the totals with them."""
        k = self.k
        return k.loop(done, p.keys, 1, lambda i, *x: self.weigh(i, lanes, peaks, x), totals)

    def weigh(self, j: Reg, lanes: list[int], peaks: list[Reg], totals: Sequence[Reg]) -> list[Reg]:
        """Put weights in the place of the scores of the key ``j``; the totals with them."""
        k, t, scores, out = self.k, self.tile, self.scratch["scores"], []
        for v, m, before in zip(lanes, peaks, totals, strict=True):
            at = j * t.queries + v
            w = exp2_share(self.below(m, k.load(scores, at, t.lanes)))
            k.store(w, scores, at)
            out.append(before + w)
        return out
