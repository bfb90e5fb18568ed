"""Rotary embedding, read and written head by head where x and the result lie."""

from __future__ import annotations

from rlx.kernels.attention import rope
from rlx.kernels.attention.args import Strides
from rlx.kernels.attention.rope import RopeConfig, RopeSizes
from rlx.lowering.region import Region
from rlx.lowering.select.attention import heads_of
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.selector import Selector
from rlx.lowering.select.views import View
from rlx.ops.nn.rope import Rope

__all__ = ["SELECTOR"]


class RopeSelector:
    """A single rope on a tensor with elements."""

    def claim(self, region: Region) -> str | None:
        node = region.nodes[0]
        if len(region.nodes) != 1 or not isinstance(node, Rope):
            return "it is no single rope"
        if 0 in node.x.shape:
            return "a dim is empty"
        if node.cos.dtype is not node.sin.dtype:
            return "its tables are of two types"
        return None

    def lower(self, region: Region, lowering: Lowering) -> None:
        node = region.nodes[0]
        assert isinstance(node, Rope)
        x = heads_of(lowering, lowering.view(region.leaves[node.x]), node.heads, node.layout)
        cos, sin = (_rows(lowering, lowering.view(region.leaves[v])) for v in (node.cos, node.sin))
        result = lowering.result(region.op.results[0])
        out = heads_of(lowering, result, node.heads, node.layout)
        batch, heads, rows, dim = x.shape
        config = RopeConfig(x.dtype, cos.dtype, node.n_rot < node.head_dim)
        sizes = RopeSizes(
            batch, heads, rows, dim, node.n_rot, Strides(*x.strides[:3]), Strides(*out.strides[:3]),
            cos.strides[0], sin.strides[0],
        )  # fmt: skip
        lowering.launch("rope", config, [x, cos, sin, out], rope.launch(sizes), region.flops)


def _rows(lowering: Lowering, table: View) -> View:
    """A table whose columns lie side by side, by a copy if they do not."""
    whole = table.strides[-1] == 1 or table.shape[-1] == 1
    return table if whole else lowering.copied(table)


SELECTOR: Selector = RopeSelector()
