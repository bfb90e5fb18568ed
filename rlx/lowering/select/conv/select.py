"""Convolutions and their adjoints: the input in planes, the weights in blocks, the rest is the
epilogue."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from rlx._mlir import ir
from rlx.base.guards import prefers
from rlx.kernels.conv import interleave
from rlx.kernels.conv import layout as conv_layout
from rlx.kernels.conv import planes as conv
from rlx.kernels.conv.interleave import InterleaveConfig
from rlx.kernels.conv.layout import BlocksConfig
from rlx.kernels.conv.planes import ConvShape
from rlx.kernels.matmul.tile import accumulate_type
from rlx.lowering.region import Region
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.conv.epilogue import Epilogue, epilogue_of, root_of, unfit
from rlx.lowering.select.conv.strategies import ConvWay, Layer, images_of, triple, way_of
from rlx.lowering.select.selector import Selector, spread_source
from rlx.lowering.select.views import View
from rlx.ops.conv.conv import Conv, ConvTranspose
from rlx.ops.conv.integer import ConvInteger

__all__ = ["SELECTOR", "launch_images", "packed_once", "shape_of"]


class Convolution:
    """A conv or conv_transpose of floats first, then pointwise ops on its result's shape."""

    def claim(self, region: Region) -> str | None:
        root = root_of(region)
        if not isinstance(root, Conv | ConvTranspose):
            return "it does not begin with a convolution"
        if not root.out.dtype.is_float:
            return f"the convolution is on {root.out.dtype}"
        if any(d == 0 for v in (root.out, *root.present) for d in v.shape):
            return "a dim is empty"
        return unfit(region, root)

    def lower(self, region: Region, lowering: Lowering) -> None:
        node = root_of(region)
        assert isinstance(node, Conv | ConvTranspose)
        epilogue = program, kinds, extra = epilogue_of(region, node, lowering)
        if isinstance(node, ConvTranspose) and "full" not in kinds and side_by_side(node):
            lower_side_by_side(region, lowering, node, epilogue)
            return
        shape, dt = shape_of(node), accumulate_type(node.out.dtype)
        x, w = (region.leaves[spread_source(v)] for v in node.present)
        source = lowering.view(x).expand(node.x.type.static_shape)
        if isinstance(node, Conv):  # an adjoint's weights lie by inputs first, and mirrored
            shape, source = _of_one_place(shape, source)
        layer = Layer(lowering, shape, dt, program, kinds)
        way = way_of(layer, source)
        blocks = _blocks(lowering, w, node, way, BlocksConfig(node.w.dtype, dt, way.rows))
        result = lowering.result(region.op.results[0])
        launch_images(region, way, source, [blocks], extra, result)


