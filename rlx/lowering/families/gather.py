"""Gathers: rows of a table copied by index, the table read where it lies."""

from __future__ import annotations

import math

from rlx.kernels import gather
from rlx.kernels.gather import GatherConfig
from rlx.lowering.families.base import Selector
from rlx.lowering.lowering import Lowering
from rlx.lowering.region import Region
from rlx.lowering.views import View
from rlx.ops.gather import Gather
from rlx.ops.places import out_of_range
from rlx.types import i64

__all__ = ["SELECTOR"]


class GatherSelector:
    """A single gather."""

    def claim(self, region: Region) -> str | None:
        if len(region.nodes) != 1 or not isinstance(region.nodes[0], Gather):
            return "it is no single gather"
        return None

    def lower(self, region: Region, lowering: Lowering) -> None:
        node = region.nodes[0]
        assert isinstance(node, Gather)
        whole = lowering.view(region.leaves[node.table])
        table = _rows(node, whole.as_bits(lowering.widest), lowering)
        indices = lowering.dense(region.leaves[node.indices])
        result = lowering.result(region.op.results[0])
        count = math.prod(indices.shape[node.batch_dims :])
        config = GatherConfig(table.dtype.bits, indices.dtype, node.mode)
        error: list[View] = []
        site = 0
        if config.faults:
            site = lowering.site(out_of_range(node, table.shape[2]))
            error = [View.dense(lowering.error, i64, (2,))]
        launch = gather.launch(
            config, table.shape, table.strides, count, site=site, block=lowering.block
        )
        bits = [table, indices, result.as_bits(lowering.widest)]
        lowering.launch("gather", config, [*bits, *error], launch, moved=node.cost().bytes)


def _rows(node: Gather, view: View, lowering: Lowering) -> View:
    """The table as [batch, outer, length, row] with contiguous rows, by a copy if need be."""
    shape, lead, axis = view.shape, node.batch_dims, node.axis
    groups = (shape[:lead], shape[lead:axis], (shape[axis],), shape[axis + 1 :])
    dims = [math.prod(g) for g in groups]
    found = view.reshape(dims)
    if found is None or (found.shape[3] > 1 and found.strides[3] != 1):
        found = lowering.copied(view).reshape(dims)
    assert found is not None, "a dense view takes any shape"
    return found


SELECTOR: Selector = GatherSelector()
