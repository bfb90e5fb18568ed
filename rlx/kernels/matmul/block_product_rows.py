"""Products of rows in 8 bits by weights in packed blocks: the panels of ``block_weights`` times
``q`` and its scales (``block_rows``).

    task: some panels, some rows
        for each tile of rows:
            for each block, each sub-block:
                sum = codes times integers of the row, exact     fours in a lane
                total += f32(sum) * (scale of the weight * scale of the row)
                total += f32(sum of the row) * scale of the row * -least
            a vector of outputs for each row and panel

Lanes are outputs, and four integers of a row are broadcast. The additions of f32 have the order of
sub-blocks, so an element's bits depend on neither the rows nor the panels of a tile, nor on which
instructions make the sums.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx.base.dims import maximum, minimum
from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.family import Launch
from rlx.codegen.reg import Reg
from rlx.codegen.strides import ceil_div
from rlx.kernels.matmul.block_rows import SUM_OF
from rlx.kernels.matmul.block_weights import DECODERS, Record, lanes_of, panel_fields, scheme_of
from rlx.kernels.matmul.dot import fours, word
from rlx.ops.quant.rows import ROW_BLOCK
from rlx.types import f32, i8, i32, u8

__all__ = ["BlockProductRowsConfig", "config_of", "emit", "launch", "name"]

name = "block_product_rows"

WIDE_TILES = {6: 2, 4: 2, 2: 2, 1: 1}
"""Panels of a tile by its rows, with 32 registers."""
TILES = {3: 1, 2: 2, 1: 2}
"""With fewer."""

TASK_PANELS = 4
"""Panels of a task of few rows."""
ROWS_BYTES = 512 << 10
"""Rows of a task: so many bytes stay in the L2 cache."""


@frozen
class BlockProductRowsConfig:
    """What the code depends on: the scheme, and the rows and panels of a tile."""

    scheme: str
    rows: int
    panels: int


def config_of(target: KernelTarget, scheme: str, m: int, n: int) -> BlockProductRowsConfig:
    """The config for ``m`` rows and ``n`` outputs, both at least 1."""
    tiles = WIDE_TILES if target.registers >= 32 else TILES
    rows = next(r for r in tiles if r <= m)
    panels = ceil_div(n, lanes_of(target))
    wanted = next(p for p in (4, 2, 1) if p <= tiles[rows] and p <= panels)
    return BlockProductRowsConfig(scheme, rows, wanted)


def launch(
    config: BlockProductRowsConfig, target: KernelTarget, m: int, n: int, depth: int
) -> Launch:
    """The launch of rows ``[m, depth]`` by a weight ``[n, depth]``. The buffers are the integers,
    their scales and sums, the panels, and the result ``[m, n]``."""
    panels = ceil_div(n, lanes_of(target))
    chunk = maximum(ROWS_BYTES // maximum(depth, 1) // config.rows, 1) * config.rows
    chunk = maximum(minimum(chunk, m), config.rows)
    group = maximum(config.panels, minimum(TASK_PANELS, panels))
    tasks = ceil_div(m, chunk) * ceil_div(panels, group)
    sizes = (m, n, depth // scheme_of(config.scheme).block, panels, chunk, group)
    return Launch(tasks, 1, sizes)


def emit(name: str, config: BlockProductRowsConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config; ``launch`` gives its sizes."""
    return _Emitter(name, config, target).emit()


@frozen
class _Row:
    """Where a row has its integers, its scales and its sums, from a block of the weight on."""

    q: Reg
    scale: Reg
    sums: Reg


