"""Scatters: rows written by index."""

from __future__ import annotations

import math

from rlx.kernels.index import scatter
from rlx.lowering.region import Region
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.selector import Selector
from rlx.lowering.select.views import View
from rlx.ops.indexing.index_modes import out_of_range
from rlx.ops.indexing.scatter import Scatter, ScatterAdd
from rlx.types import DTYPES, i64

__all__ = ["SELECTOR"]


class ScatterSelector:
    """A single scatter."""

    def claim(self, region: Region) -> str | None:
        if len(region.nodes) != 1 or not isinstance(region.nodes[0], Scatter | ScatterAdd):
            return "it is no single scatter"
        if region.nodes[0].out.dtype.is_complex:
            return "its elements are complex"
        return None

    def lower(self, region: Region, lowering: Lowering) -> None:
        node = region.nodes[0]
        assert isinstance(node, Scatter | ScatterAdd)
        indices = lowering.dense(region.leaves[node.indices])
        updates = lowering.dense(region.leaves[node.updates])
        tensor, start, result = _start(node, [indices, updates], region, lowering)
        lead, axis, dims = node.batch_dims, node.axis, result.shape
        shape = [math.prod(d) for d in (dims[:lead], dims[lead:axis], dims[axis : axis + 1])]
        shape.append(math.prod(dims[axis + 1 :]))
        # What is only set moves as bits.
        moves = node.what == "set"
        dtype = DTYPES[f"u{updates.dtype.bits}"] if moves else updates.dtype
        site = lowering.site(out_of_range(node, shape[2])) if node.mode == "fault" else 0
        config, launch = scatter.launch(
            dtype, indices.dtype, node.what, node.mode, shape,
            math.prod(indices.shape[lead:]), start=start, site=site,
        )  # fmt: skip
        data = [v.as_bits() if moves else v for v in (*tensor, updates, result)]
        views = [*data[:-2], indices, *data[-2:]]
        if config.accumulator is not dtype:
            views.append(lowering.fresh(config.accumulator, dims))
        if config.faults:
            views.append(View.dense(lowering.error, i64, (2,)))
        cost = node.cost()
        moved = indices.bytes + 2 * updates.bytes if start == "result" else cost.bytes
        lowering.launch("scatter", config, views, launch, cost.flops, moved)


def _start(
    node: Scatter | ScatterAdd, read: list[View], region: Region, lowering: Lowering
) -> tuple[list[View], scatter.Start, View]:
    """The tensor that is written on, if it has to be read; what the kernel starts from; and where
    the result lies: over the tensor, where nothing else needs it any more."""
    out = region.op.results[0]
    if node.target is None:
        return [], "zeros", lowering.result(out)
    target = region.leaves[node.target]
    tensor = lowering.dense(target)
    apart = all(v.memory is not tensor.memory for v in read)
    result = lowering.result_over(out, [(target, tensor)] if apart else [])
    return ([], "result", result) if result == tensor else ([tensor], "tensor", result)


SELECTOR: Selector = ScatterSelector()
