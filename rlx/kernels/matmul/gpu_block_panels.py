"""Weights in packed blocks as a GPU reads them, and the kernel that packs them.

Panels are those of ``block_weights``, of ``LANES`` outputs, as words of 32 bits, with their fields
in the order of the block's bytes: threads side by side have outputs side by side, and read
neighbouring words. Code is the same for every scheme of
``DECODERS``: a thread's record gives it the fields of its own output.
"""

from __future__ import annotations

from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.family import Launch
from rlx.codegen.reg import Buffer, Reg
from rlx.codegen.strides import ceil_div
from rlx.kernels.matmul.block_weights import Decoder, Field, Record, fields_of, scheme_of
from rlx.types import f32, u8, u32

__all__ = [
    "LANES", "GpuBlockPackConfig", "LaneRecord", "code_of", "emit", "launch", "name", "words_of",
]  # fmt: skip

name = "gpu_block_pack"

LANES = 32
"""Outputs of a panel: a wave reads whole lines of memory, and units of 1 byte fill words."""

_WORDS = LANES // 4
"""Words of a panel for a byte of a block."""


@frozen
class GpuBlockPackConfig:
    """What the code depends on: the scheme."""

    scheme: str


def words_of(scheme: str, n: int, depth: int) -> int:
    """Words of all panels of a weight ``[n, depth]``."""
    row = scheme_of(scheme)
    return ceil_div(n, LANES) * (depth // row.block) * row.bytes * _WORDS


def launch(scheme: str, n: int, depth: int) -> tuple[GpuBlockPackConfig, Launch]:
    """The kernel and its arguments. The buffers are the rows of bytes, and the panels."""
    blocks = depth // scheme_of(scheme).block
    return GpuBlockPackConfig(scheme), Launch(words_of(scheme, n, depth), 1, (n, blocks))


def emit(name: str, config: GpuBlockPackConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config; ``launch`` gives its sizes. A thread makes a word."""
    k, scheme = Kernel(name, target), scheme_of(config.scheme)
    source, panels = k.buffer("source", u8), k.buffer("panels", u32)
    n, blocks = k.size("n"), k.size("blocks")
    of_block = scheme.bytes * _WORDS
    fields = [*fields_of(scheme).values()]

    def word(t: Reg) -> None:
        block, panel = t // of_block, t // of_block // blocks
        total: Reg | None = None
        for byte in range(4):
            lane, offset = _byte(k, t % of_block * 4 + byte, fields)
            row = k.minimum(panel * LANES + lane, n - 1)
            at = (row * blocks + block % blocks) * scheme.bytes + offset
            part = k.cast(k.load(source, at), u32)
            total = part if total is None else total | part << 8 * byte
        assert total is not None
        k.store(total, panels, t)

    k.parallel(word)
    return k.text()


def _byte(k: Kernel, at: Reg, fields: list[Field]) -> tuple[Reg, Reg]:
    """The output of which a byte of a block of a panel is, and its place in the block."""
    found: tuple[Reg, Reg] | None = None
    for f in reversed(fields):
        own = at - f.offset * LANES if f.offset else at
        line = f.unit * LANES
        here = own % line // f.unit, own // line * f.unit + own % f.unit + f.offset
        if found is None:
            found = here
        else:
            inside = at < (f.offset + f.size) * LANES
            found = k.select(inside, here[0], found[0]), k.select(inside, here[1], found[1])
    assert found is not None, "a block has fields"
    return found


@frozen
class LaneRecord(Record):
    """A block of a panel, and of its fields those of one output, ``lane``: scalars."""

    lane: Reg

    @staticmethod
    def of(k: Kernel, panels: Buffer, scheme: str, block: Reg, lane: Reg) -> LaneRecord:
        """A block by its number among those of all panels."""
        row = scheme_of(scheme)
        at = block * (row.bytes * _WORDS)
        return LaneRecord(k, panels, at, fields_of(row), 0, lane)

    def place(self, field: str, unit: Reg | int, more: int = 0) -> Reg:
        """The first word of a unit of a field, of all outputs."""
        f = self.fields[field]
        size = f.unit * _WORDS
        return self.at + unit * size + (f.offset * _WORDS + more * size)

    def words(self, field: str, n: Reg | int, more: int = 0) -> Reg:
        return self.k.load(self.panels, self.place(field, n, more) + self.lane)

    def ordered(self, decoder: Decoder, chunk: Reg | int, slot: int) -> Reg:
        return self.words(*decoder.order(chunk)[slot])

    def _half(self, field: str) -> Reg:
        k = self.k
        word = k.load(self.panels, self.place(field, 0) + self.lane // 2)
        return _from_half(k, word >> k.cast(self.lane % 2 * 16, u32) & 0xFFFF)


def _from_half(k: Kernel, bits: Reg) -> Reg:
    """The f16 of these bits as f32, subnormal numbers and nan too: not every device has a type for
    it."""
    size = bits & 0x7FFF
    tiny = k.bitcast(k.cast(size, f32) * 2.0**-24, u32)
    found = k.select(size < 0x400, tiny, (size << 13) + 0x38000000)
    found = k.select(size >= 0x7C00, (size & 0x3FF) << 13 | 0x7F800000, found)
    return k.bitcast(found | (bits & 0x8000) << 16, f32)


_WHOLE, _WHOLE_BITS = 1 << 23, 0x4B000000
"""A number and its bits as f32: with a smaller whole number in the low ones they are the sum."""


def code_of(k: Kernel, word: Reg, byte: int, zero: int) -> Reg:
    """One of the four unsigned bytes of a word, less ``zero``, as f32."""
    part = word >> 8 * byte if byte else word
    part = part & 255 if byte < 3 else part
    return k.bitcast(part | _WHOLE_BITS, f32) - float(_WHOLE + zero)
