"""Argmax and argmin along an axis."""

from __future__ import annotations

import math

from rlx.kernels.reduce import argreduce
from rlx.kernels.reduce.argreduce import ArgReduceConfig
from rlx.lowering.region import Region
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.reduce.select import contiguous
from rlx.lowering.select.selector import Selector
from rlx.ops.reduction.argreduce import ArgExtremum
from rlx.types import bool_

__all__ = ["SELECTOR"]


class ArgReduceSelector:
    """A single argmax or argmin of numbers."""

    def claim(self, region: Region) -> str | None:
        node = region.nodes[0]
        if len(region.nodes) != 1 or not isinstance(node, ArgExtremum):
            return "it is no single argmax or argmin"
        if node.x.dtype is bool_:
            return "it is on bool"
        if 0 in node.x.shape:
            return "a dim is empty"
        if node.x.type.static_shape[node.axis] >= 1 << 31:
            return "an axis has more elements than 32 bits count"
        return None

    def lower(self, region: Region, lowering: Lowering) -> None:
        node = region.nodes[0]
        assert isinstance(node, ArgExtremum)
        shape, axis = node.x.type.static_shape, node.axis
        groups = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
        source = lowering.view(region.leaves[node.x])
        turned = source.reshape(groups)
        if turned is not None and groups[2] == 1 and turned.strides[0] == 1 != turned.strides[1]:
            # Rows that lie across are columns, side by side.
            source, groups = turned.transpose((2, 1, 0)), (1, groups[1], groups[0])
        source = contiguous(source, groups, lowering)
        # A row whose elements lie apart is a column of one.
        rows = groups[2] == 1 and (groups[1] == 1 or source.strides[1] == 1)
        config = ArgReduceConfig(node.verb, node.x.dtype, node.select_last_index, rows)
        result = lowering.result(region.op.results[0])
        launch = argreduce.launch(groups, source.strides)
        lowering.launch("argreduce", config, [source, result], launch, region.flops)


SELECTOR: Selector = ArgReduceSelector()
