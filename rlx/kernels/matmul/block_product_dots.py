"""Products of several rows in 8 bits by weights in packed blocks: the panels of ``block_weights``
times tiles of rows (``block_rows``), by the instructions of ``dot``.

    task: some panels, some rows
        for each panel:
            for each part of K:
                for the first rows of a tile:
                    for each block of rows:
                        codes and scales                  unpacked, and kept for the other rows
                        totals with the block
                for some other rows of a tile:
                    for each block of rows: totals with the block
                the last part writes the totals of its rows to the result

The result's lines lie far apart, and to write them takes no time between products. A total is what
``block_parts`` says, so the bits are those of ``block_product_rows``. A tile has what all its rows
need of a block side by side, so one address serves them. Multipliers are the limit: a block takes 8
steps for its integers and 2 for its scales, 3 if there are two of these or least values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx.base.dims import maximum, minimum
from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.family import Launch
from rlx.codegen.reg import Reg
from rlx.codegen.strides import ceil_div
from rlx.kernels.matmul.block_parts import (
    UnpackedPart,
    add_blocks,
    chunks_of_round,
    row_blocks,
    unpacked_bytes,
)
from rlx.kernels.matmul.block_product_rows import MOST, TASK_PANELS
from rlx.kernels.matmul.block_rows import TILE_ROWS
from rlx.kernels.matmul.block_scales import store_panel
from rlx.kernels.matmul.block_weights import DECODERS, Record, lanes_of, panel_fields, scheme_of
from rlx.kernels.matmul.dot import fours, store_words, word, words
from rlx.ops.quant.rows import ROW_BLOCK
from rlx.types import f32, i8, i32, u8

__all__ = ["FEWEST", "ROWS_BYTES", "BlockProductDotsConfig", "emit", "launch", "name", "start_of"]

name = "block_product_dots"

FEWEST = MOST + 1
"""Rows from which on tiles pay."""

ROWS_BYTES = 512 << 10
"""Rows of a task: so many bytes stay in the L2 cache."""

PART = 512
"""Elements of a part of K: what is unpacked of a panel, and some rows, stay in the L1 cache."""

AHEAD = 8192
"""Bytes of a panel from what is read to what is requested: with several rows a line of it takes too
long for the machine's own prefetching to run ahead."""
LINE = 64
"""Bytes that a request asks for."""


@frozen
class BlockProductDotsConfig:
    """What the code depends on: the scheme."""

    scheme: str


@frozen
class _Part:
    """``count`` blocks of a panel, from ``at`` on, for ``rows`` from ``row0`` on; ``block`` is the
    number of the first row's first block, and ``last`` says whether it is the panel's last part."""

    panel: Reg
    at: Reg
    count: Reg
    row0: Reg
    rows: Reg
    block: Reg
    last: Reg


def start_of(scheme: str) -> tuple[int, int] | None:
    """What the sums of a scheme begin with (``block_rows.Extras``); None if with 0."""
    decoder = DECODERS[scheme]
    return None if decoder.has_least else (decoder.sub, decoder.zero)


