"""What is made before a convolution: planes of the input, blocks of the weights, and, where sizes
are not known, the offsets of the taps; and how results are interleaved behind it.

Planes are as ``plan.py`` says: with padding, a plane for each phase of the stride, and zeros
between the elements where they are spread. Weights become [groups, blocks of output channels,
channels, taps, rows of a block], the last block filled up with zeros. Both widen 16-bit floats. Of
8-bit integers four channels become one of words (see ``words.py``).
"""

from __future__ import annotations

from typing import Literal

from rlx.base.dims import maximum
from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.family import Launch
from rlx.codegen.lanes import every
from rlx.codegen.reg import Reg
from rlx.codegen.strides import ceil_div
from rlx.kernels.conv import interleave
from rlx.kernels.conv.interleave import InterleaveConfig
from rlx.kernels.conv.plan import ConvShape, Planes, Triple
from rlx.kernels.conv.words import (
    FOUR,
    FirstConfig,
    WordBlocksConfig,
    WordPlanesConfig,
    emit_blocks,
    emit_first,
    word_of,
)
from rlx.types import DType, i32, i64

__all__ = [
    "BlocksConfig", "PlanesConfig", "TapsConfig", "blocks_launch", "emit", "name", "planes_launch",
    "taps_launch",
]  # fmt: skip

name = "conv_layout"

GRAIN_BYTES = 64 * 1024


@frozen
class PlanesConfig:
    """What the code depends on: the element types, the distance in the input of neighbours in a
    plane (1, 2, or 0 for any), and whether there are zeros between the elements."""

    source: DType
    target: DType
    step: Literal[0, 1, 2]
    spread: bool

    @staticmethod
    def of(source: DType, target: DType, shape: ConvShape, last: int) -> PlanesConfig:
        """The config for an input whose last axis has the stride ``last``."""
        step = last * shape.stride[2]
        return PlanesConfig(source, target, step if step in (1, 2) else 0, max(shape.spread) > 1)


@frozen
class BlocksConfig:
    """The element types of the weights and of the blocks, and the output channels of a block."""

    source: DType
    target: DType
    rows: int


@frozen
class TapsConfig:
    """The offsets of the taps of a window, of which all numbers are arguments."""


LayoutConfig = (
    PlanesConfig
    | BlocksConfig
    | TapsConfig
    | WordPlanesConfig
    | WordBlocksConfig
    | FirstConfig
    | InterleaveConfig
)


