"""Tiling of a depthwise convolution for ``depthwise.py``: tiles and tasks."""

from __future__ import annotations

import math
from itertools import product

from rlx.base.dims import maximum, minimum
from rlx.base.frozen import frozen
from rlx.base.guards import prefers
from rlx.codegen.builder import KernelTarget
from rlx.codegen.family import Launch
from rlx.codegen.program import Program
from rlx.codegen.strides import ceil_div
from rlx.kernels.conv.plan import ConvShape, OperandKind, Triple
from rlx.types import DType

__all__ = [
    "ConvDepthwiseConfig",
    "DepthwiseTile",
    "Pair",
    "config_of",
    "cycles",
    "launch",
    "slack",
    "suits",
]

Pair = tuple[int, int]
"""Numbers along rows and columns of an image."""


@frozen
class DepthwiseTile:
    """``rows`` of windows times ``vectors`` of them in registers."""

    rows: int
    vectors: int


@frozen
class ConvDepthwiseConfig:
    """What the code depends on.

    ``dtype`` is what is multiplied and summed (f32 or f64), ``source`` what is read. ``stride`` and
    ``dilation`` are those along rows and columns, and ``low`` is the padding of columns. ``row`` is
    how many vectors an input row fills, if a tile has all windows of a row; else 0.
    """

    dtype: DType
    source: DType
    kernel: Triple
    stride: Pair
    dilation: Pair
    low: int
    row: int
    tile: DepthwiseTile
    epilogue: Program
    operands: tuple[OperandKind, ...] = ()

    def rows_read(self) -> list[int]:
        """The input rows of a tile, from its first on."""
        return rows_read(self.tile.rows, self.kernel[1], self.stride[0], self.dilation[0])


def rows_read(rows: int, taps: int, stride: int, dilation: int) -> list[int]:
    """The input rows of so many rows of windows."""
    return sorted({r * stride + t * dilation for r in range(rows) for t in range(taps)})


MOST_TAPS = 64
"""Taps of a window at most: each is code of its own."""
FEW_TAPS, FEW_OUTPUTS = 9, 4
"""Taps or output channels a group up to which no other kernel was measured to be faster."""
MOST_STRIDE = 2
"""The largest distance of neighbouring windows along a row that vectors are loaded for."""


def suits(shape: ConvShape) -> bool:
    """Whether the kernel does a convolution: one channel a group, and few taps or few outputs."""
    one = shape.channels == 1 and shape.stride[2] <= MOST_STRIDE
    few = shape.taps <= FEW_TAPS or shape.outputs <= FEW_OUTPUTS
    return one and few and 1 < shape.taps <= MOST_TAPS


def most_sums(target: KernelTarget) -> int:
    """Vectors of sums in registers at most."""
    return 24 if target.registers >= 32 else 10


def held_taps(target: KernelTarget) -> int:
    """Weights that may stay in registers; more are loaded for each use."""
    return 9 if target.registers >= 32 else 3


MOST_SIDE = 8
"""Rows and vectors of a tile at most."""
LATENCY = 4
"""Cycles from a multiply-add to the next of its sum."""
ROW_CYCLES, EDGE_CYCLES, MOVE_CYCLES, VECTOR_CYCLES = 2, 2, 0.3, 3
"""What costs besides: an input row, one of a tile that has no whole rows of windows, moving the
lanes of a vector, and the end of a vector of sums."""


def tile_cycles(shape: ConvShape, columns: int, tile: DepthwiseTile) -> float:
    """About the cycles of a slice of a channel, whose rows have so many vectors of windows."""
    r, v = tile.rows, tile.vectors
    rows = len(rows_read(r, shape.kernel[1], shape.stride[1], shape.dilation[1]))
    rows *= shape.kernel[0]
    one = max(r * v / 2, LATENCY) * shape.taps + r * v * VECTOR_CYCLES
    one += rows * (ROW_CYCLES + EDGE_CYCLES * (v < columns))
    one += rows * v * shape.kernel[2] * MOVE_CYCLES
    return ceil_div(shape.out[1], r) * ceil_div(columns, v) * one


def best_tile(target: KernelTarget, shape: ConvShape, dt: DType) -> tuple[float, DepthwiseTile]:
    """The tile with the least work, and its cycles."""
    columns = ceil_div(shape.out[2], target.lanes(dt))
    sides = (range(1, min(MOST_SIDE, n) + 1) for n in (shape.out[1], columns))
    tiles = [DepthwiseTile(*t) for t in product(*sides) if math.prod(t) <= most_sums(target)]
    cycles = [tile_cycles(shape, columns, tile) for tile in tiles]
    return min(cycles), tiles[cycles.index(min(cycles))]


def _common_tile(target: KernelTarget) -> DepthwiseTile:
    """A tile for images of any size: as many sums as are at work at once."""
    return DepthwiseTile(LATENCY if target.registers >= 32 else LATENCY // 2, 2)


def cycles(target: KernelTarget, shape: ConvShape, dt: DType) -> float:
    """About the cycles of an output channel of an image."""
    return shape.out[0] * best_tile(target, shape, dt)[0]


def config_of(
    target: KernelTarget, shape: ConvShape, dt: DType, source: DType, epilogue: Program,
    operands: tuple[OperandKind, ...],
) -> ConvDepthwiseConfig:  # fmt: skip
    """The config for a convolution whose input has the type ``source`` where it is read."""
    lanes = target.lanes(dt)

    def best() -> tuple[DepthwiseTile, int]:
        tile = best_tile(target, shape, dt)[1]
        whole = tile.vectors * lanes >= shape.out[2]
        return tile, ceil_div(shape.size[2], lanes) if whole else 0

    # Of whole rows no vector may be empty, which this tile does not see to.
    tile, row = prefers(best, otherwise=(_common_tile(target), 0))
    return ConvDepthwiseConfig(
        dt, source, shape.kernel, shape.stride[1:], shape.dilation[1:], shape.low[2], row, tile,
        epilogue, operands,
    )  # fmt: skip


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
        each = ceil_div(count, minimum(count, ceil_div(TASKS, others)))
        return each, ceil_div(count, each)

    tasks = shape.images * oz
    channels = shape.groups * shape.outputs
    task_channels, channel_tasks = cut(channels, tasks)
    tasks *= channel_tasks
    task_tiles, tile_tasks = cut(tiles, tasks)
    tasks *= tile_tasks
    task_panels, panel_tasks = cut(panels, tasks)
    tasks *= panel_tasks
    work = 2 * shape.taps * task_channels * task_tiles * tile.rows
    work *= task_panels * tile.vectors * lanes
    sizes = (
        image, channel, z, y, *shape.size, *shape.low[:2], shape.stride[0], shape.dilation[0],
        *shape.out, channels, shape.outputs, tiles, panels, task_channels, channel_tasks,
        task_tiles, tile_tasks, task_panels, panel_tasks,
    )  # fmt: skip
    return Launch(
        tasks,
        maximum(1, GRAIN_FLOPS // maximum(1, work)),
        sizes,
        scratch=lanes * config.dtype.bytes,
    )


def slack(config: ConvDepthwiseConfig, target: KernelTarget) -> int:
    """Elements behind the input that a target without masks may read."""
    return config.tile.vectors * target.lanes(config.dtype) * config.stride[1]
