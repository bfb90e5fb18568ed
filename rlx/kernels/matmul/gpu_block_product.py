"""Products by weights in packed blocks on GPUs: ``y = x @ w.T`` for the panels of a weight.

Rows x [m, depth] are f32, f16 or bf16, or integers of 8 bits with a scale for ``ROW_BLOCK`` of
them. There are three kernels, which sum in f32:

- for a few rows a thread has some outputs, one of each of a few panels, and a part of the depth.
  Bytes go from memory to registers, once for all rows. What a sub-block has no more than a scale
  for is summed first and then scaled. The parts of an output are summed in shared memory;
- for more rows a block has a tile of the result: a piece of x and one of the weight, decoded, go
  through shared memory (``gpu_tile``);
- where the target has a matrix unit for the rows' type, waves have tiles of it by the unit, and
  the weight is decoded in registers for more rows too (``gpu_block_units``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from math import gcd

from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.family import Launch
from rlx.codegen.reg import Reg
from rlx.codegen.strides import ceil_div
from rlx.errors import UnsupportedError
from rlx.kernels.matmul.block_weights import DECODERS, scheme_of
from rlx.kernels.matmul.gpu_block_panels import LANES, LaneRecord, code_of
from rlx.kernels.matmul.gpu_block_units import WORD, Waves, choose_waves, emit_block
from rlx.kernels.matmul.gpu_tile import (
    Room,
    Tile,
    add_product,
    each_sum,
    lay_out,
    multiply,
    power_below,
    stage,
)
from rlx.ops.quant.rows import ROW_BLOCK
from rlx.types import DType, f32, i8, u32

__all__ = ["FEW_ROWS", "Few", "GpuBlockProductConfig", "choose", "emit", "launch", "name"]

name = "gpu_block_product"

FEW_ROWS, ROWS = 16, (1, 2, 4)
"""Rows up to which they are few, and those that a thread may have: code is as long as they are
many."""

UNIT_ROWS = 2
"""Rows up to which matrix units would have too little to do."""

ENOUGH_BLOCKS = 128
"""Blocks that keep a large GPU busy."""

PIECE = 16
"""Elements of a piece in shared memory: the shortest sub-block of a scheme."""

UNROLLED = 16
"""Sums of a thread up to which each is stored by code of its own."""


@frozen
class Few:
    """``rows`` rows by an output of each of ``panels`` panels, each sum by ``parts`` threads."""

    rows: int
    panels: int
    parts: int

    @property
    def threads(self) -> int:
        """Threads of the block."""
        return LANES * self.parts

    @property
    def sums(self) -> int:
        """Sums of a thread."""
        return self.rows * self.panels


@frozen
class GpuBlockProductConfig:
    """What the code depends on: the scheme, the element types of x and of the result, and what a
    block computes."""

    scheme: str
    x: DType
    y: DType
    shape: Few | Tile | Waves


def choose(target: KernelTarget, m: int, n: int) -> Few | Tile:
    """What a block computes of ``m`` rows and ``n`` outputs, without matrix units."""
    if m <= FEW_ROWS:
        rows = next(r for r in ROWS if r >= min(m, ROWS[-1]))
        count = 2 if ceil_div(n, LANES) >= 4 * ENOUGH_BLOCKS else 1
        held = target.shared_bytes // (4 * rows * count)  # a sum of each thread
        return Few(rows, count, power_below(min(target.most_threads // count, held) // LANES))
    down, across = lay_out(target)
    found = [Tile(down, across, e, e, PIECE) for e in (8, 4, 2)]
    found += [Tile(down // 2, 2 * across, 2, e, PIECE) for e in (2, 1)]
    found = [t for t in found if t.width >= LANES and t.fits(target, f32)]
    if not found:
        raise UnsupportedError(
            f"dequant_matmul: no tile fits the {target.shared_bytes} bytes that a block of"
            f" {target.name} shares"
        )
    for t in found:
        blocks = ceil_div(m, t.height) * ceil_div(n, t.width)
        if t.height < 2 * m and blocks >= ENOUGH_BLOCKS:
            return t
    return found[-1]


def launch(
    scheme: str, target: KernelTarget, dtypes: tuple[DType, DType], m: int, n: int, depth: int,
    lda: int, start: int = 0,
) -> tuple[GpuBlockProductConfig, Launch]:  # fmt: skip
    """The kernel and its arguments for x ``[m, depth]``, of rows ``lda`` elements apart, by a
    weight ``[n, depth]``; x begins at a multiple of ``start`` elements of its memory, or at the
    first. ``dtypes`` are those of x and the result. The buffers are x, the scales
    [m, depth / ROW_BLOCK] of integers, the panels, and the result ``[m, n]``."""
    panels, form = ceil_div(n, LANES), None
    if m > UNIT_ROWS:
        aligned = gcd(lda, start, WORD) == WORD
        form = choose_waves(target, dtypes[0], DECODERS[scheme], m, n, aligned)
    form = form or choose(target, m, n)
    config = GpuBlockProductConfig(scheme, *dtypes, form)
    if isinstance(form, Few):
        count = ceil_div(m, form.rows) * ceil_div(panels, form.panels)
    else:
        count = ceil_div(m, form.height) * ceil_div(n, form.width)
    return config, Launch(count, 1, (m, n, depth // scheme_of(scheme).block, lda))


def emit(name: str, config: GpuBlockProductConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config; ``launch`` gives its sizes."""
    made = {Few: _FewRows, Tile: _Tiled, Waves: _ByUnits}[type(config.shape)]
    return made(name, config, target).text()


