"""Max and mean pooling with a pointwise epilogue; the indices of the largest, and the way back."""

from __future__ import annotations

import math
from typing import Literal

from rlx.base.dims import as_sizes
from rlx.kernels.conv import pool
from rlx.kernels.conv.pool import MOST_TAPS, PoolBackConfig, PoolShape
from rlx.lowering.region import Region
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.conv.epilogue import epilogue_of, root_of, unfit
from rlx.lowering.select.conv.strategies import triple
from rlx.lowering.select.selector import Selector, spread_source
from rlx.ops.conv.max_pool import MaxPool, MaxPoolBackward, MaxPoolIndices
from rlx.ops.conv.pool import MeanPool

__all__ = ["SELECTOR"]


class PoolSelector:
    """A pooling of few taps and the pointwise ops behind it, or the way back."""

    def claim(self, region: Region) -> str | None:
        node = root_of(region)
        if isinstance(node, MaxPoolBackward):
            return None
        if not isinstance(node, MaxPool | MaxPoolIndices | MeanPool):
            return "it does not begin with a pooling"
        if math.prod(node.taps) > MOST_TAPS:
            return f"a window has {math.prod(node.taps)} taps, more than {MOST_TAPS}"
        if math.prod(node.x.type.static_shape[2:]) >= 1 << 31:
            return "a channel has more elements than 32 bits count"
        return unfit(region, node)

    def lower(self, region: Region, lowering: Lowering) -> None:
        node = root_of(region)
        if isinstance(node, MaxPoolBackward):
            config = PoolBackConfig(node.g.dtype)
            views = [lowering.dense(region.leaves[v]) for v in node.present]
            out, counts = node.out.type.static_shape, node.g.type.static_shape[2:]
            launch = pool.back_launch(
                config, math.prod(out[:2]), math.prod(out[2:]), math.prod(counts)
            )
        else:
            assert isinstance(node, MaxPool | MaxPoolIndices | MeanPool)
            shape = _shape(node)
            program, kinds, extra = epilogue_of(region, node, lowering)
            config = pool.config_of(_WHAT[node.name], node.x.dtype, shape, program, kinds)
            launch = pool.launch(config, shape)
            x = lowering.dense(region.leaves[spread_source(node.x)])
            x = x.expand(node.x.type.static_shape)
            views = [x if x.is_dense else lowering.copied(x), *extra]
        result = lowering.result(region.op.results[0])
        lowering.launch("pool", config, [*views, result], launch, region.flops)


_WHAT: dict[str, Literal["max", "indices", "mean"]] = {
    MaxPool.name: "max",
    MaxPoolIndices.name: "indices",
    MeanPool.name: "mean",
}


def _shape(node: MaxPool | MaxPoolIndices | MeanPool) -> PoolShape:
    x, out = node.x.type.static_shape, node.out.type.static_shape
    taps, stride, low, dilation = node.windows
    begin, end = map(as_sizes, node.counted) if isinstance(node, MeanPool) else (low, low)
    return PoolShape(
        math.prod(x[:2]), x[1], triple(x[2:], 1), triple(out[2:], 1), triple(taps, 1),
        triple(stride, 1), triple(low, 0), triple(dilation, 1), triple(begin, 0), triple(end, 1),
    )  # fmt: skip


SELECTOR: Selector = PoolSelector()
