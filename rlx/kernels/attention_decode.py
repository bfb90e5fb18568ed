"""Attention of few query rows over many keys, bound by memory: K and V are read once, in place.

A task is one key head with the query rows that read it: those of its group of query heads. Per
block of keys, small enough to stay in cache from one row to the next, each row makes its scores
as dot products along the head dim (keys side by side in lanes afterwards), turns them into
weights under an online softmax, and adds the weighted rows of V. The head dim is a multiple of
the vector length.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rlx.kernels.attention_args import Arguments, AttentionConfig, Count, offsets, positions
from rlx.kernels.attention_lanes import sum_lanes
from rlx.kernels.attention_mask import Masking, visible, weight_of
from rlx.kernels.builder import Kernel
from rlx.kernels.reg import Reg
from rlx.types import i32

__all__ = ["Decode", "decode_lengths"]


def decode_lengths(
    lanes: int, config: AttentionConfig, dim: Count, key_block: Count, rows: Count
) -> dict[str, Count]:
    """The scratch arrays of a task of ``rows`` query rows, in elements of the compute type."""
    lengths = {
        "queries": rows * dim,
        "sums": rows * dim,
        "peak": rows,
        "total": rows * lanes,
        "scores": key_block + lanes,
    }
    if config.mask in ("custom", "bias"):
        lengths["extra"] = key_block + lanes
    return lengths


class Decode:
    """Emits the body of the kernel, a phase a method."""

    def __init__(self, k: Kernel, config: AttentionConfig, lanes: int) -> None:
        self.k, self.config, self.lanes = k, config, lanes
        self.args = a = Arguments(k, config)
        dt = config.compute
        lengths = decode_lengths(lanes, config, a.dim, a.key_block, a.per_task)
        starts, _ = offsets(lengths, k.index(0))
        self.scratch = {name: k.scratch(dt, at * dt.bytes) for name, at in starts.items()}
        self.scale = a.float("scale")
        self.masking = Masking(k, config, a)

    def task(self, t: Reg) -> None:
        """One key head's query rows ``[first, first + rows)``."""
        k, a = self.k, self.args
        key_heads, head = a.heads // a.group, t // a.splits
        self.b, self.kv_head = head // key_heads, head % key_heads
        self.first = t % a.splits * a.per_task
        rows = k.minimum(a.group * a.queries - self.first, a.per_task)
        k.loop(0, rows, 1, self.start)
        low, high = visible(k, a, self.config, 0, a.queries)

        def key_block(at: Reg) -> None:
            count = k.minimum(a.key_block, high - at)
            if self.config.mask == "custom":
                kept = self.scratch["extra"]
                k.loop(0, count, 1, lambda j: k.store(self.masking.kept(self.b, at + j), kept, j))
            k.loop(0, rows, 1, lambda r: self.row(r, at, count))

        k.loop(low - low % a.key_block, high, a.key_block, key_block)
        k.loop(0, rows, 1, self.finish)

    def place(self, r: Reg) -> tuple[Reg, Reg]:
        """Query head and query row of a row of the task."""
        row, queries = self.first + r, self.args.queries
        return self.kv_head * self.args.group + row // queries, row % queries

    def start(self, r: Reg) -> None:
        """Copy a scaled query row into scratch, and clear its sums."""
        k, a, dt, n = self.k, self.args, self.config.compute, self.lanes
        head, query = self.place(r)
        at, to = a.at("q", self.b, head, query), r * a.dim

        def part(d: Reg) -> None:
            k.store(k.load(a.q, at + d, n) * self.scale, self.scratch["queries"], to + d)
            k.store(k.const(0.0, dt, n), self.scratch["sums"], to + d)

        k.loop(0, a.dim, n, part)
        k.store(-math.inf, self.scratch["peak"], r)
        k.store(k.const(0.0, dt, n), self.scratch["total"], r * n)

    def row(self, r: Reg, at: Reg, count: Reg) -> None:
        """Keys ``[at, at + count)`` on one query row."""
        k, n = self.k, self.lanes
        peak, total, scores = (self.scratch[x] for x in ("peak", "total", "scores"))
        before = k.load(peak, r)
        most = k.maximum(before, k.reduce("maximum", self.score(r, at, count)))
        # A peak of -inf: no key had a finite score so far, and none is to weigh nan.
        safe = k.select(k.compare("eq", most, -math.inf), 0.0, most)
        fade = weight_of(k.splat(before - safe, n))

        def weight(j: Reg, sums: Reg) -> Reg:
            w = weight_of(k.load(scores, j, n) - safe)
            k.store(w, scores, j)
            return sums + w

        sums = k.loop(0, count, n, weight, [k.load(total, r * n, n) * fade])
        k.store(most, peak, r)
        k.store(sums[0], total, r * n)
        self.weigh(r, at, count, fade)

    def score(self, r: Reg, at: Reg, count: Reg) -> Reg:
        """Scores of ``count`` keys into scratch, -inf beyond; returns the highest lane by lane."""
        k, a, n, dt = self.k, self.args, self.lanes, self.config.compute
        head, query = self.place(r)
        base, start = r * a.dim, a.at("k", self.b, self.kv_head, at)
        own = k.splat(k.cast(self.masking.position(query), i32), n)
        if self.config.mask == "bias":
            self.copy_bias(head, query, at, count)

        def some(j: Reg, most: Reg) -> Reg:
            rows = [start + k.minimum(j + x, count - 1) * a.k_row for x in range(n)]

            def step(d: Reg, *sums: Reg) -> list[Reg]:
                q = k.load(self.scratch["queries"], base + d, n)
                return [
                    k.fma(q, k.load(a.k, row + d, n), s) for row, s in zip(rows, sums, strict=True)
                ]

            dots = k.loop(0, a.dim, n, step, [k.const(0.0, dt, n)] * n)
            local = positions(k, j, n)
            s = self.masking.adjust(
                sum_lanes(k, dots),
                local + k.cast(at, i32),
                own,
                lambda: k.load(self.scratch["extra"], j, n),
            )
            s = k.select(local < k.cast(count, i32), s, -math.inf)
            k.store(s, self.scratch["scores"], j)
            return k.maximum(most, s)

        return k.loop(0, count, n, some, [k.const(-math.inf, dt, n)])[0]

    def copy_bias(self, head: Reg, query: Reg, at: Reg, count: Reg) -> None:
        """Bring a query's part of the mask, from key ``at``, into the scratch as ``compute``."""
        k, a, dt = self.k, self.args, self.config.compute
        assert a.mask is not None
        source, start = a.mask, a.at("mask", self.b, head, query) + at

        def part(j: Reg, lanes: int) -> None:
            k.store(k.cast(k.load(source, start + j, lanes), dt), self.scratch["extra"], j)

        k.vector_loop(count, self.lanes, part)

    def weigh(self, r: Reg, at: Reg, count: Reg, fade: Reg) -> None:
        """sums = fade sums + weights . V, four vectors of the head dim at a time."""
        k, a, n = self.k, self.args, self.lanes
        sums, to, start = self.scratch["sums"], r * a.dim, a.at("v", self.b, self.kv_head, at)

        def columns(vectors: int) -> None:
            parts = [n * v for v in range(vectors)]

            def some(d: Reg) -> None:
                def step(j: Reg, *acc: Reg) -> Sequence[Reg]:
                    w = k.splat(k.load(self.scratch["scores"], j), n)
                    row = start + j * a.v_row + d
                    return [
                        k.fma(w, k.load(a.v, row + p, n), x)
                        for p, x in zip(parts, acc, strict=True)
                    ]

                faded = [k.load(sums, to + d + p, n) * fade for p in parts]
                for p, x in zip(parts, k.loop(0, count, 1, step, faded), strict=True):
                    k.store(x, sums, to + d + p)

            whole = a.dim - a.dim % (4 * n)
            k.loop(*((0, whole) if vectors == 4 else (whole, a.dim)), vectors * n, some)

        columns(4)
        columns(1)

    def finish(self, r: Reg) -> None:
        """Divide a row's sums by its total and write it out."""
        k, a, n = self.k, self.args, self.lanes
        inverse = 1.0 / k.reduce("add", k.load(self.scratch["total"], r * n, n))
        head, query = self.place(r)
        at, to = r * a.dim, a.at("out", self.b, head, query)
        k.loop(
            0,
            a.dim,
            n,
            lambda d: k.store(k.load(self.scratch["sums"], at + d, n) * inverse, a.out, to + d),
        )
