"""Products of one to three rows in 8 bits by weights in packed blocks: the panels of
``block_weights`` times ``q`` and its scales (``block_rows``).

    task: for each of some panels, one after the other:
        for each block, each round of it:
            for each sub-block: sum = codes times integers of the row, exact     fours in a lane
            totals with the blocks of rows
        a vector of outputs for each row

Lanes are outputs, and four integers of a row are broadcast. A total is what ``block_parts`` says:
an element's bits depend neither on how many rows there are, nor on what makes the sums. The rounds
of a block are unrolled: its scales stay in registers, and shifts are known.

A task reads its panels as one stream, in ascending order, and requests nothing ahead: so the
machine's own prefetching runs at the speed of memory. Two panels side by side had half of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx.base.dims import minimum
from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.family import Launch
from rlx.codegen.reg import Reg
from rlx.codegen.strides import ceil_div
from rlx.kernels.matmul.block_parts import add_blocks, chunks_of_round
from rlx.kernels.matmul.block_scales import Scales, store_panel
from rlx.kernels.matmul.block_weights import DECODERS, Record, lanes_of, panel_fields, scheme_of
from rlx.kernels.matmul.dot import fours, word
from rlx.ops.quant.rows import ROW_BLOCK
from rlx.types import f32, i8, i32, u8

__all__ = [
    "MOST",
    "TASK_PANELS",
    "BlockProductRowsConfig",
    "config_of",
    "emit",
    "extra_of",
    "launch",
    "name",
]

name = "block_product_rows"

MOST = 3
"""Rows that a kernel takes."""

TASK_PANELS = 4
"""Panels of a task."""


@frozen
class BlockProductRowsConfig:
    """What the code depends on: the scheme, and the rows."""

    scheme: str
    rows: int


def extra_of(scheme: str) -> str:
    """What a product reads of rows beside integers and scales (``block_rows.Extras``)."""
    return f"sums{DECODERS[scheme].sub}"


def config_of(scheme: str, m: int) -> BlockProductRowsConfig:
    """The config for ``m`` rows, from 1 to ``MOST``."""
    return BlockProductRowsConfig(scheme, next(r for r in range(MOST, 0, -1) if r <= m))


def launch(config: BlockProductRowsConfig, target: KernelTarget, n: int, depth: int) -> Launch:
    """The launch of rows ``[rows, depth]`` by a weight ``[n, depth]``. The buffers are the
    integers, their scales and what ``extra_of`` names, the panels, and the result ``[rows, n]``."""
    panels = ceil_div(n, lanes_of(target))
    group = minimum(TASK_PANELS, panels)
    sizes = (n, depth // scheme_of(config.scheme).block, panels, group)
    return Launch(ceil_div(panels, group), 1, sizes)


def emit(name: str, config: BlockProductRowsConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config; ``launch`` gives its sizes."""
    return _Emitter(name, config, target).emit()


class _Emitter:
    """Emits one kernel."""

    def __init__(self, name: str, config: BlockProductRowsConfig, target: KernelTarget) -> None:
        self.k = k = Kernel(name, target)
        self.config, self.lanes = config, lanes_of(target)
        self.scheme, self.decoder = scheme_of(config.scheme), DECODERS[config.scheme]
        self.fields = panel_fields(config.scheme)
        self.q, self.row_scales = k.buffer("q", i8), k.buffer("scales", f32)
        self.sums = k.buffer("sums", i32)
        self.w, self.y = k.buffer("w", u8), k.buffer("y", f32)
        self.n, self.blocks = k.size("n"), k.size("blocks")
        self.panels, self.group = k.size("panels"), k.size("group")
        self.subs = self.scheme.block // self.decoder.sub
        self.chunks = chunks_of_round(self.decoder)

    def emit(self) -> KernelText:
        self.k.parallel(self.task)
        return self.k.text()

    def task(self, t: Reg) -> None:
        """A group of panels."""
        k, first = self.k, t * self.group
        k.loop(first, k.minimum(first + self.group, self.panels), 1, self.panel)

    def panel(self, panel: Reg) -> None:
        """The rows by a panel."""
        place = panel * (self.blocks * (self.scheme.bytes * self.lanes))
        rows = [self.k.index(r) for r in range(self.config.rows)]
        for row, total in zip(rows, self.totals(place, rows), strict=True):
            store_panel(self.k, total, self.y, self.n, row, panel)

    def totals(self, place: Reg, rows: Sequence[Reg]) -> list[Reg]:
        """The results of rows by the panel at ``place``."""
        k, lanes = self.k, self.lanes
        zeros = [k.const(0, f32, lanes)] * len(rows)
        starts = [row * self.blocks for row in rows]

        def one(b: Reg, *totals: Reg) -> list[Reg]:
            begin = b * (self.scheme.bytes * lanes)
            record = Record(k, self.w, place + begin, self.fields, lanes)
            at = [s + b for s in starts]
            scales, out = self.decoder.scales(record), list(totals)
            for c in range(self.subs // (self.chunks * self.decoder.parts)):
                out = self.round_of(record, scales, c, at, out)
            return out

        return k.loop(0, self.blocks, 1, one, zeros)

    def round_of(
        self, record: Record, scales: Scales, c: int, rows: Sequence[Reg], totals: Sequence[Reg]
    ) -> list[Reg]:
        """The totals with a round of a record; ``rows`` are the numbers of the rows' blocks."""
        k, decoder, block = self.k, self.decoder, self.scheme.block
        each, sub, subs = decoder.sub // 4, decoder.sub, ROW_BLOCK // decoder.sub
        sums: dict[int, list[Reg]] = {}
        for chunk in range(self.chunks):
            words = list(decoder.words(record, c * self.chunks + chunk))
            for s in range(decoder.parts):
                number = decoder.number(c * self.chunks + chunk, s)
                some = [self.start(row * (block // sub) + number) for row in rows]
                for n in range(each):
                    codes = words[s * each + n]()
                    for r, row in enumerate(rows):
                        at = row * block + (number * sub + 4 * n)
                        x = k.splat(word(k, self.q, at), self.lanes)
                        some[r] = fours(k, codes, x, some[r], decoder.bits)
                sums[number] = some
        out = list(totals)
        for first in sorted(sums)[::subs]:
            numbers = range(first, first + subs)
            own, least = [scales[n][0] for n in numbers], scales[first][1]
            at = [row * (block // ROW_BLOCK) + first // subs for row in rows]
            by = [k.splat(k.load(self.row_scales, a), self.lanes) for a in at]
            less = None if least is None else ([self.minus(a) for a in at], least)
            out = add_blocks(k, out, [sums[n] for n in numbers], own, by, less)
        return out

    def minus(self, block: Reg) -> Reg:
        """The negative sum of a block of a row."""
        return self.k.cast(self.k.splat(self.k.load(self.sums, block), self.lanes), f32)

    def start(self, number: Reg) -> Reg:
        """What the sum of a row's sub-block begins with: it takes the zero point off."""
        k, zero = self.k, self.decoder.zero
        if self.decoder.has_least:
            return k.const(0, i32, self.lanes)
        minus = k.splat(k.load(self.sums, number), self.lanes)
        return minus << (zero.bit_length() - 1)
