"""Attention over keys in pages: rows of several sequences, each over the keys up to its own.

Two kernels. The first makes partial results over chunks of keys, which begin at multiples of CHUNK
whatever the row; the second joins those of a row in order:

    task (chunk or all of them, key head, block of rows):
        for each run of rows of one sequence, at positions that follow one another:
            for each chunk of keys that one of them sees:
                for some keys of a page, few rows: their scores, as dot products along the head dim
                for each row: the weights of the scores, and their sum
                for some keys of a page, few rows: add the weighted rows of V
                fold the chunk into the run's result
    task (row, head): fold the chunks in order, and the sink; divide by the sum of the weights

A task has one chunk where rows are few, so that one long sequence uses every thread, and else all
of them. Of a long sequence, which is in no cache, the task of the first key head has all of them,
a few keys at a time, and requests the next ones: it reads memory in ascending order, which has
twice the speed of one head after the other.

The bits are the same: a fold that begins with nothing changes nothing. Each sum is a chain over the
keys of a chunk in order, to which what a row does not see adds 0; so the bits of a row depend
neither on the other rows, nor on the pages, nor on the tasks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rlx.base.dims import at_least, ceil_div, choose, maximum, minimum
from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.family import Launch
from rlx.codegen.reg import INDEX, Buffer, Reg
from rlx.kernels.attention.args import Count, float_names, float_of, float_words, offsets, positions
from rlx.kernels.attention.lanes import sum_lanes
from rlx.kernels.attention.mask import weight_of
from rlx.types import DType, f32, i32

__all__ = [
    "CHUNK", "PagedConfig", "PagedSizes", "emit", "folded", "lanes_for", "launch", "name", "plan",
]  # fmt: skip

name = "paged_attention"

CHUNK = 256
"""Keys of a chunk, for all sizes: the bits of a row hang on it."""

FEW = 16
"""Rows up to which a task has one chunk."""

_TASK_ROWS = 32
"""Query rows of a task, heads counted apart: their queries and sums stay in a near cache."""

_ALL_HEADS_ROWS = 64
"""Those of a task that may have all key heads."""

_SOME_KEYS = 8
"""Keys at a time of such a task."""

_LINE = 64
"""Bytes that a request asks for."""


@frozen
class PagedConfig:
    """``dtype`` is that of the cache; ``lanes`` divide the head dim. ``join`` asks for the second
    kernel, of heads with ``sinks`` or without."""

    dtype: DType
    lanes: int
    softcap: bool = False
    window: bool = False
    join: bool = False
    sinks: bool = False


@frozen
class PagedSizes:
    """One call: ``rows`` by ``heads`` of ``dim``; ``cache_pages`` of ``page_size`` rows; a table of
    ``sequences`` by ``pages``. ``q_row`` and ``out_row`` are the distances between rows."""

    rows: int
    heads: int
    key_heads: int
    dim: int
    page_size: int
    cache_pages: int
    sequences: int
    pages: int
    q_row: int
    out_row: int
    scale: float
    window: int = 0
    softcap: float = 0.0


def lanes_for(target: KernelTarget, dim: int) -> int:
    """Lanes of the vectors along a head, or 0 if it is no whole number of small ones."""
    lanes = math.gcd(dim, 1 << 30, target.lanes(f32))
    return lanes if lanes >= 4 else 0


@frozen
class PagedPlan:
    """How a call is cut: the chunks that tasks are split by, the rows of a block, and the key heads
    that a task may have."""

    splits: int
    rows: int
    heads: int


def plan(s: PagedSizes) -> PagedPlan:
    """The cut of a call."""
    few = at_least(FEW, s.rows)
    each = choose(few, _ALL_HEADS_ROWS // s.heads, _TASK_ROWS // (s.heads // s.key_heads))
    return PagedPlan(
        choose(few, ceil_div(s.pages * s.page_size, CHUNK), 1),
        minimum(maximum(1, each), ceil_div(s.rows, 4)),
        choose(few, s.key_heads, 1),
    )


_NAMES = (
    "rows", "key_heads", "group", "dim", "page_size", "cache_pages", "sequences", "pages",
    "q_row", "splits", "row_block", "most_heads", *float_names("scale"),
)  # fmt: skip
_JOINS = ("heads", "dim", "splits", "out_row")


def launch(config: PagedConfig, s: PagedSizes, site: int = 0) -> Launch:
    """One call of a kernel that ``emit`` made for the same config."""
    cut = plan(s)
    if config.join:
        values = {**_values(s), "splits": cut.splits}
        sizes = [values[n] for n in _JOINS] + [s.window] * config.window
        scratch = 2 * 4 * (cut.splits + 16)
        return Launch(s.rows * s.heads, maximum(1, 4096 // s.dim), tuple(sizes), scratch)
    values = {
        **_values(s), "splits": cut.splits, "row_block": cut.rows, "most_heads": cut.heads,
        **float_words("scale", s.scale),
    }  # fmt: skip
    sizes = [values[n] for n in _NAMES]
    sizes += [*float_words("softcap", s.softcap).values()] * config.softcap
    sizes += [s.window] * config.window
    rows = cut.rows * cut.heads * (s.heads // s.key_heads)
    _, end = offsets(_lengths(config.lanes, s.dim, rows), 0)
    tasks = ceil_div(s.rows, cut.rows) * s.key_heads * cut.splits
    return Launch(tasks, 1, (*sizes, site), end * 4)


def _values(s: PagedSizes) -> dict[str, int]:
    return {
        "rows": s.rows, "heads": s.heads, "key_heads": s.key_heads,
        "group": s.heads // s.key_heads, "dim": s.dim, "page_size": s.page_size,
        "cache_pages": s.cache_pages, "sequences": s.sequences, "pages": s.pages,
        "q_row": s.q_row, "out_row": s.out_row,
    }  # fmt: skip


def _lengths(lanes: int, dim: Count, rows: Count) -> dict[str, Count]:
    """The scratch arrays of a task of ``rows`` query rows, in elements."""
    return {
        "queries": rows * dim,
        "sums": rows * dim,
        "found": rows * dim,
        "scores": rows * (CHUNK + lanes),
        "peak": rows,
        "total": rows,
        "chunk_peak": rows,
        "chunk_total": rows,
    }


def emit(name: str, config: PagedConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config. Buffers of the first: q, keys, values, table, sequence, positions,
    sums [rows, heads, splits, dim], state [rows, heads, splits, 2], the error record; of the
    second: positions, sums, state, sinks if there are any, out."""
    k = Kernel(name, target)
    if config.join:
        k.parallel(_Join(k, config).task)
    else:
        k.parallel(_Partial(k, config).task)
    return k.text()


