"""How a convolution is cut into tiles and tasks for ``conv_channels``.

Its input is planes (see ``conv_plan``) with padding but without phases: a window of stride s is s
elements from the next, which is known when the kernel is made.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from rlx.kernels.builder import KernelTarget
from rlx.kernels.conv_plan import ConvShape, OperandKind, Planes, Triple
from rlx.kernels.family import Launch
from rlx.kernels.program import Program
from rlx.kernels.strides import ceil_div
from rlx.types import DType

__all__ = ["VECTORS", "ConvChannelsConfig", "block_width", "config_of", "launch", "undivided"]

VECTORS = 2
"""Vectors of output channels of a block."""

TileSize = tuple[int, int]
"""Rows and columns of windows."""


@dataclass(frozen=True)
class ConvChannelsConfig:
    """What the code depends on: as in ``ConvConfig``, and ``step``, the elements from a window to
    the next, and the one or two tiles that make up a line."""

    dtype: DType
    single: bool
    step: int
    tiles: tuple[TileSize, ...]
    epilogue: Program
    operands: tuple[OperandKind, ...] = ()

    @property
    def result(self) -> DType:
        """The element type of the result."""
        return self.epilogue.results[0]


def most_windows(target: KernelTarget) -> int:
    """Windows of the tile that fills the register file."""
    return 14 if target.registers >= 32 else 6


def block_width(target: KernelTarget, dt: DType) -> int:
    """Output channels of a block; ``dt`` is what is summed."""
    return VECTORS * target.lanes(dt)


def undivided(shape: ConvShape) -> ConvShape:
    """The convolution of stride 1 that has the windows of all strides, whose planes are read."""
    if shape.taps == 1 and 2 * shape.out[2] <= 14: return shape
    one = (1, 1, 1)
    z, y, x = ((n - 1) * s + 1 for n, s in zip(shape.out, shape.stride, strict=True))
    return replace(shape, out=(z, y, x), stride=one)


@dataclass(frozen=True)
class Lines:
    """The windows of an image as ``count`` lines a slice of ``length`` units each, a unit being a
    window, or a row of them."""

    slices: int
    count: int
    length: int
    whole_rows: bool
    columns: int

    @property
    def most(self) -> int:
        """Windows of a unit."""
        return self.columns if self.whole_rows else 1


def steps_of(shape: ConvShape) -> Triple:
    """How many places of a plane the windows are apart."""
    read = undivided(shape)
    z, y, x = (s // r for s, r in zip(shape.stride, read.stride, strict=True))
    return z, y, x


def lines_of(target: KernelTarget, shape: ConvShape, layout: Planes) -> Lines:
    """The lines that leave fewest ends."""
    oz, oy, ox = shape.out
    if steps_of(shape) == (1, 1, 1) and layout.size == shape.out:
        return Lines(1, 1, oz * oy * ox, False, ox)
    if 2 * ox <= most_windows(target):
        return Lines(oz, 1, oy, True, ox)
    return Lines(oz, oy, ox, False, ox)


def _cut(length: int, most: int) -> tuple[int, int, int]:
    """A line as so many tiles, the first of which are of a size, and the others one smaller."""
    tiles = ceil_div(length, most)
    return tiles, ceil_div(length, tiles), (length - 1) % tiles + 1


def config_of(
    target: KernelTarget, shape: ConvShape, layout: Planes, dt: DType, epilogue: Program,
    operands: tuple[OperandKind, ...],
) -> ConvChannelsConfig:  # fmt: skip
    """The config for a convolution on these planes."""
    lines = lines_of(target, shape, layout)
    tiles, size, main = _cut(lines.length, most_windows(target) // lines.most)
    sizes = [size] if main == tiles else [size, size - 1]
    shapes = tuple((n, lines.columns) if lines.whole_rows else (1, n) for n in sizes)
    return ConvChannelsConfig(dt, shape.taps == 1, steps_of(shape)[2], shapes, epilogue, operands)


PART_BYTES = 512 * 1024
"""Input and weights of a part that are in use together: they stay in the L2 cache."""
TASKS = 16
"""Tasks that keep some threads busy, and even out their speeds."""
TASK_SUMS = 64
"""Tiles times blocks of a task at most: their sums wait in the L2 cache."""
GRAIN_FLOPS = 400_000
"""Work of the smallest share worth handing to another thread."""


def _cut_tasks(
    tiles: int, blocks: int, groups: int, weights: int, data: int
) -> tuple[int, int]:
    """How many tasks the tiles and the blocks are cut into. A cut of one reads the other's whole
    side again, so the tasks wanted are had for the least of that."""

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
    lines = lines_of(target, shape, layout)
    sz, sy, sx = steps_of(shape)
    oz, oy, ox = shape.out
    _, qy, qx = layout.size
    points, outputs = oz * oy * ox, shape.groups * shape.outputs
    line_tiles, size, main = _cut(lines.length, most_windows(target) // lines.most)
    unit = sy * qx if lines.whole_rows else sx

    width = block_width(target, config.dtype)
    blocks = ceil_div(shape.outputs, width)
    depth = shape.channels * shape.taps
    tiles = shape.images * lines.slices * lines.count * line_tiles
    weights, data = blocks * depth * width, shape.images * shape.channels * layout.channel
    tile_tasks, row_tasks = _cut_tasks(tiles, blocks, shape.groups, weights, data)
    task_tiles, task_blocks = ceil_div(tiles, tile_tasks), ceil_div(blocks, row_tasks)
    channel_bytes = ceil_div(shape.images * layout.channel, tile_tasks) + shape.taps * width
    parts = ceil_div(shape.channels * channel_bytes * config.dtype.bytes, PART_BYTES)
    part = ceil_div(shape.channels, parts)
    sizes = (
        layout.image, sz * qy * qx, sy * qx, size * unit, (size - 1) * unit, sy * qx, group,
        layout.channel, outputs * points, oy * ox, ox, points, lines.slices, lines.count,
        line_tiles, main, tiles, shape.channels, shape.taps, shape.outputs, part, task_tiles,
        tile_tasks, task_blocks, row_tasks,
    )  # fmt: skip
    most = max(r * c for r, c in config.tiles)
    lanes = target.lanes(config.dtype)
    strip_rows = ceil_div(most, lanes) * lanes
    held = strip_rows * (lanes + width * (task_tiles * task_blocks if part < shape.channels else 1))
    work = 2 * depth * task_blocks * width * task_tiles * most
    return Launch(
        shape.groups * row_tasks * tile_tasks,
        max(1, GRAIN_FLOPS // max(1, work)),
        sizes,
        scratch=held * config.dtype.bytes,
    )
