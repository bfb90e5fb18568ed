"""Convolutions of 8-bit integers by words of four channels; the rest is as for floats."""

from __future__ import annotations

from dataclasses import replace

from rlx.codegen.strides import ceil_div
from rlx.kernels.conv.planes import packed_size
from rlx.kernels.conv.words import (
    FOUR,
    FirstConfig,
    WordBlocksConfig,
    first_launch,
    word_blocks_launch,
    words_of,
)
from rlx.lowering.region import Region
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.conv.epilogue import epilogue_of, root_of, unfit
from rlx.lowering.select.conv.select import launch_images, packed_once, shape_of
from rlx.lowering.select.conv.strategies import Layer, way_of
from rlx.lowering.select.selector import Selector, spread_source
from rlx.lowering.select.views import View
from rlx.ops.conv.integer import ConvInteger, by_floats
from rlx.types import i32, u32

__all__ = ["SELECTOR"]

MOST_STRIDE = 2
"""Distance of windows along a row up to which vectors of the input are read."""


class IntegerConvolution:
    """A conv_integer first, then pointwise ops on its result's shape."""

    def claim(self, region: Region) -> str | None:
        root = root_of(region)
        if not isinstance(root, ConvInteger):
            return "it does not begin with a convolution of integers"
        if not all(v.type.is_static for v in (root.out, *root.present)):
            return "sizes are not known"
        if any(d == 0 for v in (root.out, *root.present) for d in v.shape):
            return "a dim is empty"
        if by_floats(root.x, root.w, root.groups):
            return "floats are faster where each channel has a window of its own"
        if root.stride[-1] > MOST_STRIDE:
            return "windows are far apart"
        return unfit(region, root)

    def lower(self, region: Region, lowering: Lowering) -> None:
        node = root_of(region)
        assert isinstance(node, ConvInteger)
        program, kinds, extra = epilogue_of(region, node, lowering)
        x, w = (region.leaves[spread_source(v)] for v in node.present)
        source = lowering.view(x).expand(node.x.type.static_shape)
        if source.strides[-1] != 1 != source.shape[-1]:
            source = lowering.copied(source)
        shape, words = shape_of(node), words_of(node.x.dtype, node.w.dtype)
        own = shape.channels
        shape = replace(shape, channels=ceil_div(own, FOUR))
        layer = Layer(lowering, shape, i32, program, kinds, words, own)
        way = way_of(layer, source)

        def strides(v: View) -> tuple[View, tuple[int, int, int, int]]:
            """Weights by group, output, channel and tap."""
            v = v.expand(node.w.type.static_shape)
            wanted = shape.groups, shape.outputs, own, shape.taps
            found = v.reshape(wanted) or lowering.copied(v).reshape(wanted)
            assert found is not None, "a dense view takes any shape"
            group, output, channel, tap = found.strides
            return found, (group, output, channel, tap)

        def blocks(v: View) -> View:
            found, by = strides(v)
            packed = lowering.fresh(u32, (packed_size(shape, way.rows),))
            config = WordBlocksConfig(found.dtype, way.rows)
            launch = word_blocks_launch(config, shape, own, by)
            with lowering.preparing("weights"):
                lowering.launch("conv_layout", config, [found, packed], launch)
            return packed

        def first(v: View) -> View:
            found, by = strides(v)
            launch = first_launch(shape, way.rows, own, by)
            sums = lowering.fresh(i32, (launch.range,))
            with lowering.preparing("sums"):
                lowering.launch("conv_layout", FirstConfig(found.dtype), [found, sums], launch)
            return sums

        made = {"words": blocks, "first": first} if words.flipped else {"words": blocks}
        weights = [
            packed_once(lowering, w, (what, node.groups, way.rows), make)
            for what, make in made.items()
        ]
        result = lowering.result(region.op.results[0])
        launch_images(region, way, source, weights, extra, result)


SELECTOR: Selector = IntegerConvolution()
