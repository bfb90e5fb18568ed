"""Algorithm selection for convolutions: the kernel, and the layout of its input."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Protocol

import numpy as np

from rlx.base.frozen import frozen
from rlx.base.guards import prefers
from rlx.codegen.builder import KernelTarget
from rlx.codegen.family import Launch
from rlx.codegen.program import Program
from rlx.codegen.strides import ceil_div, row_major
from rlx.kernels.conv import (
    channels_plan as conv_channels_plan,
)
from rlx.kernels.conv import (
    depthwise_channels as conv_depthwise_across,
)
from rlx.kernels.conv import (
    depthwise_plan as conv_depthwise_plan,
)
from rlx.kernels.conv import (
    layout as conv_layout,
)
from rlx.kernels.conv import (
    planes as conv,
)
from rlx.kernels.conv.layout import PlanesConfig, TapsConfig
from rlx.kernels.conv.plan import Triple, Words, plane_size, tile_of
from rlx.kernels.conv.planes import AnyConvConfig, ConvConfig, ConvShape, OperandKind, Planes
from rlx.kernels.conv.words import WordPlanesConfig
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.views import View
from rlx.types import DType, i64, u32

__all__ = [
    "ConvWay", "Layer", "dense_channels", "images_of", "planes_of", "taps_of", "triple", "way_of",
]  # fmt: skip


PLANES_BYTES = 2 << 20
"""Planes that are filled before they are read: they stay in a cache."""
MOST_LAUNCHES = 32
"""Launches that a convolution is cut into at most."""


@frozen
class Layer:
    """A convolution and its epilogue; ``dtype`` is what is summed. Of ``words`` a group has
    ``own`` channels, of which ``shape`` counts the words."""

    lowering: Lowering
    shape: ConvShape
    dtype: DType
    program: Program
    kinds: tuple[OperandKind, ...]
    words: Words | None = None
    own: int = 0

    @property
    def target(self) -> KernelTarget:
        """What kernels know of the machine."""
        return self.lowering.target.kernels


_Plan = tuple[View, list[View], AnyConvConfig, Launch]
"""The input as a kernel reads it, the offsets of its taps, the kernel and its launch."""


class ConvWay(Protocol):
    """How a convolution is done: by which kernel, on what layout of the input."""

    @property
    def layer(self) -> Layer:
        """What is to be done."""
        ...

    @property
    def rows(self) -> int:
        """The output channels of a block of weights."""
        ...

    @property
    def across(self) -> bool:
        """Whether a block holds the weights of several groups, of one channel each."""
        ...

    def images_at_once(self, source: View) -> int:
        """Images that are copied together; all if none is."""
        ...

    def plan(self, source: View) -> _Plan:
        """The kernel for some of the images."""
        ...


def way_of(layer: Layer, source: View) -> ConvWay:
    """The way with the least work."""
    target, shape, dt = layer.target, layer.shape, layer.dtype
    if layer.words is None and conv_depthwise_plan.suits(shape):

        def across() -> bool:
            rows = shape.size[1] == 1 or source.strides[-2] == shape.size[2]
            lies = rows and _as_it_lies(layer, source)
            return lies and conv_depthwise_across.suits(target, shape, dt)

        return _DepthwiseAcross(layer) if prefers(across, otherwise=False) else _Depthwise(layer)
    if conv_channels_plan.suits(target, shape, dt):
        if _raw(source, dt) and conv_channels_plan.on_images(target, shape, dt):
            return _OnImages(layer)
        read = conv_channels_plan.read_as(target, shape)
        return _OnPlanes(layer, read, conv_channels_plan.block_width(target, dt), 1, True)
    tile = tile_of(target, dt)
    return _OnPlanes(layer, shape, tile.rows, tile.lanes, False)


@frozen
class _OnPlanes:
    """On planes of the convolution ``read``, with vectors of ``lanes`` columns, or along the output
    ``channels``."""

    layer: Layer
    read: ConvShape
    rows: int
    lanes: int
    channels: bool
    across = False

    def images_at_once(self, source: View) -> int:
        """See ``ConvWay``."""
        return _at_once(_layout(source, self.read, self.layer.dtype, self.lanes), self.layer)

    def plan(self, source: View) -> _Plan:
        """See ``ConvWay``."""
        layer, images = self.layer, source.shape[0]
        target, dt, kinds = layer.target, layer.dtype, layer.kinds
        shape, read = replace(layer.shape, images=images), replace(self.read, images=images)
        if layer.words is None:
            planes, layout, group = planes_of(layer.lowering, source, read, dt, self.lanes)
        else:
            planes, layout, group = _words_of(layer, source, read, self.lanes)
        if self.channels:
            config = conv_channels_plan.config_of(
                target, shape, layout, dt, layer.program, kinds, words=layer.words
            )
            launch = conv_channels_plan.launch(config, target, shape, layout, group)
        else:
            config = ConvConfig(dt, shape.taps == 1, layer.program, kinds, layer.words)
            launch = conv.launch(config, target, shape, layout, group)
        taps = [] if config.single else [taps_of(layer.lowering, read, layout)]
        return planes, taps, config, launch


@frozen
class _OnImages:
    """On images as they lie, with vectors along the output channels."""

    layer: Layer
    across = False

    @property
    def rows(self) -> int:
        """See ``ConvWay``."""
        return conv_channels_plan.block_width(self.layer.target, self.layer.dtype)

    def images_at_once(self, source: View) -> int:
        """See ``ConvWay``."""
        return self.layer.shape.images

    def plan(self, source: View) -> _Plan:
        """See ``ConvWay``."""
        layer, target, shape = self.layer, self.layer.target, self.layer.shape
        image, channel = source.strides[:2]
        layout = Planes(shape.size, (1, 1, 1), image, channel)
        config = conv_channels_plan.config_of(
            target, shape, layout, layer.dtype, layer.program, layer.kinds, images=True
        )
        group = shape.channels * channel
        return source, [], config, conv_channels_plan.launch(config, target, shape, layout, group)


@frozen
class _Depthwise:
    """On the input as it lies; where it has gaps, or the target no masks, on planes."""

    layer: Layer
    rows = 1
    across = False

    def layout(self) -> tuple[ConvShape, Planes]:
        """What the planes hold, and how: no phases."""
        shape = self.layer.shape
        z, y, x = ((n - 1) * s + 1 for n, s in zip(shape.out, shape.stride, strict=True))
        read = replace(shape, out=(z, y, x), stride=(1, 1, 1))
        size = plane_size(read)
        whole = math.prod(size)
        return read, Planes(size, (1, 1, 1), shape.groups * whole, whole)

    def images_at_once(self, source: View) -> int:
        """See ``ConvWay``."""
        return _at_once(None if _as_it_lies(self.layer, source) else self.layout()[1], self.layer)

    def plan(self, source: View) -> _Plan:
        """See ``ConvWay``."""
        layer, target = self.layer, self.layer.target
        shape, dt = replace(layer.shape, images=source.shape[0]), layer.dtype
        end = layer.program, layer.kinds
        if _as_it_lies(layer, source):
            config = conv_depthwise_plan.config_of(target, shape, dt, source.dtype, *end)
            image, channel, *axes = source.strides
            strides = image, channel, triple(tuple(axes), 0)
            return source, [], config, conv_depthwise_plan.launch(config, target, shape, strides)
        read, layout = self.layout()
        shape = replace(shape, size=layout.size, low=(0, 0, 0))
        config = conv_depthwise_plan.config_of(target, shape, dt, dt, *end)
        read, room = replace(read, images=shape.images), conv_depthwise_plan.slack(config, target)
        planes = _filled(layer.lowering, source, read, dt, layout, room)
        _, y, x = layout.size
        strides = layout.image, layout.channel, (y * x, x, 1)
        return planes, [], config, conv_depthwise_plan.launch(config, target, shape, strides)


def _as_it_lies(layer: Layer, source: View) -> bool:
    """Whether the input of a depthwise convolution is read as it lies."""
    last = source.strides[-1] == 1 or source.shape[-1] == 1
    return layer.target.masks and last and max(layer.shape.spread) == 1


@frozen
class _DepthwiseAcross:
    """With vectors across the channels, on images as they lie."""

    layer: Layer
    across = True

    @property
    def rows(self) -> int:
        """See ``ConvWay``."""
        return self.layer.target.lanes(self.layer.dtype)

    def images_at_once(self, source: View) -> int:
        """See ``ConvWay``."""
        return self.layer.shape.images

    def plan(self, source: View) -> _Plan:
        """See ``ConvWay``."""
        layer, shape = self.layer, self.layer.shape
        config = conv_depthwise_across.config_of(
            shape, layer.dtype, source.dtype, layer.program, layer.kinds
        )
        image, channel = source.strides[:2]
        launch = conv_depthwise_across.launch(config, layer.target, shape, image, channel)
        return source, [], config, launch


def _at_once(layout: Planes | None, layer: Layer) -> int:
    """Images that are copied into planes together; all if none is."""
    if layout is None or layout.merged:
        return layer.shape.images
    images = layer.shape.images

    def some() -> int:
        least = ceil_div(int(images), MOST_LAUNCHES)
        return int(max(1, PLANES_BYTES // (layout.image * layer.dtype.bytes), least))

    return prefers(some, otherwise=images)


def taps_of(lowering: Lowering, shape: ConvShape, layout: Planes, channels: int = 1) -> View:
    """The offsets of the taps on planes, in each of so many channels: a constant, or what a launch
    makes where they depend on sizes that are not known."""

    def known() -> np.ndarray:
        one = np.asarray([int(d) for d in layout.offsets(shape)], np.int64)
        return (np.arange(int(channels))[:, None] * int(layout.channel) + one).reshape(-1)

    offsets = prefers(known, otherwise=None)
    if offsets is not None:
        return lowering.literal(offsets)
    found = lowering.fresh(i64, (channels * shape.taps,))
    launch = conv_layout.taps_launch(shape, layout, channels)
    with lowering.preparing("offsets"):
        lowering.launch("conv_layout", TapsConfig(), [found], launch)
    return found


def triple(numbers: tuple[int, ...], fill: int) -> Triple:
    """Numbers of one to three axes as those of three."""
    a, b, c = (*[fill] * (3 - len(numbers)), *numbers)
    return a, b, c


def _layout(source: View, shape: ConvShape, dt: DType, lanes: int) -> Planes | None:
    """The layout to copy the input into; None if it is read as it lies."""
    return conv.planes(shape, dt, lanes, _raw(source, dt))


def _raw(source: View, dt: DType) -> bool:
    """Whether an input is of the type ``dt``, and the elements of each channel lie dense."""
    return source.dtype is dt and dense_channels(source)


def dense_channels(v: View) -> bool:
    """Whether the elements of each channel lie dense."""
    sizes = v.shape[2:]
    found = list(zip(sizes, v.strides[2:], row_major(sizes), strict=True))
    return prefers(lambda: all(s == t or n == 1 for n, s, t in found), otherwise=False)


def planes_of(
    lowering: Lowering, source: View, shape: ConvShape, dt: DType, lanes: int
) -> tuple[View, Planes, int]:
    """The input as the kernel reads it, its layout, and the distance between groups. ``lanes`` are
    those of a vector of columns."""
    layout = _layout(source, shape, dt, lanes)
    if layout is None:
        image, channel = source.strides[:2]
        return source, Planes(shape.size, (1, 1, 1), image, channel), shape.channels * channel
    # The last vector of few columns reads on behind its plane.
    planes = _filled(lowering, source, shape, dt, layout, lanes)
    return planes, layout, shape.channels * layout.channel


def _words_of(layer: Layer, source: View, shape: ConvShape, lanes: int) -> tuple[View, Planes, int]:
    """As ``planes_of``, with words of 8-bit integers."""
    assert layer.words is not None
    layout = conv.planes(shape, layer.dtype, lanes, raw=False)
    assert layout is not None
    image, channel, *axes = source.strides
    group = shape.channels * layout.channel
    size = (shape.images - 1) * layout.image + shape.groups * group
    planes = layer.lowering.fresh(u32, (size + lanes,))
    step = 2 if shape.stride[2] == 2 else 1
    config = WordPlanesConfig(source.dtype, step, layer.words.flipped)
    strides = image, channel, triple(tuple(axes), 0)
    row = 1, 1, math.prod(shape.size)
    flat, lies = shape, layout
    if layout.size == shape.size and shape.taps == 1 and dense_channels(source):  # one long row
        flat, lies = replace(shape, size=row), replace(layout, size=row)
        strides = image, channel, (0, 0, 1)
    launch = conv_layout.planes_launch(config, flat, lies, strides, layer.own)
    with layer.lowering.preparing("words"):
        layer.lowering.launch("conv_layout", config, [source, planes], launch)
    return planes, layout, group


def _filled(
    lowering: Lowering, source: View, shape: ConvShape, dt: DType, layout: Planes, room: int
) -> View:
    """Planes of the input, and ``room`` elements behind them that may be read."""
    image, channel, *axes = source.strides
    size = (shape.images - 1) * layout.image + shape.groups * shape.channels * layout.channel
    planes = lowering.fresh(dt, (size + room,))
    z, y, x = triple(tuple(axes), 0)
    config = PlanesConfig.of(source.dtype, dt, shape, x)
    launch = conv_layout.planes_launch(config, shape, layout, (image, channel, (z, y, x)))
    with lowering.preparing("planes"):
        lowering.launch("conv_layout", config, [source, planes], launch)
    return planes


def images_of(v: View, first: int, count: int) -> View:
    """So many images of a view, from the first on."""
    rest = v.shape[1:]
    return v.slice([first, *[0] * len(rest)], [count, *rest], [1] * len(v.shape))