class _Emitter(ABC):
    """What both kernels have."""

    def __init__(self, name: str, config: GpuBlockProductConfig, target: KernelTarget) -> None:
        self.k = k = Kernel(name, target)
        self.config = config
        self.scheme, self.decoder = scheme_of(config.scheme), DECODERS[config.scheme]
        self.x = k.buffer("x", config.x)
        self.scales = k.buffer("scales", f32) if config.x is i8 else None
        self.w, self.y = k.buffer("w", u32), k.buffer("y", config.y)
        self.m, self.n, self.blocks, self.lda = map(k.size, ("m", "n", "blocks", "lda"))
        self.chunk = self.decoder.sub * self.decoder.parts
        self.chunks = self.scheme.block // self.chunk

    def text(self) -> KernelText:
        """The finished kernel."""
        self.k.parallel_blocks(self.config.shape.threads, self.block)
        return self.k.text()

    @abstractmethod
    def block(self, i: Reg, thread: Reg) -> None:
        """One block."""

    @property
    def panels(self) -> Reg:
        """How many there are."""
        return (self.n + (LANES - 1)) // LANES

    def record(self, panel: Reg, block: Reg, lane: Reg) -> LaneRecord:
        """A block of the weight."""
        at = panel * self.blocks + block
        return LaneRecord.of(self.k, self.w, self.config.scheme, at, lane)

    def row_scale(self, row: Reg, at: Reg) -> Reg | None:
        """That of the elements from ``at`` on of a row of integers."""
        if self.scales is None:
            return None
        count = self.blocks * (self.scheme.block // ROW_BLOCK)
        return self.k.load(self.scales, row * count + at // ROW_BLOCK)

    def element(self, row: Reg, at: Reg, scale: Reg | None) -> Reg:
        """An element of a row."""
        found = self.k.cast(self.k.load(self.x, row * self.lda + at), f32)
        return found if scale is None else found * scale

    def put(self, total: Reg, row: Reg, column: Reg) -> None:
        """Store an element of the result, if there is one."""
        k, inside = self.k, (row < self.m) & (column < self.n)
        k.when(inside, lambda: k.store(total, self.y, row * self.n + column))


class _FewRows(_Emitter):
    """Outputs by the threads of a block, each with a part of the depth."""

    def block(self, i: Reg, thread: Reg) -> None:
        k, form = self.k, self.config.shape
        assert isinstance(form, Few)
        # Blocks of one panel and other rows run at about the same time, and find it in a cache.
        down = (self.m + (form.rows - 1)) // form.rows
        first, row0 = i // down * form.panels, i % down * form.rows
        lane, own = thread % LANES, thread // LANES
        rows = [row0 + r for r in range(form.rows)]
        near = [k.minimum(row, self.m - 1) for row in rows]
        panels = [first + p for p in range(form.panels)]

        def unit(u: Reg, *totals: Reg) -> list[Reg]:
            there = [k.minimum(p, self.panels - 1) for p in panels]
            records = [self.record(p, u // self.chunks, lane) for p in there]
            return self.unit(records, u, near, totals)

        none = [k.const(0, f32)] * (form.rows * form.panels)
        totals = k.loop(own, self.blocks * self.chunks, form.parts, unit, none)
        if form.parts > 1:
            totals = k.block_fold(thread, totals, lambda _, a, b: a + b, form.parts, LANES)
        k.when(own < 1, partial(self.finish, totals, rows, panels, lane))

    def unit(
        self, records: Sequence[LaneRecord], u: Reg, rows: Sequence[Reg], totals: Sequence[Reg]
    ) -> list[Reg]:
        """The totals, row by row, and what a chunk of the depth adds to them."""
        k, decoder, zero = self.k, self.decoder, self.k.const(0, f32)
        chunk, totals = u % self.chunks, list(totals)
        words = [iter([*decoder.words(r, chunk)]) for r in records]
        for part in range(decoder.parts):
            number = decoder.number(chunk, part)
            scales = [decoder.scale(r, number) for r in records]
            start = u // self.chunks * self.scheme.block + number * decoder.sub
            by = [self.row_scale(row, start) for row in rows]
            sums = [zero] * len(totals)
            for step in range(0, decoder.sub, 4):
                codes = [next(w)() for w in words]
                for byte in range(4):
                    at = start + (step + byte)
                    xs = [self.element(row, at, s) for row, s in zip(rows, by, strict=True)]
                    ws = [
                        self.factor(code_of(k, c, byte, decoder.zero), *s)
                        for c, s in zip(codes, scales, strict=True)
                    ]
                    pairs = [(x, w) for x in xs for w in ws]
                    sums = [add_product(k, x, w, s) for (x, w), s in zip(pairs, sums, strict=True)]
            for n, total in enumerate(sums):
                scale, least = scales[n % len(records)]
                whole = total * scale if least is None else total
                totals[n] = totals[n] + whole
        return totals

    def factor(self, code: Reg, scale: Reg, least: Reg | None) -> Reg:
        """What an element is multiplied by, apart from the scale where that is all there is."""
        return code if least is None else self.k.fma(code, scale, -least)

    def finish(
        self, totals: Sequence[Reg], rows: Sequence[Reg], panels: Sequence[Reg], lane: Reg
    ) -> None:
        """Store a thread's outputs."""
        for n, total in enumerate(totals):
            r, p = divmod(n, len(panels))
            self.put(total, rows[r], panels[p] * LANES + lane)


class _ByUnits(_Emitter):
    """Rows by the outputs of a panel, by matrix units."""

    def block(self, i: Reg, thread: Reg) -> None:
        form = self.config.shape
        assert isinstance(form, Waves)
        emit_block(self, form, i, thread)


class _Tiled(_Emitter):
    """A tile of the result through shared memory."""

    def block(self, i: Reg, thread: Reg) -> None:
        k, tile = self.k, self.config.shape
        assert isinstance(tile, Tile)
        across = (self.n + (tile.width - 1)) // tile.width
        row0, column0 = i // across * tile.height, i % across * tile.width
        own = thread // tile.threads_x, thread % tile.threads_x
        self.rooms = [Room.of(k, f32, size, tile.depth) for size in (tile.height, tile.width)]
        # The column of the weight that the thread brings.
        self.place, self.group = thread % tile.width, thread // tile.width
        column = column0 + self.place
        panel = k.minimum(column // LANES, self.panels - 1)

        def unit(u: Reg, *sums: Reg) -> Sequence[Reg]:
            record = self.record(panel, u // self.chunks, column % LANES)
            return self.unit(record, u, (row0, thread), own, sums)

        none = [k.const(0, f32)] * (tile.rows * tile.columns)
        sums = k.loop(0, self.blocks * self.chunks, 1, unit, none)
        at = row0 + own[0], column0 + own[1]
        each_sum(k, tile, sums, at, self.put, unrolled=len(sums) <= UNROLLED)

    def unit(
        self, record: LaneRecord, u: Reg, place: tuple[Reg, Reg], own: tuple[Reg, Reg],
        sums: Sequence[Reg],
    ) -> Sequence[Reg]:  # fmt: skip
        """The sums, and what a chunk of the depth adds to them."""
        k, tile, decoder = self.k, self.config.shape, self.decoder
        assert isinstance(tile, Tile)
        (a, b), (row0, thread) = self.rooms, place
        chunk = u % self.chunks
        words = [*decoder.words(record, chunk)]
        for part in range(decoder.parts):
            number = decoder.number(chunk, part)
            scales = decoder.scale(record, number)
            start = u // self.chunks * self.scheme.block + number * decoder.sub
            for first in range(0, decoder.sub, tile.depth):

                def element(place: Reg, step: Reg, at: Reg = start + first) -> Reg:
                    row = k.minimum(row0 + place, self.m - 1)
                    return self.element(row, at + step, self.row_scale(row, at))

                stage(k, a, thread, tile.threads, along=True, element=element)
                at = (part * decoder.sub + first) // 4
                self.stage(b, words[at : at + tile.depth // 4], scales)
                k.barrier()
                sums = multiply(k, a, b, own, tile, sums)
                k.barrier()
        return sums

    def stage(
        self, room: Room, words: Sequence[Callable[[], Reg]], scales: tuple[Reg, Reg | None]
    ) -> None:
        """Decode a piece of the weight into its room: threads with one column take turns at its
        words."""
        k, tile, (scale, least) = self.k, self.config.shape, scales
        groups = max(1, tile.threads // room.size)
        each = ceil_div(len(words), groups)

        def some(first: int) -> None:
            for n, word in enumerate(words[first : first + each], first):
                codes = word()
                for byte in range(4):
                    value = code_of(k, codes, byte, self.decoder.zero) * scale
                    value = value if least is None else value - least
                    k.store(value, room.buffer, room.at(4 * n + byte, self.place))

        if groups == 1:
            some(0)
            return
        for g, first in enumerate(range(0, len(words), each)):
            k.when(k.compare("eq", self.group, g), partial(some, first))