class _Emitter:
    """Emits one kernel."""

    def __init__(self, name: str, config: BlockProductRowsConfig, target: KernelTarget) -> None:
        self.k = k = Kernel(name, target)
        self.config, self.lanes = config, lanes_of(target)
        self.scheme, self.decoder = scheme_of(config.scheme), DECODERS[config.scheme]
        self.fields = panel_fields(config.scheme)
        self.q, self.row_scales = k.buffer("q", i8), k.buffer("scales", f32)
        self.sums, self.w = k.buffer("sums", i32), k.buffer("w", u8)
        self.y = k.buffer("y", f32)
        self.m, self.n, self.blocks = k.size("m"), k.size("n"), k.size("blocks")
        self.panels, self.chunk_rows = k.size("panels"), k.size("chunk_rows")
        self.group = k.size("group")
        self.subs = self.scheme.block // self.decoder.sub
        room = config.panels * self.subs * self.lanes
        looped = self.subs > self.decoder.parts
        self.scales = k.stack(f32, room) if looped else None
        self.leasts = k.stack(f32, room) if looped and self.decoder.has_least else None

    def emit(self) -> KernelText:
        self.k.parallel(self.task)
        return self.k.text()

    def task(self, t: Reg) -> None:
        """A group of panels for a chunk of rows; neighbours share the rows."""
        k, count = self.k, self.config.panels
        groups = (self.panels + (self.group - 1)) / self.group
        row0, first = t / groups * self.chunk_rows, t % groups * self.group
        end = k.minimum(first + self.group, self.panels)
        rows_end = k.minimum(row0 + self.chunk_rows, self.m)

        def side(p: Reg) -> None:
            p = k.minimum(p, self.panels - count) if count > 1 else p
            self.rows(p, row0, rows_end)

        k.loop(first, end, count, side)

    def rows(self, first: Reg, begin: Reg, end: Reg) -> None:
        """Panels from ``first`` on for the rows of a chunk. A tile that would go beyond the last
        row of all ends with it."""
        k, rows, count = self.k, self.config.rows, self.config.panels
        size = self.blocks * (self.scheme.bytes * self.lanes)
        places = [(first + p if p else first) * size for p in range(count)]

        def tile(i: Reg) -> None:
            i = k.minimum(i, self.m - rows) if rows > 1 else i
            totals = self.totals(places, [i + r if r else i for r in range(rows)])
            for r in range(rows):
                for p in range(count):
                    self.store(totals[r * count + p], i + r if r else i, first + p if p else first)

        k.loop(begin, end, rows, tile)

    def totals(self, places: Sequence[Reg], rows: Sequence[Reg]) -> list[Reg]:
        """The results of a tile by row and panel."""
        k, lanes, block = self.k, self.lanes, self.scheme.block
        zeros = [k.const(0, f32, lanes)] * (len(places) * len(rows))
        starts = [row * self.blocks for row in rows]

        def one(b: Reg, *totals: Reg) -> list[Reg]:
            begin = b * (self.scheme.bytes * lanes)
            records = [Record(k, self.w, p + begin, self.fields, lanes) for p in places]
            at = [s + b for s in starts]
            found = [_Row(a * block, a * (block // ROW_BLOCK), a * (block // SUM_OF)) for a in at]
            if self.scales is None:
                scales = [r for record in records for r in self.decoder.scales(record)]
                return self.chunk(records, scales, k.index(0), found, totals)
            self.spread(records)

            def chunk(c: Reg, *totals: Reg) -> list[Reg]:
                return self.chunk(records, self.loaded(c), c, found, totals)

            return k.loop(0, self.subs // self.decoder.parts, 1, chunk, totals)

        return k.loop(0, self.blocks, 1, one, zeros)

    def spread(self, records: Sequence[Record]) -> None:
        """Put the scales of a block on the stack."""
        assert self.scales is not None
        for p, record in enumerate(records):
            for s, (scale, least) in enumerate(self.decoder.scales(record)):
                at = self.k.index((p * self.subs + s) * self.lanes)
                self.k.store(scale, self.scales, at)
                if self.leasts is not None and least is not None:
                    self.k.store(least, self.leasts, at)

    def loaded(self, c: Reg) -> list[tuple[Reg, Reg | None]]:
        """The scales of a chunk, by panel and part."""
        assert self.scales is not None
        out: list[tuple[Reg, Reg | None]] = []
        for p in range(self.config.panels):
            for s in range(self.decoder.parts):
                at = (self.decoder.number(c, s) + p * self.subs) * self.lanes
                least = self.leasts and self.k.load(self.leasts, at, self.lanes)
                out.append((self.k.load(self.scales, at, self.lanes), least))
        return out

    def chunk(
        self,
        records: Sequence[Record],
        scales: Sequence[tuple[Reg, Reg | None]],
        c: Reg,
        rows: Sequence[_Row],
        totals: Sequence[Reg],
    ) -> list[Reg]:
        """The totals with a chunk of each record."""
        k, count, decoder = self.k, len(records), self.decoder
        words, out = [list(decoder.words(r, c)) for r in records], list(totals)
        each = decoder.sub // 4
        for s in range(decoder.parts):
            number = decoder.number(c, s)
            sums = [self.start(row, number) for row in rows for _ in records]
            for n in range(each):
                found = [w[s * each + n]() for w in words]
                for r, row in enumerate(rows):
                    x = k.splat(word(k, self.q, row.q + (number * decoder.sub + 4 * n)), self.lanes)
                    for p, codes in enumerate(found):
                        i = r * count + p
                        sums[i] = fours(k, codes, x, sums[i], decoder.bits)
            for r, row in enumerate(rows):
                scale, minus = self.row_scale(row, number)
                for p in range(count):
                    i, (own, least) = r * count + p, scales[p * decoder.parts + s]
                    total = k.fma(k.cast(sums[i], f32), own * scale, out[i])
                    if minus is not None and least is not None:
                        total = k.fma(minus, least, total)
                    out[i] = total
        return out

    def start(self, row: _Row, number: Reg) -> Reg:
        """What a sum begins with: it takes the zero point off."""
        k, zero = self.k, self.decoder.zero
        if not zero:
            return k.const(0, i32, self.lanes)
        return k.splat(self.sum_of(row, number) * -zero, self.lanes)

    def row_scale(self, row: _Row, number: Reg) -> tuple[Reg, Reg | None]:
        """The scale of a row in a sub-block, and its sum there times that, negative, if the weight
        has least values."""
        k = self.k
        at = row.scale + number * self.decoder.sub / ROW_BLOCK
        scale = k.load(self.row_scales, at)
        if not self.decoder.has_least:
            return k.splat(scale, self.lanes), None
        minus = -(k.cast(self.sum_of(row, number), f32) * scale)
        return k.splat(scale, self.lanes), k.splat(minus, self.lanes)

    def sum_of(self, row: _Row, number: Reg) -> Reg:
        """The sum of a row's integers in a sub-block."""
        k, parts = self.k, self.decoder.sub // SUM_OF
        at = row.sums + number * parts
        total = k.load(self.sums, at)
        for n in range(1, parts):
            total = total + k.load(self.sums, at + n)
        return total

    def store(self, value: Reg, row: Reg, panel: Reg) -> None:
        """Write the outputs of a panel that there are."""
        k, lanes = self.k, self.lanes
        column = panel * lanes
        at, left = row * self.n + column, self.n - column

        def part() -> None:
            for lane in range(lanes - 1):
                k.when(
                    left > lane,
                    lambda lane=lane: k.store(k.extract(value, lane), self.y, at + lane),
                )

        k.when(left >= lanes, lambda: k.store(value, self.y, at), part)
