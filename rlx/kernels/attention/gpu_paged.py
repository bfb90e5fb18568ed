"""Attention over keys in pages on GPUs: what ``rlx.kernels.attention.paged`` defines, by three
kernels.

    "slots", a thread (row, page):  where the page's rows of the cache begin, checked
    "parts", a block (row, heads that share a key head, chunk or all of them):
        for each chunk of keys that the row sees:
            scores: some threads a key, each with a part of the dim; a tree in shared memory
            their peak; weights = exp(scores - peak) and their sum, in shared memory
            found = weights V: a thread a column, and a part of the keys; a tree
            fold the chunk into what was found before
    "join", a block (row, head):    fold the chunks of several blocks in order, and the sink;
                                    divide by the sum

Chunks begin at multiples of CHUNK, and are folded in the same way in "parts" and in "join": the
bits of a row depend neither on the other rows nor on its pages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Literal

from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.family import Launch
from rlx.codegen.reg import INDEX, Buffer, Reg
from rlx.codegen.strides import ceil_div
from rlx.errors import UnsupportedError
from rlx.kernels.attention.mask import weight_of
from rlx.kernels.attention.paged import CHUNK, PagedSizes, folded
from rlx.kernels.matmul.gpu_tile import power_below
from rlx.types import DType, f32, i32

__all__ = ["GpuPagedConfig", "choose", "emit", "launch", "name", "part_length", "splits_of"]

name = "gpu_paged_attention"

ENOUGH_BLOCKS = 512
"""Blocks of rows and heads from which a block has all chunks."""

HELD = 32
"""Elements of queries that a thread has in registers."""

AHEAD = 8
"""Values that a thread asks for at once."""

Stage = Literal["slots", "parts", "join"]


@frozen
class GpuPagedConfig:
    """What the code of a stage depends on. ``dtype`` is that of the cache. A block has ``heads``
    queries of ``dim`` and ``threads`` threads, of which ``beside`` share a key."""

    stage: Stage
    dtype: DType = f32
    dim: int = 0
    heads: int = 0
    threads: int = 0
    beside: int = 0
    scale: float = 0.0
    softcap: float = 0.0
    window: bool = False
    sinks: bool = False

    @property
    def keys(self) -> int:
        """Keys of a thread at once: so many that every thread has a sum of products to make."""
        return max(1, self.beside // self.heads)

    @property
    def products(self) -> int:
        """Elements of shared memory for the sums of products of threads that share keys."""
        return self.keys * self.heads * (self.threads // self.beside) * (self.beside + 1)

    @property
    def columns(self) -> int:
        """Threads side by side with a column of the result each."""
        return min(self.threads, 1 << (self.dim - 1).bit_length())


def splits_of(s: PagedSizes) -> int:
    """Blocks that the chunks of a row are split among: each has one, or one has all."""
    return 1 if s.rows * s.key_heads >= ENOUGH_BLOCKS else ceil_div(s.pages * s.page_size, CHUNK)


def part_length(dim: int) -> int:
    """Elements of a part: the sums, their peak and the sum of the weights."""
    return dim + 2


def choose(target: KernelTarget, dtype: DType, s: PagedSizes) -> GpuPagedConfig:
    """The config of the parts: of the threads and heads that a block can have, the most."""
    group = s.heads // s.key_heads
    for threads in (128, 64, 32):
        for heads in (h for h in range(min(group, 8), 0, -1) if group % h == 0):
            beside = next((b for b in (4, 8, 16) if ceil_div(s.dim, b) * heads <= HELD), 32)
            config = GpuPagedConfig(
                "parts", dtype, s.dim, heads, threads, beside, s.scale, s.softcap, s.window > 0
            )
            sums = heads * ceil_div(s.dim, config.columns) if config.columns < threads else 0
            folded_at_once = max(heads, sums) * threads
            held = heads * CHUNK + CHUNK + config.products + folded_at_once
            if threads <= power_below(target.most_threads) and 4 * held <= target.shared_bytes:
                return config
    raise UnsupportedError(
        f"paged_attention: a chunk of keys of {s.dim} does not fit the {target.shared_bytes} bytes"
        f" that a block of {target.name} shares"
    )


_NAMES: dict[Stage, tuple[str, ...]] = {
    "slots": ("page_size", "cache_pages", "sequences", "pages", "window", "site"),
    "parts": ("key_heads", "shares", "page_size", "pages", "q_row", "splits", "window"),
    "join": ("heads", "page_size", "pages", "out_row", "splits", "window"),
}


def launch(config: GpuPagedConfig, s: PagedSizes, site: int = 0) -> Launch:
    """One call of the kernel of a config."""
    splits = splits_of(s)
    shares = s.heads // s.key_heads // max(1, config.heads)
    values = {
        "page_size": s.page_size, "cache_pages": s.cache_pages, "sequences": s.sequences,
        "pages": s.pages, "key_heads": s.key_heads, "shares": shares, "heads": s.heads,
        "q_row": s.q_row, "out_row": s.out_row, "splits": splits, "window": s.window, "site": site,
    }  # fmt: skip
    count = {
        "slots": s.rows * (s.pages + 1),
        "parts": s.rows * s.key_heads * shares * splits,
        "join": s.rows * s.heads,
    }
    return Launch(count[config.stage], 1, tuple(values[n] for n in _NAMES[config.stage]))


def emit(name: str, config: GpuPagedConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config. Buffers of the slots: table, sequence, positions, slots
    [rows, pages + 1], the error record; of the parts: q, keys, values, slots, parts
    [rows, heads, splits, part_length]; of the join: slots, parts, sinks if there are any, out."""
    k = Kernel(name, target)
    if config.stage == "slots":
        _slots(k, config.window)
    elif config.stage == "parts":
        k.parallel_blocks(config.threads, _Parts(k, config).block)
    else:
        k.parallel_blocks(config.threads, _Join(k, config).block)
    return k.text()


