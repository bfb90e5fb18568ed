"""Products of several rows in 8 bits by weights in packed blocks: the panels of ``block_weights``
times tiles of rows (``block_rows``), by the instructions of ``dot``.

    task: some rows
        for each of some panels, one after the other:
            for some rows of a tile:
                for each block, each sub-block:
                    sum = codes times integers of the row, exact     fours in a lane
                    total += f32(sum) * (scale of the weight * scale of the row)
                    total += f32(sum of the row) * scale of the row * -least
                a vector of outputs for each row

What is done with the sums is what ``block_product_rows`` does, in the same order: the bits are
equal. A tile has what all its rows need of a sub-block side by side, so one address serves them,
and a code is unpacked once for all of them. Multipliers are the limit, of which a sub-block of 32
takes 8 steps for its integers and 2 for its scales.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx.base.dims import maximum, minimum
from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.family import Launch
from rlx.codegen.reg import Reg
from rlx.codegen.strides import ceil_div
from rlx.kernels.matmul.block_product_rows import MOST, TASK_PANELS
from rlx.kernels.matmul.block_rows import TILE_ROWS
from rlx.kernels.matmul.block_scales import BlockScales, store_panel
from rlx.kernels.matmul.block_weights import DECODERS, Record, lanes_of, panel_fields, scheme_of
from rlx.kernels.matmul.dot import fours, word
from rlx.ops.quant.rows import ROW_BLOCK
from rlx.types import f32, i8, i32, u8

__all__ = ["FEWEST", "ROWS_BYTES", "BlockProductDotsConfig", "emit", "launch", "name", "start_of"]

name = "block_product_dots"

FEWEST = MOST + 1
"""Rows from which on tiles pay."""

ROWS_BYTES = 512 << 10
"""Rows of a task: so many bytes stay in the L2 cache."""

AHEAD = 8192
"""Bytes of a panel from what is read to what is requested: with several rows a line of it takes too
long for the machine's own prefetching to run ahead."""
LINE = 64
"""Bytes that a request asks for."""


@frozen
class BlockProductDotsConfig:
    """What the code depends on: the scheme."""

    scheme: str


def start_of(scheme: str) -> tuple[int, int] | None:
    """What the sums of a scheme begin with (``block_rows.Extras``); None if with 0."""
    decoder = DECODERS[scheme]
    return None if decoder.has_least else (decoder.sub, decoder.zero)


