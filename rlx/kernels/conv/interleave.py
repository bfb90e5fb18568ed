"""The results of an adjoint whose windows lie side by side, from those of every place of a window.

There the adjoint is a convolution of one tap, with outputs for each place of a window; these are
[images, channels, places of a window, elements of the input], and the result has a window for each
element.
"""

from __future__ import annotations

import math

from rlx.base.dims import maximum
from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.family import Launch
from rlx.codegen.reg import Reg
from rlx.kernels.conv.plan import Triple
from rlx.types import DType

__all__ = ["InterleaveConfig", "emit", "launch"]

GRAIN_BYTES = 64 * 1024


@frozen
class InterleaveConfig:
    """What the code depends on: elements, which are moved as bits, and the columns of a window."""

    dtype: DType
    columns: int


def launch(
    config: InterleaveConfig, images: int, channels: int, window: Triple, size: Triple,
    strides: tuple[int, int, Triple],
) -> Launch:  # fmt: skip
    """``size`` is that of the input, and ``strides`` are the result's: of images, channels and the
    spatial axes, of which the last is 1. The kernel's buffers are the source, which is dense, and
    the result."""
    image, channel, (z, y, _) = strides
    each = math.prod(window) * math.prod(size)
    grain = maximum(1, GRAIN_BYTES // maximum(1, each * config.dtype.bytes))
    return Launch(images * channels, grain, (channels, *window[:2], *size, image, channel, z, y))


def emit(name: str, config: InterleaveConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config; ``launch`` gives its sizes."""
    k = Kernel(name, target)
    source, result = k.buffer("source", config.dtype), k.buffer("result", config.dtype)
    names = ("channels", "window_z", "window_y", "depth", "height", "width")
    channels, window_z, window_y, depth, height, width = map(k.size, names)
    by_image, by_channel, by_z, by_y = map(k.size, ("image", "channel", "z", "y"))
    lanes, columns = target.lanes(config.dtype), config.columns
    pairs = columns == 2 and lanes > 1

    def row(at: Reg, apart: Reg, to: Reg) -> None:
        """A row of the result, of whose columns of windows the source has rows so far apart."""

        def vector(j: Reg) -> None:
            a, b = (k.load(source, at + apart * c + j, lanes) for c in range(2))
            mixed = [n // 2 + lanes * (n % 2) for n in range(2 * lanes)]
            for n in range(2):
                part = k.shuffle(a, b, mixed[n * lanes : (n + 1) * lanes])
                k.store(part, result, to + j * 2 + n * lanes, lanes)

        def one(j: Reg) -> None:
            for c in range(columns):
                k.store(k.load(source, at + apart * c + j), result, to + j * columns + c)

        whole = width / lanes * lanes if pairs else k.index(0)
        k.loop(0, whole, lanes, vector) if pairs else None
        k.loop(whole, width, 1, one)

    def task(index: Reg) -> None:
        plane = depth * height * width
        place = window_z * window_y * columns
        base = index * place * plane
        start = index / channels * by_image + index % channels * by_channel

        def line(z: Reg, y: Reg) -> None:
            window = (z % window_z * window_y + y % window_y) * columns
            element = (z / window_z * height + y / window_y) * width
            row(base + window * plane + element, plane, start + z * by_z + y * by_y)

        def slice_(z: Reg) -> None:
            k.loop(0, height * window_y, 1, lambda y: line(z, y))

        k.loop(0, depth * window_z, 1, slice_)

    k.parallel(task)
    return k.text()
