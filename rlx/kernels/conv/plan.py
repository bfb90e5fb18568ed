"""Layout and tiling of a convolution: the order of its operands, and its tasks.

The kernel reads the input as *planes* in which every tap of a window is a constant distance away,
for all windows alike. Such planes have their padding in them, and one of every phase of the stride:
places 0, s, 2s, ... of an axis, then 1, s+1, ... So the windows of stride s become neighbours::

    window (z, y, x), tap (a, b, c)    at    plane[phase of the tap] + column + shift of the tap
    column = (z * qy + y) * qx + x           where (qz, qy, qx) are the sizes of a plane

Columns that are no windows (the last of a row of the plane) are computed and not stored. A tensor
that needs neither padding nor phases is such a plane as it lies in memory.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Literal

from rlx.base.dims import maximum, minimum
from rlx.base.frozen import frozen
from rlx.base.guards import prefers
from rlx.codegen.builder import KernelTarget
from rlx.codegen.family import Launch
from rlx.codegen.program import Program
from rlx.codegen.strides import ceil_div
from rlx.kernels.matmul.tile import accumulate_type
from rlx.types import DType

__all__ = [
    "ConvConfig",
    "ConvShape",
    "OperandKind",
    "Planes",
    "Tile",
    "Triple",
    "Words",
    "crowded",
    "cycles",
    "launch",
    "packed_size",
    "plane_size",
    "planes",
    "tile_of",
]

Triple = tuple[int, int, int]

OperandKind = Literal["full", "channel", "scalar"]
"""What an epilogue operand is: of the result's shape, one number a channel, or one number."""


@frozen
class Words:
    """8-bit integers, four channels of a place in a word: see ``words.py``.

    Of the input and the weights one is unsigned and the other signed: ``signed`` says whether the
    input is. ``flipped`` says that it was the other, so that its sign bits are turned over.
    """

    signed: bool
    flipped: bool


@frozen
class ConvConfig:
    """What the code depends on.

    ``dtype`` is what is multiplied and summed (f32 or f64), or what ``words`` are summed in (i32);
    ``single`` says that a window has one tap. ``epilogue`` takes the sum, rounded to its input type
    0, and the operands.
    """

    dtype: DType
    single: bool
    epilogue: Program
    operands: tuple[OperandKind, ...] = ()
    words: Words | None = None


@frozen
class ConvShape:
    """A convolution, with three spatial axes (missing ones have size 1).

    ``channels`` and ``outputs`` are those of a group; of 8-bit integers, ``channels`` counts
    words. ``spread`` is the distance of neighbouring input elements among zeros, 1 where there are
    none between.
    """

    images: int
    groups: int
    channels: int
    outputs: int
    size: Triple
    out: Triple
    kernel: Triple
    stride: Triple
    low: Triple
    dilation: Triple
    spread: Triple = (1, 1, 1)

    @property
    def taps(self) -> int:
        """Taps of a window."""
        return math.prod(self.kernel)


