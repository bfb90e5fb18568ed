"""Packing of weights in blocks: rows of packed bytes into the panels of ``block_weights``."""

from __future__ import annotations

from rlx.base.dims import maximum
from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.family import Launch
from rlx.codegen.reg import Reg
from rlx.codegen.strides import ceil_div
from rlx.kernels.matmul.block_weights import (
    DECODERS,
    fields_of,
    lanes_of,
    panel_fields,
    scheme_of,
)
from rlx.types import u8

__all__ = ["BlockPackConfig", "emit", "launch", "name"]

name = "block_pack"

GRAIN_BYTES = 1 << 16


@frozen
class BlockPackConfig:
    """What the code depends on: the scheme."""

    scheme: str


def launch(
    config: BlockPackConfig, target: KernelTarget, count: int, n: int, row_bytes: int
) -> Launch:
    """The launch for ``count`` weights of ``n`` rows of bytes. The buffers are the rows and the
    panels, weight by weight."""
    panels = ceil_div(n, lanes_of(target))
    grain = maximum(1, GRAIN_BYTES // maximum(1, row_bytes * lanes_of(target)))
    sizes = (n, row_bytes // scheme_of(config.scheme).bytes, panels)
    return Launch(count * panels, grain, sizes)


def emit(name: str, config: BlockPackConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config; ``launch`` gives its sizes. A task is a panel."""
    return _Emitter(name, config, target).emit()


class _Emitter:
    """Emits one kernel."""

    def __init__(self, name: str, config: BlockPackConfig, target: KernelTarget) -> None:
        self.k = k = Kernel(name, target)
        self.lanes, self.scheme = lanes_of(target), scheme_of(config.scheme)
        self.decoder = DECODERS[config.scheme]
        self.fields, self.placed = fields_of(self.scheme), panel_fields(config.scheme)
        self.source, self.panels = k.buffer("source", u8), k.buffer("panels", u8)
        self.n, self.blocks, self.each = k.size("n"), k.size("blocks"), k.size("panels_each")

    def emit(self) -> KernelText:
        self.k.parallel(self.task)
        return self.k.text()

    def task(self, t: Reg) -> None:
        """A panel: its blocks in order."""
        k, size = self.k, self.scheme.bytes
        weight, panel = t / self.each * self.n, t % self.each
        last = self.n - 1
        numbers = [
            weight + k.minimum(panel * self.lanes + lane, last) for lane in range(self.lanes)
        ]
        rows = [number * (self.blocks * size) for number in numbers]

        def block(b: Reg) -> None:
            to = (t * self.blocks + b) * (size * self.lanes)
            self.block([row + b * size for row in rows], to)

        k.loop(0, self.blocks, 1, block)

    def block(self, rows: list[Reg], to: Reg) -> None:
        """The fields of a block, then what the chunks read in turn."""
        k, lanes = self.k, self.lanes
        for name, f in self.placed.items():
            source, size = self.fields[name].offset, f.unit
            begin = to + f.offset * lanes

            def unit(u: Reg, source: int = source, size: int = size, begin: Reg = begin) -> None:
                self.unit(u * size + source, size, rows, begin + u * (size * lanes))

            k.loop(0, f.size // size, 1, unit)
        if self.decoder.nan is not None:
            self.mark(self.decoder.nan, rows, to)
        slots, size = len(self.decoder.order(0)), 4 * lanes
        begin = to + sum(f.size for f in self.placed.values()) * lanes

        def chunk(c: Reg) -> None:
            for slot, (name, number) in enumerate(self.decoder.order(c)):
                at = number * 4 + self.fields[name].offset
                self.unit(at, 4, rows, begin + c * (slots * size) + slot * size)

        if slots:
            k.loop(0, self.scheme.block // (self.decoder.sub * self.decoder.parts), 1, chunk)

    def mark(self, nan: int, rows: list[Reg], to: Reg) -> None:
        """Give blocks with a code that is nan a scale that is."""
        k, codes, scale = self.k, self.fields["qs"], self.placed["d"]
        bits = k.constants([0, 0, 0xC0, 0x7F], u8)
        for lane, row in enumerate(rows):
            x = k.load(self.source, row + codes.offset, codes.size)
            found = k.any(k.compare("eq", x & 0x7F, nan))
            place = to + (scale.offset * self.lanes + lane * scale.size)
            k.when(found, lambda place=place: k.store(bits, self.panels, place))

    def unit(self, source: Reg, size: int, rows: list[Reg], to: Reg) -> None:
        """A unit of every lane."""
        for lane, row in enumerate(rows):
            x = self.k.load(self.source, row + source, size)
            self.k.store(x, self.panels, to + lane * size)
