"""Products by weights in packed blocks: the panels of ``block_weights`` times rows of f32.

    task: some panels
        for each tile of rows:
            for each block:
                the scales of its sub-blocks                  on the stack
                for each chunk: for each sub-block:
                    sum = codes times the elements of the row, one after the other
                    total += sum * scale - (sum of the row's elements) * least
            a vector of outputs for each row and panel
            those of them that are not finite anew, element by element

Lanes are outputs, and an element of a row is broadcast. The order of the additions of an element of
the result depends on the scheme alone, neither on the rows nor on the panels of a tile.

A partial sum of codes is not one of decoded weights: an infinity times a code of 0, or less its
multiple of a least value, is nan, and large numbers overflow before they are scaled. All that comes
of it is not finite. So what is finite is right, and what is not is the sum of the row's elements
times the weight's numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.family import Launch
from rlx.codegen.reg import INDEX, Reg
from rlx.codegen.strides import ceil_div
from rlx.kernels.matmul.block_scales import BlockScales, store_panel
from rlx.kernels.matmul.block_weights import (
    DECODERS,
    Record,
    lanes_of,
    panel_fields,
    scheme_of,
)
from rlx.types import DType, f32, u8

__all__ = ["BlockProductConfig", "config_of", "emit", "launch", "name", "packed_bytes"]

name = "block_product"

TILES = {8: 2, 4: 2, 2: 2, 1: 4}
"""Panels side by side by the rows of a tile: sums enough to hide the latency of a multiply-add."""


@frozen
class BlockProductConfig:
    """What the code depends on: the scheme, and the rows and panels of a tile."""

    scheme: str
    rows: int
    panels: int
    experts: DType | None = None
    """The type of the numbers of experts, one a row, whose panels follow one another; then a tile
    has one row."""


def packed_bytes(target: KernelTarget, scheme: str, n: int, depth: int) -> int:
    """Of all panels of a weight ``[n, depth]``."""
    row = scheme_of(scheme)
    return ceil_div(n, lanes_of(target)) * lanes_of(target) * (depth // row.block * row.bytes)


def config_of(
    target: KernelTarget, scheme: str, m: int, n: int, experts: DType | None = None
) -> BlockProductConfig:
    """The config for ``m`` rows and ``n`` outputs, both at least 1."""
    rows = 1 if experts else next(r for r in TILES if r <= m)
    panels = ceil_div(n, lanes_of(target))
    return BlockProductConfig(scheme, rows, next(p for p in (4, 2, 1) if p <= TILES[rows]
                                                 and p <= panels), experts)  # fmt: skip


def launch(
    config: BlockProductConfig,
    target: KernelTarget,
    m: int,
    n: int,
    depth: int,
    lda: int,
    experts: tuple[int, ...] = (),
) -> Launch:
    """The launch of x ``[m, depth]`` by a weight ``[n, depth]``; ``lda`` elements lie between rows
    of x. The buffers are x, the panels, and the result ``[m, n]``; then the experts of the rows and
    the error record, if ``experts`` says how many there are, and the site of a fault."""
    panels = ceil_div(n, lanes_of(target))
    tasks = ceil_div(panels, config.panels)
    return Launch(tasks, 1, (m, n, depth // scheme_of(config.scheme).block, lda, panels, *experts))


def emit(name: str, config: BlockProductConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config; ``launch`` gives its sizes."""
    return _Emitter(name, config, target).emit()


