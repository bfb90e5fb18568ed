"""Tiling of a convolution for ``channels.py``: tiles and tasks.

A window of stride s is s elements from the next in a row, which is known when the kernel is made.
The input are images as they lie, of which a tile leaves out the taps that fall on the padding; or
planes (see ``plan.py``), with padding but without phases.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

from rlx.base.dims import at_least, choose, maximum, minimum
from rlx.base.frozen import frozen
from rlx.base.guards import at_hand, hurries, prefers, within
from rlx.codegen.builder import KernelTarget
from rlx.codegen.family import Launch
from rlx.codegen.program import Program
from rlx.codegen.strides import ceil_div
from rlx.kernels.conv import channels_any
from rlx.kernels.conv import plan as conv_plan
from rlx.kernels.conv.channels_any import PART_BYTES, TASK_SUMS, TASKS, AnyTiles, Span
from rlx.kernels.conv.plan import ConvShape, OperandKind, Planes, Triple, Words
from rlx.types import DType

__all__ = [
    "VECTORS",
    "ChannelsTile",
    "ConvChannelsConfig",
    "block_width",
    "config_of",
    "launch",
    "on_images",
    "read_as",
    "strip_rows",
    "suits",
]

VECTORS = 2
"""Vectors of output channels of a block."""


@frozen
class ChannelsTile:
    """Rows and columns of windows.

    On images, ``across`` has for each tap of a row the columns of windows for which it is in the
    image, and ``down`` the same for the rows; a tile of one row has no ``down``: the kernel finds
    the rows of taps that are there.
    """

    rows: int
    columns: int
    across: tuple[Span, ...] = ()
    down: tuple[Span, ...] = ()

    @property
    def windows(self) -> int:
        """How many they are."""
        return self.rows * self.columns


@frozen
class ConvChannelsConfig:
    """What the code depends on: as in ``ConvConfig``, and ``step`` and ``gap``, the elements from a
    window to the next and from a tap to the next, and the different tiles that make up a line, in
    their order; or those that may, for lines of ``any`` length. ``vectors`` are those of whole
    blocks and, where that has fewer, of the last."""

    dtype: DType
    single: bool
    step: int
    gap: int
    tiles: tuple[ChannelsTile, ...]
    vectors: tuple[int, ...]
    epilogue: Program
    operands: tuple[OperandKind, ...] = ()
    words: Words | None = None
    any: AnyTiles | None = None

    @property
    def images(self) -> bool:
        """Whether the input are images as they lie."""
        return self.any.ends is not None if self.any else bool(self.tiles[0].across)

    @property
    def most(self) -> int:
        """Windows of a tile at most."""
        return self.any.most if self.any else max(tile.windows for tile in self.tiles)


def most_windows(target: KernelTarget) -> int:
    """Windows of the tile that fills the register file."""
    return 14 if target.registers >= 32 else 6


def block_width(target: KernelTarget, dt: DType) -> int:
    """Output channels of a block; ``dt`` is what is summed."""
    return VECTORS * target.lanes(dt)


def block_vectors(target: KernelTarget, outputs: int, dt: DType) -> tuple[int, ...]:
    """Vectors of the whole blocks of so many output channels, and of the last, if these differ."""
    count = ceil_div(outputs, target.lanes(dt))
    whole, rest = count // VECTORS, count % VECTORS
    return (VECTORS,) * (whole > 0) + (rest,) * (rest > 0)


def read_as(target: KernelTarget, shape: ConvShape) -> ConvShape:
    """The convolution whose planes are read: of stride 1, with the windows of all strides.

    Of small images and one tap it is the convolution itself: then its planes hold nothing but what
    is read, and are a line of windows.
    """
    few = prefers(lambda: 2 * shape.out[2] <= most_windows(target), otherwise=False)
    if shape.taps == 1 and few:
        return shape
    z, y, x = ((n - 1) * s + 1 for n, s in zip(shape.out, shape.stride, strict=True))
    return replace(shape, out=(z, y, x), stride=(1, 1, 1))


@frozen
class _Lines:
    """The windows of an image: ``slices`` of ``count`` lines of ``length`` units. A unit is a
    window, or a ``whole`` row of them; ``windows`` is how many that are. ``tiles`` make up a line,
    of which the first ``main`` have ``size`` units, and the others one less.

    ``steps`` are how far apart windows are in the planes, in places of each axis.
    """

    slices: int
    count: int
    length: int
    windows: int
    whole: bool
    tiles: int
    steps: Triple

    @staticmethod
    def of(target: KernelTarget, shape: ConvShape, size: Triple) -> _Lines:
        """The lines on planes of a size that make the fullest tiles."""
        most = most_windows(target)
        z, y, x = _steps(target, shape)
        oz, oy, ox = shape.out
        slices, count, length, windows, whole = oz, oy, ox, 1, False
        if (z, y, x) == (1, 1, 1) and _fills(shape, size):
            slices, count, length = 1, 1, oz * oy * ox
        elif 2 * ox <= most:
            count, length, windows, whole = 1, oy, ox, True
        tiles = ceil_div(length, most // windows)
        return _Lines(slices, count, length, windows, whole, tiles, (z, y, x))

    @property
    def size(self) -> int:
        """Units of a main tile."""
        return ceil_div(self.length, self.tiles)

    @property
    def main(self) -> int:
        """Main tiles of a line."""
        return (self.length - 1) % self.tiles + 1

    def each(self, shape: ConvShape, images: bool) -> list[ChannelsTile]:
        """The tiles of a line in order, on images or on planes."""
        sizes = [self.size - (n >= self.main) for n in range(self.tiles)]
        if not images:
            return [ChannelsTile(*self._sides(n)) for n in sizes]
        found: list[ChannelsTile] = []
        first = 0
        for n in sizes:
            rows, columns = self._sides(n)
            across = _spans(shape, 2, 0 if self.whole else first, columns)
            down = _spans(shape, 1, first, rows) if self.whole else ()
            found.append(ChannelsTile(rows, columns, across, down))
            first += n
        return found

    def _sides(self, units: int) -> tuple[int, int]:
        """The rows and columns of windows of a tile of so many units."""
        return (units, self.windows) if self.whole else (1, units)


def _spans(shape: ConvShape, axis: int, first: int, count: int) -> tuple[Span, ...]:
    """For each tap along an axis, which of ``count`` windows from the first on it is in the image
    for."""

    def span(tap: int) -> Span:
        at = first * shape.stride[axis] + tap * shape.dilation[axis] - shape.low[axis]
        places = range(at, at + count * shape.stride[axis], shape.stride[axis])
        there = [n for n, place in enumerate(places) if 0 <= place < shape.size[axis]]
        return (there[0], there[-1] + 1) if there else (0, 0)

    return tuple(span(tap) for tap in range(shape.kernel[axis]))


def _runs(tiles: list[ChannelsTile]) -> list[tuple[ChannelsTile, int]]:
    """The different tiles among neighbours, each with the number of that behind its last."""
    last = [*(a != b for a, b in pairwise(tiles)), True]
    return [(tile, n + 1) for n, (tile, end) in enumerate(zip(tiles, last, strict=True)) if end]


TILE_CYCLES = 16
"""What the end of a tile costs, in multiply-adds for each channel of the block."""
LEAST_VECTOR_BYTES = 32
"""Vectors from which on this kernel was measured to be worth it."""
LEAST_WINDOWS = 4
"""Windows of a step that take the time of one: its sums wait for those of the step before."""
PART_SHARE = 1.2
"""Time of a block with fewer vectors, for each of these: it loads elements of the input as often as
a whole one."""
USUAL = 40
"""Windows along an axis by which kernels are compared for images of any size."""
SMALL = 1.3
"""How much more work of this kernel at usual sizes is worth it where images may be less than a
vector: it has less then, and reads as it lies what the other copies."""


def suits(target: KernelTarget, shape: ConvShape, dt: DType) -> bool:
    """Whether this kernel has less work than ``conv``: fewer empty lanes and windows that are
    not stored, against the transposition of its sums. For images of any size, usual ones tell,
    narrow ones apart where these tell otherwise."""
    if target.vector_bytes < LEAST_VECTOR_BYTES:
        return False
    known = prefers(
        lambda: _cycles(target, shape, dt) < conv_plan.cycles(target, shape, dt), otherwise=None
    )
    if known is not None:
        return known
    row = most_windows(target)
    narrow, middle, wide = (
        _suits_usual(target, shape, dt, columns) for columns in (row // 3, row - 2, USUAL)
    )
    # A kernel for any size holds the code of many tiles.
    if not (narrow or middle or wide) or hurries():
        return False
    if narrow != middle and shape.out[2] <= row // 2:  # rows of which a tile has several
        return narrow
    if middle != wide and shape.out[2] <= row:
        return middle
    return wide


def _suits_usual(target: KernelTarget, shape: ConvShape, dt: DType, columns: int) -> bool:
    """Whether this kernel has less work for images of usual sizes and about so many columns."""
    usual = replace(
        shape,
        images=at_hand(shape.images),
        channels=at_hand(shape.channels),
        outputs=at_hand(shape.outputs),
        out=tuple(
            int(min(max(size, low), high))
            for size, (low, high) in zip(
                (USUAL, USUAL, columns), map(within, shape.out), strict=True
            )
        ),
    )
    few = within(math.prod(shape.out))[0] < target.lanes(dt)
    work = conv_plan.cycles(target, usual, dt) * (SMALL if few else 1)
    return _cycles(target, usual, dt) < work


def _cycles(target: KernelTarget, shape: ConvShape, dt: DType) -> float:
    """About the cycles of an image and a group, as ``conv_plan.cycles``."""
    lines = _Lines.of(target, shape, conv_plan.plane_size(read_as(target, shape)))
    width, windows = block_width(target, dt), math.prod(shape.out)
    tiles = lines.slices * lines.count * lines.tiles
    depth = shape.channels * shape.taps
    steps = max(windows, LEAST_WINDOWS * tiles) * depth
    blocks = sum(
        1 if vectors == VECTORS else PART_SHARE * vectors / VECTORS
        for vectors in block_vectors(target, shape.outputs, dt)
    ) + max(0, shape.outputs // width - 1)
    return blocks * (steps + tiles * TILE_CYCLES * width)


MOST_TAPS = 7
"""Taps of a row, and rows of taps, of a convolution on images: each is code of its own."""
MOST_TILES = 6
"""Different tiles of a line on images."""
FEW_CHANNELS = 8
"""Channels that find room in the L1 cache wherever they lie."""


def on_images(target: KernelTarget, shape: ConvShape, dt: DType) -> bool:
    """Whether a convolution reads images as they lie, if they are dense and of the type ``dt``."""
    flat = shape.size[0] == shape.out[0] == shape.kernel[0] == 1 and shape.low[0] == 0
    if not flat or shape.taps == 1 or max(shape.kernel) > MOST_TAPS or max(shape.spread) > 1:
        return False
    return prefers(
        lambda: _few_tiles(target, shape, dt),
        otherwise=channels_any.on_images(shape, most_windows(target)),
    )


def _few_tiles(target: KernelTarget, shape: ConvShape, dt: DType) -> bool:
    """Whether a line on images has few different tiles, and channels have room in the cache."""
    if shape.channels > FEW_CHANNELS and conv_plan.crowded(math.prod(shape.size), dt):
        return False
    tiles = _Lines.of(target, shape, shape.size).each(shape, True)
    return len(_runs(tiles)) <= MOST_TILES


def config_of(
    target: KernelTarget, shape: ConvShape, layout: Planes, dt: DType, epilogue: Program,
    operands: tuple[OperandKind, ...], *, images: bool = False, words: Words | None = None,
) -> ConvChannelsConfig:  # fmt: skip
    """The config for a convolution on these planes, or on ``images`` as they lie."""

    def known() -> tuple[ChannelsTile, ...]:
        lines = _Lines.of(target, shape, layout.size)
        return tuple(tile for tile, _ in _runs(lines.each(shape, images)))

    tiles, found = prefers(known, otherwise=()), None
    if not tiles:
        most, flat = most_windows(target), _steps(target, shape) == (1, 1, 1)
        found = channels_any.tiles_of(shape, most, flat and _fills(shape, layout.size), images)
    gap = shape.dilation[2] if images else 1
    step = _steps(target, shape)[2]
    vectors = block_vectors(target, shape.outputs, dt)
    return ConvChannelsConfig(
        dt, shape.taps == 1, step, gap, tiles, vectors, epilogue, operands, words, found
    )


def _steps(target: KernelTarget, shape: ConvShape) -> Triple:
    """How far apart windows are in what is read, in places of each axis."""
    read = read_as(target, shape)
    z, y, x = (s // r for s, r in zip(shape.stride, read.stride, strict=True))
    return z, y, x


def _fills(shape: ConvShape, size: Triple) -> bool:
    """Whether every place of a plane of a size is a window, which surely have one tap."""
    return shape.taps == 1 and prefers(lambda: size == shape.out, otherwise=False)


GRAIN_FLOPS = 400_000
"""Work of the smallest share worth handing to another thread."""


def _cut_tasks(tiles: int, blocks: int, groups: int, weights: int, data: int) -> tuple[int, int]:
    """How many tasks the tiles and the blocks are cut into."""
    return prefers(
        lambda: _best_cut(tiles, blocks, groups, weights, data),
        otherwise=_fair_cut(tiles, blocks, groups, weights, data),
    )


def _fair_cut(tiles: int, blocks: int, groups: int, weights: int, data: int) -> tuple[int, int]:
    """For any number of tiles: of tiles and blocks those are cut first whose cuts read less
    again."""
    wanted, by_blocks = ceil_div(TASKS, groups), at_least(weights, data)
    few, many = minimum(blocks, wanted), minimum(tiles, wanted)
    rows = choose(by_blocks, few, minimum(blocks, ceil_div(wanted, many)))
    cut = choose(by_blocks, minimum(tiles, ceil_div(wanted, few)), many)
    task_blocks = ceil_div(blocks, rows)
    cut = maximum(cut, ceil_div(tiles * task_blocks, TASK_SUMS))
    return ceil_div(tiles, ceil_div(tiles, cut)), ceil_div(blocks, task_blocks)


def _best_cut(tiles: int, blocks: int, groups: int, weights: int, data: int) -> tuple[int, int]:
    """Each cut of one reads the other's elements, ``weights`` or ``data``, again; so the tasks
    wanted are had for the least of that."""

    def tasks(cut: int) -> tuple[int, int]:
        rows = min(blocks, ceil_div(TASKS, cut * groups))
        cut = max(cut, ceil_div(tiles * ceil_div(blocks, rows), TASK_SUMS))
        cut = ceil_div(tiles, ceil_div(tiles, cut))
        return cut, ceil_div(blocks, ceil_div(blocks, rows))

    found = [tasks(cut) for cut in range(1, min(tiles, TASKS) + 1)]
    enough = min(TASKS, max(a * b * groups for a, b in found))
    return min(
        (f for f in found if f[0] * f[1] * groups >= enough),
        key=lambda f: f[0] * weights + f[1] * data,
    )


def launch(
    config: ConvChannelsConfig,
    target: KernelTarget,
    shape: ConvShape,
    layout: Planes,
    group: int,
) -> Launch:
    """The launch of a convolution on planes whose groups are ``group`` elements apart.

    The kernel's buffers are the planes or images, the packed weights, the offsets of the taps (i64;
    on planes, unless there is one), the operands, and the result [images, groups * outputs, out].
    """
    if config.any is not None:
        width, strip = block_width(target, config.dtype), strip_rows(target, config)
        given = _steps(target, shape), width, strip, target.lanes(config.dtype)
        return channels_any.launch(config.any, shape, layout, group, *given, config.dtype.bytes)
    lines = _Lines.of(target, shape, layout.size)
    oz, oy, ox = shape.out
    _, qy, qx = layout.size
    windows, outputs = oz * oy * ox, shape.groups * shape.outputs
    z, y, x = lines.steps[0] * qy * qx, lines.steps[1] * qx, lines.steps[2]
    unit = y if lines.whole else x

    width = block_width(target, config.dtype)
    blocks, depth = ceil_div(shape.outputs, width), shape.channels * shape.taps
    tiles = shape.images * lines.slices * lines.count * lines.tiles
    channel = shape.images * math.prod(layout.size)
    tile_tasks, row_tasks = _cut_tasks(
        tiles, blocks, shape.groups, blocks * depth * width, shape.channels * channel
    )
    task_tiles, task_blocks = ceil_div(tiles, tile_tasks), ceil_div(blocks, row_tasks)
    together = (ceil_div(channel, tile_tasks) + shape.taps * width) * config.dtype.bytes
    part = ceil_div(shape.channels, ceil_div(shape.channels * together, PART_BYTES))
    ends = [end for _, end in _runs(lines.each(shape, config.images))][:-1]
    edges = (
        shape.low[1] * qx + shape.low[2], shape.dilation[1] * qx, shape.stride[1],
        shape.dilation[1], shape.low[1], shape.size[1], shape.kernel[1],
    )  # fmt: skip
    sizes = (
        layout.image, z, y, lines.size * unit, (lines.size - 1) * unit, y, group, layout.channel,
        outputs * windows, oy * ox, ox, windows, lines.slices, lines.count, lines.tiles,
        lines.main, tiles, shape.channels, shape.taps, shape.outputs, part, task_tiles,
        tile_tasks, task_blocks, row_tasks, *ends, *(edges if config.images else ()),
    )  # fmt: skip
    waits = prefers(lambda: part < shape.channels, otherwise=True)
    held = task_tiles * task_blocks if waits else 1
    strip = strip_rows(target, config) * (target.lanes(config.dtype) + width * held)
    work = 2 * depth * task_blocks * width * task_tiles * config.most
    return Launch(
        shape.groups * row_tasks * tile_tasks,
        maximum(1, GRAIN_FLOPS // maximum(1, work)),
        sizes,
        scratch=strip * config.dtype.bytes,
    )


def strip_rows(target: KernelTarget, config: ConvChannelsConfig) -> int:
    """Windows of a tile in scratch: up to whole vectors, as it is transposed."""
    lanes = target.lanes(config.dtype)
    return ceil_div(config.most, lanes) * lanes
