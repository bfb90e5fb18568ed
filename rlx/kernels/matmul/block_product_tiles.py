"""Products of rows in 8 bits by weights in packed blocks, by AMX: the panels of ``block_weights``
times tiles of rows (``block_rows``).

    task: some panels, some rows
        for each panel:
            for each part of K:
                codes as signed bytes, and their scales       unpacked once for all rows
                for each tile of 16 rows, some sub-blocks:
                    sums = codes times integers, exact        by AMX, on the stack
                    for each group of rows: for each block of them:
                        totals with the blocks

What is done with the sums is what ``block_product_rows`` does, in the same order: the bits are
equal. It takes about as long as AMX does.
"""

from __future__ import annotations

from rlx.base.dims import maximum, minimum
from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.family import Launch
from rlx.codegen.reg import Reg
from rlx.codegen.strides import ceil_div
from rlx.kernels.matmul import amx
from rlx.kernels.matmul.amx import COLUMNS, Tile
from rlx.kernels.matmul.block_parts import UnpackedPart, add_blocks, unpacked_bytes
from rlx.kernels.matmul.block_product_dots import ROWS_BYTES
from rlx.kernels.matmul.block_product_rows import TASK_PANELS
from rlx.kernels.matmul.block_rows import TILE_ROWS
from rlx.kernels.matmul.block_scales import store_panel
from rlx.kernels.matmul.block_weights import DECODERS, Record, lanes_of, panel_fields, scheme_of
from rlx.kernels.matmul.dot import bytes_less, store_words
from rlx.ops.quant.rows import ROW_BLOCK
from rlx.types import f32, i8, i32, u8

__all__ = ["BlockProductTilesConfig", "emit", "launch", "name", "serves"]

name = "block_product_tiles"

PART = 1024
"""Elements of a part of K: a panel's bytes of it, and a tile's, stay in the L1 cache."""
BATCH = 16
"""Sub-blocks whose sums AMX makes before they are added: they stay in the L1 cache."""
GROUP = 8
"""Rows whose totals are in registers."""


@frozen
class BlockProductTilesConfig:
    """What the code depends on: the scheme."""

    scheme: str


def serves(target: KernelTarget, m: int) -> bool:
    """Whether products of ``m`` rows go by AMX: where two thirds of the tiles' rows are there.
    Otherwise ``block_product_dots`` is as fast."""
    wanted = amx.has_integers(target) and lanes_of(target) == COLUMNS
    return wanted and 2 * TILE_ROWS * ceil_div(m, TILE_ROWS) <= 3 * m