class _Emitter:
    """Emits one kernel."""

    def __init__(self, name: str, config: BlockProductConfig, target: KernelTarget) -> None:
        self.k = k = Kernel(name, target)
        self.config, self.lanes = config, lanes_of(target)
        self.scheme, self.decoder = scheme_of(config.scheme), DECODERS[config.scheme]
        self.fields = panel_fields(config.scheme)
        self.x, self.w, self.y = k.buffer("x", f32), k.buffer("w", u8), k.buffer("y", f32)
        self.m, self.n, self.blocks = k.size("m"), k.size("n"), k.size("blocks")
        self.lda, self.panels = k.size("lda"), k.size("panels")
        self.experts = k.buffer("experts", config.experts) if config.experts else None
        if self.experts:
            self.error, self.known, self.site = k.error_record(), k.size("known"), k.size("site")
        self.subs = self.scheme.block // self.decoder.sub
        self.kept = k.stack(f32, config.rows * config.panels * self.lanes)
        self.scales = None
        if self.subs > self.decoder.parts:
            self.scales = BlockScales(k, self.decoder, self.subs, self.lanes, config.panels)

    def emit(self) -> KernelText:
        self.k.parallel(self.task)
        return self.k.text()

    def task(self, t: Reg) -> None:
        """Some panels for all rows. A tile that would go beyond the last one ends with it."""
        k, rows, count = self.k, self.config.rows, self.config.panels
        first = k.minimum(t * count, self.panels - count) if count > 1 else t
        size = self.blocks * (self.scheme.bytes * self.lanes)
        places = [(first + p if p else first) * size for p in range(count)]

        def tile(i: Reg) -> None:
            i = k.minimum(i, self.m - rows) if rows > 1 else i
            at = [(i + r if r else i) * self.lda for r in range(rows)]
            own = self.expert(i) * self.panels * size if self.experts else None
            totals = self.totals(places if own is None else [own + p for p in places], at)
            for r in range(rows):
                for p in range(count):
                    total, panel = totals[r * count + p], first + p if p else first
                    store_panel(k, total, self.y, self.n, i + r if r else i, panel)
            wide = k.const(0, f32, self.lanes)
            for total in totals:
                wide = wide + (total - total)  # 0, or nan
            k.when(
                k.any(k.compare("ne", wide, wide)),
                lambda: self.anew(totals, i, first, k.index(0) if own is None else own),
            )

        k.loop(0, self.m, rows, tile)

    def anew(self, totals: Sequence[Reg], row: Reg, panel: Reg, experts: Reg) -> None:
        """Write the results of a tile that are not finite anew. The panels are those behind
        ``experts``."""
        k, lanes, count = self.k, self.lanes, self.config.panels
        size = self.blocks * (self.scheme.bytes * lanes)
        for n, total in enumerate(totals):
            k.store(total, self.kept, k.index(n * lanes))

        def one(n: Reg) -> None:
            r, p = row + n / count, panel + n % count
            found = k.load(self.kept, n * lanes, lanes)
            whole = self.by_element(experts + p * size, r * self.lda)
            finite = k.compare("lt", k.abs(found), float("inf"))
            store_panel(k, k.select(finite, found, whole), self.y, self.n, r, p)

        k.loop(0, len(totals), 1, one)

    def by_element(self, place: Reg, row: Reg) -> Reg:
        """The results of a row and a panel, by the numbers that the weight stands for."""
        k, lanes, decoder = self.k, self.lanes, self.decoder

        def chunk(c: Reg, total: Reg) -> Reg:
            per_block = self.subs // decoder.parts
            b, own = c / per_block, c % per_block
            at = place + b * (self.scheme.bytes * lanes)
            record, begin = Record(k, self.w, at, self.fields, lanes), row + b * self.scheme.block
            codes = iter([*decoder.codes(record, own)])
            for s in range(decoder.parts):
                number = decoder.number(own, s)
                scale, least = decoder.scale(record, number)
                for e in range(decoder.sub):
                    value = next(codes)() * scale
                    value = value if least is None else value - least
                    x = k.load(self.x, begin + (number * decoder.sub + e))
                    total = k.fma(value, k.splat(x, lanes), total)
            return total

        count = self.blocks * (self.subs // decoder.parts)
        return k.loop(0, count, 1, chunk, [k.const(0, f32, lanes)])[0]

    def expert(self, row: Reg) -> Reg:
        """The expert of a row; one that is not there is recorded, and is the first."""
        k = self.k
        assert self.experts is not None
        found = k.load(self.experts, row)
        found = k.cast(found, k.index_word(found.dtype))
        outside = (found < 0) | (found >= k.cast(self.known, found.dtype))
        k.record_fault(outside, self.error, self.site, 1)
        return k.cast(k.select(outside, 0, found), INDEX)

    def totals(self, places: Sequence[Reg], rows: Sequence[Reg]) -> list[Reg]:
        """The results of a tile by row and panel."""
        k, lanes = self.k, self.lanes
        zeros = [k.const(0, f32, lanes)] * (len(places) * len(rows))

        def block(b: Reg, *totals: Reg) -> list[Reg]:
            begin = b * (self.scheme.bytes * lanes)
            records = [Record(k, self.w, p + begin, self.fields, lanes) for p in places]
            at = [r + b * self.scheme.block for r in rows]
            scales = self.scales
            if scales is None:
                found = [r for record in records for r in self.decoder.scales(record)]
                return self.chunk(records, found, k.index(0), at, totals)
            scales.put(records)

            def chunk(c: Reg, *totals: Reg) -> list[Reg]:
                return self.chunk(records, scales.of_chunk(c), c, at, totals)

            return k.loop(0, self.subs // self.decoder.parts, 1, chunk, totals)

        return k.loop(0, self.blocks, 1, block, zeros)

    def chunk(
        self,
        records: Sequence[Record],
        scales: Sequence[tuple[Reg, Reg | None]],
        c: Reg,
        rows: Sequence[Reg],
        totals: Sequence[Reg],
    ) -> list[Reg]:
        """The totals with a chunk of each record; ``rows`` are where the block of x begins."""
        k, lanes, parts, count = self.k, self.lanes, self.decoder.parts, len(records)
        sub, out = self.decoder.sub, list(totals)
        codes = [list(self.decoder.codes(r, c)) for r in records]
        for s in range(parts):
            first = self.decoder.number(c, s) * sub
            places = [at + first for at in rows]
            sums = [k.const(0, f32, lanes)] * len(out)
            for e in range(sub):
                numbers = [found[s * sub + e]() for found in codes]
                for r, at in enumerate(places):
                    x = k.splat(k.load(self.x, at + e if e else at), lanes)
                    for p, number in enumerate(numbers):
                        sums[r * count + p] = k.fma(number, x, sums[r * count + p])
            for r, at in enumerate(places):
                minus = k.splat(-self.sum_of(at), lanes) if self.decoder.has_least else None
                for p in range(count):
                    scale, least = scales[p * parts + s]
                    total = k.fma(sums[r * count + p], scale, out[r * count + p])
                    if minus is not None and least is not None:
                        total = k.fma(minus, least, total)
                    out[r * count + p] = total
        return out

    def sum_of(self, at: Reg) -> Reg:
        """The sum of the elements of x of a sub-block."""
        k, lanes = self.k, self.lanes
        total = k.load(self.x, at, lanes)
        for n in range(lanes, self.decoder.sub, lanes):
            total = total + k.load(self.x, at + n, lanes)
        return k.reduce("add", total)
