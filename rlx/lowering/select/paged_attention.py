"""Attention over pages: partial results over chunks of keys, and what joins them."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from rlx.kernels.attention import paged
from rlx.kernels.attention.paged import PagedConfig, PagedSizes
from rlx.lowering.region import Region
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.selector import Selector
from rlx.lowering.select.views import View
from rlx.ops.nn.paged_attention import PagedAttention
from rlx.types import f32, i64

__all__ = ["SELECTOR", "operands_of", "refused"]


def refused(region: Region) -> str | None:
    """Why no kernel of paged attention runs a region, on any target."""
    node = region.nodes[0]
    if len(region.nodes) != 1 or not isinstance(node, PagedAttention):
        return "it is no single paged_attention"
    return "a dim is empty" if any(0 in v.shape for v in node.present) else None


class Operands(NamedTuple):
    """What a paged attention reads and writes, and its sizes."""

    q: View
    keys: View
    values: View
    table: View
    sequence: View
    positions: View
    out: View
    sinks: tuple[View, ...]
    error: View
    sizes: PagedSizes


def operands_of(node: PagedAttention, region: Region, lowering: Lowering) -> Operands:
    """The operands of a node; rows of q lie together, all else is dense."""
    q = lowering.view(region.leaves[node.q])
    if q.strides[1] != 1:
        q = lowering.copied(q)
    rest = (node.keys, node.values, node.table, node.sequence, node.positions)
    keys, values, table, sequence, positions = (lowering.dense(region.leaves[v]) for v in rest)
    out = lowering.result(region.op.results[0])
    sequences, pages = table.shape
    sizes = PagedSizes(
        q.shape[0], node.num_heads, node.kv_heads, node.head_dim, node.page_size,
        keys.shape[0] // node.page_size, sequences, pages, q.strides[0], out.strides[0], node.scale,
        node.window, node.softcap,
    )  # fmt: skip
    error = View.dense(lowering.error, i64, (2,))
    sinks = () if node.sinks is None else (lowering.dense(region.leaves[node.sinks]),)
    return Operands(q, keys, values, table, sequence, positions, out, sinks, error, sizes)


class PagedSelector:
    """A single paged attention, whose heads are whole vectors."""

    def claim(self, region: Region) -> str | None:
        node = region.nodes[0]
        if why := refused(region):
            return why
        assert isinstance(node, PagedAttention)
        if node.head_dim % 4:
            return f"heads of {node.head_dim} are no whole number of vectors"
        return None

    def lower(self, region: Region, lowering: Lowering) -> None:
        node = region.nodes[0]
        assert isinstance(node, PagedAttention)
        at = operands_of(node, region, lowering)
        lanes = paged.lanes_for(lowering.target.kernels, node.head_dim)
        config = PagedConfig(at.keys.dtype, lanes, node.softcap != 0, node.window != 0)
        parts = (at.q.shape[0], node.num_heads, paged.plan(at.sizes).splits)
        sums = lowering.fresh(f32, (*parts, node.head_dim))
        state = lowering.fresh(f32, (*parts, 2))
        launch = paged.launch(config, at.sizes, lowering.site(node.fault))
        views = [*at[:6], sums, state, at.error]
        cost = node.cost()
        lowering.launch("paged_attention", config, views, launch, cost.flops, cost.bytes)
        join = replace(config, join=True, sinks=bool(at.sinks))
        views = [at.positions, sums, state, *at.sinks, at.out]
        lowering.launch("paged_attention", join, views, paged.launch(join, at.sizes))


SELECTOR: Selector = PagedSelector()
