"""How a convolution is cut into tiles and tasks for ``conv_channels``.

Its input is planes (see ``conv_plan``) with padding but without phases: a window of stride s is s
elements from the next, which is known when the kernel is made.
"""

from __future__ import annotations

import math
from dataclasses import replace

from rlx.kernels import conv_plan
from rlx.kernels.builder import KernelTarget
from rlx.kernels.conv_plan import ConvShape, OperandKind, Planes, Triple
from rlx.kernels.family import Launch
from rlx.kernels.program import Program
from rlx.kernels.strides import ceil_div
from rlx.records import frozen
from rlx.types import DType

__all__ = [
    "VECTORS",
    "ConvChannelsConfig",
    "block_width",
    "config_of",
    "launch",
    "read_as",
    "strip_rows",
    "suits",
]

VECTORS = 2
"""Vectors of output channels of a block."""

TileSize = tuple[int, int]
"""Rows and columns of windows."""


@frozen
class ConvChannelsConfig:
    """What the code depends on: as in ``ConvConfig``, and ``step``, the elements from a window to
    the next, and the one or two tiles that make up a line."""

    dtype: DType
    single: bool
    step: int
    tiles: tuple[TileSize, ...]
    epilogue: Program
    operands: tuple[OperandKind, ...] = ()


def most_windows(target: KernelTarget) -> int:
    """Windows of the tile that fills the register file."""
    return 14 if target.registers >= 32 else 6


def block_width(target: KernelTarget, dt: DType) -> int:
    """Output channels of a block; ``dt`` is what is summed."""
    return VECTORS * target.lanes(dt)


def read_as(target: KernelTarget, shape: ConvShape) -> ConvShape:
    """The convolution whose planes are read: of stride 1, with the windows of all strides.

    Of small images and one tap it is the convolution itself: then its planes hold nothing but what
    is read, and are a line of windows.
    """
    if shape.taps == 1 and 2 * shape.out[2] <= most_windows(target):
        return shape
    z, y, x = ((n - 1) * s + 1 for n, s in zip(shape.out, shape.stride, strict=True))
    return replace(shape, out=(z, y, x), stride=(1, 1, 1))


