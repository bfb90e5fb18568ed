"""Attention by blocks: its scratch, and the sums of weighted rows of V.

``blocks.py`` makes the weights. The sums of a block of query rows go panel by panel of the
head dim. The first few rows read V in place and store it into scratch for the rows after them, in
the time of their multiply-adds; scratch has it panel by panel, dense, as the compute type (in
place, rows a multiple of 4 KB apart would evict each other).
"""

from __future__ import annotations

import math

from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel
from rlx.codegen.reg import Reg
from rlx.kernels.attention.args import Arguments, AttentionConfig, Count, Tile, offsets, padded
from rlx.kernels.attention.mask import Masking

__all__ = ["Pair", "Sums", "scratch_lengths"]


def scratch_lengths(
    tile: Tile, config: AttentionConfig, dim: Count, key_block: Count, blocks: Count
) -> dict[str, Count]:
    """The scratch arrays of a task of ``blocks`` query blocks, in elements of the compute type."""
    width = padded(dim, tile)
    lengths = {
        # Pairs of bf16 lie in one word.
        "queries": blocks * (tile.queries * (dim // 2 if config.pairs else dim)),
        "sums": blocks * (tile.queries * width),
        "peak": blocks * tile.queries,
        "total": blocks * tile.queries,
        "fade": blocks * 0 + tile.queries,
        "inverse": blocks * 0 + tile.queries,
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


@frozen
class Pair:
    """A block of ``rows`` query rows, from ``r`` on in the task and ``first`` in the head, and the
    ``keys`` keys from ``at`` on that they see.

    The first ``copied`` rows of V are in scratch. ``begins`` and ``ends`` say whether the rows have
    seen no key before, and will see none after these.
    """

    r: Reg
    first: Reg
    rows: Reg
    at: Reg
    keys: Reg
    copied: Reg
    begins: Reg
    ends: Reg


class Sums:
    """Declares arguments and scratch, and emits the sums. A task sets the rest."""

    b: Reg
    h: Reg
    kv_head: Reg

    def __init__(self, k: Kernel, config: AttentionConfig, tile: Tile) -> None:
        self.k, self.config, self.tile = k, config, tile
        self.args = a = Arguments(k, config)
        dt = config.compute
        lengths = scratch_lengths(tile, config, a.dim, a.key_block, a.per_task)
        self.starts, _ = offsets(lengths, k.index(0))
        self.scratch = {name: k.scratch(dt, at * dt.bytes) for name, at in self.starts.items()}
        self.width = padded(a.dim, tile)
        # A bias may be the least finite number, which no factor above 1 keeps finite.
        self.unit = 1.0 if config.mask == "bias" else 1.0 / math.log(2.0)
        self.masking = Masking(k, config, a, unit=self.unit)
        self.lanes = [tile.lanes * v for v in range(tile.query_vectors)]
        self.parts = [tile.lanes * v for v in range(tile.dim_vectors)]

    def add(self, p: Pair) -> None:
        """sums[query] = fade sums[query] + weights . V; after the last keys, the result."""
        k, t = self.k, self.tile
        k.loop(0, self.width, t.columns, lambda d: self.panel(p, d))

    def panel(self, p: Pair, d: Reg) -> None:
        """The columns from ``d`` on."""
        k, a, t = self.k, self.args, self.tile
        rest = a.dim - d
        whole = rest >= t.columns
        k.when(rest < t.columns, lambda: self.copy(p, d, rest))
        copied = k.select(whole, k.minimum(p.copied, p.keys), p.keys)

        def some(row: Reg) -> None:
            near = k.select(k.compare("eq", row, 0), copied, p.keys)
            sums = self.joined(p, d, row, self.products(p, d, row, near))
            k.when(
                p.ends & whole,
                lambda: self.finish(p, d, row, sums),
                lambda: self.keep(p, d, row, sums),
            )

        k.loop(0, p.rows, t.rows, some)
        k.when(p.ends & (rest < t.columns), lambda: self.finish_rest(p, d, rest))

    def joined(self, p: Pair, d: Reg, row: Reg, sums: list[Reg]) -> list[Reg]:
        """The sums of a tile with those of the keys before. A block of keys is a chain of its own,
        since what one chain over a million keys rounds off adds up to parts of a hundred."""
        k, t, kept = self.k, self.tile, self.scratch["sums"]

        def both() -> list[Reg]:
            found, start = [], self.at(p, d, row)
            for n in range(t.rows):
                fade = k.splat(k.load(self.scratch["fade"], row + n), t.lanes)
                for v, part in enumerate(self.parts):
                    before = k.load(kept, start + self.width * n + part, t.lanes)
                    found.append(k.fma(before, fade, sums[n * len(self.parts) + v]))
            return found

        return k.when(p.begins, lambda: sums, both, sums)

    def nothing(self) -> list[Reg]:
        """What the sums of a tile begin with."""
        t = self.tile
        return [self.k.const(0.0, self.config.compute, t.lanes)] * (t.rows * t.dim_vectors)

    def products(self, p: Pair, d: Reg, row: Reg, near: Reg) -> list[Reg]:
        """The sums of a tile: rows of queries from ``row`` of the pair on, columns from ``d`` on.
        The first ``near`` rows of V are in scratch; the others get there."""
        k, a, t, scores = self.k, self.args, self.tile, self.scratch["scores"]
        values, panel = self.scratch["values"], d * a.key_block
        source = a.at("v", self.b, self.kv_head, p.at) + d

        def step(j: Reg, vs: list[Reg], acc: tuple[Reg, ...]) -> list[Reg]:
            start, out = row + j * t.queries, []
            for n in range(t.rows):
                w = k.splat(k.load(scores, start + n), t.lanes)
                out += [k.fma(w, x, acc[n * len(vs) + v]) for v, x in enumerate(vs)]
            return out

        def from_scratch(j: Reg, *acc: Reg) -> list[Reg]:
            at = panel + j * t.columns
            return step(j, [k.load(values, at + part, t.lanes) for part in self.parts], acc)

        def in_place(j: Reg, *acc: Reg) -> list[Reg]:
            at, to = source + j * a.v_row, panel + j * t.columns
            vs = [k.load(a.v, at + part, t.lanes) for part in self.parts]
            for x, part in zip(vs, self.parts, strict=True):
                k.store(x, values, to + part)
            return step(j, vs, acc)

        sums = k.loop(0, near, 1, from_scratch, self.nothing())
        return k.loop(near, p.keys, 1, in_place, sums)

    def copy(self, p: Pair, d: Reg, count: Reg) -> None:
        """Bring ``count`` columns of V into scratch, which fill no panel. Columns beyond stay as
        they are: they end in sums that nobody reads."""
        k, a = self.k, self.args
        source = a.at("v", self.b, self.kv_head, p.at) + d
        panel = d * a.key_block

        def row(j: Reg) -> None:
            of, to = source + j * a.v_row, panel + j * self.tile.columns
            k.vector_loop(
                count,
                self.tile.lanes,
                lambda c, n: k.store(k.load(a.v, of + c, n), self.scratch["values"], to + c),
            )

        k.loop(p.copied, p.keys, 1, row)

    def at(self, p: Pair, d: Reg, row: Reg) -> Reg:
        """Where the sums of a row of the pair lie."""
        return (p.r + row) * self.width + d

    def keep(self, p: Pair, d: Reg, row: Reg, sums: list[Reg]) -> None:
        """Store the sums of a tile for the next keys."""
        start = self.at(p, d, row)
        for i, x in enumerate(sums):
            n, v = divmod(i, len(self.parts))
            self.k.store(x, self.scratch["sums"], start + self.width * n + self.parts[v])

    def finish(self, p: Pair, d: Reg, row: Reg, sums: list[Reg]) -> None:
        """Divide the sums of a tile by the totals and write them out. Rows beyond the last repeat
        it, to the bit."""
        k, a = self.k, self.args
        start = a.at("out", self.b, self.h, p.first) + d
        for n in range(self.tile.rows):
            inverse = k.load(self.scratch["inverse"], row + n)
            to = start + k.minimum(row + n, p.rows - 1) * a.out_row
            for v, part in enumerate(self.parts):
                k.store(sums[n * len(self.parts) + v] * inverse, a.out, to + part)

    def finish_rest(self, p: Pair, d: Reg, count: Reg) -> None:
        """The same for ``count`` columns that fill no panel."""
        k, a = self.k, self.args
        start = a.at("out", self.b, self.h, p.first) + d

        def row(n: Reg) -> None:
            at, to = self.at(p, d, n), start + n * a.out_row
            inverse = k.load(self.scratch["inverse"], n)
            k.vector_loop(
                count,
                self.tile.lanes,
                lambda c, lanes: k.store(
                    k.load(self.scratch["sums"], at + c, lanes) * inverse, a.out, to + c
                ),
            )

        k.loop(0, p.rows, 1, row)
