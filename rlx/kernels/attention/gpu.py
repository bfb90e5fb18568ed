"""Attention on GPUs: blocks of query rows that meet block after block of keys.

What is computed is defined in ``rlx.kernels.attention.emit``. A block of threads has a tile of
rows: the queries of all heads that share a key head, one head after the other.

    for every block of keys that one of the rows sees:
        scores = Q K^T        through shared memory, in registers; softcap, mask
        the rows' peaks: a tree in shared memory; weights = exp(scores - peak), to shared memory
        sums = fade * sums + weights V                                       in registers
    sums / total

The head's dim is a constant of the code, as registers are counted by it. Of a dim beyond
``gpu_plan.SPAN`` a block computes a part of the columns, and others the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from operator import add

from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.reg import Reg
from rlx.codegen.strides import ceil_div
from rlx.kernels.attention.args import Arguments
from rlx.kernels.attention.gpu_plan import GpuAttentionConfig, argument_names, launch
from rlx.kernels.attention.mask import Masking, inverse_of, visible, weight_of
from rlx.kernels.matmul.gpu_tile import Room, multiply, stage
from rlx.types import i32

__all__ = ["GpuAttentionConfig", "emit", "launch", "name"]

name = "gpu_attention"


class _Arguments(Arguments):
    """The kernel's arguments; scale and softcap are numbers of the config."""

    def __init__(self, k: Kernel, config: GpuAttentionConfig) -> None:
        super().__init__(k, config.base, argument_names(config.base))
        self._config = config

    def float(self, name: str) -> Reg:
        value = self._config.scale if name == "scale" else self._config.softcap
        return self._k.const(value, self._config.base.compute)


