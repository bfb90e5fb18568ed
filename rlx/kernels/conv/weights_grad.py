"""The gradient of a convolution with respect to its weights, on planes (see ``plan.py``).

In planes every tap is a constant distance away for all windows, so that a row of the result (a
channel and a tap) times the windows is a product. What stands at the windows is packed with its
channels in vectors::

    task (part of the images, group, panel of output channels, some rows):
        for each tile of rows:
            for each image, for each window, in order:
                sums in registers: planes[row of the tile + column] * packed[window, channels]
            from the sums to the result, transposed

Few tasks, and long sums, are cut into parts of the images; then the result has one more axis in
front, of the parts, for a reduction to sum. The cut depends on the sizes alone, and a sum is one
chain of fused multiply-adds, so its bits do not depend on threads or tiles.
"""

from __future__ import annotations

import math
from functools import partial

from rlx.base.dims import maximum, minimum
from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.family import Launch
from rlx.codegen.reg import Reg
from rlx.codegen.strides import ceil_div
from rlx.kernels.conv import weights_grad_depthwise as conv_weights_along
from rlx.kernels.conv.plan import ConvShape, Planes
from rlx.kernels.conv.weights_grad_depthwise import ConvWeightsAlongConfig
from rlx.types import DType, i64

__all__ = ["ConvWeightsConfig", "config_of", "emit", "launch", "name"]

name = "conv_weights"

TASKS = 16
"""Tasks that keep some threads busy."""
LONGEST = 1 << 14
"""Windows of a sum from which on it is cut: one chain of f32 sums loses precision."""
GRAIN_FLOPS = 400_000
"""Work of the smallest share worth handing to another thread."""


@frozen
class ConvWeightsConfig:
    """What the code depends on: the type of planes, sums and result, that of what is packed, and
    the vectors of a panel."""

    dtype: DType
    packed: DType
    vectors: int

    def rows(self, target: KernelTarget) -> int:
        """Rows of a tile: as many as fill the registers."""
        return (24 if target.registers >= 32 else 12) // self.vectors

    def width(self, target: KernelTarget) -> int:
        """Output channels of a panel."""
        return self.vectors * target.lanes(self.dtype)


def config_of(
    target: KernelTarget, shape: ConvShape, dt: DType, packed: DType
) -> ConvWeightsConfig:
    """The config whose panels leave the fewest lanes empty."""
    configs = [ConvWeightsConfig(dt, packed, v) for v in (3, 2, 1)]
    lanes = [ceil_div(shape.outputs, c.width(target)) * c.width(target) for c in configs]
    return configs[lanes.index(min(lanes))]


