"""Convolutions and their adjoints: the input in planes, the weights in blocks, the rest is the
epilogue."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from rlx._mlir import ir
from rlx.kernels import conv, conv_channels_plan, conv_layout
from rlx.kernels.builder import KernelTarget
from rlx.kernels.contraction_tile import accumulate_type
from rlx.kernels.conv import ConvConfig, ConvShape, OperandKind, Planes
from rlx.kernels.conv_channels_plan import ConvChannelsConfig
from rlx.kernels.conv_layout import BlocksConfig, PlanesConfig
from rlx.kernels.conv_plan import Triple, tile_of
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
        way = _Way.of(lowering, shape, dt)
        blocks = _blocks(lowering, w, node, shape, BlocksConfig(node.w.dtype, dt, way.rows))
        result = lowering.result(region.op.results[0])
        count = way.images_at_once(source)
        for first in range(0, shape.images, count):
            images = min(count, shape.images - first)
            planes, layout, group = way.planes(lowering, _images(source, first, images))
            config, launch = way.plan(images, layout, group, program, tuple(kinds))
            taps = [] if config.single else [lowering.literal(np.asarray(way.taps(layout)))]
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


@dataclass(frozen=True)
class _Way:
    """How a convolution is done: the convolution whose planes are read, the output channels of a
    block of weights, and the lanes of a vector of columns. ``channels`` says that vectors lie along
    the output channels."""

    target: KernelTarget
    shape: ConvShape
    dtype: DType
    channels: bool
    read: ConvShape
    rows: int
    lanes: int

    @staticmethod
    def of(lowering: Lowering, shape: ConvShape, dt: DType) -> _Way:
        """The way with less work."""
        target = lowering.target.kernels
        if conv_channels_plan.suits(target, shape, dt):
            read = conv_channels_plan.read_as(target, shape)
            rows = conv_channels_plan.block_width(target, dt)
            return _Way(target, shape, dt, True, read, rows, 1)
        tile = tile_of(target, dt)
        return _Way(target, shape, dt, False, shape, tile.rows, tile.lanes)

    def images_at_once(self, source: View) -> int:
        """Images that are copied together; all if none is."""
        layout = _layout(source, self.read, self.dtype, self.lanes)
        if layout is None or layout.merged:
            return self.shape.images
        few = PLANES_BYTES // (layout.image * self.dtype.bytes)
        return max(1, few, ceil_div(self.shape.images, MOST_LAUNCHES))

    def planes(self, lowering: Lowering, source: View) -> tuple[View, Planes, int]:
        """See ``planes_of``."""
        read = replace(self.read, images=source.shape[0])
        return planes_of(lowering, source, read, self.dtype, self.lanes)

    def taps(self, layout: Planes) -> list[int]:
        """Where the planes have each tap, from its window on."""
        return layout.offsets(self.read)

    def plan(
        self, images: int, layout: Planes, group: int, program: Program,
        kinds: tuple[OperandKind, ...],
    ) -> tuple[ConvConfig | ConvChannelsConfig, Launch]:  # fmt: skip
        """The kernel and its launch for some of the images."""
        shape, target, dt = replace(self.shape, images=images), self.target, self.dtype
        if self.channels:
            config = conv_channels_plan.config_of(target, shape, layout, dt, program, kinds)
            return config, conv_channels_plan.launch(config, target, shape, layout, group)
        config = ConvConfig(dt, shape.taps == 1, program, kinds)
        return config, conv.launch(config, target, shape, layout, group)


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
    sizes = source.shape[2:]
    dense = zip(sizes, source.strides[2:], row_major(sizes), strict=True)
    raw = source.dtype is dt and all(n == 1 or s == t for n, s, t in dense)
    return conv.planes(shape, dt, lanes, raw)


def planes_of(
    lowering: Lowering, source: View, shape: ConvShape, dt: DType, lanes: int
) -> tuple[View, Planes, int]:
    """The input as the kernel reads it, its layout, and the distance between groups. ``lanes`` are
    those of a vector of columns."""
    image, channel, *axes = source.strides
    layout = _layout(source, shape, dt, lanes)
    if layout is None:
        return source, Planes(shape.size, (1, 1, 1), image, channel), shape.channels * channel
    channels = shape.groups * shape.channels
    size = (shape.images - 1) * layout.image + channels * layout.channel
    # The last vector of few columns reads on behind its plane.
    planes = lowering.fresh(dt, (size + lanes,))
    z, y, x = (*[0] * (3 - len(axes)), *axes)
    config = PlanesConfig.of(source.dtype, dt, shape, x)
    launch = conv_layout.planes_launch(config, shape, layout, (image, channel, (z, y, x)))
    lowering.launch("conv_layout", config, [source, planes], launch)
    return planes, layout, shape.channels * layout.channel


def _blocks(
    lowering: Lowering,
    leaf: ir.Value,
    node: Conv | ConvTranspose,
    shape: ConvShape,
    config: BlocksConfig,
) -> View:
    """The weights in blocks. Those that depend on params alone are packed by the prologue, once
    for all uses."""
    static = lowering.static_of(leaf)
    if static is None:
        return _packed(lowering, lowering.view(leaf), node, shape, config)
    key = ("blocks", static, node.groups, isinstance(node, ConvTranspose), config.rows)
    if key not in lowering.packs:
        with lowering.prologue_of(static):
            lowering.packs[key] = _packed(lowering, lowering.view(static), node, shape, config)
    return lowering.packs[key]


def _packed(
    lowering: Lowering,
    source: View,
    node: Conv | ConvTranspose,
    shape: ConvShape,
    config: BlocksConfig,
) -> View:
    source = source.expand(node.w.type.static_shape)
    own, taps = source.shape[:2], math.prod(source.shape[2:])
    wanted = (shape.groups, own[0] // shape.groups, own[1], taps)
    found = source.reshape(wanted) or lowering.copied(source).reshape(wanted)
    assert found is not None, "a dense view takes any shape"
    group, first, second, tap = found.strides
    mirrored = isinstance(node, ConvTranspose)
    strides = (group, second, first, -tap) if mirrored else (group, first, second, tap)
    packed = lowering.fresh(config.target, (conv.packed_size(shape, config.rows),))
    start = (taps - 1) * tap if mirrored else 0
    launch = conv_layout.blocks_launch(config, shape, strides, start)
    lowering.launch("conv_layout", config, [found, packed], launch)
    return packed


SELECTOR: Selector = Convolution()