def _part_blocks(scheme: str) -> int:
    return max(1, PART // scheme_of(scheme).block)


def launch(
    config: BlockProductTilesConfig, target: KernelTarget, m: int, n: int, depth: int
) -> Launch:
    """The launch of rows ``[m, depth]`` by a weight ``[n, depth]``. The buffers are the tiles,
    their scales and sums, the panels, and the result ``[m, n]``."""
    panels = ceil_div(n, lanes_of(target))
    chunk = maximum(ROWS_BYTES // maximum(depth, 1) // TILE_ROWS, 1)
    chunk = minimum(chunk, ceil_div(m, TILE_ROWS)) * TILE_ROWS
    group = minimum(TASK_PANELS, panels)
    tasks = ceil_div(m, chunk) * ceil_div(panels, group)
    sizes = (m, n, depth // scheme_of(config.scheme).block, panels, chunk, group)
    unpacked = unpacked_bytes(config.scheme, COLUMNS, _part_blocks(config.scheme))
    return Launch(tasks, 1, sizes, unpacked + chunk * COLUMNS * 4)


def emit(name: str, config: BlockProductTilesConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config; ``launch`` gives its sizes."""
    return _Emitter(name, config, target).emit()


class _Emitter:
    """Emits one kernel."""

    def __init__(self, name: str, config: BlockProductTilesConfig, target: KernelTarget) -> None:
        self.k = k = Kernel(name, target)
        self.scheme, self.decoder = scheme_of(config.scheme), DECODERS[config.scheme]
        self.fields, self.part = panel_fields(config.scheme), _part_blocks(config.scheme)
        self.tiles = k.buffer("tiles", i8)
        self.row_scales, self.row_sums = k.buffer("scales", f32), k.buffer("sums", f32)
        self.w, self.y = k.buffer("w", u8), k.buffer("y", f32)
        self.m, self.n, self.blocks = k.size("m"), k.size("n"), k.size("blocks")
        self.panels, self.chunk_rows = k.size("panels"), k.size("chunk_rows")
        self.group = k.size("group")
        self.subs = self.scheme.block // self.decoder.sub
        self.unpacked = UnpackedPart(k, config.scheme, COLUMNS, self.part)
        self.totals = k.scratch(f32, unpacked_bytes(config.scheme, COLUMNS, self.part))
        self.sums = k.stack(i32, BATCH * TILE_ROWS * COLUMNS)

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
        """One panel for ``rows`` from ``row0`` on."""
        k = self.k
        nothing = k.const(0, f32, COLUMNS)
        k.loop(0, rows, 1, lambda r: k.store(nothing, self.totals, r * COLUMNS))

        def part(b: Reg) -> None:
            count = k.minimum(self.blocks - b, self.part)
            at = (panel * self.blocks + b) * (self.scheme.bytes * COLUMNS)
            k.loop(0, count, 1, lambda i: self.unpack(at, i))
            # Where the first block of the row tiles lies, in blocks of rows.
            begin = b * (self.scheme.block // ROW_BLOCK)

            def tile(r: Reg) -> None:
                number = (row0 + r) / TILE_ROWS * (self.blocks * (self.scheme.block // ROW_BLOCK))
                height = k.minimum(rows - r, TILE_ROWS)
                self.tile(r, (number + begin) * TILE_ROWS, count * self.subs, height)

            k.loop(0, rows, TILE_ROWS, tile)

        k.loop(0, self.blocks, self.part, part)

        def store(r: Reg) -> None:
            value = k.load(self.totals, r * COLUMNS, COLUMNS)
            store_panel(k, value, self.y, self.n, row0 + r, panel)

        k.loop(0, rows, 1, store)

    def unpack(self, panel: Reg, block: Reg) -> None:
        """Bring a block of a panel to scratch: codes with their signs, scales and least values."""
        k, decoder, each = self.k, self.decoder, self.decoder.sub // 4
        record = Record(
            k, self.w, panel + block * (self.scheme.bytes * COLUMNS), self.fields, COLUMNS
        )
        self.unpacked.put_scales(record, block)

        def chunk(c: Reg) -> None:
            words = list(decoder.words(record, c))
            for s in range(decoder.parts):
                number = block * self.subs + decoder.number(c, s)
                for n, word in enumerate(words[s * each : (s + 1) * each]):
                    signed = bytes_less(k, word(), decoder.zero)
                    store_words(k, signed, self.unpacked.codes, self.unpacked.place(number, n))

        k.loop(0, self.subs // decoder.parts, 1, chunk)

    def tile(self, row: Reg, at: Reg, count: Reg, rows: Reg) -> None:
        """The totals of ``rows`` from ``row`` on, at most a tile's, with ``count`` sub-blocks of a
        part of K; the first block of the first row is number ``at`` of all tiles."""
        k = self.k

        def batch(first: Reg) -> None:
            some = k.minimum(count - first, BATCH)
            k.loop(0, some, 1, lambda n: self.multiply(first + n, n, at))
            k.loop(0, rows, GROUP, lambda r: self.add(row, r, first, some, at))

        k.loop(0, count, BATCH, batch)

    def multiply(self, number: Reg, n: Reg, at: Reg) -> None:
        """The sums of a sub-block of a part of K by AMX, the ``n``-th of a batch."""
        k, sub = self.k, self.decoder.sub
        left, right, total = Tile(i8, sub), Tile(i8, 4 * COLUMNS, sub // 4), Tile(i32, COLUMNS)
        begin = number * sub
        a = (at + begin / ROW_BLOCK * TILE_ROWS) * ROW_BLOCK + begin % ROW_BLOCK
        x = left.load(k, self.tiles, a, k.index(ROW_BLOCK))
        y = right.load(k, self.unpacked.codes, self.unpacked.place(number), k.index(4 * COLUMNS))
        found = amx.multiply(k, (left, x), (right, y), total.zero(k))
        total.store(k, found, self.sums, n * (TILE_ROWS * COLUMNS), k.index(COLUMNS))

    def add(self, row: Reg, r: Reg, first: Reg, count: Reg, at: Reg) -> None:
        """Add a batch of ``count`` sums to the totals of a group of rows of a tile."""
        k, subs = self.k, ROW_BLOCK // self.decoder.sub
        places = [(row + r + n if n else row + r) * COLUMNS for n in range(GROUP)]

        def one(n: Reg, *totals: Reg) -> list[Reg]:
            block = first / subs + n
            scales, least = self.unpacked.scales(block)
            rows = at + r + block * TILE_ROWS
            found = [[self.sum(n * subs + s, r + i) for i in range(GROUP)] for s in range(subs)]
            own = [k.splat(k.load(self.row_scales, rows + i), COLUMNS) for i in range(GROUP)]
            less = None
            if least is not None:
                sums = [k.load(self.row_sums, rows + i) for i in range(GROUP)]
                less = [k.splat(-x, COLUMNS) for x in sums], least
            return add_blocks(k, totals, found, scales, own, less)

        totals = [k.load(self.totals, p, COLUMNS) for p in places]
        for total, p in zip(k.loop(0, count / subs, 1, one, totals), places, strict=True):
            k.store(total, self.totals, p)

    def sum(self, n: Reg, row: Reg) -> Reg:
        """The sums of the ``n``-th sub-block of a batch by a row of a tile."""
        return self.k.load(self.sums, (n * TILE_ROWS + row) * COLUMNS, COLUMNS)
