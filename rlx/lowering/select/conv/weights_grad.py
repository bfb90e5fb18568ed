"""The gradient of a convolution with respect to its weights: the tensor in planes, what stands at
the windows in panels."""

from __future__ import annotations

import math

from rlx.kernels.conv import (
    weights_grad as conv_weights,
)
from rlx.kernels.conv import (
    weights_grad_depthwise as conv_weights_along,
)
from rlx.kernels.conv.planes import ConvShape
from rlx.kernels.conv.weights_grad import ConvWeightsConfig
from rlx.kernels.matmul import pack_strided
from rlx.kernels.matmul.pack_strided import PackAcrossConfig
from rlx.kernels.matmul.tile import accumulate_type
from rlx.kernels.reduce import emit as reduce
from rlx.kernels.reduce.emit import ReduceConfig
from rlx.lowering.region import Region
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.conv.strategies import dense_channels, planes_of, taps_of, triple
from rlx.lowering.select.selector import Selector
from rlx.lowering.select.views import View
from rlx.ops.conv.weights_grad import ConvWeights

__all__ = ["SELECTOR"]


class ConvWeightsSelector:
    """A single conv_weights of floats."""

    def claim(self, region: Region) -> str | None:
        node = region.nodes[0]
        if len(region.nodes) != 1 or not isinstance(node, ConvWeights):
            return "it is no single conv_weights"
        if not node.out.dtype.is_float:
            return f"it is on {node.out.dtype}"
        if any(d == 0 for v in (node.out, *node.present) for d in v.shape):
            return "a dim is empty"
        return None

    def lower(self, region: Region, lowering: Lowering) -> None:
        node = region.nodes[0]
        assert isinstance(node, ConvWeights)
        shape, target = _shape(node), lowering.target.kernels
        dt = accumulate_type(node.out.dtype)
        lanes = target.lanes(dt)
        planes, layout, group = planes_of(
            lowering, lowering.view(region.leaves[node.x]), shape, dt, lanes
        )
        g = lowering.view(region.leaves[node.g])
        if conv_weights_along.suits(target, shape):
            g = g if dense_channels(g) else lowering.copied(g)
            config = conv_weights_along.config_of(shape, layout, dt, node.g.dtype)
            views, strides = [planes, g], (g.strides[0], g.strides[1])
            parts, launch = conv_weights_along.launch(config, target, shape, layout, group, strides)
        else:
            config = conv_weights.config_of(target, shape, dt, node.g.dtype)
            panels = _panels(lowering, g, shape, config)
            views = [planes, panels, taps_of(lowering, shape, layout, shape.channels)]
            parts, launch = conv_weights.launch(config, target, shape, layout, group)
        result = lowering.result(region.op.results[0])
        direct = parts == 1 and dt is result.dtype
        sums = result if direct else lowering.fresh(dt, (1, parts, result.size))
        lowering.launch("conv_weights", config, [*views, sums], launch, region.flops)
        if not direct:
            rounds = ReduceConfig("sum", dt, result.dtype)
            final = reduce.launch(sums.shape, sums.strides)
            lowering.launch("reduce", rounds, [sums, result], final, sums.size)


def _shape(node: ConvWeights) -> ConvShape:
    x, g, groups = node.x.type.static_shape, node.g.type.static_shape, node.groups
    return ConvShape(
        x[0], groups, x[1] // groups, g[1] // groups, triple(x[2:], 1), triple(g[2:], 1),
        triple(node.taps, 1), triple(node.stride, 1), triple(node.low, 0),
        triple(node.dilation, 1),
    )  # fmt: skip


def _panels(lowering: Lowering, source: View, shape: ConvShape, config: ConvWeightsConfig) -> View:
    """What stands at the windows as [images, groups, panels, windows, width]."""
    windows, target = math.prod(shape.out), lowering.target.kernels
    wanted = (shape.images * shape.groups, shape.outputs, windows)
    flat = source.reshape(wanted)
    if flat is None or (flat.strides[2] != 1 and windows > 1):
        flat = lowering.copied(source).reshape(wanted)
    assert flat is not None, "a dense view takes any shape"
    packing = PackAcrossConfig(source.dtype, config.width(target))
    each = pack_strided.packed_size(target, packing, windows, shape.outputs)
    panels = lowering.fresh(source.dtype, (wanted[0] * each,))
    launch = pack_strided.launch(
        packing, target, k=windows, n=shape.outputs, column_stride=flat.strides[1],
        batch=wanted[0], source_batch=flat.strides[0],
    )  # fmt: skip
    lowering.launch("pack_strided", packing, [flat, panels], launch)
    return panels


SELECTOR: Selector = ConvWeightsSelector()