def _part_blocks(scheme: str) -> int:
    return max(1, PART // scheme_of(scheme).block)


def launch(
    config: BlockProductDotsConfig, target: KernelTarget, m: int, n: int, depth: int
) -> Launch:
    """The launch of rows ``[m, depth]`` by a weight ``[n, depth]``. The buffers are the tiles,
    their scales, what the sums begin with or the sums of blocks, the panels, and the result
    ``[m, n]``."""
    panels = ceil_div(n, lanes_of(target))
    chunk = maximum(ROWS_BYTES // maximum(depth, 1) // TILE_ROWS, 1)
    chunk = minimum(chunk, ceil_div(m, TILE_ROWS)) * TILE_ROWS
    group = minimum(TASK_PANELS, panels)
    tasks = ceil_div(m, chunk) * ceil_div(panels, group)
    sizes = (m, n, depth // scheme_of(config.scheme).block, panels, chunk, group)
    lanes = lanes_of(target)
    unpacked = unpacked_bytes(config.scheme, lanes, _part_blocks(config.scheme))
    return Launch(tasks, 1, sizes, unpacked + chunk * lanes * 4)


def emit(name: str, config: BlockProductDotsConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config; ``launch`` gives its sizes."""
    return _Emitter(name, config, target).emit()


class _Emitter:
    """Emits one kernel."""

    def __init__(self, name: str, config: BlockProductDotsConfig, target: KernelTarget) -> None:
        self.k = k = Kernel(name, target)
        self.lanes = lanes_of(target)
        self.scheme, self.decoder = scheme_of(config.scheme), DECODERS[config.scheme]
        self.fields, self.part = panel_fields(config.scheme), _part_blocks(config.scheme)
        self.tiles, self.row_scales = k.buffer("tiles", i8), k.buffer("scales", f32)
        self.extra = k.buffer("extra", f32 if self.decoder.has_least else i32)
        self.w, self.y = k.buffer("w", u8), k.buffer("y", f32)
        self.m, self.n, self.blocks = k.size("m"), k.size("n"), k.size("blocks")
        self.panels, self.chunk_rows = k.size("panels"), k.size("chunk_rows")
        self.group = k.size("group")
        self.unpacked = UnpackedPart(k, config.scheme, self.lanes, self.part)
        self.totals = k.scratch(f32, unpacked_bytes(config.scheme, self.lanes, self.part))
        self.most = 8 if target.registers >= 32 else 4
        self.each = self.scheme.block // ROW_BLOCK
        self.round, self.chunks = row_blocks(self.decoder), chunks_of_round(self.decoder)

    def emit(self) -> KernelText:
        self.k.parallel(self.task)
        return self.k.text()

    def task(self, t: Reg) -> None:
        """A group of panels for a chunk of rows; neighbours share the rows."""
        k = self.k
        groups = (self.panels + (self.group - 1)) / self.group
        row0, first = t / groups * self.chunk_rows, t % groups * self.group
        end = k.minimum(first + self.group, self.panels)
        rows = k.minimum(self.chunk_rows, self.m - row0)
        k.loop(first, end, 1, lambda p: self.panel(p, row0, rows))

    def panel(self, panel: Reg, row0: Reg, rows: Reg) -> None:
        """A panel for ``rows`` from ``row0`` on."""
        k, lanes = self.k, self.lanes
        nothing = k.const(0, f32, lanes)
        k.loop(0, self.chunk_rows, 1, lambda r: k.store(nothing, self.totals, r * lanes))
        # The first block of the row tiles.
        tile = row0 / TILE_ROWS * (self.blocks * self.each)

        def part(b: Reg) -> None:
            at = (panel * self.blocks + b) * (self.scheme.bytes * lanes)
            count, last = k.minimum(self.blocks - b, self.part), self.blocks <= b + self.part
            self.multiply(_Part(panel, at, count, row0, rows, tile + b * self.each, last))

        k.loop(0, self.blocks, self.part, part)

    def multiply(self, part: _Part) -> None:
        """The totals of all rows with a part."""
        k, most, few, rows = self.k, self.most, self.most // 2, part.rows
        more = rows > most
        k.when(
            rows <= few,
            lambda: self.first(part, few, more),
            lambda: self.first(part, most, more),
        )
        end = (rows + (few - 1)) / most * most
        k.loop(most, end, most, lambda r: self.following(part, r, most))
        k.when((end < rows) & more, lambda: self.following(part, end, few))

    def first(self, part: _Part, height: int, more: Reg) -> None:
        """The first rows. What is unpacked for them is kept if there are ``more``."""
        k, decoder = self.k, self.decoder
        rounds = self.each // len(self.round)

        def one(b: Reg, *totals: Reg) -> list[Reg]:
            begin = part.at + b * (self.scheme.bytes * self.lanes)
            record = Record(k, self.w, begin, self.fields, self.lanes)
            self.unpacked.put_scales(record, b)

            def some(c: Reg, *totals: Reg) -> list[Reg]:
                out = list(totals)
                chunks = [list(decoder.words(record, c * self.chunks + n if n else c * self.chunks))
                          for n in range(self.chunks)]  # fmt: skip
                for n, parts in enumerate(self.round):
                    self.request(record, c, n)
                    each = decoder.sub // 4
                    found = [w() for p in parts for w in chunks[p.chunk][p.part * each :][:each]]
                    number = b * self.each + (c * len(self.round) + n)
                    k.when(more, lambda found=found, number=number: self.keep(found, number))
                    at = (part.block + number) * (TILE_ROWS * ROW_BLOCK)
                    sums = self.unrolled(found, at, height)
                    out = self.add(sums, number, part.block + number, k.index(0), out)
                return out

            return k.loop(0, rounds, 1, some, totals)

        self.carried(part, k.index(0), height, part.count, one)

    def keep(self, found: Sequence[Reg], block: Reg) -> None:
        """Keep the codes of a block of rows."""
        subs = ROW_BLOCK // self.decoder.sub
        for n, x in enumerate(found):
            store_words(self.k, x, self.unpacked.codes, self.unpacked.place(block * subs, n))

    def following(self, part: _Part, row: Reg, height: int) -> None:
        """Other rows from ``row`` on."""
        subs = ROW_BLOCK // self.decoder.sub
        block = part.block + row / TILE_ROWS * (self.blocks * self.each)

        def one(n: Reg, *totals: Reg) -> list[Reg]:
            at = ((block + n) * TILE_ROWS + row % TILE_ROWS) * ROW_BLOCK
            sub = self.decoder.sub
            sums = [self.looped(n * subs + s, at + s * sub, height) for s in range(subs)]
            return self.add(sums, n, block + n, row % TILE_ROWS, totals)

        self.carried(part, row, height, part.count * self.each, one)

    def carried(
        self, part: _Part, row: Reg, height: int, count: Reg, body: Callable[..., list[Reg]]
    ) -> None:
        """Bring the totals of rows from ``row`` on up to date, by ``count`` rounds of a loop, and
        write them if the part is the last."""
        k, lanes = self.k, self.lanes
        places = [(row + r if r else row) * lanes for r in range(height)]
        totals = k.loop(0, count, 1, body, [k.load(self.totals, p, lanes) for p in places])
        for total, p in zip(totals, places, strict=True):
            k.store(total, self.totals, p)

        def store(r: Reg) -> None:
            total = k.load(self.totals, r * lanes, lanes)
            store_panel(k, total, self.y, self.n, part.row0 + r, part.panel)

        end = k.minimum(row + height, part.rows)
        k.when(part.last, lambda: k.loop(row, end, 1, store))

    def unrolled(self, found: Sequence[Reg], at: Reg, rows: int) -> list[list[Reg]]:
        """The sums of the sub-blocks of a block of rows, whose codes are ``found``, for rows whose
        integers are ``at`` a place of the tiles."""
        each, sums = self.decoder.sub // 4, list[list[Reg]]()
        for first in range(0, ROW_BLOCK // 4, each):
            some = [self.k.const(0, i32, self.lanes)] * rows
            for n in range(first, first + each):
                some = self.step(found[n], at + 4 * n, some)
            sums.append(some)
        return sums

    def looped(self, number: Reg, at: Reg, rows: int) -> list[Reg]:
        """The sums of a sub-block of the part. If this were unrolled, LLVM would load all its codes
        at first, which takes longer."""
        k, lanes = self.k, self.lanes

        def one(n: Reg, *sums: Reg) -> list[Reg]:
            place = self.unpacked.place(number) + n * (4 * lanes)
            return self.step(words(k, self.unpacked.codes, place, lanes), at + n * 4, sums)

        return k.loop(0, self.decoder.sub // 4, 1, one, [k.const(0, i32, lanes)] * rows)

    def step(self, codes: Reg, at: Reg, sums: Sequence[Reg]) -> list[Reg]:
        """The sums with four codes of each output."""
        k = self.k
        places = [at + r * ROW_BLOCK for r in range(len(sums))]
        rows = [k.splat(word(k, self.tiles, p), self.lanes) for p in places]
        return [fours(k, codes, x, total, self.decoder.bits)
                for x, total in zip(rows, sums, strict=True)]  # fmt: skip

    def add(
        self,
        sums: Sequence[Sequence[Reg]],
        number: Reg,
        block: Reg,
        row: Reg,
        totals: Sequence[Reg],
    ) -> list[Reg]:
        """The totals with the ``sums`` of a block of rows, which is the part's ``number``-th: that
        of rows from ``row`` on in a tile's ``block``."""
        k, lanes, at, rows = self.k, self.lanes, block * TILE_ROWS + row, range(len(totals))
        scales, least = self.unpacked.scales(number)
        found = [
            [x + y for x, y in zip(some, self.zeros(block, s, row, len(some)), strict=True)]
            for s, some in enumerate(sums)
        ]
        own = [k.splat(k.load(self.row_scales, at + r), lanes) for r in rows]
        less = None
        if least is not None:
            less = [k.splat(-k.load(self.extra, at + r), lanes) for r in rows], least
        return add_blocks(k, totals, found, scales, own, less)

    def request(self, record: Record, c: Reg, n: int) -> None:
        """Ask for what is read some time after a block of rows of a round. A whole round's lines at
        once would be waited for."""
        size = self.scheme.bytes * self.lanes // self.each
        at = record.at + c * (size * len(self.round)) + AHEAD
        for line in range(n * size // LINE * LINE, (n + 1) * size, LINE):
            self.k.prefetch(self.w, at + line, level=2)

    def zeros(self, block: Reg, sub: int, row: Reg, rows: int) -> list[Reg]:
        """What takes the zero point off the sums of a sub-block. They do not begin with it, since
        to broadcast a number to a register takes as long as a multiplication."""
        k, lanes = self.k, self.lanes
        if self.decoder.has_least:
            return [k.const(0, i32, lanes)] * rows
        at = (block * (ROW_BLOCK // self.decoder.sub) + sub) * TILE_ROWS + row
        return [k.splat(k.load(self.extra, at + r), lanes) for r in range(rows)]