@frozen
class Planes:
    """The layout of the input: ``size`` and ``phases`` of a plane, and strides in elements.

    ``merged`` planes hold the images side by side, in one row of a plane each.
    """

    size: Triple
    phases: Triple
    image: int
    channel: int
    merged: bool = False

    def offsets(self, shape: ConvShape) -> list[int]:
        """Where each tap lies, from the column of its window."""
        found: list[int] = []
        _, qy, qx = self.size
        _, py, px = self.phases
        for tap in product(*(range(n) for n in shape.kernel)):
            places = [t * d for t, d in zip(tap, shape.dilation, strict=True)]
            z, y, x = (p // s for p, s in zip(places, shape.stride, strict=True))
            a, b, c = (p % s for p, s in zip(places, shape.stride, strict=True))
            phase = (a * py + b) * px + c
            found.append(phase * math.prod(self.size) + (z * qy + y) * qx + x)
        return found


@frozen
class Tile:
    """``rows`` output channels times up to ``vectors`` vectors of ``lanes`` columns in registers;
    a last panel may have one vector more, for half the rows at a time."""

    rows: int
    vectors: int
    lanes: int


def tile_of(target: KernelTarget, dt: DType) -> Tile:
    """The tile that fills the register file."""
    return Tile(8 if target.registers >= 32 else 4, 3, target.lanes(accumulate_type(dt)))


def packed_size(shape: ConvShape, rows: int) -> int:
    """Elements of the packed weights: [groups, blocks, channels, taps, rows of a block]."""
    return shape.groups * ceil_div(shape.outputs, rows) * rows * shape.channels * shape.taps


SET_BYTES = 2048
"""Channels that are a multiple of this apart meet in few sets of the L1 cache."""
FEW_COLUMNS = 256
"""Columns of an image up to which images are laid side by side if that fills vectors better."""


def plane_size(shape: ConvShape) -> Triple:
    """The size of a plane into which the input is copied."""
    axes = zip(shape.out, shape.kernel, shape.dilation, shape.stride, strict=True)
    z, y, x = (n + (k - 1) * d // s for n, k, d, s in axes)
    return z, y, x


def planes(shape: ConvShape, dt: DType, lanes: int, raw: bool) -> Planes | None:
    """The layout to copy the input into; None if it can stay as it is. ``raw`` says that it may: it
    is of type ``dt``, and each channel lies in row-major order."""
    phases = tuple(
        max((t * d) % s for t in range(k)) + 1
        for k, d, s in zip(shape.kernel, shape.dilation, shape.stride, strict=True)
    )
    size = plane_size(shape)
    assert len(phases) == 3
    columns = math.prod(shape.out)
    whole = math.prod(size) * math.prod(phases)
    if shape.taps == 1 and prefers(lambda: _merged(shape, columns, lanes), otherwise=False):
        return Planes(size, phases, columns, _apart(shape.images * columns, dt), merged=True)
    plain = all(n == 1 for n in (*shape.stride, *shape.spread)) and not any(shape.low)
    own = math.prod(shape.size)

    def serves() -> bool:
        fits = all(q <= n for q, n in zip(size, shape.size, strict=True)) and columns >= lanes
        return fits and (shape.channels == 1 or _apart(own, dt) == own)

    if raw and plain and prefers(serves, otherwise=False):
        return None
    channel = _apart(whole, dt)
    return Planes(size, phases, shape.groups * shape.channels * channel, channel)


def _merged(shape: ConvShape, columns: int, lanes: int) -> bool:
    """Whether images side by side fill vectors better."""
    if shape.images <= 1 or columns > FEW_COLUMNS:
        return False
    merged = ceil_div(shape.images * columns, lanes)
    return merged * 8 <= shape.images * ceil_div(columns, lanes) * 7


def _apart(elements: int, dt: DType) -> int:
    """A distance between channels of so many elements that does not crowd few cache sets."""
    apart = prefers(lambda: crowded(elements, dt), otherwise=False)
    return elements + (64 // dt.bytes if apart else 0)


def crowded(elements: int, dt: DType) -> bool:
    """Whether channels so many elements apart meet in few sets of the cache."""
    return elements * dt.bytes % SET_BYTES == 0


STEP_SHARE, STEP_SHARE_FEW_REGISTERS = 1.16, 2.5
"""Cycles of a step for each that its multiply-adds take: it reads more than other kernels."""
ROW_CYCLES = 6.5
"""What the end of a vector of sums costs, in cycles."""


def cycles(target: KernelTarget, shape: ConvShape, dt: DType) -> float:
    """About the cycles of an image and a group, where two multiply-adds start in each."""
    tile = tile_of(target, dt)
    oz, oy, ox = shape.out
    pitch = plane_size(shape)[2]
    vectors = oz * ceil_div((oy - 1) * pitch + ox, tile.lanes)
    depth = shape.channels * shape.taps
    rows = ceil_div(shape.outputs, tile.rows) * tile.rows
    share = STEP_SHARE if target.registers >= 32 else STEP_SHARE_FEW_REGISTERS
    return rows * vectors * (depth * share / 2 + ROW_CYCLES)


PANEL_BYTES = 384 * 1024
"""Input that a task's panels read at most: it stays in the L2 cache while the weights pass."""
TASKS = 16
"""Tasks that keep some threads busy, and even out their speeds."""
GRAIN_FLOPS = 400_000
"""Work of the smallest share worth handing to another thread."""


def launch(
    config: ConvConfig,
    target: KernelTarget,
    shape: ConvShape,
    layout: Planes,
    group: int,
) -> Launch:
    """The launch of a convolution on planes whose groups are ``group`` elements apart.

    The kernel's buffers are the planes, the packed weights, the offsets of the taps (i64; unless
    there is one), the operands, and the result [images, groups * outputs, out].
    """
    tile = tile_of(target, config.dtype)
    oz, oy, ox = shape.out
    _, qy, qx = layout.size
    points, outputs = oz * oy * ox, shape.groups * shape.outputs
    images, slices, rows, pitch, valid, segment = shape.images, oz, oy, qx, ox, ox
    if layout.merged:
        images, slices, rows, pitch, valid, segment = 1, 1, images, points, points, outputs * points
    elif shape.taps == 1 and layout.size == shape.out:
        slices, rows, pitch, valid, segment = 1, 1, points, points, points
    columns = (rows - 1) * pitch + valid
    vectors = ceil_div(columns, tile.lanes)
    panels = maximum(1, (vectors + 1) // tile.vectors)
    blocks = ceil_div(shape.outputs, tile.rows)

    others = images * slices * shape.groups
    deepest = 0
    for offset in layout.offsets(shape) if shape.taps > 1 else ():
        deepest = maximum(deepest, offset)
    room = PANEL_BYTES // maximum(1, shape.channels * config.dtype.bytes) - minimum(
        deepest, 4 * pitch
    )
    task_panels = maximum(
        1, minimum(room // (tile.vectors * tile.lanes), ceil_div(others * panels, TASKS))
    )
    column_tasks = ceil_div(panels, task_panels)
    task_panels = ceil_div(panels, column_tasks)
    row_tasks = minimum(blocks, ceil_div(TASKS, maximum(1, others * column_tasks)))
    task_blocks = ceil_div(blocks, row_tasks)
    row_tasks = ceil_div(blocks, task_blocks)

    work = 2 * shape.channels * shape.taps * task_blocks * tile.rows
    work *= task_panels * tile.vectors * tile.lanes
    sizes = (
        layout.image, qy * qx, group, layout.channel,
        outputs * points, oy * ox, points, segment,
        slices, shape.groups, columns, pitch, valid,
        shape.channels, shape.taps, shape.outputs,
        column_tasks, task_panels, row_tasks, task_blocks,
    )  # fmt: skip
    strip = tile.rows * (tile.vectors + 2) * tile.lanes
    return Launch(
        others * column_tasks * row_tasks,
        maximum(1, GRAIN_FLOPS // maximum(1, work)),
        sizes,
        scratch=strip * config.dtype.bytes,
    )