def folded(k: Kernel, peak: Reg, other: Reg) -> tuple[Reg, Reg, Reg]:
    """The higher of two peaks, and what the sums beside each are multiplied by."""
    most = k.maximum(peak, other)
    # A peak of -inf: neither has seen a key.
    safe = k.select(k.compare("eq", most, -math.inf), 0.0, most)
    return most, weight_of(peak - safe), weight_of(other - safe)


Body = Callable[[Reg, int, Reg, Reg, Reg], None]
"""Of the first of some query rows, how many, the element of the first key's row, its position, and
how many keys."""


class _Partial:
    """Emits the first kernel, a phase a method."""

    def __init__(self, k: Kernel, config: PagedConfig) -> None:
        self.k, self.config, self.n = k, config, config.lanes
        self.q = k.buffer("q", f32)
        self.keys, self.values = k.buffer("keys", config.dtype), k.buffer("values", config.dtype)
        self.table, self.sequence = k.buffer("table", i32), k.buffer("sequence", i32)
        self.positions = k.buffer("positions", i32)
        self.sums, self.state = k.buffer("sums", f32), k.buffer("state", f32)
        self.error = k.error_record()
        self.size = {n: k.size(n) for n in _NAMES}
        caps = {n: k.size(n) for n in float_names("softcap") * config.softcap}
        self.softcap = k.cast(float_of(k, caps, "softcap"), f32) if config.softcap else None
        self.window = k.size("window") if config.window else None
        self.site = k.size("site")
        s = self.size
        self.group, self.dim, self.page_size = s["group"], s["dim"], s["page_size"]
        self.origin = k.index(0)  # the position of the chunk's first key
        self.heads, self.some = k.index(1), self.page_size  # key heads, and keys at a time
        self.width = s["key_heads"] * self.dim
        self.scale = k.cast(float_of(k, s, "scale"), f32)
        rows = s["row_block"] * self.group * s["most_heads"]
        starts, _ = offsets(_lengths(self.n, self.dim, rows), k.index(0))
        self.scratch = {name: k.scratch(f32, at * 4) for name, at in starts.items()}

    def task(self, t: Reg) -> None:
        """A block of rows, as runs of one sequence each."""
        k, s = self.k, self.size
        blocks = (s["rows"] + (s["row_block"] - 1)) // s["row_block"]
        first = t % blocks * s["row_block"]
        end = k.minimum(first + s["row_block"], s["rows"])
        self.head = t // blocks % s["key_heads"]
        split = t // blocks // s["key_heads"]

        def run(r: Reg) -> Reg:
            sequence, position = (self._number(b, r) for b in (self.sequence, self.positions))

            def follows(n: Reg) -> Reg:
                at = k.minimum(r + n, end - 1)
                same = k.compare("eq", self._number(self.sequence, at), sequence)
                next_ = k.compare("eq", self._number(self.positions, at), position + n)
                return (r + n < end) & same & next_

            (count,) = k.repeat(follows, lambda n: n + 1, [k.index(1)])
            inside = (sequence >= 0) & (sequence < s["sequences"])
            inside = inside & (position + count <= s["pages"] * self.page_size)
            real = position >= 0
            k.record_fault(real & k.logical_not(inside), self.error, self.site, 1)
            # Of a long sequence the first head's task has all heads.
            long = (position + count > CHUNK) & (s["most_heads"] > 1)
            self.heads = k.select(long, s["most_heads"], k.index(1))
            self.some = k.select(long, k.index(_SOME_KEYS), self.page_size)
            real = real & inside & (k.logical_not(long) | (self.head < 1))
            k.when(real, lambda: self.run(r, count, sequence, position, split))
            return r + count

        k.repeat(lambda r: r < end, run, [first])

    def _number(self, b: Buffer, at: Reg) -> Reg:
        return self.k.cast(self.k.load(b, at), INDEX)

    def run(self, r: Reg, count: Reg, sequence: Reg, position: Reg, split: Reg) -> None:
        """Rows ``[r, r + count)`` of a sequence, the first at ``position``."""
        k, s = self.k, self.size
        self.row, self.position, self.tables = r, position, sequence * s["pages"]
        # Query rows: those of a key head together, and of these the heads of a row.
        self.each = count * self.group
        self.count = self.each * self.heads
        k.loop(0, self.count, 1, self.start)
        last = (position + count - 1) // CHUNK
        low = k.index(0)
        if self.window is not None:
            low = k.maximum(position + 1 - self.window, 0)
        whole = k.compare("eq", s["splits"], 1)
        first = k.select(whole, low // CHUNK, k.maximum(split, low // CHUNK))
        stop = k.select(whole, last + 1, k.minimum(split + 1, last + 1))

        def chunk(c: Reg) -> None:
            begin, end = k.maximum(c * CHUNK, low), k.minimum((c + 1) * CHUNK, position + count)
            self.origin = c * CHUNK
            self.pages(begin, end, self.keys, self.dots)
            k.loop(0, self.count, 1, lambda i: self.soften(i, end - self.origin))
            self.clear("found")
            self.pages(begin, end, self.values, self.weigh)
            k.loop(0, self.count, 1, self.fold)

        k.loop(first, stop, 1, chunk)
        k.loop(0, self.count, 1, lambda i: self.finish(i, k.select(whole, k.index(0), split)))

    def pages(self, begin: Reg, end: Reg, cache: Buffer, body: Body) -> None:
        """``body`` for some of the keys ``[begin, end)`` of a page, each key head, and few query
        rows at a time."""
        k, size = self.k, self.page_size

        def page(p: Reg) -> None:
            found = self._number(self.table, self.tables + p)
            inside = (found >= 0) & (found < self.size["cache_pages"])
            k.record_fault(k.logical_not(inside), self.error, self.site, 1)
            start = k.select(inside, found, k.index(0)) * size - p * size
            stop = k.minimum(end, (p + 1) * size)

            def some(at: Reg) -> None:
                row, keys = (start + at) * self.width, k.minimum(self.some, stop - at)

                def head(h: Reg) -> None:
                    k.when(self.heads > 1, lambda: self.request(cache, row, h))
                    self.rows_of(h, row + (self.head + h) * self.dim, at, keys, body)

                k.loop(0, self.heads, 1, head)

            k.loop(k.maximum(begin, p * size), stop, self.some, some)

        k.loop(begin // size, (end - 1) // size + 1, 1, page)

    def request(self, cache: Buffer, row: Reg, head: Reg) -> None:
        """Ask for a part of the next keys' rows, as much for each head. Of a page's last keys these
        are those of the page behind it, which is often the next one."""
        k, part = self.k, _SOME_KEYS * self.dim
        begin = row + _SOME_KEYS * self.width + head * part
        each = _LINE // cache.dtype.bytes
        k.loop(0, part, each, lambda e: k.prefetch(cache, begin + e, level=2))

    def rows_of(self, head: Reg, first: Reg, at: Reg, keys: Reg, body: Body) -> None:
        """``body`` for the query rows of a key head, few at a time."""
        k = self.k
        done, end = head * self.each, (head + 1) * self.each
        beside = min(4, self.n)
        while beside:
            whole = end - (end - done) % beside
            k.loop(done, whole, beside, lambda i, b=beside: body(i, b, first, at, keys))
            done, beside = whole, beside // 2

    def place(self, i: Reg) -> tuple[Reg, Reg]:
        """The row and the head of a query row."""
        row, head = i % self.each, self.head + i // self.each
        return self.row + row // self.group, head * self.group + row % self.group

    def start(self, i: Reg) -> None:
        """Copy a scaled query row into scratch, and clear what is known of it."""
        k, n = self.k, self.n
        row, head = self.place(i)
        at, to = row * self.size["q_row"] + head * self.dim, i * self.dim

        def part(d: Reg) -> None:
            k.store(k.load(self.q, at + d, n) * self.scale, self.scratch["queries"], to + d)
            k.store(k.const(0.0, f32, n), self.scratch["sums"], to + d)

        k.loop(0, self.dim, n, part)
        k.store(-math.inf, self.scratch["peak"], i)
        k.store(0.0, self.scratch["total"], i)

    def clear(self, name: str) -> None:
        """Zeros in an array of the query rows."""
        k, zero = self.k, self.k.const(0.0, f32, self.n)
        k.loop(0, self.count * self.dim, self.n, lambda d: k.store(zero, self.scratch[name], d))

    def scores(self, i: Reg, key: Reg) -> Reg:
        """Where the score of a query row and of a key's position is in scratch."""
        return i * (CHUNK + self.n) + (key - self.origin)

    def dots(self, i: Reg, rows: int, first: Reg, at: Reg, count: Reg) -> None:
        """The products of query rows from ``i`` on with ``count`` keys, into scratch."""
        k, n = self.k, self.n
        keys = n // rows
        queries = [(i + x) * self.dim for x in range(rows)]
        to = [self.scores(i + x, at) for x in range(rows)]

        def some(j: Reg) -> None:
            places = [first + k.minimum(j + x, count - 1) * self.width for x in range(keys)]

            def step(d: Reg, *sums: Reg) -> list[Reg]:
                own = [k.load(self.scratch["queries"], q + d, n) for q in queries]
                others = [k.load(self.keys, place + d, n) for place in places]
                pairs = [(q, x) for q in own for x in others]
                return [k.fma(q, x, s) for (q, x), s in zip(pairs, sums, strict=True)]

            sums = sum_lanes(k, k.loop(0, self.dim, n, step, [k.const(0.0, f32, n)] * n))
            for x in range(rows):
                part = sums if rows == 1 else k.shuffle(sums, sums, range(x * keys, (x + 1) * keys))
                k.store(part, self.scratch["scores"], to[x] + j)

        k.loop(0, count, keys, some)

    def soften(self, i: Reg, count: Reg) -> None:
        """A query row's scores of the chunk's first ``count`` keys become weights, 0 where it does
        not see; their peak and their sum."""
        k, n, scores = self.k, self.n, self.scratch["scores"]
        start = i * (CHUNK + n)
        own = k.cast(self.position + i % self.each // self.group - self.origin, i32)

        def adjust(j: Reg, most: Reg) -> Reg:
            s, key = k.load(scores, start + j, n), positions(k, j, n)
            if self.softcap is not None:
                s = k.tanh(s * (1.0 / self.softcap)) * self.softcap
            seen = key <= k.splat(own, n)
            if self.window is not None:
                seen = seen & (key > k.splat(own - k.cast(self.window, i32), n))
            s = k.select(seen, s, -math.inf)
            k.store(s, scores, start + j)
            return k.maximum(most, s)

        lowest = k.const(-math.inf, f32, n)
        peak = k.reduce("maximum", k.loop(0, count, n, adjust, [lowest])[0])
        safe = k.select(k.compare("eq", peak, -math.inf), 0.0, peak)

        def weight(j: Reg, sums: Reg) -> Reg:
            w = weight_of(k.load(scores, start + j, n) - safe)
            k.store(w, scores, start + j)
            return sums + w

        (sums,) = k.loop(0, count, n, weight, [k.const(0.0, f32, n)])
        k.store(peak, self.scratch["chunk_peak"], i)
        k.store(k.reduce("add", sums), self.scratch["chunk_total"], i)

    def weigh(self, i: Reg, rows: int, first: Reg, at: Reg, count: Reg) -> None:
        """found += weights . V for query rows from ``i`` on, four vectors of the head at a time."""
        k, n, found = self.k, self.n, self.scratch["found"]
        start = [self.scores(i + x, at) for x in range(rows)]

        def columns(vectors: int) -> None:
            parts = [n * v for v in range(vectors)]

            def some(d: Reg) -> None:
                places = [(i + x) * self.dim + d + p for x in range(rows) for p in parts]

                def step(j: Reg, *acc: Reg) -> Sequence[Reg]:
                    row = first + j * self.width + d
                    values = [k.load(self.values, row + p, n) for p in parts]
                    weights = [k.splat(k.load(self.scratch["scores"], s + j), n) for s in start]
                    pairs = [(w, v) for w in weights for v in values]
                    return [k.fma(w, v, x) for (w, v), x in zip(pairs, acc, strict=True)]

                before = [k.load(found, place, n) for place in places]
                for place, x in zip(places, k.loop(0, count, 1, step, before), strict=True):
                    k.store(x, found, place)

            whole = self.dim - self.dim % (4 * n)
            k.loop(*((0, whole) if vectors == 4 else (whole, self.dim)), vectors * n, some)

        columns(4)
        columns(1)

    def fold(self, i: Reg) -> None:
        """Join the chunk at hand to those before it."""
        k, n, at = self.k, self.n, i * self.dim
        s = self.scratch
        most, fade, grow = folded(k, k.load(s["peak"], i), k.load(s["chunk_peak"], i))
        total = k.fma(k.load(s["total"], i), fade, k.load(s["chunk_total"], i) * grow)
        k.store(most, s["peak"], i)
        k.store(total, s["total"], i)
        fades, grows = k.splat(fade, n), k.splat(grow, n)

        def part(d: Reg) -> None:
            own, new = (k.load(s[x], at + d, n) for x in ("sums", "found"))
            k.store(k.fma(own, fades, new * grows), s["sums"], at + d)

        k.loop(0, self.dim, n, part)

    def finish(self, i: Reg, split: Reg) -> None:
        """Write out what is known of a query row."""
        k, n, s = self.k, self.n, self.scratch
        row, head = self.place(i)
        to = (row * (self.group * self.size["key_heads"]) + head) * self.size["splits"] + split
        k.store(k.load(s["peak"], i), self.state, to * 2)
        k.store(k.load(s["total"], i), self.state, to * 2 + 1)
        at, out = i * self.dim, to * self.dim
        k.loop(0, self.dim, n, lambda d: k.store(k.load(s["sums"], at + d, n), self.sums, out + d))


class _Join:
    """Emits the second kernel."""

    def __init__(self, k: Kernel, config: PagedConfig) -> None:
        self.k, self.n = k, config.lanes
        self.positions = k.buffer("positions", i32)
        self.sums, self.state = k.buffer("sums", f32), k.buffer("state", f32)
        self.sinks = k.buffer("sinks", f32) if config.sinks else None
        self.out = k.buffer("out", f32)
        self.size = {n: k.size(n) for n in _JOINS}
        self.window = k.size("window") if config.window else None
        length = (self.size["splits"] + 15) // 16 * 16
        self.fades, self.grows = k.scratch(f32), k.scratch(f32, length * 4)

    def task(self, t: Reg) -> None:
        """A head of a row."""
        k, s = self.k, self.size
        row, head = t // s["heads"], t % s["heads"]
        at = k.cast(k.load(self.positions, row), INDEX)
        low = k.index(0)
        if self.window is not None:
            low = k.maximum(at + 1 - self.window, 0)
        whole = k.compare("eq", s["splits"], 1)
        first = k.select(whole, k.index(0), low // CHUNK)
        stop = k.select(whole, k.index(1), at // CHUNK + 1)
        stop = k.select(at >= 0, stop, first)
        state = t * s["splits"]

        def fold(c: Reg, peak: Reg, total: Reg) -> list[Reg]:
            most, fade, grow = folded(k, peak, k.load(self.state, (state + c) * 2))
            k.store(fade, self.fades, c)
            k.store(grow, self.grows, c)
            return [most, k.fma(total, fade, k.load(self.state, (state + c) * 2 + 1) * grow)]

        start = [k.const(-math.inf, f32), k.const(0.0, f32)]
        peak, total = k.loop(first, stop, 1, fold, start)
        inverse = 1.0 / total
        if self.sinks is not None:
            _, fade, grow = folded(k, peak, k.load(self.sinks, head))
            inverse = fade / k.fma(total, fade, grow)
        inverse = k.select(at >= 0, inverse, k.const(0.0, f32))
        to = row * s["out_row"] + head * s["dim"]

        def part(d: Reg) -> None:
            def add(c: Reg, sums: Reg) -> Reg:
                fade, grow = (k.splat(k.load(b, c), self.n) for b in (self.fades, self.grows))
                new = k.load(self.sums, (state + c) * s["dim"] + d, self.n)
                return k.fma(sums, fade, new * grow)

            (sums,) = k.loop(first, stop, 1, add, [k.const(0.0, f32, self.n)])
            k.store(sums * inverse, self.out, to + d)

        k.loop(0, s["dim"], self.n, part)
