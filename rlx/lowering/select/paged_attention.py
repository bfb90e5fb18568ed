"""Attention over pages: partial results over chunks of keys, and what joins them."""

from __future__ import annotations

from dataclasses import replace

from rlx.kernels.attention import paged
from rlx.kernels.attention.paged import PagedConfig, PagedSizes
from rlx.lowering.region import Region
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.selector import Selector
from rlx.lowering.select.views import View
from rlx.ops.nn.paged_attention import PagedAttention
from rlx.types import f32, i64

__all__ = ["SELECTOR"]


class PagedSelector:
    """A single paged attention, whose heads are whole vectors."""

    def claim(self, region: Region) -> str | None:
        node = region.nodes[0]
        if len(region.nodes) != 1 or not isinstance(node, PagedAttention):
            return "it is no single paged_attention"
        if any(0 in v.shape for v in node.present):
            return "a dim is empty"
        if node.head_dim % 4:
            return f"heads of {node.head_dim} are no whole number of vectors"
        return None

    def lower(self, region: Region, lowering: Lowering) -> None:
        node = region.nodes[0]
        assert isinstance(node, PagedAttention)
        target, dim = lowering.target.kernels, node.head_dim
        q = lowering.view(region.leaves[node.q])
        if q.strides[1] != 1:
            q = lowering.copied(q)
        rest = (node.keys, node.values, node.table, node.sequence, node.positions)
        keys, values, table, sequence, positions = (lowering.dense(region.leaves[v]) for v in rest)
        out = lowering.result(region.op.results[0])
        rows, heads, (sequences, pages) = q.shape[0], node.num_heads, table.shape
        config = PagedConfig(
            keys.dtype, paged.lanes_for(target, dim), node.softcap != 0, node.window != 0
        )
        sizes = PagedSizes(
            rows, heads, node.kv_heads, dim, node.page_size, keys.shape[0] // node.page_size,
            sequences, pages, q.strides[0], out.strides[0], node.scale, node.window, node.softcap,
        )  # fmt: skip
        splits, _ = paged.plan(sizes)
        sums = lowering.fresh(f32, (rows, heads, splits, dim))
        state = lowering.fresh(f32, (rows, heads, splits, 2))
        error = View.dense(lowering.error, i64, (2,))
        launch = paged.launch(config, sizes, lowering.site(node.fault))
        views = [q, keys, values, table, sequence, positions, sums, state, error]
        cost = node.cost()
        lowering.launch("paged_attention", config, views, launch, cost.flops, cost.bytes)
        join = replace(config, join=True)
        views = [positions, sums, state, out]
        lowering.launch("paged_attention", join, views, paged.launch(join, sizes))


SELECTOR: Selector = PagedSelector()
