"""The gradient of a depthwise convolution with respect to its weights, on planes.

A channel has few taps, and no other channel's windows meet them; so vectors lie along the rows of
windows, and a lane sums what falls on it::

    task (part of the images, output channel):
        for each tile of taps:
            for each image, for each row of windows, for each vector of it:
                sums in registers: planes[tap + column] * g[column]
            the lanes of each sum together, to the result

The parts are as in ``weights_grad.py``. Which windows meet in a lane depends on the sizes and the
vectors of the machine alone.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise

from rlx.base.dims import maximum, minimum
from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.family import Launch
from rlx.codegen.reg import Reg
from rlx.codegen.strides import ceil_div
from rlx.kernels.conv.plan import ConvShape, Planes
from rlx.types import DType

__all__ = ["ConvWeightsAlongConfig", "config_of", "emit", "launch", "suits"]


@frozen
class ConvWeightsAlongConfig:
    """What the code depends on: the type of planes, sums and result, that of what stands at the
    windows, and where each tap lies in the planes."""

    dtype: DType
    windows: DType
    taps: tuple[int, ...]


MOST_TAPS = 64
"""Taps of a window at most: each is code of its own."""
FEW_OUTPUTS = 4
"""Output channels of a group up to which its windows are read again for each."""
MOST_SUMS = 24
"""Sums of a tile of taps at most."""


def suits(target: KernelTarget, shape: ConvShape) -> bool:
    """Whether the kernel does a gradient: of one channel a group, and of few taps and outputs. It
    takes masks."""
    few = shape.taps <= MOST_TAPS and shape.outputs <= FEW_OUTPUTS
    return target.masks and shape.channels == 1 and few


def config_of(
    shape: ConvShape, layout: Planes, dt: DType, windows: DType
) -> ConvWeightsAlongConfig:
    """The config for these planes."""
    return ConvWeightsAlongConfig(dt, windows, tuple(layout.offsets(shape)))


TASKS = 16
"""Tasks that keep some threads busy."""
LONGEST = 1 << 14
"""Windows of a lane's sum from which on it is cut: one chain of f32 sums loses precision."""
GRAIN_FLOPS = 400_000
"""Work of the smallest share worth handing to another thread."""


def launch(
    config: ConvWeightsAlongConfig,
    target: KernelTarget,
    shape: ConvShape,
    layout: Planes,
    group: int,
    g: tuple[int, int],
) -> tuple[int, Launch]:
    """The parts that the images are cut into, and the launch.

    ``group`` is the distance between the groups of the planes, ``g`` that between images and
    between channels of what stands at the windows, which are dense in each. The kernel's buffers
    are the planes, the windows, and the result [parts, groups * outputs, taps].
    """
    oz, oy, ox = shape.out
    lanes, channels = target.lanes(config.dtype), shape.groups * shape.outputs
    vectors = oz * oy * ceil_div(ox, lanes)
    wanted = maximum(ceil_div(TASKS, channels), ceil_div(shape.images * vectors, LONGEST))
    part = ceil_div(shape.images, minimum(wanted, shape.images))
    parts = ceil_div(shape.images, part)
    work = 2 * part * vectors * lanes * shape.taps
    _, qy, qx = layout.size
    sizes = (
        layout.image, group, qy * qx, qx, *g, oz, oy, ox, shape.images, part, shape.outputs,
        channels,
    )  # fmt: skip
    return parts, Launch(parts * channels, maximum(1, GRAIN_FLOPS // maximum(1, work)), sizes)


def emit(name: str, config: ConvWeightsAlongConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config; ``launch`` gives its sizes."""
    k, lanes, count = Kernel(name, target), target.lanes(config.dtype), len(config.taps)
    x, g = k.buffer("x", config.dtype), k.buffer("g", config.windows)
    out = k.buffer("out", config.dtype)
    x_image, x_group, x_z, x_y = (k.size(f"x_{what}") for what in ("image", "group", "z", "y"))
    g_image, g_channel = k.size("g_image"), k.size("g_channel")
    oz, oy, ox = (k.size(f"out_{axis}") for axis in "zyx")
    images, part, outputs = k.size("images"), k.size("part"), k.size("outputs")
    channels = k.size("channels")
    zero = k.const(0.0, config.dtype, lanes)
    tiles = ceil_div(count, MOST_SUMS)
    cuts = [count * n // tiles for n in range(tiles + 1)]

    def sums(task: Reg, taps: range) -> list[Reg]:
        """The sums of some taps, each in the lanes of a vector."""
        channel, first = task % channels, task / channels * part
        last = k.minimum(first + part, images)

        def vector(row: Reg, own: Reg, j: Reg, *acc: Reg) -> list[Reg]:
            mask = k.first_lanes(ox - j, lanes)
            factor = k.load(g, own + j, lanes, mask)
            found = [k.load(x, row + j + config.taps[t], lanes, mask) for t in taps]
            return [k.fma(factor, y, a) for y, a in zip(found, acc, strict=True)]

        def image(n: Reg, *acc: Reg) -> list[Reg]:
            x0, g0 = n * x_image + channel / outputs * x_group, n * g_image + channel * g_channel

            def line(z: Reg, y: Reg, *acc: Reg) -> list[Reg]:
                row, own = x0 + z * x_z + y * x_y, g0 + (z * oy + y) * ox
                return k.loop(0, ox, lanes, partial(vector, row, own), acc)

            return k.loop(0, oz, 1, lambda z, *acc: k.loop(0, oy, 1, partial(line, z), acc), acc)

        return k.loop(first, last, 1, image, [zero] * len(taps))

    def task(index: Reg) -> None:
        for begin, end in pairwise(cuts):
            for t, total in enumerate(sums(index, range(begin, end)), begin):
                k.store(k.reduce("add", total), out, index * count + t)

    k.parallel(task)
    return k.text()