def emit(name: str, config: GpuAttentionConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config; ``launch`` gives its sizes."""
    k = Kernel(name, target)
    emitter = _Emitter(k, config)
    k.parallel_blocks(config.tile.threads, emitter.block)
    return k.text()


@frozen
class _Row:
    """A row of a block: whether there is one, its head, its query, and the position of that among
    the keys."""

    inside: Reg
    head: Reg
    query: Reg
    position: Reg


class _Emitter:
    """Emits one kernel: a method a step."""

    def __init__(self, k: Kernel, config: GpuAttentionConfig) -> None:
        self.k, self.config, self.tile = k, config, config.tile
        self.args = _Arguments(k, config)
        self.masking = Masking(k, config.base, self.args)
        self.dt = config.base.compute

    def block(self, i: Reg, thread: Reg) -> None:
        """A block of rows of a key head, and a part of the dim."""
        k, a, tile, config = self.k, self.args, self.tile, self.config
        self.thread = thread
        self.y, self.x = thread // tile.threads_x, thread % tile.threads_x
        self.total = a.group * a.queries
        blocks = (self.total + (tile.height - 1)) // tile.height
        parts = ceil_div(config.dim, config.span)
        self.column0 = i % parts * config.span if parts > 1 else k.index(0)
        i = i // parts if parts > 1 else i
        self.first = i % blocks * tile.height
        key_heads = a.heads // a.group
        self.kv_head, self.b = i // blocks % key_heads, i // blocks // key_heads
        self.rows = [self.row(self.y + r * tile.threads_y) for r in range(tile.rows)]
        self.rooms()
        if config.whole:
            self.stage_queries(k.index(0))
        low, high = self.visible()
        n = tile.rows
        peaks = [k.const(-math.inf, self.dt)] * n
        zeros = [k.const(0.0, self.dt)] * (n + n * config.columns)

        def keys(at: Reg, *carried: Reg) -> list[Reg]:
            return self.keys(at, high, carried[:n], carried[n : 2 * n], carried[2 * n :])

        found = k.loop(low - low % tile.width, high, tile.width, keys, [*peaks, *zeros])
        self.finish(found[n : 2 * n], found[2 * n :])

    def rooms(self) -> None:
        """Shared memory; a piece of K and one of V take turns."""
        k, tile, dt, config = self.k, self.tile, self.dt, self.config
        self.weights = Room.of(k, dt, tile.height, tile.width)
        self.queries = Room.of(k, dt, tile.height, config.query_depth)
        width = tile.threads_x * config.columns
        length = max((tile.width + 1) * tile.depth, (width + 1) * config.keys)
        piece = k.shared(dt, length)
        self.key_room = Room(piece, tile.width, tile.depth)
        self.value_room = Room(piece, width, config.keys)

    def row(self, place: Reg) -> _Row:
        """A row of the block; beyond the last the last once more."""
        k, queries = self.k, self.args.queries
        r = self.first + place
        inside = r < self.total
        r = k.minimum(r, self.total - 1)
        query = r % queries
        head = self.kv_head * self.args.group + r // queries
        return _Row(inside, head, query, k.cast(self.masking.position(query), i32))

    def visible(self) -> tuple[Reg, Reg]:
        """The keys that the rows of the block have to look at: all, if they are of two heads."""
        k, a, height = self.k, self.args, self.tile.height
        low, high = visible(k, a, self.config.base, self.first % a.queries, k.index(height))
        if self.config.base.mask not in ("causal", "window"):
            return low, high
        last = k.minimum(self.first + height, self.total) - 1
        one = k.compare("eq", self.first // a.queries, last // a.queries)
        return k.select(one, low, 0), k.select(one, k.minimum(high, a.keys), a.keys)

    # -- pieces of q, k and v --------------------------------------------------------------

    def stage_queries(self, begin: Reg) -> None:
        """Queries of the block, scaled, from an element of the dim on."""
        k, a = self.k, self.args

        def element(place: Reg, step: Reg) -> Reg:
            row, d = self.row(place), begin + step
            at = a.at("q", self.b, row.head, row.query) + self.near(d, self.queries.depth)
            return self.inside_dim(k.cast(k.load(a.q, at), self.dt) * a.float("scale"), d)

        stage(k, self.queries, self.thread, self.tile.threads, along=True, element=element)

    def stage_keys(self, at: Reg, begin: Reg) -> None:
        """Keys from ``at`` on, from an element of the dim on; beyond the last the last again."""
        k, a = self.k, self.args

        def element(place: Reg, step: Reg) -> Reg:
            d, key = begin + step, k.minimum(at + place, a.keys - 1)
            start = a.at("k", self.b, self.kv_head, key) + self.near(d, self.tile.depth)
            return self.inside_dim(k.cast(k.load(a.k, start), self.dt), d)

        stage(k, self.key_room, self.thread, self.tile.threads, along=True, element=element)

    def stage_values(self, at: Reg) -> None:
        """Values of keys from ``at`` on, 0 beyond the last and beyond the dim."""
        k, a, config = self.k, self.args, self.config

        def element(place: Reg, step: Reg) -> Reg:
            key, column = at + step, self.column0 + place
            start = a.at("v", self.b, self.kv_head, k.minimum(key, a.keys - 1))
            x = k.load(a.v, start + k.minimum(column, config.dim - 1))
            inside = (key < a.keys) & (column < config.dim)
            return k.select(inside, k.cast(x, self.dt), 0.0)

        stage(k, self.value_room, self.thread, self.tile.threads, along=False, element=element)

    def near(self, d: Reg, depth: int) -> Reg:
        """An element of the dim, the last for what is beyond."""
        return self.k.minimum(d, self.config.dim - 1) if self.config.dim % depth else d

    def inside_dim(self, value: Reg, d: Reg) -> Reg:
        """The value, 0 beyond the dim."""
        ragged = self.config.dim % self.tile.depth
        return self.k.select(d < self.config.dim, value, 0.0) if ragged else value

    # -- a block of keys -------------------------------------------------------------------

    def keys(
        self, at: Reg, high: Reg, peaks: Sequence[Reg], totals: Sequence[Reg], sums: Sequence[Reg]
    ) -> list[Reg]:
        """Keys from ``at`` on: the rows' new peaks, totals (a thread's part of them) and sums."""
        k, count = self.k, self.config.columns
        scores = self.scores(at)
        highest = self.fold_rows([reduce(k.maximum, row) for row in scores], k.maximum)
        new = [k.maximum(a, b) for a, b in zip(peaks, highest, strict=True)]
        # A peak of -inf: no key had a finite score so far, and none is to weigh nan.
        safe = [k.select(k.compare("eq", p, -math.inf), 0.0, p) for p in new]
        fades = [weight_of(a - b) for a, b in zip(peaks, safe, strict=True)]
        weights = [[weight_of(x - p) for x in row] for row, p in zip(scores, safe, strict=True)]
        for r, row in enumerate(weights):
            for c, w in enumerate(row):
                k.store(w, self.weights.buffer, self.weight_at(r, c))
        totals = [
            reduce(add, row, t * fade) for t, fade, row in zip(totals, fades, weights, strict=True)
        ]
        faded = [x * fades[n // count] for n, x in enumerate(sums)]
        return [*new, *totals, *self.weigh(at, high, faded)]

    def weight_at(self, r: int, c: int) -> Reg:
        """Where the weight of the thread's row ``r`` and key ``c`` lies."""
        tile = self.tile
        return self.weights.at(self.x + c * tile.threads_x, self.y + r * tile.threads_y)

    def scores(self, at: Reg) -> list[list[Reg]]:
        """Scores of the thread's rows and keys, -inf beyond the last key."""
        k, tile, config = self.k, self.tile, self.config

        def piece(begin: Reg, *sums: Reg) -> list[Reg]:
            if not config.whole:
                self.stage_queries(begin)
            self.stage_keys(at, begin)
            k.barrier()
            first = begin if config.whole else None
            own = self.y, self.x
            found = multiply(k, self.queries, self.key_room, own, tile, sums, first=first)
            k.barrier()
            return found

        none = [k.const(0.0, self.dt)] * (tile.rows * tile.columns)
        products = k.loop(0, config.dim, tile.depth, piece, none)
        places = [at + (self.x + c * tile.threads_x) for c in range(tile.columns)]
        return [
            [self.masked(products[r * tile.columns + c], row, key) for c, key in enumerate(places)]
            for r, row in enumerate(self.rows)
        ]

    def masked(self, product: Reg, row: _Row, key: Reg) -> Reg:
        """A score, from a product."""
        k, a = self.k, self.args
        near = k.minimum(key, a.keys - 1)

        def extra() -> Reg:
            if self.config.base.mask == "custom":
                return self.masking.kept(self.b, near)
            assert a.mask is not None
            at = a.at("mask", self.b, row.head, row.query) + near
            return k.cast(k.load(a.mask, at), self.dt)

        s = self.masking.adjust(product, k.cast(key, i32), row.position, extra)
        return k.select(key < a.keys, s, -math.inf)

    def fold_rows(self, values: Sequence[Reg], combine: Callable[[Reg, Reg], Reg]) -> list[Reg]:
        """What ``combine`` makes of the values of all threads that share a row, for each row."""
        k, tile, room = self.k, self.tile, self.weights
        here = [self.weight_at(r, 0) for r in range(tile.rows)]
        for value, at in zip(values, here, strict=True):
            k.store(value, room.buffer, at)
        k.barrier()
        half = tile.threads_x // 2

        def fold() -> None:
            for at in here:
                other = k.load(room.buffer, at + half * (room.size + 1))
                k.store(combine(k.load(room.buffer, at), other), room.buffer, at)

        while half:
            k.when(self.x < half, fold)
            k.barrier()
            half //= 2
        first = [self.y + r * tile.threads_y for r in range(tile.rows)]
        found = [k.load(room.buffer, room.at(0, at)) for at in first]
        k.barrier()  # before the weights are written
        return found

    def weigh(self, at: Reg, high: Reg, sums: Sequence[Reg]) -> list[Reg]:
        """The sums with the weighed values of the keys from ``at`` on."""
        k, tile, config = self.k, self.tile, self.config

        def piece(begin: Reg, *carried: Reg) -> list[Reg]:
            self.stage_values(at + begin)
            k.barrier()
            own = self.y, self.x
            found = multiply(k, self.weights, self.value_room, own, tile, carried, first=begin)
            k.barrier()
            return found

        return k.loop(0, k.minimum(high - at, tile.width), config.keys, piece, sums)

    def finish(self, totals: Sequence[Reg], sums: Sequence[Reg]) -> None:
        """Divide the rows' sums by their totals and write them out."""
        k, a, config = self.k, self.args, self.config
        totals = self.fold_rows(totals, add)

        def write(row: _Row, inverse: Reg, own: Sequence[Reg]) -> None:
            base = a.at("out", self.b, row.head, row.query)
            for c, x in enumerate(own):
                column = self.column0 + (self.x + c * self.tile.threads_x)
                inside = row.inside & (column < config.dim)
                put = partial(k.store, x * inverse, a.out, base + column)
                k.when(inside, put)

        for r, (row, total) in enumerate(zip(self.rows, totals, strict=True)):
            own = sums[r * config.columns : (r + 1) * config.columns]
            write(row, inverse_of(total, config.base), own)