def planes_launch(
    config: PlanesConfig | WordPlanesConfig,
    shape: ConvShape,
    layout: Planes,
    strides: tuple[int, int, Triple],
    own: int = 0,
) -> Launch:
    """``strides`` are the input's, in elements: of images, of channels, and of the spatial axes.
    The kernel's buffers are the input and the planes. ``own`` are the channels of a group, of which
    ``shape`` has words."""
    image, channel, axes = strides
    channels = shape.groups * shape.channels
    phases = layout.phases[0] * layout.phases[1] * layout.phases[2]
    size = layout.size[0] * layout.size[1] * layout.size[2]
    sizes = (
        channels, image, channel, *axes, layout.image, layout.channel,
        *layout.phases, *layout.size, *shape.stride, *shape.low, *shape.size, *shape.spread,
        *((own, shape.channels) if isinstance(config, WordPlanesConfig) else ()),
    )  # fmt: skip
    grain = maximum(1, GRAIN_BYTES // (size * config.target.bytes))
    return Launch(shape.images * channels * phases, grain, sizes)


def blocks_launch(
    config: BlocksConfig,
    shape: ConvShape,
    strides: tuple[int, int, int, int],
    first: int = 0,
) -> Launch:
    """``strides`` are the weights', in elements: of groups, outputs, channels and taps; ``first``
    is where the first tap lies. The kernel's buffers are the weights and the blocks."""
    rows = config.rows
    blocks = ceil_div(shape.outputs, rows)
    depth = shape.channels * shape.taps
    grain = maximum(1, GRAIN_BYTES // (depth * rows * config.target.bytes))
    sizes = (shape.outputs, shape.channels, shape.taps, blocks, *strides, first)
    return Launch(shape.groups * blocks, grain, sizes)


def taps_launch(shape: ConvShape, layout: Planes, channels: int = 1) -> Launch:
    """The kernel's buffer are the offsets (i64), as ``Planes.offsets`` gives them, in each of so
    many channels."""
    sizes = (
        shape.taps, channels, layout.channel, *shape.kernel[1:], *shape.dilation, *shape.stride,
        *layout.phases[1:], *layout.size,
    )  # fmt: skip
    return Launch(shape.taps, shape.taps, sizes)


def emit(name: str, config: LayoutConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config; ``planes_launch`` and the like give its sizes."""
    if isinstance(config, TapsConfig):
        return _emit_taps(name, target)
    if isinstance(config, BlocksConfig):
        return _emit_blocks(name, config, target)
    if isinstance(config, WordBlocksConfig):
        return emit_blocks(name, config, target)
    if isinstance(config, InterleaveConfig):
        return interleave.emit(name, config, target)
    if isinstance(config, FirstConfig):
        return emit_first(name, config, target)
    if isinstance(config, WordPlanesConfig):
        return _WordsEmitter(name, config, target).emit()
    return _PlanesEmitter(name, config, target).emit()


def _emit_taps(name: str, target: KernelTarget) -> KernelText:
    k = Kernel(name, target)
    offsets = k.buffer("offsets", i64)
    count, channels, channel = k.size("taps"), k.size("channels"), k.size("channel")
    rows, columns = k.size("rows"), k.size("columns")
    dilation = [k.size(f"dilation{axis}") for axis in "zyx"]
    stride = [k.size(f"stride{axis}") for axis in "zyx"]
    phases_y, phases_x = k.size("phases_y"), k.size("phases_x")
    qz, qy, qx = k.size("plane_z"), k.size("plane_y"), k.size("plane_x")

    def tap(t: Reg) -> None:
        taps = t / columns / rows, t / columns % rows, t % columns
        places = [n * d for n, d in zip(taps, dilation, strict=True)]
        z, y, x = (p / s for p, s in zip(places, stride, strict=True))
        a, b, c = (p % s for p, s in zip(places, stride, strict=True))
        phase = (a * phases_y + b) * phases_x + c
        offset = phase * (qz * qy * qx) + (z * qy + y) * qx + x

        def each(c: Reg) -> None:
            k.store(k.cast(c * channel + offset, i64), offsets, c * count + t)

        # Their divisions take longer than all else here.
        k.loop(0, channels, 1, each)

    k.parallel(tap)
    return k.text()


def _emit_blocks(name: str, config: BlocksConfig, target: KernelTarget) -> KernelText:
    k = Kernel(name, target)
    rows = config.rows
    source, packed = k.buffer("source", config.source), k.buffer("packed", config.target)
    outputs, channels, taps = k.size("outputs"), k.size("channels"), k.size("taps")
    blocks, by_group, by_output = k.size("blocks"), k.size("by_group"), k.size("by_output")
    by_channel, by_tap, first = k.size("by_channel"), k.size("by_tap"), k.size("first")

    def task(t: Reg) -> None:
        group, row0 = t / blocks, t % blocks * rows
        base, block = group * by_group + first, t * channels * taps * rows

        def tap(c: Reg, i: Reg) -> None:
            at, to = base + c * by_channel + i * by_tap, block + (c * taps + i) * rows
            for r in range(rows):
                row = row0 + r
                there = row < outputs
                x = k.load(source, at + k.select(there, row, row0) * by_output)
                k.store(k.select(there, x, 0.0), packed, to + r)

        k.loop(0, channels, 1, lambda c: k.loop(0, taps, 1, lambda i: tap(c, i)) and None)

    k.parallel(task)
    return k.text()


class _PlanesEmitter:
    """A task is one phase of one channel of an image."""

    def __init__(
        self, name: str, config: PlanesConfig | WordPlanesConfig, target: KernelTarget
    ) -> None:
        self.k = k = Kernel(name, target)
        self.config = config
        self.lanes = target.lanes(config.target)
        self.masked = target.masks and config.step in (1, 2) and not config.spread
        self.source, self.target = (
            k.buffer("source", config.source),
            k.buffer("planes", config.target),
        )

        def axes(what: str) -> tuple[Reg, Reg, Reg]:
            return k.size(f"{what}_z"), k.size(f"{what}_y"), k.size(f"{what}_x")

        self.channels = k.size("channels")
        self.by_image, self.by_channel = k.size("source_image"), k.size("source_channel")
        self.by = axes("source")
        self.to_image, self.to_channel = k.size("planes_image"), k.size("planes_channel")
        self.phases, self.size, self.stride = axes("phases"), axes("size"), axes("stride")
        self.low, self.length, self.spread = axes("low"), axes("length"), axes("spread")

    def emit(self) -> KernelText:
        self.k.parallel(self.task)
        return self.k.text()

    def task(self, index: Reg) -> None:
        k = self.k
        pz, py, px = self.phases
        qz, qy, qx = self.size
        count = pz * py * px
        number, rest = index % count, index / count
        channel, image = rest % self.channels, rest / self.channels
        phase = (number / (py * px), number / px % py, number % px)
        source = image * self.by_image + self.origin(channel)
        to = image * self.to_image + channel * self.to_channel + number * (qz * qy * qx)

        filled = self.filled(phase[2])

        def row(z: Reg, y: Reg) -> None:
            there, at = self.element(0, z, phase[0])
            inside, place = self.element(1, y, phase[1])
            start = source + at * self.by[0] + place * self.by[1]
            target = to + (z * qy + y) * qx
            if self.masked:
                self.masked_row(start, target, phase[2], filled, there & inside)
                return
            k.when(
                there & inside,
                lambda: self.row(start, target, phase[2], filled),
                lambda: self.zeros(target, qx),
            )

        k.loop(0, qz, 1, lambda z: k.loop(0, qy, 1, lambda y: row(z, y)) and None)

    def origin(self, channel: Reg) -> Reg:
        """Where an image has a channel."""
        return channel * self.by_channel

    def vector(self, at: Reg, mask: Reg | None) -> Reg:
        """The elements from ``at`` on, of those in the mask if there is one; 0 for the others."""
        return self.k.load(self.source, at, self.lanes, mask)

    def element(self, axis: int, q: Reg, phase: Reg) -> tuple[Reg, Reg]:
        """Whether a place of a plane has an element along an axis, and which."""
        k, spread = self.k, self.spread[axis]
        place = q * self.stride[axis] + phase - self.low[axis]
        if not self.config.spread:
            return (place >= 0) & (place < self.length[axis]), place
        which = place / spread  # of unsigned numbers; what is negative is out anyway
        there = (place >= 0) & (which < self.length[axis])
        return there & k.compare("eq", place % spread, 0), which

    def zeros(self, at: Reg, count: Reg) -> None:
        k = self.k
        k.halving_loop(count, self.lanes, lambda j, n: k.store(0.0, self.target, at + j, n))

    def row(self, source: Reg, to: Reg, phase: Reg, filled: tuple[Reg, Reg]) -> None:
        """A row of a plane from a row of the input."""
        if self.config.spread:
            self.zeros(to, self.size[2])
            self.spread_row(source, to)
            return
        k, size, low = self.k, self.size[2], self.low[2]
        begin, end = filled
        start = source + (begin * self.stride[2] + phase - low) * self.by[2]
        step = self.stride[2] * self.by[2]

        def copy(j: Reg, lanes: int) -> None:
            x = every(k, self.source, start + j * step, self.config.step, step, lanes)
            k.store(x, self.target, to + begin + j, lanes)

        self.zeros(to, begin)
        k.halving_loop(end - begin, self.lanes, copy)
        self.zeros(to + end, size - end)

    def filled(self, phase: Reg) -> tuple[Reg, Reg]:
        """The places of a row of a plane that have an element of the input."""
        k, stride, low, size = self.k, self.stride[2], self.low[2], self.size[2]

        def windows(places: Reg) -> Reg:
            """How many places of the plane are before so many of the padded input."""
            count = (places + (stride - 1)) / stride
            count = k.select(count < size, count, size)
            return k.select(places > 0, count, 0)

        return windows(low - phase), windows(low - phase + self.length[2])

    def masked_row(
        self, source: Reg, to: Reg, phase: Reg, filled: tuple[Reg, Reg], there: Reg
    ) -> None:
        """A row of a plane, by masks: what is not read is zero. ``there`` is false for a row of
        the padding."""
        k, lanes, size, step = self.k, self.lanes, self.size[2], self.config.step
        begin, end = (k.cast(k.select(there, n, 0), i32) for n in filled)
        first, last = (k.select(there, n, 0) for n in filled)
        start = source + (phase - self.low[2]) * self.by[2]

        def read(j: Reg, part: int) -> Reg:
            """The elements of ``lanes / step`` places."""
            places = k.constants([(part * lanes + n) // step for n in range(lanes)], i32)
            places = places + k.cast(j, i32)
            mask = (places >= begin) & (places < end)
            if step > 1:  # those between two places may lie behind the last element
                mask = mask & k.compare("eq", k.constants([n % step for n in range(lanes)], i32), 0)
            return self.vector(start + (j * step + part * lanes), mask)

        def vector(j: Reg) -> None:
            x = read(j, 0)
            if step > 1:
                x = k.shuffle(x, read(j, 1), range(0, 2 * lanes, 2))
            k.store(x, self.target, to + j, lanes, k.first_lanes(size - j, lanes))

        if step > 1:
            k.loop(0, size, lanes, vector)
            return
        # Between the first vector and the last ones all is there.
        whole = k.minimum((first + (lanes - 1)) / lanes * lanes, size)
        rest = k.maximum(whole, last / lanes * lanes)
        k.loop(0, whole, lanes, vector)
        k.loop(
            whole, rest, lanes,
            lambda j: k.store(self.vector(start + j, None), self.target, to + j, lanes),
        )  # fmt: skip
        k.loop(rest, size, lanes, vector)

    def spread_row(self, source: Reg, to: Reg) -> None:
        """The elements of a row, with zeros between them; a stride there is 1."""
        k = self.k

        def element(i: Reg) -> None:
            q = i * self.spread[2] + self.low[2]
            x = k.load(self.source, source + i * self.by[2])
            k.when((q >= 0) & (q < self.size[2]), lambda: k.store(x, self.target, to + q))

        k.loop(0, self.length[2], 1, element)


class _WordsEmitter(_PlanesEmitter):
    """A channel is a word: four channels of a group. Those too many of its last one repeat the last
    channel, and meet weights of 0."""

    def __init__(self, name: str, config: WordPlanesConfig, target: KernelTarget) -> None:
        super().__init__(name, config, target)
        self.flipped = config.flipped
        self.own, self.words = self.k.size("own"), self.k.size("words")

    def origin(self, channel: Reg) -> Reg:
        word, group = channel % self.words, channel / self.words
        each = [self.k.minimum(word * FOUR + n, self.own - 1) for n in range(FOUR)]
        self.apart = [c * self.by_channel for c in each]
        return group * self.own * self.by_channel

    def vector(self, at: Reg, mask: Reg | None) -> Reg:
        found = [self.k.load(self.source, at + n, self.lanes, mask) for n in self.apart]
        return word_of(self.k, found, self.flipped)
