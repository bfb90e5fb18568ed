"""Attention in bf16 by instructions that multiply pairs (``rlx.kernels.dot``).

As ``attention_blocks``, with words of two elements in place of floats: queries ``[dim / 2][query]``
and rows of K by neighbours along the head's dim, weights ``[key / 2][query]`` and V by neighbouring
keys. K stays in place. The scores are exact products, summed in f32 and scaled then; the weights
are rounded to bf16, and so is what their total counts. Of an odd number of keys the last word has a
weight of 0.
"""

from __future__ import annotations

from rlx.kernels.attention_args import AttentionConfig, Tile
from rlx.kernels.attention_blocks import Blocks
from rlx.kernels.attention_lanes import transpose_by
from rlx.kernels.builder import Kernel
from rlx.kernels.dot import dot, paired, parts, word, words
from rlx.kernels.math.exponential import weight_bf16
from rlx.kernels.reg import Reg
from rlx.types import u32

__all__ = ["Pairs"]


class Pairs(Blocks):
    """Emits the body of the kernel: the phases that multiply, and what they read."""

    def __init__(self, k: Kernel, config: AttentionConfig, tile: Tile) -> None:
        super().__init__(k, config, tile)
        self.words = {name: k.scratch(u32, self.starts[name] * u32.bytes) for name in _WORDS}

    def copy_queries(self, r: Reg, first: Reg, rows: Reg) -> None:
        k, a, t = self.k, self.args, self.tile
        into, start = r * (a.dim / 2), a.at("q", self.b, self.h, first)

        def load(row: Reg, column: Reg, lanes: int) -> Reg:
            at = row + column * 2
            return words(k, a.q, at, lanes) if lanes else word(k, a.q, at)

        def some(lane: Reg) -> None:
            rows_at = [start + k.minimum(lane + n, rows - 1) * a.q_row for n in range(t.lanes)]

            def put(column: Reg, x: Reg) -> None:
                k.store(x, self.words["queries"], into + lane + column * t.queries)

            transpose_by(k, load, rows_at, a.dim / 2, put)

        k.loop(0, rows, t.lanes, some)

    def copy_keys(self, at: Reg, count: Reg) -> None:
        """Interleave rows ``[at, at + count)`` of V by twos; beside a last one are zeros."""
        k, a = self.k, self.args
        start = a.at("v", self.b, self.kv_head, at)
        whole = count - count % 2

        def rows(j: Reg, *others: Reg) -> None:
            first, to = start + j * a.v_row, j / 2 * self.width

            def part(d: Reg, n: int) -> None:
                x = k.bitcast(k.load(a.v, first + d, n), u32) >> 16
                for other in others:
                    x = x | k.bitcast(k.load(a.v, start + other * a.v_row + d, n), u32)
                k.store(x, self.words["values"], to + d)

            k.vector_loop(a.dim, self.tile.lanes, part)

        k.loop(0, whole, 2, lambda j: rows(j, j + 1))
        k.when(whole < count, lambda: rows(whole))
        if self.config.mask == "custom":
            k.loop(0, count, 1, lambda j: self.keep(at, j))

    def score(self, r: Reg, at: Reg, count: Reg, lanes: list[int]) -> None:
        """scores[key][query] = scale (K . Q), for ``count`` keys rounded up to whole tiles."""
        k, a, t = self.k, self.args, self.tile
        pairs, start = a.dim / 2, a.at("k", self.b, self.kv_head, at)
        base, scale = r * pairs, k.splat(self.scale, t.lanes)

        def some(j: Reg) -> None:
            rows = [start + k.minimum(j + n, count - 1) * a.k_row for n in range(t.keys)]

            def step(d: Reg, *sums: Reg) -> list[Reg]:
                column = base + d * t.queries
                q = [k.load(self.words["queries"], column + v, t.lanes) for v in lanes]
                keys = [k.splat(word(k, a.k, row + d * 2), t.lanes) for row in rows]
                pairs = [(key, x) for key in keys for x in q]
                return [dot(k, *xy, total) for xy, total in zip(pairs, sums, strict=True)]

            zero = k.const(0.0, self.config.compute, t.lanes)
            sums = k.loop(0, pairs, 1, step, [zero] * (t.keys * len(lanes)))
            to = [(j + n) * t.queries + v for n in range(t.keys) for v in lanes]
            for x, place in zip(sums, to, strict=True):
                k.store(x * scale, self.scratch["scores"], place)

        k.loop(0, count, t.keys, some)

    def weights(self, lane: Reg, count: Reg, peak: Reg, total: Reg) -> Reg:
        k, t = self.k, self.tile
        whole = count - count % 2

        def weight(j: Reg) -> Reg:
            return weight_bf16(k.load(self.scratch["scores"], lane + j * t.queries, t.lanes) - peak)

        def put(j: Reg, total: Reg, other: Reg) -> Reg:
            # In the place of scores that are no longer needed.
            x = paired(k, weight(j), other)
            k.store(x, self.words["scores"], lane + j / 2 * t.queries)
            first, second = parts(k, x)
            return total + (first + second)

        (total,) = k.loop(0, whole, 2, lambda j, x: put(j, x, weight(j + 1)), [total])
        zero = k.const(0.0, self.config.compute, t.lanes)
        return k.when(whole < count, lambda: put(whole, total, zero), lambda: total, [total])[0]

    def weigh(self, r: Reg, rows: Reg, count: Reg) -> None:
        """sums[query] = fade sums[query] + weights . V."""
        k, t = self.k, self.tile

        def step(d: Reg, row: Reg, j: Reg, *acc: Reg) -> list[Reg]:
            vs = [
                k.load(self.words["values"], d + j * self.width + t.lanes * v, t.lanes)
                for v in range(t.dim_vectors)
            ]
            from_w = row + j * t.queries
            ws = [k.splat(k.load(self.words["scores"], from_w + n), t.lanes) for n in range(t.rows)]
            pairs = [(w, x) for w in ws for x in vs]
            return [dot(k, *xy, total) for xy, total in zip(pairs, acc, strict=True)]

        self.add_up(r, rows, (count + 1) / 2, step)


_WORDS = ("queries", "values", "scores")
"""The scratch arrays that hold words, of which the last has scores at first."""
