"""Convolutions of 8-bit integers: four channels of a place are a word, of which an instruction
multiplies a vector and adds the four products up (``rlx.kernels.matmul.dot``).

The planes hold words of the input, and the blocks words of the weights, whose last one of a group
is filled up with zeros; all else is as for floats. An instruction takes one unsigned operand and
one signed. Where both are alike, the sign bits of the input are flipped as it is copied. That adds
128 to what is read, or takes it off, and the sums begin with what that makes of them: see ``first``
in the kernels, made by ``first_launch``.
"""

from __future__ import annotations

from typing import Literal, Protocol

from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.family import Launch
from rlx.codegen.reg import Reg
from rlx.codegen.strides import ceil_div
from rlx.kernels.conv.plan import ConvShape, Words
from rlx.kernels.matmul.dot import dot
from rlx.types import DType, i8, i32, u8, u32

__all__ = [
    "FOUR", "FirstConfig", "WordBlocksConfig", "WordPlanesConfig", "emit_blocks", "emit_first",
    "first_launch", "held", "multiply", "word_blocks_launch", "word_of", "words_of",
]  # fmt: skip

FOUR = 4
"""Channels of a word."""
FLIP = 0x80808080


def words_of(x: DType, w: DType) -> Words:
    """What becomes of an input and weights of these types: the weights stay."""
    signed = w is u8
    return Words(signed, flipped=(x is i8) != signed)


class Multiplies(Protocol):
    """What configs of convolutions have in common."""

    @property
    def dtype(self) -> DType:
        """What is summed."""
        ...

    @property
    def words(self) -> Words | None:
        """None for floats."""
        ...


def held(config: Multiplies) -> DType:
    """The type of the elements of planes and blocks."""
    return config.dtype if config.words is None else u32


def multiply(k: Kernel, config: Multiplies, x: Reg, w: Reg, total: Reg) -> Reg:
    """``total`` plus the product of elements of the input and of the weights, or of their words."""
    if config.words is None:
        return k.fma(x, w, total)
    return dot(k, w, x, total) if config.words.signed else dot(k, x, w, total)


@frozen
class WordPlanesConfig:
    """Planes of words. What the code depends on: as in ``PlanesConfig``, and whether sign bits are
    flipped."""

    source: DType
    step: Literal[1, 2]
    flipped: bool

    target = u32
    spread = False


def word_of(k: Kernel, elements: list[Reg], flipped: bool) -> Reg:
    """The words of vectors of elements, those of the first channel lowest."""
    out: Reg | None = None
    for n, x in enumerate(elements):
        part = k.bitcast(k.cast(x, i32), u32) if x.dtype is i8 else k.cast(x, u32)
        part = part & 0xFF if x.dtype is i8 else part
        part = part << 8 * n if n else part
        out = part if out is None else out | part
    assert out is not None
    return out ^ FLIP if flipped else out


@frozen
class WordBlocksConfig:
    """Blocks of words: the element type of the weights, and the output channels of a block."""

    source: DType
    rows: int


def word_blocks_launch(
    config: WordBlocksConfig, shape: ConvShape, channels: int, strides: tuple[int, int, int, int]
) -> Launch:
    """``shape`` counts words and ``channels`` those of a group; ``strides`` are the weights', in
    elements: of groups, outputs, channels and taps. The kernel's buffers are the weights and the
    blocks."""
    rows = config.rows
    blocks = ceil_div(shape.outputs, rows)
    sizes = (shape.outputs, channels, shape.channels, shape.taps, blocks, *strides)
    return Launch(shape.groups * blocks, 1, sizes)


def emit_blocks(name: str, config: WordBlocksConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config; ``word_blocks_launch`` gives its sizes."""
    k = Kernel(name, target)
    rows = config.rows
    source, packed = k.buffer("source", config.source), k.buffer("packed", u32)
    outputs, channels, words = k.size("outputs"), k.size("channels"), k.size("words")
    taps, blocks = k.size("taps"), k.size("blocks")
    by_group, by_output = k.size("by_group"), k.size("by_output")
    by_channel, by_tap = k.size("by_channel"), k.size("by_tap")

    def task(t: Reg) -> None:
        base, row0, block = t / blocks * by_group, t % blocks * rows, t * words * taps * rows

        def tap(c: Reg, i: Reg, r: Reg) -> None:
            row = k.minimum(row0 + r, outputs - 1)
            there = row0 + r < outputs
            at = base + row * by_output + i * by_tap
            found: list[Reg] = []
            for n in range(FOUR):
                channel = c * FOUR + n
                x = k.load(source, at + k.minimum(channel, channels - 1) * by_channel)
                found.append(k.select(there & (channel < channels), x, 0))
            k.store(word_of(k, found, flipped=False), packed, block + (c * taps + i) * rows + r)

        def each(c: Reg, i: Reg) -> None:
            k.loop(0, rows, 1, lambda r: tap(c, i, r))

        k.loop(0, words, 1, lambda c: k.loop(0, taps, 1, lambda i: each(c, i)) and None)

    k.parallel(task)
    return k.text()


@frozen
class FirstConfig:
    """What sums of flipped inputs begin with. ``source`` is the type of the weights; the input was
    of the same one."""

    source: DType


def first_launch(
    shape: ConvShape, rows: int, channels: int, strides: tuple[int, int, int, int]
) -> Launch:
    """As ``word_blocks_launch``, for blocks of ``rows``. The kernel's buffers are the weights and
    the sums (i32), one for each row of the blocks; those of rows too many are 0."""
    blocks = ceil_div(shape.outputs, rows)
    sizes = (shape.outputs, channels, shape.taps, blocks * rows, *strides)
    return Launch(shape.groups * blocks * rows, rows, sizes)


def emit_first(name: str, config: FirstConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config; ``first_launch`` gives its sizes."""
    k = Kernel(name, target)
    source, first = k.buffer("source", config.source), k.buffer("first", i32)
    outputs, channels, taps, rows = map(k.size, ("outputs", "channels", "taps", "rows"))
    by_group, by_output = k.size("by_group"), k.size("by_output")
    by_channel, by_tap = k.size("by_channel"), k.size("by_tap")
    added = 128 if config.source is i8 else -128

    def task(t: Reg) -> None:
        row, group = t % rows, t / rows
        base = group * by_group + k.minimum(row, outputs - 1) * by_output

        def channel(c: Reg, total: Reg) -> list[Reg]:
            def tap(i: Reg, total: Reg) -> list[Reg]:
                x = k.load(source, base + c * by_channel + i * by_tap)
                return [total + k.cast(x, i32)]

            return k.loop(0, taps, 1, tap, [total])

        total = k.loop(0, channels, 1, channel, [k.const(0, i32)])[0]
        k.store(k.select(row < outputs, total * -added, 0), first, t)

    k.parallel(task)
    return k.text()
