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
    Field,
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
    k = Kernel(name, target)
    lanes, scheme = lanes_of(target), scheme_of(config.scheme)
    decoder = DECODERS[config.scheme]
    source, panels = k.buffer("source", u8), k.buffer("panels", u8)
    n, blocks, each = k.size("n"), k.size("blocks"), k.size("panels_each")

    def unit(source_at: Reg | int, size: int, rows: list[Reg], to: Reg) -> None:
        for lane, row in enumerate(rows):
            x = k.load(source, row + source_at, size)
            k.store(x, panels, to + lane * size)

    def field(f: Field, rows: list[Reg], to: Reg) -> None:
        def one(u: Reg) -> None:
            unit(u * f.unit + f.offset, f.unit, rows, to + u * (f.unit * lanes))

        k.loop(0, f.size // f.unit, 1, one)

    def block(rows: list[Reg], to: Reg) -> None:
        fields, placed = fields_of(scheme), panel_fields(config.scheme)
        for name, f in placed.items():
            field(fields[name], rows, to + f.offset * lanes)
        slots, size = len(decoder.order(0)), 4 * lanes
        begin = to + sum(f.size for f in placed.values()) * lanes

        def chunk(c: Reg) -> None:
            for slot, (name, number) in enumerate(decoder.order(c)):
                at = number * 4 + fields[name].offset
                unit(at, 4, rows, begin + c * (slots * size) + slot * size)

        if slots:
            k.loop(0, scheme.block // (decoder.sub * decoder.parts), 1, chunk)

    def task(t: Reg) -> None:
        weight, panel = t / each * n, t % each
        numbers = [weight + k.minimum(panel * lanes + lane, n - 1) for lane in range(lanes)]
        rows = [number * (blocks * scheme.bytes) for number in numbers]

        def one(b: Reg) -> None:
            at = b * scheme.bytes
            block([row + at for row in rows], (t * blocks + b) * (scheme.bytes * lanes))

        k.loop(0, blocks, 1, one)

    k.parallel(task)
    return k.text()
