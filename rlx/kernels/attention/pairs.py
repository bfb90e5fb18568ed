"""Attention in bf16 by instructions that multiply pairs (``rlx.kernels.matmul.dot``).

As ``blocks.py``, with words of two elements in place of floats: queries ``[dim / 2][query]``
and rows of K by neighbours along the head's dim, weights ``[key / 2][query]`` and V by neighbouring
keys, which are put side by side before the rows of queries read them. K stays in place. The scores
are exact products, summed in f32 and scaled then; the weights are rounded to bf16, and so is what
their total counts. Of an odd number of keys the last word has a weight of 0.
"""

from __future__ import annotations

from rlx.codegen.builder import Kernel
from rlx.codegen.math.exponential import exp2_bf16
from rlx.codegen.reg import Reg
from rlx.kernels.attention.args import AttentionConfig, Tile
from rlx.kernels.attention.blocks import Blocks
from rlx.kernels.attention.lanes import transpose_by
from rlx.kernels.attention.sums import Pair
from rlx.kernels.matmul.dot import dot, paired, parts, word, words
from rlx.types import u32

__all__ = ["Pairs"]

_WORDS = ("queries", "values", "scores")
"""The scratch arrays that hold words, of which the last has scores at first."""


class Pairs(Blocks):
    """Emits the body of the kernel: the phases that multiply, and what they read."""

    def __init__(self, k: Kernel, config: AttentionConfig, tile: Tile) -> None:
        super().__init__(k, config, tile)
        self.words = {name: k.scratch(u32, self.starts[name] * u32.bytes) for name in _WORDS}

    def copy_queries(self, r: Reg, first: Reg, rows: Reg) -> None:
        """Transpose a block of query rows into scratch, by words."""
        k, a, t = self.k, self.args, self.tile
        into, start = r * (a.dim / 2), a.at("q", self.b, self.h, first)

        def load(row: Reg, column: Reg, lanes: int) -> Reg:
            at = row + column * 2
            return words(k, a.q, at, lanes) if lanes else word(k, a.q, at)

        def some(lane: Reg) -> None:
            at = [start + k.minimum(lane + n, rows - 1) * a.q_row for n in range(t.lanes)]
            self.request(a.q, [x + t.lanes * a.q_row for x in at])

            def put(column: Reg, x: Reg) -> None:
                k.store(x, self.words["queries"], into + lane + column * t.queries)

            transpose_by(k, load, at, a.dim / 2, put)

        k.loop(0, rows, t.lanes, some)

    def copy_keys(self, at: Reg, count: Reg) -> None:
        """Put ``count`` rows of V side by side by twos, panel by panel; beside a last one are
        zeros."""
        k, a, t = self.k, self.args, self.tile
        start, whole = a.at("v", self.b, self.kv_head, at), count - count % 2

        def panel(d: Reg) -> None:
            columns = k.minimum(a.dim - d, t.columns)
            k.loop(0, whole, 2, lambda j: rows(d, columns, j, j + 1))
            k.when(whole < count, lambda: rows(d, columns, whole))

        def rows(d: Reg, columns: Reg, j: Reg, *others: Reg) -> None:
            to = self.place(d, j / 2)

            def part(c: Reg, n: int) -> None:
                at = start + d + c
                x = k.bitcast(k.load(a.v, at + j * a.v_row, n), u32) >> 16
                for other in others:
                    x = x | k.bitcast(k.load(a.v, at + other * a.v_row, n), u32)
                k.store(x, self.words["values"], to + c)

            k.vector_loop(columns, t.lanes, part)

        k.loop(0, self.width, t.columns, panel)
        if self.config.mask == "custom":
            k.loop(0, count, 1, lambda j: self.note(at, j))

    def place(self, d: Reg, j: Reg) -> Reg:
        """Where the j-th pair of rows of V has its columns from ``d`` on."""
        return d * (self.args.key_block / 2) + j * self.tile.columns

    @property
    def weaves(self) -> bool:
        """No: words of two weights wait for two keys."""
        return False

    def score(
        self, p: Pair, lanes: list[int], ids: list[Reg],
        done: Reg, waiting: Reg, peaks: list[Reg], totals: list[Reg],
    ) -> tuple[Reg, list[Reg], list[Reg]]:  # fmt: skip
        """The sums of a tile, scale (K . Q) for the keys ``ids``."""
        k, a, t = self.k, self.args, self.tile
        pairs, start = a.dim / 2, a.at("k", self.b, self.kv_head, p.at)
        base, scale = p.r * pairs, k.splat(self.masking.scaled("scale"), t.lanes)
        rows = [start + n * a.k_row for n in ids]

        def step(d: Reg, *sums: Reg) -> list[Reg]:
            column = base + d * t.queries
            q = [k.load(self.words["queries"], column + v, t.lanes) for v in lanes]
            keys = [k.splat(word(k, a.k, row + d * 2), t.lanes) for row in rows]
            met = [(key, x) for key in keys for x in q]
            return [dot(k, *xy, total) for xy, total in zip(met, sums, strict=True)]

        zero = k.const(0.0, self.config.compute, t.lanes)
        sums = k.loop(0, pairs, 1, step, [zero] * (t.keys * len(lanes)))
        return done, totals, [x * scale for x in sums]

    def exponentials(
        self, p: Pair, lanes: list[int], done: Reg, peaks: list[Reg], totals: list[Reg]
    ) -> list[Reg]:
        """Put words of two weights in the place of scores; the totals with them."""
        k, t = self.k, self.tile
        whole = p.keys - p.keys % 2

        def put(j: Reg, last: bool, *sums: Reg) -> list[Reg]:
            out = []
            for v, m, before in zip(lanes, peaks, sums, strict=True):

                def weight(j: Reg, v: int = v, m: Reg = m) -> Reg:
                    s = k.load(self.scratch["scores"], v + j * t.queries, t.lanes)
                    return exp2_bf16(self.below(m, s))

                other = k.const(0.0, self.config.compute, t.lanes) if last else weight(j + 1)
                x = paired(k, weight(j), other)
                # In the place of scores that are no longer needed.
                k.store(x, self.words["scores"], v + j / 2 * t.queries)
                one, two = parts(k, x)
                out.append(before + (one + two))
            return out

        sums = k.loop(0, whole, 2, lambda j, *x: put(j, False, *x), totals)
        return k.when(whole < p.keys, lambda: put(whole, True, *sums), lambda: sums, sums)

    def products(self, p: Pair, d: Reg, row: Reg, near: Reg) -> list[Reg]:
        """The sums of a tile: queries from ``row`` of the pair on, columns from ``d`` on."""
        k, t = self.k, self.tile

        def step(j: Reg, *acc: Reg) -> list[Reg]:
            at, start = self.place(d, j), row + j * t.queries
            vs = [k.load(self.words["values"], at + part, t.lanes) for part in self.parts]
            ws = [k.splat(k.load(self.words["scores"], start + n), t.lanes) for n in range(t.rows)]
            met = [(w, x) for w in ws for x in vs]
            return [dot(k, *xy, total) for xy, total in zip(met, acc, strict=True)]

        return k.loop(0, (p.keys + 1) / 2, 1, step, self.nothing())

    def copy(self, p: Pair, d: Reg, count: Reg) -> None:
        """All of V is in scratch."""