@frozen
class _Lines:
    """The windows of an image: ``slices`` of ``count`` lines of ``length`` units. A unit is a
    window, or a row of them; ``windows`` is how many that are. ``tiles`` make up a line, of which
    the first ``main`` have ``size`` units, and the others one less.

    ``steps`` are how far apart windows are in the planes, in places of each axis.
    """

    slices: int
    count: int
    length: int
    windows: int
    tiles: int
    steps: Triple

    @staticmethod
    def of(target: KernelTarget, shape: ConvShape, size: Triple) -> _Lines:
        """The lines on planes of a size that make the fullest tiles."""
        read, most = read_as(target, shape), most_windows(target)
        z, y, x = (s // r for s, r in zip(shape.stride, read.stride, strict=True))
        oz, oy, ox = shape.out
        slices, count, length, windows = oz, oy, ox, 1
        if (z, y, x) == (1, 1, 1) and size == shape.out:
            slices, count, length = 1, 1, oz * oy * ox
        elif 2 * ox <= most:
            count, length, windows = 1, oy, ox
        return _Lines(slices, count, length, windows, ceil_div(length, most // windows), (z, y, x))

    @property
    def size(self) -> int:
        """Units of a main tile."""
        return ceil_div(self.length, self.tiles)

    @property
    def main(self) -> int:
        """Main tiles of a line."""
        return (self.length - 1) % self.tiles + 1

    @property
    def shapes(self) -> tuple[TileSize, ...]:
        """The tiles: the main one, and that of the rest if there is one."""
        sizes = [self.size] if self.main == self.tiles else [self.size, self.size - 1]
        return tuple((n, self.windows) if self.windows > 1 else (1, n) for n in sizes)


TILE_CYCLES = 16
"""What the end of a tile costs, in multiply-adds for each channel of the block."""
LEAST_VECTOR_BYTES = 32
"""Vectors from which on this kernel was measured to be worth it."""
LEAST_WINDOWS = 4
"""Windows of a step that take the time of one: its sums wait for those of the step before."""


def suits(target: KernelTarget, shape: ConvShape, dt: DType) -> bool:
    """Whether this kernel has less work than ``conv``: fewer empty lanes and windows that are
    not stored, against the transposition of its sums."""
    if target.vector_bytes < LEAST_VECTOR_BYTES:
        return False
    lines = _Lines.of(target, shape, conv_plan.plane_size(read_as(target, shape)))
    width, windows = block_width(target, dt), math.prod(shape.out)
    tiles = lines.slices * lines.count * lines.tiles
    depth = shape.channels * shape.taps
    steps = max(windows, LEAST_WINDOWS * tiles) * depth
    cycles = ceil_div(shape.outputs, width) * (steps + tiles * TILE_CYCLES * width)
    return cycles < conv_plan.cycles(target, shape, dt)


def config_of(
    target: KernelTarget, shape: ConvShape, layout: Planes, dt: DType, epilogue: Program,
    operands: tuple[OperandKind, ...],
) -> ConvChannelsConfig:  # fmt: skip
    """The config for a convolution on these planes."""
    lines = _Lines.of(target, shape, layout.size)
    return ConvChannelsConfig(dt, shape.taps == 1, lines.steps[2], lines.shapes, epilogue, operands)


PART_BYTES = 512 * 1024
"""Input and weights of a part that are in use together: they stay in the L2 cache."""
TASKS = 16
"""Tasks that keep some threads busy, and even out their speeds."""
TASK_SUMS = 64
"""Tiles times blocks of a task at most: their sums wait in the L2 cache."""
GRAIN_FLOPS = 400_000
"""Work of the smallest share worth handing to another thread."""


def _cut_tasks(tiles: int, blocks: int, groups: int, weights: int, data: int) -> tuple[int, int]:
    """How many tasks the tiles and the blocks are cut into. Each cut of one reads the other's
    elements, ``weights`` or ``data``, again; so the tasks wanted are had for the least of that."""

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

    The kernel's buffers are the planes, the packed weights, the offsets of the taps (i64; unless
    there is one), the operands, and the result [images, groups * outputs, out].
    """
    lines = _Lines.of(target, shape, layout.size)
    oz, oy, ox = shape.out
    _, qy, qx = layout.size
    windows, outputs = oz * oy * ox, shape.groups * shape.outputs
    z, y, x = lines.steps[0] * qy * qx, lines.steps[1] * qx, lines.steps[2]
    unit = y if lines.windows > 1 else x

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
    sizes = (
        layout.image, z, y, lines.size * unit, (lines.size - 1) * unit, y, group, layout.channel,
        outputs * windows, oy * ox, ox, windows, lines.slices, lines.count, lines.tiles,
        lines.main, tiles, shape.channels, shape.taps, shape.outputs, part, task_tiles,
        tile_tasks, task_blocks, row_tasks,
    )  # fmt: skip
    held = task_tiles * task_blocks if part < shape.channels else 1
    strip = strip_rows(target, config) * (target.lanes(config.dtype) + width * held)
    most = max(rows * columns for rows, columns in config.tiles)
    work = 2 * depth * task_blocks * width * task_tiles * most
    return Launch(
        shape.groups * row_tasks * tile_tasks,
        max(1, GRAIN_FLOPS // max(1, work)),
        sizes,
        scratch=strip * config.dtype.bytes,
    )


def strip_rows(target: KernelTarget, config: ConvChannelsConfig) -> int:
    """Windows of a tile in scratch: up to whole vectors, as it is transposed."""
    lanes = target.lanes(config.dtype)
    return max(ceil_div(rows * columns, lanes) * lanes for rows, columns in config.tiles)
