"""How a depthwise convolution is cut into tiles and tasks for ``conv_depthwise``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from rlx.kernels.builder import KernelTarget
from rlx.kernels.conv_plan import ConvShape, OperandKind, Triple
from rlx.kernels.family import Launch
from rlx.kernels.program import Program
from rlx.kernels.strides import ceil_div
from rlx.types import DType

__all__ = ["ConvDepthwiseConfig", "DepthwiseTile", "config_of", "launch", "slack", "suits"]


@dataclass(frozen=True)
class DepthwiseTile:
    """``rows`` of windows times ``vectors`` of them in registers."""

    rows: int
    vectors: int


@dataclass(frozen=True)
class ConvDepthwiseConfig:
    """What the code depends on.

    ``dtype`` is what is multiplied and summed (f32 or f64), ``source`` what is read. ``stride`` and
    ``dilation`` are those along rows and columns, and ``low`` is the padding of columns. ``row`` is
    how many vectors an input row fills, if a tile has all windows of a row; else 0.
    """

    dtype: DType
    source: DType
    kernel: Triple
    stride: tuple[int, int]
    dilation: tuple[int, int]
    low: int
    row: int
    tile: DepthwiseTile
    epilogue: Program
    operands: tuple[OperandKind, ...] = ()

    @property
    def result(self) -> DType:
        """The element type of the result."""
        return self.epilogue.results[0]

    def rows_read(self) -> list[int]:
        """The input rows of a tile, from its first on."""
        return rows_read(self.tile.rows, self.kernel[1], self.stride[0], self.dilation[0])


def rows_read(rows: int, taps: int, stride: int, dilation: int) -> list[int]:
    """The input rows of so many rows of windows."""
    return sorted({r * stride + t * dilation for r in range(rows) for t in range(taps)})


MOST_TAPS = 64
"""Taps of a window at most: each is code of its own."""
MOST_STRIDE = 2
"""The largest distance of neighbouring windows along a row that vectors are loaded for."""


def suits(shape: ConvShape) -> bool:
    """Whether the kernel can do a convolution: one channel a group, and few taps."""
    return shape.channels == 1 and 1 < shape.taps <= MOST_TAPS and shape.stride[2] <= MOST_STRIDE


def accumulators(target: KernelTarget) -> int:
    """Registers for sums."""
    return 24 if target.registers >= 32 else 10


def held_taps(target: KernelTarget) -> int:
    """Weights that may stay in registers; more are loaded for each use."""
    return 9 if target.registers >= 32 else 3


SPLIT = 1.75
"""Loads that one of a vector at any place takes the time of: most lie in two lines."""
LATENCY = 4
"""Cycles from a multiply-add to the next of its sum."""
ROW_CYCLES, VECTOR_CYCLES = 1.5, 3
"""What an input row and the end of a vector of sums cost, in cycles."""


@cache
def tile_of(
    target_sizes: tuple[int, int, int], out: tuple[int, int], kernel: Triple, stride: tuple[int, int],
    dilation: tuple[int, int],
) -> DepthwiseTile:  # fmt: skip
    """The tile with the least work; ``target_sizes`` are lanes, sums and weights in registers."""
    lanes, sums, held = target_sizes
    oy, ox = out
    taps, deep = math.prod(kernel), kernel[0]
    loads = len({t * dilation[1] // stride[1] for t in range(kernel[2])}) * stride[1]

    def cycles(tile: DepthwiseTile) -> float:
        r, v = tile.rows, tile.vectors
        rows = len(rows_read(r, kernel[1], stride[0], dilation[0])) * deep
        read = rows * loads * v * SPLIT + (r * taps if taps > held else 0)
        one = max(r * v * taps / 2, read / 2, LATENCY * taps) + rows * ROW_CYCLES
        tiles = ceil_div(oy, r) * ceil_div(ceil_div(ox, lanes), v)
        return tiles * (one + r * v * VECTOR_CYCLES)

    tiles = [
        DepthwiseTile(r, v)
        for r in range(1, min(8, oy) + 1) for v in range(1, 9) if r * v <= sums
    ]  # fmt: skip
    return min(tiles, key=cycles)


def config_of(
    target: KernelTarget, shape: ConvShape, dt: DType, source: DType, epilogue: Program,
    operands: tuple[OperandKind, ...],
) -> ConvDepthwiseConfig:  # fmt: skip
    """The config for a convolution whose input has the type ``source`` where it is read."""
    (_, sy, sx), (_, dy, dx), (_, oy, ox) = shape.stride, shape.dilation, shape.out
    lanes = target.lanes(dt)
    sizes = (lanes, accumulators(target), held_taps(target))
    tile = tile_of(sizes, (oy, ox), shape.kernel, (sy, sx), (dy, dx))
    row = ceil_div(shape.size[2], lanes) if tile.vectors * lanes >= ox else 0
    return ConvDepthwiseConfig(
        dt, source, shape.kernel, (sy, sx), (dy, dx), shape.low[2], row, tile, epilogue, operands
    )


TASKS = 64
"""Tasks that keep some threads busy, and even out their speeds."""
GRAIN_FLOPS = 200_000
"""Work of the smallest share worth handing to another thread."""


def launch(
    config: ConvDepthwiseConfig,
    target: KernelTarget,
    shape: ConvShape,
    strides: tuple[int, int, Triple],
) -> Launch:
    """``strides`` are the input's, in elements: of images, of channels, and of the spatial axes,
    the last of which is 1. ``shape.size`` is the input that may be read.

    The kernel's buffers are the input, the weights [groups * outputs, taps], the operands, and the
    result [images, groups * outputs, out].
    """
    image, channel, (z, y, _) = strides
    lanes, tile = target.lanes(config.dtype), config.tile
    oz, oy, ox = shape.out
    tiles, panels = ceil_div(oy, tile.rows), ceil_div(ceil_div(ox, lanes), tile.vectors)

    def cut(count: int, others: int) -> tuple[int, int]:
        """So many, cut into enough tasks: how many a task has, and how many tasks."""
        each = ceil_div(count, min(count, ceil_div(TASKS, others)))
        return each, ceil_div(count, each)

    tasks = shape.images * oz
    task_groups, group_tasks = cut(shape.groups, tasks)
    tasks *= group_tasks
    task_tiles, tile_tasks = cut(tiles, tasks)
    tasks *= tile_tasks
    task_panels, panel_tasks = cut(panels, tasks)
    tasks *= panel_tasks
    work = 2 * shape.taps * task_groups * shape.outputs * task_tiles * tile.rows
    work *= task_panels * tile.vectors * lanes
    sizes = (
        image, channel, z, y, *shape.size, *shape.low[:2], shape.stride[0], shape.dilation[0],
        *shape.out, shape.groups, shape.outputs, tiles, panels, task_groups, group_tasks,
        task_tiles, tile_tasks, task_panels, panel_tasks,
    )  # fmt: skip
    return Launch(
        tasks,
        max(1, GRAIN_FLOPS // max(1, work)),
        sizes,
        scratch=tile.rows * tile.vectors * lanes * config.dtype.bytes,
    )


def slack(config: ConvDepthwiseConfig, target: KernelTarget) -> int:
    """Elements behind the input that a target without masks may read."""
    return config.tile.vectors * target.lanes(config.dtype) * config.stride[1]