def launch(
    config: ConvWeightsConfig, target: KernelTarget, shape: ConvShape, layout: Planes, group: int
) -> tuple[int, Launch]:
    """The parts that the images are cut into, and the launch.

    ``group`` is the distance between the groups of the planes. The kernel's buffers are the planes,
    the panels [images, groups, panels, windows, width], the rows' offsets (i64), and the result
    [parts, groups * outputs, channels * taps].
    """
    rows, width = config.rows(target), config.width(target)
    windows = math.prod(shape.out)
    tiles = ceil_div(shape.channels * shape.taps, rows)
    panels = ceil_div(shape.outputs, width)
    others = shape.groups * panels
    wanted = maximum(
        ceil_div(TASKS, maximum(1, others * tiles)), ceil_div(shape.images * windows, LONGEST)
    )
    parts = minimum(wanted, maximum(1, shape.images))
    part = ceil_div(shape.images, parts)
    parts = ceil_div(shape.images, part)
    task_tiles = ceil_div(tiles, ceil_div(TASKS, maximum(1, others * parts)))
    row_tasks = ceil_div(tiles, task_tiles)
    work = 2 * part * windows * task_tiles * rows * width
    _, qy, qx = layout.size
    sizes = (
        layout.image, group, qy * qx, qx, *shape.out, shape.images, part, shape.groups, panels,
        shape.channels * shape.taps, shape.outputs, task_tiles, row_tasks,
    )  # fmt: skip
    return parts, Launch(
        parts * others * row_tasks,
        maximum(1, GRAIN_FLOPS // maximum(1, work)),
        sizes,
        scratch=width * config.dtype.bytes,
    )


def emit(
    name: str, config: ConvWeightsConfig | ConvWeightsAlongConfig, target: KernelTarget
) -> KernelText:
    """The kernel of a config; the ``launch`` of its module gives its sizes."""
    if isinstance(config, ConvWeightsAlongConfig):
        return conv_weights_along.emit(name, config, target)
    return _Emitter(name, config, target).emit()


class _Emitter:
    def __init__(self, name: str, config: ConvWeightsConfig, target: KernelTarget) -> None:
        self.k = k = Kernel(name, target)
        self.config, self.rows, self.width = config, config.rows(target), config.width(target)
        lanes = target.lanes(config.dtype)
        self.step, self.lanes = lanes, lanes if lanes > 1 else 0
        self.x, self.g = k.buffer("x", config.dtype), k.buffer("g", config.packed)
        self.offsets, self.out = k.buffer("offsets", i64), k.buffer("out", config.dtype)
        names = (
            "x_image", "x_group", "x_z", "x_y", "out_z", "out_y", "out_x", "images", "part",
            "groups", "panels", "row_count", "outputs", "task_tiles", "row_tasks",
        )  # fmt: skip
        (
            self.x_image, self.x_group, self.x_z, self.x_y, self.out_z, self.out_y, self.out_x,
            self.images, self.part, self.groups, self.panels, self.row_count, self.outputs,
            self.task_tiles, self.row_tasks,
        ) = map(k.size, names)  # fmt: skip

    def emit(self) -> KernelText:
        self.k.parallel(self.task)
        return self.k.text()

    def task(self, index: Reg) -> None:
        """One (part, group, panel, rows); rows vary fastest, so that neighbours share a panel."""
        k = self.k
        self.sums = k.scratch(self.config.dtype)
        row_task, rest = index % self.row_tasks, index / self.row_tasks
        panel, rest = rest % self.panels, rest / self.panels
        group, part = rest % self.groups, rest / self.groups
        first = part * self.part
        last = k.minimum(first + self.part, self.images)
        channel = panel * self.width
        there = k.minimum(self.outputs - channel, k.index(self.width))
        out = ((part * self.groups + group) * self.outputs + channel) * self.row_count
        tiles = (self.row_count + (self.rows - 1)) / self.rows
        begin = row_task * self.task_tiles
        end = k.minimum(begin + self.task_tiles, tiles)

        def tile(t: Reg) -> None:
            row0 = t * self.rows
            sums = self.reduce(group, panel, row0, first, last)
            for r in range(self.rows):
                own = sums[r * self.config.vectors : (r + 1) * self.config.vectors]
                k.when(
                    row0 + r < self.row_count,
                    lambda r=r, own=own: self.put(own, out + row0 + r, there),
                )

        k.loop(begin, end, 1, tile)

    def reduce(self, group: Reg, panel: Reg, row0: Reg, first: Reg, last: Reg) -> list[Reg]:
        """The sums of a tile, in the order row, vector; rows beyond the last repeat it."""
        k, vectors = self.k, self.config.vectors
        windows = self.out_z * self.out_y * self.out_x
        places: list[Reg] = []
        for r in range(self.rows):
            row = k.minimum(row0 + r, self.row_count - 1)
            at = k.cast(k.load(self.offsets, row), row.dtype)
            places.append(at + group * self.x_group)

        def window(x: Reg, g: Reg, acc: tuple[Reg, ...]) -> list[Reg]:
            columns = [k.load(self.g, g + v * self.step, self.lanes) for v in range(vectors)]
            sums: list[Reg] = []
            for place in places:
                factor = k.load(self.x, place + x)
                factor = k.splat(factor, self.lanes) if self.lanes else factor
                sums += [k.fma(factor, y, acc[len(sums) + v]) for v, y in enumerate(columns)]
            return sums

        def image(n: Reg, *acc: Reg) -> list[Reg]:
            g0 = ((n * self.groups + group) * self.panels + panel) * windows * self.width
            x0 = n * self.x_image

            def line(z: Reg, y: Reg, *acc: Reg) -> list[Reg]:
                x = x0 + z * self.x_z + y * self.x_y
                g = g0 + (z * self.out_y + y) * self.out_x * self.width
                return k.loop(
                    0, self.out_x, 1, lambda i, *a: window(x + i, g + i * self.width, a), acc
                )

            def slice_(z: Reg, *acc: Reg) -> list[Reg]:
                return k.loop(0, self.out_y, 1, partial(line, z), acc)

            return k.loop(0, self.out_z, 1, slice_, acc)

        zero = k.const(0.0, self.config.dtype, self.lanes)
        return k.loop(first, last, 1, image, [zero] * (self.rows * vectors))

    def put(self, sums: list[Reg], out: Reg, count: Reg) -> None:
        """One row of the result, which lies across it: ``count`` channels of a panel."""
        k = self.k
        for v, value in enumerate(sums):
            k.store(value, self.sums, v * self.step)
        k.loop(
            0, count, 1,
            lambda j: k.store(k.load(self.sums, j), self.out, out + j * self.row_count),
        )  # fmt: skip