def _sizes(k: Kernel, stage: Stage) -> dict[str, Reg]:
    return {n: k.size(n) for n in _NAMES[stage]}


def _slots(k: Kernel, window: bool) -> None:
    """Of a row its position, -1 if there is nothing to see, then where each page that it sees
    begins."""
    table, sequence, positions = (k.buffer(n, i32) for n in ("table", "sequence", "positions"))
    slots, error = k.buffer("slots", i32), k.error_record()
    s = _sizes(k, "slots")

    def one(i: Reg) -> None:
        row, number = i // (s["pages"] + 1), i % (s["pages"] + 1)
        position, own = k.load(positions, row), k.load(sequence, row)
        real = position >= 0
        last = k.cast(s["pages"] * s["page_size"], i32)
        inside = (own >= 0) & (own < k.cast(s["sequences"], i32)) & (position < last)
        k.record_fault(real & k.logical_not(inside), error, s["site"], 1)
        first = k.compare("eq", number, 0)
        k.when(first, lambda: k.store(k.select(real & inside, position, -1), slots, i))

        def page() -> None:
            at = k.select(real & inside, k.cast(own, INDEX), k.index(0)) * s["pages"]
            found = k.load(table, at + (number - 1))
            there = (found >= 0) & (found < k.cast(s["cache_pages"], i32))
            begin = k.cast((number - 1) * s["page_size"], i32)
            seen = real & inside & (begin <= position)
            if window:
                end = begin + k.cast(s["page_size"], i32)
                seen = seen & (end > position + 1 - k.cast(s["window"], i32))
            k.record_fault(seen & k.logical_not(there), error, s["site"], 1)
            start = found * k.cast(s["page_size"], i32)
            k.store(k.select(seen & there, start, 0), slots, i)

        k.when(number >= 1, page)

    k.parallel(one)


class _Row:
    """A row of q: its position, and which chunks it sees."""

    def __init__(self, k: Kernel, slots: Buffer, s: dict[str, Reg], row: Reg, window: bool) -> None:
        self.base = row * (s["pages"] + 1)
        position = k.load(slots, self.base)
        self.real = position >= 0
        self.position = k.cast(k.maximum(position, 0), INDEX)
        self.low = k.index(0)
        if window:
            past = k.cast(position, i32) + 1 - k.cast(s["window"], i32)
            self.low = k.cast(k.maximum(past, 0), INDEX)
        first, stop = self.low // CHUNK, self.position // CHUNK + 1
        self.first, self.stop = first, k.select(self.real, stop, first)