def launch(
    config: BlockProductDotsConfig, target: KernelTarget, m: int, n: int, depth: int
) -> Launch:
    """The launch of rows ``[m, depth]`` by a weight ``[n, depth]``. The buffers are the tiles,
    their scales, what the sums begin with or the scaled sums of rows, the panels, and the result
    ``[m, n]``."""
    panels = ceil_div(n, lanes_of(target))
    chunk = maximum(ROWS_BYTES // maximum(depth, 1) // TILE_ROWS, 1)
    chunk = minimum(chunk, ceil_div(m, TILE_ROWS)) * TILE_ROWS
    group = minimum(TASK_PANELS, panels)
    tasks = ceil_div(m, chunk) * ceil_div(panels, group)
    sizes = (m, n, depth // scheme_of(config.scheme).block, panels, chunk, group)
    return Launch(tasks, 1, sizes)


def emit(name: str, config: BlockProductDotsConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config; ``launch`` gives its sizes."""
    return _Emitter(name, config, target).emit()


class _Emitter:
    """Emits one kernel."""

    def __init__(self, name: str, config: BlockProductDotsConfig, target: KernelTarget) -> None:
        self.k = k = Kernel(name, target)
        self.lanes = lanes_of(target)
        self.scheme, self.decoder = scheme_of(config.scheme), DECODERS[config.scheme]
        self.fields = panel_fields(config.scheme)
        self.tiles, self.row_scales = k.buffer("tiles", i8), k.buffer("scales", f32)
        self.extra = k.buffer("extra", f32 if self.decoder.has_least else i32)
        self.w, self.y = k.buffer("w", u8), k.buffer("y", f32)
        self.m, self.n, self.blocks = k.size("m"), k.size("n"), k.size("blocks")
        self.panels, self.chunk_rows = k.size("panels"), k.size("chunk_rows")
        self.group = k.size("group")
        self.most = 8 if target.registers >= 32 else 4
        self.subs = self.scheme.block // self.decoder.sub
        looped = self.subs > self.decoder.parts
        self.scales = BlockScales(k, self.decoder, self.subs, self.lanes) if looped else None

    def emit(self) -> KernelText:
        self.k.parallel(self.task)
        return self.k.text()

    def task(self, t: Reg) -> None:
        """A group of panels for a chunk of rows; neighbours share the rows."""
        k = self.k
        groups = (self.panels + (self.group - 1)) / self.group
        row0, first = t / groups * self.chunk_rows, t % groups * self.group
        end = k.minimum(first + self.group, self.panels)
        rows_end = k.minimum(row0 + self.chunk_rows, self.m)
        k.loop(first, end, 1, lambda p: self.panel(p, row0, rows_end))

    def panel(self, panel: Reg, begin: Reg, end: Reg) -> None:
        """A panel for the rows of a chunk."""
        k, most = self.k, self.most
        place = panel * (self.blocks * (self.scheme.bytes * self.lanes))

        def store(total: Reg, row: Reg) -> None:
            store_panel(k, total, self.y, self.n, row, panel)

        def some(i: Reg) -> None:
            def part(rows: int) -> None:
                for r, total in enumerate(self.totals(place, i, rows)):
                    k.when(i + r < end, lambda r=r, total=total: store(total, i + r))

            few = most // 2
            k.when(end - i <= few, lambda: part(few), lambda: part(most))

        k.loop(begin, end, most, some)

    def totals(self, place: Reg, row: Reg, rows: int) -> list[Reg]:
        """The results of rows from ``row`` on, which are in one tile, by the panel at ``place``."""
        k, lanes, each = self.k, self.lanes, self.scheme.block // ROW_BLOCK
        zeros = [k.const(0, f32, lanes)] * rows
        start, row = row / TILE_ROWS * (self.blocks * each), row % TILE_ROWS

        def one(b: Reg, *totals: Reg) -> list[Reg]:
            begin = b * (self.scheme.bytes * lanes)
            record = Record(k, self.w, place + begin, self.fields, lanes)
            at = start + b * each
            held = self.scales
            if held is None:
                scales = self.decoder.scales(record)
                return self.chunk(record, scales, k.index(0), at, row, totals)
            held.put([record])

            def chunk(c: Reg, *totals: Reg) -> list[Reg]:
                return self.chunk(record, held.of_chunk(c), c, at, row, totals)

            return k.loop(0, self.subs // self.decoder.parts, 1, chunk, totals)

        return k.loop(0, self.blocks, 1, one, zeros)

    def chunk(
        self,
        record: Record,
        scales: Sequence[tuple[Reg, Reg | None]],
        c: Reg,
        block: Reg,
        row: Reg,
        totals: Sequence[Reg],
    ) -> list[Reg]:
        """The totals with a chunk of a record; ``block`` is the tile's block that its numbers
        begin at, and ``row`` the first of the rows in it."""
        k, decoder, sub, lanes = self.k, self.decoder, self.decoder.sub, self.lanes
        words, out = list(decoder.words(record, c)), list(totals)
        self.request(record, c)
        for s, (own, least) in enumerate(scales):
            number = decoder.number(c, s)
            # Of each row of the tile's block: its integers, and its numbers.
            at = (block + number * sub / ROW_BLOCK) * TILE_ROWS + row
            places = at * ROW_BLOCK + number * sub % ROW_BLOCK
            sums = self.starts(block, number, row, len(out))
            for n in range(sub // 4):
                codes = words[s * (sub // 4) + n]()
                for r in range(len(out)):
                    x = k.splat(word(k, self.tiles, places + (r * ROW_BLOCK + 4 * n)), lanes)
                    sums[r] = fours(k, codes, x, sums[r], decoder.bits)
            for r in range(len(out)):
                scale = k.splat(k.load(self.row_scales, at + r), lanes)
                out[r] = k.fma(k.cast(sums[r], f32), own * scale, out[r])
                if least is not None:
                    minus = k.splat(-k.load(self.extra, at + r), lanes)
                    out[r] = k.fma(minus, least, out[r])
        return out

    def request(self, record: Record, c: Reg) -> None:
        """Ask for what is read some time after a chunk of a record."""
        size = self.scheme.bytes * self.lanes // (self.subs // self.decoder.parts)
        at = record.at + c * size + AHEAD
        for n in range(0, size, LINE):
            self.k.prefetch(self.w, at + n, level=2)

    def starts(self, block: Reg, number: Reg, row: Reg, rows: int) -> list[Reg]:
        """What the sums of a sub-block begin with: it takes the zero point off."""
        k, lanes = self.k, self.lanes
        if self.decoder.has_least:
            return [k.const(0, i32, lanes)] * rows
        at = (block * (ROW_BLOCK // self.decoder.sub) + number) * TILE_ROWS + row
        return [k.splat(k.load(self.extra, at + r), lanes) for r in range(rows)]
