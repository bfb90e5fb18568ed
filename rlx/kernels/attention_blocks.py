"""Attention by blocks of queries and keys, with an online softmax (FlashAttention-2, Dao 2023).

A task is one head and a few blocks of query rows. Per block of keys it copies V into scratch
(dense, as the compute type; in place, rows a multiple of 4 KB apart would evict each other), and
for every block of query rows it makes the scores, turns them into weights, and adds the weighted
rows of V to the sums. K, read in order, stays in place unless its elements must be converted.

Queries lie side by side in the lanes: Q is transposed once, scores are ``[key][query]``, and the
softmax goes over keys without crossing a lane. So no length needs a mask or a tail: keys come one
by one, and lanes beyond the last query hold values that nobody reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from rlx.kernels.attention_args import (
    Arguments,
    AttentionConfig,
    Count,
    Tile,
    offsets,
    padded,
    positions,
)
from rlx.kernels.attention_lanes import transpose
from rlx.kernels.attention_mask import Masking, visible, weight_of
from rlx.kernels.builder import Kernel
from rlx.kernels.reg import Reg
from rlx.types import i32

__all__ = ["Blocks", "scratch_lengths"]


def scratch_lengths(
    tile: Tile, config: AttentionConfig, dim: Count, key_block: Count, blocks: Count
) -> dict[str, Count]:
    """The scratch arrays of a task of ``blocks`` query blocks, in elements of the compute type."""
    width = padded(dim, tile)
    lengths = {
        "queries": blocks * (tile.queries * (dim // 2 if config.pairs else dim)),
        "sums": blocks * (tile.queries * width),
        "peak": blocks * tile.queries,
        "total": blocks * tile.queries,
        "highest": blocks * 0 + tile.queries,
        "fade": blocks * 0 + tile.queries,
        # Pairs of bf16 lie in one word.
        "values": key_block // 2 * width if config.pairs else key_block * width,
        "scores": (key_block + (tile.keys - 1)) * tile.queries,
    }
    if config.dtype is not config.compute and not config.pairs:
        lengths["keys"] = key_block * dim
    if config.mask == "custom":
        lengths["kept"] = key_block
    if config.mask == "bias":
        lengths["bias"] = key_block * tile.queries
    return lengths


class Blocks:
    """Emits the body of the kernel, a phase a method."""

    def __init__(self, k: Kernel, config: AttentionConfig, tile: Tile) -> None:
        self.k, self.config, self.tile = k, config, tile
        self.args = a = Arguments(k, config)
        dt = config.compute
        lengths = scratch_lengths(tile, config, a.dim, a.key_block, a.per_task)
        self.starts, _ = offsets(lengths, k.index(0))
        self.scratch = {name: k.scratch(dt, at * dt.bytes) for name, at in self.starts.items()}
        self.width = padded(a.dim, tile)
        self.scale = a.float("scale")
        self.masking = Masking(k, config, a)
        self.lanes = [tile.lanes * v for v in range(tile.query_vectors)]

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
            k.loop(0, rows, size, lambda r: self.pair(r, first + r, rows - r, at, count))

        k.loop(low - low % a.key_block, high, a.key_block, key_block)
        k.loop(0, rows, 1, lambda r: self.finish(r, first + r))

    def pair(self, r: Reg, first: Reg, rows: Reg, at: Reg, count: Reg) -> None:
        """Keys ``[at, at + count)`` on the block of query rows that starts at ``r`` of the task."""
        k, a, t = self.k, self.args, self.tile
        rows = k.minimum(rows, t.queries)
        low, high = visible(k, a, self.config, first, rows)
        seen = k.minimum(at + count, high) - at

        def scores(lanes: list[int]) -> None:
            self.score(r, at, seen, lanes)
            if self.config.mask == "bias":
                self.copy_bias(first, rows, at, seen)
            self.mask(r, first, at, seen, lanes)

        def work() -> None:
            # The last block may have few queries: then one vector of them is enough.
            narrow, wide = (partial(scores, lanes) for lanes in (self.lanes[:1], self.lanes))
            k.when(rows <= t.lanes, narrow, wide)
            self.soften(r, rows, seen)
            self.weigh(r, rows, seen)

        k.when(k.compare("gt", seen, 0) & k.compare("lt", low, at + count), work)

    # -- copies into scratch -----------------------------------------------------------------

    def start(self, r: Reg, first: Reg, rows: Reg) -> None:
        """Copy a block of query rows into scratch, and clear its sums."""
        k, t, width = self.k, self.tile, self.width
        self.copy_queries(r, first, rows)
        zero, sums = k.const(0.0, self.config.compute, t.lanes), self.scratch["sums"]
        k.loop(r * width, (r + t.queries) * width, t.lanes, lambda n: k.store(zero, sums, n))
        for v in self.lanes:
            k.store(k.const(-math.inf, self.config.compute, t.lanes), self.scratch["peak"], r + v)
            k.store(zero, self.scratch["total"], r + v)

    def copy_queries(self, r: Reg, first: Reg, rows: Reg) -> None:
        """Transpose a block of query rows into scratch, scaled."""
        k, a, t = self.k, self.args, self.tile
        scale = k.splat(self.scale, t.lanes)
        into, start = r * a.dim, a.at("q", self.b, self.h, first)

        def some(lane: Reg) -> None:
            ids = [k.minimum(lane + n, rows - 1) for n in range(t.lanes)]
            at = [start + n * a.q_row for n in ids]
            to = into + lane

            def put(column: Reg, x: Reg) -> None:
                k.store(x * scale, self.scratch["queries"], to + column * t.queries)

            transpose(k, a.q, at, a.dim, put)

        k.loop(0, rows, t.lanes, some)

    def copy_keys(self, at: Reg, count: Reg) -> None:
        """Copy rows ``[at, at + count)`` of V, and of K if it must be converted.

        Columns of V beyond the head dim stay as they are: they end in sums that nobody reads.
        """
        k, a, lanes = self.k, self.args, self.tile.lanes
        keys, values = self.scratch.get("keys"), self.scratch["values"]
        start_k, start_v = (a.at(x, self.b, self.kv_head, at) for x in ("k", "v"))

        def row(j: Reg) -> None:
            from_v, to_v = start_v + j * a.v_row, j * self.width
            from_k, to_k = start_k + j * a.k_row, j * a.dim

            def part(d: Reg, n: int) -> None:
                k.store(k.load(a.v, from_v + d, n), values, to_v + d)
                if keys is not None:
                    k.store(k.load(a.k, from_k + d, n), keys, to_k + d)

            k.vector_loop(a.dim, lanes, part)
            if self.config.mask == "custom":
                self.keep(at, j)

        k.loop(0, count, 1, row)

    def keep(self, at: Reg, j: Reg) -> None:
        """Note whether a custom mask keeps the key ``at + j``."""
        self.k.store(self.masking.kept(self.b, at + j), self.scratch["kept"], j)

    def copy_bias(self, first: Reg, rows: Reg, at: Reg, count: Reg) -> None:
        """Transpose the block's part of the bias into scratch."""
        k, a, t = self.k, self.args, self.tile
        assert a.mask is not None
        bias, source = self.scratch["bias"], a.mask

        def some(lane: Reg) -> None:
            ids = [k.minimum(lane + n, rows - 1) for n in range(t.lanes)]
            starts = [a.at("mask", self.b, self.h, first + n) + at for n in ids]

            def put(j: Reg, x: Reg) -> None:
                k.store(k.cast(x, self.config.compute), bias, j * t.queries + lane)

            transpose(k, source, starts, count, put)

        k.loop(0, rows, t.lanes, some)

    # -- the arithmetic ----------------------------------------------------------------------

    def score(self, r: Reg, at: Reg, count: Reg, lanes: list[int]) -> None:
        """scores[key][query] = K . (scale Q), for ``count`` keys rounded up to whole tiles."""
        k, a, t = self.k, self.args, self.tile
        queries, keys, base = self.scratch["queries"], self.scratch.get("keys"), r * a.dim
        start, stride = k.index(0), a.dim
        if keys is None:
            keys, start, stride = a.k, a.at("k", self.b, self.kv_head, at), a.k_row

        def some(j: Reg) -> None:
            # The last tile repeats the last key rather than read beyond it.
            rows = [start + k.minimum(j + n, count - 1) * stride for n in range(t.keys)]

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
            to = [(j + n) * t.queries + v for n in range(t.keys) for v in lanes]
            for x, place in zip(sums, to, strict=True):
                k.store(x, self.scratch["scores"], place)

        k.loop(0, count, t.keys, some)

    def mask(self, r: Reg, first: Reg, at: Reg, count: Reg, lanes: list[int]) -> None:
        """Apply softcap and mask to the block's scores, and find the highest of each query."""
        k, t, scores = self.k, self.tile, self.scratch["scores"]
        adjust = self.adjustment(first, at)

        def highest(j: Reg, *most: Reg) -> list[Reg]:
            out, row = [], j * t.queries
            for v, lane in enumerate(lanes):
                raw = k.load(scores, row + lane, t.lanes)
                s = adjust(raw, j, v)
                if s is not raw:
                    k.store(s, scores, row + lane)
                # Unlike k.maximum this drops nan, which the weights then bring back.
                out.append(k.select(s > most[v], s, most[v]))
            return out

        before = [k.load(self.scratch["peak"], r + v, t.lanes) for v in lanes]
        for v, most in zip(lanes, k.loop(0, count, 1, highest, before), strict=True):
            k.store(most, self.scratch["highest"], v)

    def soften(self, r: Reg, rows: Reg, count: Reg) -> None:
        """Turn the block's scores into weights exp(score - peak); update peaks and totals.

        ``fade`` is what the earlier sums count for under the new peak. A peak of -inf means that
        no key had a finite score so far; 0 in its place makes their weights 0 and not nan.
        """
        k, t = self.k, self.tile
        peak, total = self.scratch["peak"], self.scratch["total"]

        def queries(lane: Reg) -> None:
            at = r + lane
            most = k.load(self.scratch["highest"], lane, t.lanes)
            safe = k.select(k.compare("eq", most, -math.inf), 0.0, most)
            fade = weight_of(k.load(peak, at, t.lanes) - safe)

            sums = self.weights(lane, count, safe, k.load(total, at, t.lanes) * fade)
            k.store(most, peak, at)
            k.store(sums, total, at)
            k.store(fade, self.scratch["fade"], lane)

        k.loop(0, rows, t.lanes, queries)

    def weights(self, lane: Reg, count: Reg, peak: Reg, total: Reg) -> Reg:
        """Turn the scores of a vector of queries into weights; ``total`` and what they add to."""
        k, t, scores = self.k, self.tile, self.scratch["scores"]

        def weight(j: Reg, sums: Reg) -> Reg:
            to = lane + j * t.queries
            w = weight_of(k.load(scores, to, t.lanes) - peak)
            k.store(w, scores, to)
            return sums + w

        return k.loop(0, count, 1, weight, [total])[0]

    def adjustment(self, first: Reg, at: Reg) -> Callable[[Reg, Reg, int], Reg]:
        """What happens to a vector of scores (key ``at + j``, queries of vector ``v``)."""
        k, t, masking = self.k, self.tile, self.masking
        own = [positions(k, masking.position(first) + v, t.lanes) for v in self.lanes]

        def adjust(s: Reg, j: Reg, v: int) -> Reg:
            def extra() -> Reg:
                if self.config.mask == "custom":
                    return k.splat(k.load(self.scratch["kept"], j), t.lanes)
                return k.load(self.scratch["bias"], j * t.queries + self.lanes[v], t.lanes)

            return masking.adjust(s, k.splat(k.cast(at + j, i32), t.lanes), own[v], extra)

        return adjust

    def weigh(self, r: Reg, rows: Reg, count: Reg) -> None:
        """sums[query] = fade sums[query] + weights . V."""
        k, t = self.k, self.tile
        values, scores = (self.scratch[n] for n in ("values", "scores"))
        parts = [t.lanes * v for v in range(t.dim_vectors)]

        def step(d: Reg, row: Reg, j: Reg, *acc: Reg) -> list[Reg]:
            from_v, from_w = d + j * self.width, row + j * t.queries
            vs = [k.load(values, from_v + p, t.lanes) for p in parts]
            out = []
            for n in range(t.rows):
                w = k.splat(k.load(scores, from_w + n), t.lanes)
                out += [k.fma(w, x, acc[n * len(parts) + v]) for v, x in enumerate(vs)]
            return out

        self.add_up(r, rows, count, step)

    def add_up(self, r: Reg, rows: Reg, count: Reg, step: Callable[..., list[Reg]]) -> None:
        """Fade the sums, and add ``count`` steps to each tile of them: ``step(d, row, j, *sums)``
        is the j-th, of the columns from ``d`` and the queries from ``row`` on."""
        k, t, sums = self.k, self.tile, self.scratch["sums"]

        def some(d: Reg, row: Reg) -> None:
            starts = [(r + row) * self.width + d]
            starts += [starts[0] + self.width * n for n in range(1, t.rows)]
            parts = [t.lanes * v for v in range(t.dim_vectors)]
            acc = []
            for n, start in enumerate(starts):
                fade = k.load(self.scratch["fade"], row + n)
                acc += [k.load(sums, start + p, t.lanes) * fade for p in parts]

            acc = k.loop(0, count, 1, partial(step, d, row), acc)
            for n, start in enumerate(starts):
                for v, p in enumerate(parts):
                    k.store(acc[n * len(parts) + v], sums, start + p)

        k.loop(
            0, self.width, t.columns, lambda d: k.loop(0, rows, t.rows, lambda row: some(d, row))
        )

    def finish(self, r: Reg, row: Reg) -> None:
        """Divide a row's sums by its total and write it out."""
        k, a = self.k, self.args
        inverse = 1.0 / k.load(self.scratch["total"], r)
        at, to = r * self.width, a.at("out", self.b, self.h, row)
        sums = self.scratch["sums"]
        k.vector_loop(
            a.dim,
            self.tile.lanes,
            lambda d, n: k.store(k.load(sums, at + d, n) * inverse, a.out, to + d),
        )
