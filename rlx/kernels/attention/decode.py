"""Attention of few query rows over many keys, bound by memory: K and V are read once, in place.

A task is one key head with the query rows that read it: those of its group of query heads. Per
block of keys, small enough to stay in cache from one row to the next:

    for each few rows: their scores, as dot products along the head dim (keys side by side in lanes)
    for each row: the weights of the scores, under an online softmax
    for each few rows: add the weighted rows of V

Few rows side by side load a vector of K or V once, and have a chain of sums each, which is added to
those of the blocks before. A row's bits do not depend on who is beside it. The head dim is a
multiple of the vector length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rlx.codegen.builder import Kernel
from rlx.codegen.reg import Reg
from rlx.kernels.attention.args import Arguments, AttentionConfig, Count, offsets, positions
from rlx.kernels.attention.lanes import sum_lanes
from rlx.kernels.attention.mask import Masking, inverse_of, visible, weight_of
from rlx.types import i32

__all__ = ["Decode", "decode_lengths"]


def decode_lengths(
    lanes: int, config: AttentionConfig, dim: Count, key_block: Count, rows: Count
) -> dict[str, Count]:
    """The scratch arrays of a task of ``rows`` query rows, in elements of the compute type; those
    per row lie ``lanes`` apart, or more."""
    lengths = {
        "queries": rows * dim,
        "sums": rows * dim,
        "peak": rows,
        "fade": rows,
        "total": rows * lanes,
        "scores": rows * (key_block + lanes),
    }
    if config.mask in ("custom", "bias"):
        lengths["extra"] = key_block + lanes
    return lengths


class Decode:
    """Emits the body of the kernel, a phase a method."""

    def __init__(self, k: Kernel, config: AttentionConfig, lanes: int) -> None:
        self.k, self.config, self.lanes = k, config, lanes
        self.beside = 4 if k.target.registers >= 32 and lanes >= 8 else 2  # rows side by side
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
            self.rows(rows, lambda r, some: self.dots(r, some, at, count))
            k.loop(0, rows, 1, lambda r: self.soften(r, at, count))
            self.rows(rows, lambda r, some: self.weigh(r, some, at, count))

        k.loop(low - low % a.key_block, high, a.key_block, key_block)
        k.loop(0, rows, 1, self.finish)

    def rows(self, count: Reg, body: Callable[[Reg, int], None]) -> None:
        """Cover ``count`` rows by as many as go side by side, and the rest one by one."""
        whole = count - count % self.beside
        self.k.loop(0, whole, self.beside, lambda r: body(r, self.beside))
        self.k.loop(whole, count, 1, lambda r: body(r, 1))

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

    def scores(self, r: Reg) -> Reg:
        """Where the scores of a row begin in scratch."""
        return r * (self.args.key_block + self.lanes)

    def dots(self, r: Reg, rows: int, at: Reg, count: Reg) -> None:
        """The products of rows from ``r`` on with ``count`` keys from ``at`` on, into scratch."""
        k, a, n, dt = self.k, self.args, self.lanes, self.config.compute
        keys, start = n // rows, a.at("k", self.b, self.kv_head, at)
        queries = [(r + i) * a.dim for i in range(rows)]
        to = [self.scores(r + i) for i in range(rows)]

        def some(j: Reg) -> None:
            places = [start + k.minimum(j + x, count - 1) * a.k_row for x in range(keys)]

            def step(d: Reg, *sums: Reg) -> list[Reg]:
                own = [k.load(self.scratch["queries"], q + d, n) for q in queries]
                rows_of_k = [k.load(a.k, place + d, n) for place in places]
                pairs = [(q, x) for q in own for x in rows_of_k]
                return [k.fma(q, x, s) for (q, x), s in zip(pairs, sums, strict=True)]

            sums = sum_lanes(k, k.loop(0, a.dim, n, step, [k.const(0.0, dt, n)] * n))
            for i in range(rows):
                part = sums if rows == 1 else k.shuffle(sums, sums, range(i * keys, (i + 1) * keys))
                k.store(part, self.scratch["scores"], to[i] + j)

        k.loop(0, count, keys, some)

    def soften(self, r: Reg, at: Reg, count: Reg) -> None:
        """A row's scores of keys ``[at, at + count)`` become weights, 0 beyond; ``fade`` becomes
        what its sums so far are to be multiplied by."""
        k, n, scores = self.k, self.lanes, self.scratch["scores"]
        peak, total = self.scratch["peak"], self.scratch["total"]
        before, start = k.load(peak, r), self.scores(r)
        most = k.maximum(before, k.reduce("maximum", self.adjust(r, start, at, count)))
        # A peak of -inf: no key had a finite score so far, and none is to weigh nan.
        safe = k.select(k.compare("eq", most, -math.inf), 0.0, most)
        fade = weight_of(k.splat(before - safe, n))

        def weight(j: Reg, sums: Reg) -> Reg:
            w = weight_of(k.load(scores, start + j, n) - safe)
            k.store(w, scores, start + j)
            return sums + w

        (found,) = k.loop(0, count, n, weight, [k.const(0.0, self.config.compute, n)])
        k.store(most, peak, r)
        k.store(k.fma(k.load(total, r * n, n), fade, found), total, r * n)
        k.store(k.extract(fade, 0), self.scratch["fade"], r)

    def adjust(self, r: Reg, start: Reg, at: Reg, count: Reg) -> Reg:
        """Mask and cap a row's ``count`` scores, -inf beyond; the highest lane by lane."""
        k, n, scores = self.k, self.lanes, self.scratch["scores"]
        head, query = self.place(r)
        own = k.splat(k.cast(self.masking.position(query), i32), n)
        if self.config.mask == "bias":
            self.copy_bias(head, query, at, count)

        def some(j: Reg, most: Reg) -> Reg:
            local = positions(k, j, n)
            s = self.masking.adjust(
                k.load(scores, start + j, n),
                local + k.cast(at, i32),
                own,
                lambda: k.load(self.scratch["extra"], j, n),
            )
            s = k.select(local < k.cast(count, i32), s, -math.inf)
            k.store(s, scores, start + j)
            return k.maximum(most, s)

        lowest = k.const(-math.inf, self.config.compute, n)
        return k.loop(0, count, n, some, [lowest])[0]

    def copy_bias(self, head: Reg, query: Reg, at: Reg, count: Reg) -> None:
        """Bring a query's part of the mask, from key ``at``, into the scratch as ``compute``."""
        k, a, dt = self.k, self.args, self.config.compute
        assert a.mask is not None
        source, start = a.mask, a.at("mask", self.b, head, query) + at

        def part(j: Reg, lanes: int) -> None:
            k.store(k.cast(k.load(source, start + j, lanes), dt), self.scratch["extra"], j)

        k.vector_loop(count, self.lanes, part)

    def weigh(self, r: Reg, rows: int, at: Reg, count: Reg) -> None:
        """sums = fade sums + weights . V for rows from ``r`` on, four vectors of the head dim at a
        time."""
        k, a, n = self.k, self.args, self.lanes
        sums, scores = self.scratch["sums"], self.scratch["scores"]
        start = [self.scores(r + i) for i in range(rows)]
        fades = [k.splat(k.load(self.scratch["fade"], r + i), n) for i in range(rows)]
        first = a.at("v", self.b, self.kv_head, at)

        def columns(vectors: int) -> None:
            parts = [n * v for v in range(vectors)]

            def some(d: Reg) -> None:
                def step(j: Reg, *acc: Reg) -> Sequence[Reg]:
                    row = first + j * a.v_row + d
                    values = [k.load(a.v, row + p, n) for p in parts]
                    weights = [k.splat(k.load(scores, s + j), n) for s in start]
                    pairs = [(w, v) for w in weights for v in values]
                    return [k.fma(w, v, x) for (w, v), x in zip(pairs, acc, strict=True)]

                zeros = [k.const(0.0, self.config.compute, n)] * (rows * vectors)
                found = k.loop(0, count, 1, step, zeros)
                for i, x in enumerate(found):
                    place = (r + i // vectors) * a.dim + d + parts[i % vectors]
                    before = k.load(sums, place, n)
                    k.store(k.fma(before, fades[i // vectors], x), sums, place)

            whole = a.dim - a.dim % (4 * n)
            k.loop(*((0, whole) if vectors == 4 else (whole, a.dim)), vectors * n, some)

        columns(4)
        columns(1)

    def finish(self, r: Reg) -> None:
        """Divide a row's sums by its total and write it out."""
        k, a, n = self.k, self.args, self.lanes
        total = k.reduce("add", k.load(self.scratch["total"], r * n, n))
        inverse = inverse_of(total, self.config)
        head, query = self.place(r)
        at, to = r * a.dim, a.at("out", self.b, head, query)
        k.loop(
            0,
            a.dim,
            n,
            lambda d: k.store(k.load(self.scratch["sums"], at + d, n) * inverse, a.out, to + d),
        )