def launch_images(
    region: Region, way: ConvWay, source: View, weights: Sequence[View], extra: Sequence[View],
    result: View,
) -> None:  # fmt: skip
    """Launch a convolution, a few images at a time if they are copied. ``weights`` are the blocks,
    and what the kernel reads behind the offsets of the taps."""
    layer, (blocks, *behind) = way.layer, weights
    lowering, shape = layer.lowering, layer.shape
    count = way.images_at_once(source)
    for first in [0] if count is shape.images else range(0, shape.images, count):
        images = count if count is shape.images else min(count, shape.images - first)
        planes, taps, config, launch = way.plan(images_of(source, first, images))
        own = [
            images_of(v, first, images) if kind == "full" else v
            for v, kind in zip(extra, layer.kinds, strict=True)
        ]
        views = [planes, blocks, *taps, *behind, *own, images_of(result, first, images)]
        lowering.launch("conv", config, views, launch, region.flops * images // shape.images)


def shape_of(node: Conv | ConvTranspose | ConvInteger) -> ConvShape:
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


def _of_one_place(shape: ConvShape, source: View) -> tuple[ConvShape, View]:
    """A convolution whose one window is the whole image, as one of a single place that has a
    channel for each element: weights are read in a row, and the sums are the same. Others stay."""
    one = (1, 1, 1)

    def whole() -> bool:
        plain = shape.dilation == shape.spread == one and shape.low == (0, 0, 0)
        taps = shape.groups == 1 and shape.kernel != one
        return plain and taps and shape.size == shape.kernel and shape.out == one  # sizes last

    if not prefers(whole, otherwise=False):
        return shape, source
    channels = shape.channels * shape.taps
    row = source.reshape((shape.images, channels, *[1] * (len(source.shape) - 2)))
    if row is None:
        return shape, source
    return replace(shape, channels=channels, size=one, kernel=one, stride=one), row


def _blocks(
    lowering: Lowering,
    leaf: ir.Value,
    node: Conv | ConvTranspose,
    way: ConvWay,
    config: BlocksConfig,
) -> View:
    """The weights in blocks."""
    taps = way.layer.shape.taps
    key = "blocks", node.groups, isinstance(node, ConvTranspose), config.rows, way.across, taps
    return packed_once(
        lowering, leaf, key, lambda source: _packed(lowering, source, node, way, config)
    )


def packed_once(
    lowering: Lowering, leaf: ir.Value, key: tuple[Any, ...], pack: Callable[[View], View]
) -> View:
    """What ``pack`` makes of weights. Of those that depend on params alone the prologue makes it,
    once for all uses with the ``key``."""
    static = lowering.static_of(leaf)
    if static is None:
        return pack(lowering.view(leaf))
    whole = (key, static)
    if whole not in lowering.packs:
        with lowering.prologue_of(static):
            lowering.packs[whole] = pack(lowering.view(static))
    return lowering.packs[whole]


def _packed(
    lowering: Lowering,
    source: View,
    node: Conv | ConvTranspose,
    way: ConvWay,
    config: BlocksConfig,
) -> View:
    source, shape = source.expand(node.w.type.static_shape), way.layer.shape
    mirrored = isinstance(node, ConvTranspose)
    if config.rows == 1 and config.source is config.target and source.is_dense and not mirrored:
        return source
    own, taps = source.shape[:2], shape.taps
    inputs = own[1] * (math.prod(source.shape[2:]) // taps)
    wanted = (shape.groups, own[0] // shape.groups, inputs, taps)
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
    with lowering.preparing("weights"):
        lowering.launch("conv_layout", config, [found, packed], launch)
    return packed


def side_by_side(node: ConvTranspose) -> bool:
    """Whether the windows of an adjoint meet without overlap and fill the result."""
    flat = (0,) * len(node.stride)
    meet = node.stride == node.windows.taps and max(node.stride) > 1
    whole = node.low == flat == node.high and max(node.dilation) == 1
    return meet and whole


def lower_side_by_side(
    region: Region, lowering: Lowering, node: ConvTranspose, epilogue: Epilogue
) -> None:
    """By a convolution of one tap, with outputs for each place of a window, which then become
    windows: over an input with zeros between the elements most products are with zeros. No operand
    of the ``epilogue`` is of the result's shape."""
    program, kinds, extra = epilogue
    places, dt = math.prod(node.stride), accumulate_type(node.out.dtype)
    images, channels, *size = node.x.type.static_shape
    own, outputs = channels // node.groups, node.w.type.static_shape[1]
    one, dense = (1, 1, 1), triple(tuple(size), 1)
    shape = ConvShape(
        images, node.groups, own, outputs * places, dense, dense, one, one, (0, 0, 0), one
    )
    x, w = (region.leaves[spread_source(v)] for v in node.present)
    source = lowering.view(x).expand(node.x.type.static_shape)
    way = way_of(Layer(lowering, shape, dt, program, kinds), source)
    config = BlocksConfig(node.w.dtype, dt, way.rows)

    def pack(v: View) -> View:
        v = v.expand(node.w.type.static_shape)
        v = v if v.is_dense else lowering.copied(v)
        packed = lowering.fresh(dt, (conv.packed_size(shape, way.rows),))
        strides = own * outputs * places, 1, outputs * places, 0
        with lowering.preparing("weights"):
            launch = conv_layout.blocks_launch(config, shape, strides)
            lowering.launch("conv_layout", config, [v, packed], launch)
        return packed

    blocks = packed_once(lowering, w, ("places", node.groups, config.rows), pack)
    every = node.out.type.static_shape[1]
    wide = [
        _repeated(lowering, v, every, places) if kind == "channel" else v
        for v, kind in zip(extra, kinds, strict=True)
    ]
    between = lowering.fresh(program.results[0], (images, every * places, *size))
    launch_images(region, way, source, [blocks], wide, between)
    result = lowering.result(region.op.results[0]).as_bits(lowering.widest)
    between = between.as_bits(lowering.widest)
    image, channel, *axes = result.strides
    moved = InterleaveConfig(result.dtype, node.stride[-1])
    launch = interleave.launch(
        moved,
        images,
        every,
        triple(node.stride, 1),
        dense,
        (image, channel, triple(tuple(axes), 0)),
    )
    lowering.launch("conv_layout", moved, [between, result], launch)


def _repeated(lowering: Lowering, v: View, channels: int, count: int) -> View:
    """Numbers of channels, each so many times."""
    column = v.reshape((channels, 1))
    assert column is not None, "operands of an epilogue are dense"
    return lowering.copied(column.expand((channels, count)))


SELECTOR: Selector = Convolution()
