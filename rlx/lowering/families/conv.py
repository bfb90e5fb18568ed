"""Convolutions and their adjoints: the input in planes, the weights in blocks, the rest is the
epilogue."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Protocol

import numpy as np

from rlx._mlir import ir
from rlx.kernels import (
    conv,
    conv_channels_plan,
    conv_depthwise_across,
    conv_depthwise_plan,
    conv_layout,
)
from rlx.kernels.builder import KernelTarget
from rlx.kernels.contraction_tile import accumulate_type
from rlx.kernels.conv import AnyConvConfig, ConvConfig, ConvShape, OperandKind, Planes
from rlx.kernels.conv_layout import BlocksConfig, PlanesConfig
from rlx.kernels.conv_plan import Triple, plane_size, tile_of
from rlx.kernels.family import Launch
from rlx.kernels.program import Program
from rlx.kernels.strides import ceil_div, row_major
from rlx.lowering.families.base import ProgramBuilder, Selector, spread_source
from rlx.lowering.lowering import Lowering
from rlx.lowering.region import Region
from rlx.lowering.views import View
from rlx.ops.constant import literal
from rlx.ops.conv import Conv, ConvTranspose
from rlx.ops.movement import Expand
from rlx.ops.value import Value
from rlx.records import frozen
from rlx.types import DType, Shape

__all__ = ["SELECTOR", "planes_of", "triple"]


class Convolution:
    """A conv or conv_transpose of floats first, then pointwise ops on its result's shape."""

    def claim(self, region: Region) -> str | None:
        work = [n for n in region.nodes if not isinstance(n, Expand) and literal(n) is None]
        if not work or not isinstance(work[0], Conv | ConvTranspose):
            return "it does not begin with a convolution"
        first = work[0]
        if not first.out.dtype.is_float:
            return f"the convolution is on {first.out.dtype}"
        if any(d == 0 for v in (first.out, *first.present) for d in v.shape):
            return "a dim is empty"
        if any(spread_source(v) not in region.leaves for v in first.present):
            return "an operand of the convolution is computed inside"
        for n in work[1:]:
            if not n.pointwise:
                return f"{n.short} is not pointwise"
            if n.out.shape != first.out.shape:
                return f"{n.short} is on another shape than the convolution"
            for v in n.present:
                reason = self._operand(v, first.out.shape)
                if reason is not None:
                    return reason
        return None

    def _operand(self, v: Value, out: Shape) -> str | None:
        source = spread_source(v)
        if source.op is not None:
            number = literal(source.op) is not None
            if v.shape == out and (source is v or number):
                return None
            if not number:
                return "an operand is broadcast from inside"
        if _kind(source.shape, out) is None:
            return f"an operand {list(source.shape)} is no number a channel of the result"
        return None

    def lower(self, region: Region, lowering: Lowering) -> None:
        node = next(n for n in region.nodes if isinstance(n, Conv | ConvTranspose))
        builder = ProgramBuilder([node.out])
        for n in region.nodes:
            if n.pointwise:
                builder.add(n)
        program = builder.build(region.outs[0])
        extra: list[View] = []
        kinds: list[OperandKind] = []
        for v in builder.inputs[1:]:
            source = spread_source(v)
            kind = _kind(source.shape, node.out.shape)
            assert kind is not None
            extra.append(lowering.dense(region.leaves[source]))
            kinds.append(kind)
        shape, dt = _shape(node), accumulate_type(node.out.dtype)
        x, w = (region.leaves[spread_source(v)] for v in node.present)
        source = lowering.view(x).expand(node.x.type.static_shape)
        layer = _Layer(lowering, shape, dt, program, tuple(kinds))
        way = _way(layer, source)
        blocks = _blocks(lowering, w, node, way, BlocksConfig(node.w.dtype, dt, way.rows))
        result = lowering.result(region.op.results[0])
        count = way.images_at_once(source)
        for first in range(0, shape.images, count):
            images = min(count, shape.images - first)
            planes, taps, config, launch = way.plan(_images(source, first, images))
            own = [
                _images(v, first, images) if kind == "full" else v
                for v, kind in zip(extra, kinds, strict=True)
            ]
            views = [planes, blocks, *taps, *own, _images(result, first, images)]
            lowering.launch("conv", config, views, launch, region.flops * images // shape.images)


PLANES_BYTES = 2 << 20
"""Planes that are filled before they are read: they stay in a cache."""
MOST_LAUNCHES = 32
"""Launches that a convolution is cut into at most."""


@frozen
class _Layer:
    """A convolution and its epilogue; ``dtype`` is what is summed."""

    lowering: Lowering
    shape: ConvShape
    dtype: DType
    program: Program
    kinds: tuple[OperandKind, ...]

    @property
    def target(self) -> KernelTarget:
        """What kernels know of the machine."""
        return self.lowering.target.kernels


_Plan = tuple[View, list[View], AnyConvConfig, Launch]
"""The input as a kernel reads it, the offsets of its taps, the kernel and its launch."""


class _Way(Protocol):
    """How a convolution is done: by which kernel, on what layout of the input."""

    @property
    def layer(self) -> _Layer:
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


def _way(layer: _Layer, source: View) -> _Way:
    """The way with the least work."""
    target, shape, dt = layer.target, layer.shape, layer.dtype
    if conv_depthwise_plan.suits(shape):
        rows = shape.size[1] == 1 or source.strides[-2] == shape.size[2]
        if rows and _as_it_lies(layer, source) and conv_depthwise_across.suits(target, shape, dt):
            return _DepthwiseAcross(layer)
        return _Depthwise(layer)
    if conv_channels_plan.suits(target, shape, dt):
        if conv_channels_plan.on_images(target, shape, dt) and _raw(source, dt):
            return _OnImages(layer)
        read = conv_channels_plan.read_as(target, shape)
        return _OnPlanes(layer, read, conv_channels_plan.block_width(target, dt), 1, True)
    tile = tile_of(target, dt)
    return _OnPlanes(layer, shape, tile.rows, tile.lanes, False)


@frozen
class _OnPlanes:
    """On planes of the convolution ``read``, with vectors of ``lanes`` columns, or along the output
    ``channels``."""

    layer: _Layer
    read: ConvShape
    rows: int
    lanes: int
    channels: bool
    across = False

    def images_at_once(self, source: View) -> int:
        """See ``_Way``."""
        return _at_once(_layout(source, self.read, self.layer.dtype, self.lanes), self.layer)

    def plan(self, source: View) -> _Plan:
        """See ``_Way``."""
        layer, images = self.layer, source.shape[0]
        target, dt, kinds = layer.target, layer.dtype, layer.kinds
        shape, read = replace(layer.shape, images=images), replace(self.read, images=images)
        planes, layout, group = planes_of(layer.lowering, source, read, dt, self.lanes)
        if self.channels:
            config = conv_channels_plan.config_of(target, shape, layout, dt, layer.program, kinds)
            launch = conv_channels_plan.launch(config, target, shape, layout, group)
        else:
            config = ConvConfig(dt, shape.taps == 1, layer.program, kinds)
            launch = conv.launch(config, target, shape, layout, group)
        offsets = np.asarray(layout.offsets(read))
        taps = [] if config.single else [layer.lowering.literal(offsets)]
        return planes, taps, config, launch


@frozen
class _OnImages:
    """On images as they lie, with vectors along the output channels."""

    layer: _Layer
    across = False

    @property
    def rows(self) -> int:
        """See ``_Way``."""
        return conv_channels_plan.block_width(self.layer.target, self.layer.dtype)

    def images_at_once(self, source: View) -> int:
        """See ``_Way``."""
        return self.layer.shape.images

    def plan(self, source: View) -> _Plan:
        """See ``_Way``."""
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

    layer: _Layer
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
        """See ``_Way``."""
        return _at_once(None if _as_it_lies(self.layer, source) else self.layout()[1], self.layer)

    def plan(self, source: View) -> _Plan:
        """See ``_Way``."""
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


def _as_it_lies(layer: _Layer, source: View) -> bool:
    """Whether the input of a depthwise convolution is read as it lies."""
    last = source.strides[-1] == 1 or source.shape[-1] == 1
    return layer.target.masks and last and max(layer.shape.spread) == 1


@frozen
class _DepthwiseAcross:
    """With vectors across the channels, on images as they lie."""

    layer: _Layer
    across = True

    @property
    def rows(self) -> int:
        """See ``_Way``."""
        return self.layer.target.lanes(self.layer.dtype)

    def images_at_once(self, source: View) -> int:
        """See ``_Way``."""
        return self.layer.shape.images

    def plan(self, source: View) -> _Plan:
        """See ``_Way``."""
        layer, shape = self.layer, self.layer.shape
        config = conv_depthwise_across.config_of(
            shape, layer.dtype, source.dtype, layer.program, layer.kinds
        )
        image, channel = source.strides[:2]
        launch = conv_depthwise_across.launch(config, layer.target, shape, image, channel)
        return source, [], config, launch


def _at_once(layout: Planes | None, layer: _Layer) -> int:
    """Images that are copied into planes together; all if none is."""
    if layout is None or layout.merged:
        return layer.shape.images
    few = PLANES_BYTES // (layout.image * layer.dtype.bytes)
    return max(1, few, ceil_div(layer.shape.images, MOST_LAUNCHES))


def _images(v: View, first: int, count: int) -> View:
    """So many images of a view, from the first on."""
    rest = v.shape[1:]
    return v.slice([first, *[0] * len(rest)], [count, *rest], [1] * len(v.shape))


def triple(numbers: tuple[int, ...], fill: int) -> Triple:
    """Numbers of one to three axes as those of three."""
    a, b, c = (*[fill] * (3 - len(numbers)), *numbers)
    return a, b, c


def _kind(shape: Shape, out: Shape) -> OperandKind | None:
    """How an operand that broadcasts to ``out`` is addressed."""
    own = (*([1] * (len(out) - len(shape))), *shape)
    if own == out:
        return "full"
    if all(d == 1 for d in own):
        return "scalar"
    return "channel" if own == (1, out[1], *[1] * (len(out) - 2)) else None


def _shape(node: Conv | ConvTranspose) -> ConvShape:
    """The convolution that a node is: the adjoint is one over its input with zeros between the
    elements, with the weights mirrored."""

    x, out, kernel = node.x.type.static_shape, node.out.type.static_shape, node.windows.taps
    stride, spread, low = node.stride, (1,) * len(kernel), node.low
    if isinstance(node, ConvTranspose):
        stride, spread = spread, stride
        low = tuple(
            d * (k - 1) - lo for d, k, lo in zip(node.dilation, kernel, node.low, strict=True)
        )
    return ConvShape(
        x[0], node.groups, x[1] // node.groups, out[1] // node.groups,
        triple(x[2:], 1), triple(out[2:], 1), triple(kernel, 1), triple(stride, 1),
        triple(low, 0), triple(node.dilation, 1), triple(spread, 1),
    )  # fmt: skip


def _layout(source: View, shape: ConvShape, dt: DType, lanes: int) -> Planes | None:
    """The layout to copy the input into; None if it is read as it lies."""
    return conv.planes(shape, dt, lanes, _raw(source, dt))


def _raw(source: View, dt: DType) -> bool:
    """Whether an input is of the type ``dt``, and the elements of each channel lie dense."""
    sizes = source.shape[2:]
    dense = zip(sizes, source.strides[2:], row_major(sizes), strict=True)
    return source.dtype is dt and all(n == 1 or s == t for n, s, t in dense)


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
    lowering.launch("conv_layout", config, [source, planes], launch)
    return planes


def _blocks(
    lowering: Lowering,
    leaf: ir.Value,
    node: Conv | ConvTranspose,
    way: _Way,
    config: BlocksConfig,
) -> View:
    """The weights in blocks. Those that depend on params alone are packed by the prologue, once
    for all uses."""
    static = lowering.static_of(leaf)
    if static is None:
        return _packed(lowering, lowering.view(leaf), node, way, config)
    key = ("blocks", static, node.groups, isinstance(node, ConvTranspose), config.rows, way.across)
    if key not in lowering.packs:
        with lowering.prologue_of(static):
            lowering.packs[key] = _packed(lowering, lowering.view(static), node, way, config)
    return lowering.packs[key]


def _packed(
    lowering: Lowering,
    source: View,
    node: Conv | ConvTranspose,
    way: _Way,
    config: BlocksConfig,
) -> View:
    source, shape = source.expand(node.w.type.static_shape), way.layer.shape
    mirrored = isinstance(node, ConvTranspose)
    if config.rows == 1 and config.source is config.target and source.is_dense and not mirrored:
        return source
    own, taps = source.shape[:2], math.prod(source.shape[2:])
    wanted = (shape.groups, own[0] // shape.groups, own[1], taps)
    found = source.reshape(wanted) or lowering.copied(source).reshape(wanted)
    assert found is not None, "a dense view takes any shape"
    group, first, second, tap = found.strides
    strides = (group, second, first, -tap) if mirrored else (group, first, second, tap)
    if way.across:
        shape = replace(shape, groups=1, channels=1, outputs=shape.groups)
        strides = (0, group, 0, strides[3])
    packed = lowering.fresh(config.target, (conv.packed_size(shape, config.rows),))
    start = (taps - 1) * tap if mirrored else 0
    launch = conv_layout.blocks_launch(config, shape, strides, start)
    lowering.launch("conv_layout", config, [found, packed], launch)
    return packed


SELECTOR: Selector = Convolution()
