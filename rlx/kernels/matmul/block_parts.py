"""What products of rows in 8 bits by weights in packed blocks share: how sums become a total, and a
part of a panel that is unpacked in scratch.

A total is, over the blocks of a row's elements,

    total += (f32(sum) * scale of the weight, of each sub-block, - f32(sum of the row) * least)
             * scale of the row

in the order of blocks, and of sub-blocks in one. All kernels do that, so their bits are equal. The
row's scale, which may be large, comes last: where the weight's scales are f16, nothing overflows
that the total does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rlx.codegen.builder import Kernel
from rlx.codegen.reg import Reg
from rlx.kernels.matmul.block_weights import DECODERS, Decoder, Record, scheme_of
from rlx.ops.quant.rows import ROW_BLOCK
from rlx.types import f32, u8

__all__ = [
    "Part", "UnpackedPart", "add_blocks", "chunks_of_round", "row_blocks", "unpacked_bytes",
]  # fmt: skip


class Part(NamedTuple):
    """A sub-block of a round: its number, and the chunk and the part of it that has its codes."""

    number: int
    chunk: int
    part: int


def chunks_of_round(decoder: Decoder) -> int:
    """The chunks of a round: the fewest whose sub-blocks are successive blocks of rows."""
    chunks = 1
    while [p.number for p in _parts(decoder, chunks)] != list(range(chunks * decoder.parts)):
        chunks += 1
    return chunks


def row_blocks(decoder: Decoder) -> list[list[Part]]:
    """The sub-blocks of a round, those of each block of rows."""
    parts, each = _parts(decoder, chunks_of_round(decoder)), ROW_BLOCK // decoder.sub
    return [parts[n : n + each] for n in range(0, len(parts), each)]


def _parts(decoder: Decoder, chunks: int) -> list[Part]:
    """The sub-blocks of some chunks, by number."""
    return sorted(
        Part(decoder.number(c, s), c, s) for c in range(chunks) for s in range(decoder.parts)
    )


def add_blocks(
    k: Kernel,
    totals: Sequence[Reg],
    sums: Sequence[Sequence[Reg]],
    scales: Sequence[Reg],
    own: Sequence[Reg],
    less: tuple[Sequence[Reg], Reg] | None,
) -> list[Reg]:
    """The totals of rows with a block: the ``sums`` of its sub-blocks, each of all rows, by their
    ``scales`` and the rows' ``own``. ``less`` are the negative sums of the rows, and the least
    value. Rows go side by side: one after the other, each step would wait for the last.
    """
    real = [[k.cast(x, f32) for x in some] for some in sums]
    scaled = [x * scales[0] for x in real[0]]
    for some, scale in zip(real[1:], scales[1:], strict=True):
        scaled = [k.fma(x, scale, y) for x, y in zip(some, scaled, strict=True)]
    if less is not None:
        scaled = [k.fma(x, less[1], y) for x, y in zip(less[0], scaled, strict=True)]
    return [k.fma(x, y, t) for x, y, t in zip(scaled, own, totals, strict=True)]


def unpacked_bytes(scheme: str, lanes: int, blocks: int) -> int:
    """What an ``UnpackedPart`` takes."""
    return sum(_room(scheme, lanes, blocks))


def _room(scheme: str, lanes: int, blocks: int) -> tuple[int, int, int]:
    """Bytes of codes, scales and least values."""
    decoder, depth = DECODERS[scheme], blocks * scheme_of(scheme).block
    scales = depth // decoder.sub * lanes * 4
    return depth * lanes, scales, scales if decoder.has_least else 0


class UnpackedPart:
    """Blocks of a panel at the start of scratch, as words of codes, scales and least values, each
    in the order of sub-blocks."""

    def __init__(self, k: Kernel, scheme: str, lanes: int, blocks: int) -> None:
        self._k, self._lanes, self._decoder = k, lanes, DECODERS[scheme]
        self._subs = scheme_of(scheme).block // self._decoder.sub
        codes, scales, _ = _room(scheme, lanes, blocks)
        self.codes = k.scratch(u8)
        self._scales = k.scratch(f32, codes)
        self._leasts = k.scratch(f32, codes + scales)

    def put_scales(self, record: Record, block: Reg) -> None:
        """Put there the scales and least values of a block."""
        for s, (scale, least) in enumerate(self._decoder.scales(record)):
            at = (block * self._subs + s) * self._lanes
            self._k.store(scale, self._scales, at)
            if least is not None:
                self._k.store(least, self._leasts, at)

    def place(self, number: Reg, word: int = 0) -> Reg:
        """Where a word of the codes of a sub-block is."""
        return number * (self._decoder.sub * self._lanes) + word * (4 * self._lanes)

    def scales(self, block: Reg) -> tuple[list[Reg], Reg | None]:
        """The scales of the sub-blocks of a block of rows, and the least value."""
        k, lanes, each = self._k, self._lanes, ROW_BLOCK // self._decoder.sub
        scales = [k.load(self._scales, (block * each + s) * lanes, lanes) for s in range(each)]
        if not self._decoder.has_least:
            return scales, None
        return scales, k.load(self._leasts, block * lanes, lanes)