class _Parts:
    """Emits the kernel of the parts, a phase a method."""

    def __init__(self, k: Kernel, config: GpuPagedConfig) -> None:
        self.k, self.config = k, config
        self.q, self.keys, self.values = (
            k.buffer(n, dt)
            for n, dt in (("q", f32), ("keys", config.dtype), ("values", config.dtype))
        )
        self.slots, self.parts = k.buffer("slots", i32), k.buffer("parts", f32)
        self.size = _sizes(k, "parts")
        self.weights = k.shared(f32, config.heads * CHUNK)
        self.products = k.shared(f32, config.products)
        self.places = k.shared(i32, CHUNK)

    def block(self, i: Reg, thread: Reg) -> None:
        """Some heads of a row, over a chunk or all of them."""
        k, s, config = self.k, self.size, self.config
        self.thread = thread
        split, i = i % s["splits"], i // s["splits"]
        share, i = i % s["shares"], i // s["shares"]
        key_head, number = i % s["key_heads"], i // s["key_heads"]
        self.row = _Row(k, self.slots, s, number, config.window)
        group = s["shares"] * config.heads
        self.head = key_head * group + share * config.heads
        self.width, self.column = s["key_heads"] * config.dim, key_head * config.dim
        self.queries = self.read_queries(number * s["q_row"] + self.head * config.dim)
        whole = k.compare("eq", s["splits"], 1)
        first = k.select(whole, self.row.first, k.maximum(split, self.row.first))
        stop = k.select(whole, self.row.stop, k.minimum(split + 1, self.row.stop))
        n = config.heads
        held = n * ceil_div(config.dim, config.columns)
        start = [k.const(-math.inf, f32)] * n + [k.const(0.0, f32)] * (n + held)
        found = k.loop(first, stop, 1, lambda c, *state: self.chunk(c, state), start)
        part = (number * (s["key_heads"] * group) + self.head) * s["splits"] + split
        self.finish(part, found)

    def read_queries(self, at: Reg) -> list[list[Reg]]:
        """Of each head the elements that the thread multiplies keys by, scaled."""
        k, config = self.k, self.config
        own, found = self.thread % config.beside, []
        for h in range(config.heads):
            row = []
            for step in range(0, config.dim, config.beside):
                x = k.load(self.q, at + h * config.dim + self.near(own, step)) * config.scale
                row.append(self.inside(own, step, x))
            found.append(row)
        return found

    def near(self, own: Reg, step: int) -> Reg:
        """An element of the dim, the last for what is beyond."""
        d, dim = own + step if step else own, self.config.dim
        return d if step + self.config.beside <= dim else self.k.minimum(d, dim - 1)

    def inside(self, own: Reg, step: int, x: Reg) -> Reg:
        """The element, 0 beyond the dim."""
        config = self.config
        if step + config.beside <= config.dim:
            return x
        return self.k.select(own + step < config.dim, x, 0.0)

    def chunk(self, c: Reg, state: Sequence[Reg]) -> list[Reg]:
        """Peaks, totals and sums after a chunk, from those before it."""
        k, n = self.k, self.config.heads
        origin = c * CHUNK
        begin = k.maximum(self.row.low, origin) - origin
        end = k.minimum(self.row.position + 1 - origin, CHUNK)
        self.find_places(origin)
        self.score(begin, end)
        peaks, totals = self.soften(begin, end)
        found = self.weigh(begin, end)
        out: list[list[Reg]] = [[], [], []]
        each = len(found) // n
        for h in range(n):
            most, fade, grow = folded(k, state[h], peaks[h])
            out[0].append(most)
            out[1].append(k.fma(state[n + h], fade, totals[h] * grow))
            for x in range(h * each, (h + 1) * each):
                out[2].append(k.fma(state[2 * n + x], fade, found[x] * grow))
        return [*out[0], *out[1], *out[2]]

    def find_places(self, origin: Reg) -> None:
        """Where the rows of the chunk's keys begin in the cache, into shared memory."""
        k, s = self.k, self.size

        def one(j: Reg) -> None:
            key = k.minimum(origin + j, self.row.position)
            page = k.load(self.slots, self.row.base + 1 + key // s["page_size"])
            row = k.cast(page, INDEX) + key % s["page_size"]
            k.store(k.cast(row, i32), self.places, j)

        k.loop(self.thread, CHUNK, self.config.threads, one)
        k.barrier()

    def place(self, key: Reg) -> Reg:
        """The first element of a key of the chunk, of the block's head."""
        k = self.k
        return k.cast(k.load(self.places, key), INDEX) * self.width + self.column

    def score(self, begin: Reg, end: Reg) -> None:
        """Scores of the keys from ``begin`` to ``end`` into shared memory, -inf for others."""
        k, config = self.k, self.config
        own, lane = self.thread % config.beside, self.thread // config.beside
        lanes, each = config.threads // config.beside, config.keys
        apart = config.beside + 1  # so that threads side by side begin in different banks

        def some(first: Reg) -> None:
            keys = [first + lane + n * lanes if n else first + lane for n in range(each)]
            places = [self.place(key) for key in keys]
            found = [
                [self.element(place, own, d) for d in range(0, config.dim, config.beside)]
                for place in places
            ]
            for n, elements in enumerate(found):
                for h, row in enumerate(self.queries):
                    total = k.const(0.0, f32)
                    for q, x in zip(row, elements, strict=True):
                        total = k.fma(q, x, total)
                    at = ((n * config.heads + h) * lanes + lane) * apart + own
                    k.store(total, self.products, at)
            k.barrier()
            k.loop(self.thread, each * config.heads * lanes, config.threads, partial(whole, first))
            k.barrier()

        def whole(first: Reg, number: Reg) -> None:
            """The sum of a key's products with one head."""
            total = k.load(self.products, number * apart)
            for n in range(1, config.beside):
                total = total + k.load(self.products, number * apart + n)
            key = first + (number // lanes // config.heads * lanes + number % lanes)
            cap = config.softcap
            score = k.tanh(total * (1.0 / cap)) * cap if cap else total
            seen = (key >= begin) & (key < end)
            head = number // lanes % config.heads
            k.store(k.select(seen, score, -math.inf), self.weights, key + head * CHUNK)

        k.loop(0, end, lanes * each, some)

    def element(self, place: Reg, own: Reg, step: int) -> Reg:
        """An element of a key, 0 beyond the dim."""
        return self.inside(own, step, self.k.load(self.keys, place + self.near(own, step)))

    def soften(self, begin: Reg, end: Reg) -> tuple[list[Reg], list[Reg]]:
        """Scores become weights; the peak of each head and the sum of its weights."""
        k, config = self.k, self.config
        heads = range(config.heads)

        def highest(j: Reg, *most: Reg) -> list[Reg]:
            return [k.maximum(most[h], k.load(self.weights, j + h * CHUNK)) for h in heads]

        mine = (self.thread, end, config.threads)
        lowest = [k.const(-math.inf, f32)] * config.heads
        peaks = k.loop(*mine, highest, lowest)
        peaks = k.block_fold(self.thread, peaks, lambda _, a, b: k.maximum(a, b))
        safe = [k.select(k.compare("eq", p, -math.inf), 0.0, p) for p in peaks]

        def weight(j: Reg, *sums: Reg) -> list[Reg]:
            out: list[Reg] = []
            for h in heads:
                w = weight_of(k.load(self.weights, j + h * CHUNK) - safe[h])
                k.store(w, self.weights, j + h * CHUNK)
                out.append(sums[h] + w)
            return out

        totals = k.loop(*mine, weight, [k.const(0.0, f32)] * config.heads)
        # What waits for the sums waits for the weights.
        return peaks, k.block_fold(self.thread, totals, lambda _, a, b: a + b)

    def weigh(self, begin: Reg, end: Reg) -> list[Reg]:
        """The sums of the weighted values, head by head: in a thread its columns."""
        k, config = self.k, self.config
        across, heads = config.columns, range(config.heads)
        column, own = self.thread % across, self.thread // across
        groups = config.threads // across
        steps = range(0, config.dim, across)
        near = [k.minimum(column + d, config.dim - 1) for d in steps]
        ahead = max(1, AHEAD // len(near))

        def some(first: Reg, *sums: Reg) -> list[Reg]:
            keys = [first + own + n * groups for n in range(ahead)]
            there = [key < end for key in keys]
            close = [k.minimum(key, end - 1) for key in keys]
            places = [self.place(key) for key in close]
            values = [[k.load(self.values, p + d) for d in near] for p in places]
            out = list(sums)
            for n, key in enumerate(close):
                for h in heads:
                    w = k.load(self.weights, key + h * CHUNK)
                    for d, v in enumerate(values[n]):
                        at = h * len(near) + d
                        # Of a value that is not seen even 0 times an infinity is no part.
                        out[at] = k.select(there[n], k.fma(w, v, out[at]), out[at])
            return out

        none = [k.const(0.0, f32)] * (config.heads * len(near))
        sums = k.loop(begin, end, ahead * groups, some, none)
        if groups > 1:
            sums = k.block_fold(self.thread, sums, lambda _, a, b: a + b, groups, across)
        else:
            k.barrier()  # before the weights are written again
        return sums

    def finish(self, part: Reg, found: Sequence[Reg]) -> None:
        """Write out what is known of the heads."""
        k, config, n = self.k, self.config, self.config.heads
        length = part_length(config.dim)
        column, own = self.thread % config.columns, self.thread // config.columns
        each = (len(found) - 2 * n) // n

        def write() -> None:
            for h in range(n):
                base = (part + self.size["splits"] * h) * length
                for x in range(each):
                    d = column + x * config.columns
                    value = found[2 * n + h * each + x]
                    k.when(d < config.dim, partial(k.store, value, self.parts, base + d))
                ends = base + config.dim
                k.when(column < 1, partial(k.store, found[h], self.parts, ends))
                k.when(column < 1, partial(k.store, found[n + h], self.parts, ends + 1))

        k.when(own < 1, write)


class _Join:
    """Emits the kernel that joins the parts of a head."""

    def __init__(self, k: Kernel, config: GpuPagedConfig) -> None:
        self.k, self.config = k, config
        self.slots, self.parts = k.buffer("slots", i32), k.buffer("parts", f32)
        self.sinks = k.buffer("sinks", f32) if config.sinks else None
        self.out = k.buffer("out", f32)
        self.size = _sizes(k, "join")

    def block(self, i: Reg, thread: Reg) -> None:
        """A head of a row, a thread a column."""
        k, s, dim = self.k, self.size, self.config.dim
        row = _Row(k, self.slots, s, i // s["heads"], self.config.window)
        whole = k.compare("eq", s["splits"], 1)
        first = k.select(whole, k.index(0), row.first)
        stop = k.select(whole, k.index(1), row.stop)
        stop = k.select(row.real, stop, first)
        to = i // s["heads"] * s["out_row"] + i % s["heads"] * dim

        def column(d: Reg) -> None:
            def fold(c: Reg, peak: Reg, total: Reg, sums: Reg) -> list[Reg]:
                base = (i * s["splits"] + c) * part_length(dim)
                most, fade, grow = folded(k, peak, k.load(self.parts, base + dim))
                weights, new = (k.load(self.parts, base + at) for at in (dim + 1, d))
                return [most, k.fma(total, fade, weights * grow), k.fma(sums, fade, new * grow)]

            start = [k.const(-math.inf, f32), k.const(0.0, f32), k.const(0.0, f32)]
            peak, total, sums = k.loop(first, stop, 1, fold, start)
            inverse = 1.0 / total
            if self.sinks is not None:
                _, fade, grow = folded(k, peak, k.load(self.sinks, i % s["heads"]))
                inverse = fade / k.fma(total, fade, grow)
            k.store(sums * k.select(row.real, inverse, 0.0), self.out, to + d)

        k.loop(thread, dim, self.config.threads, column)
