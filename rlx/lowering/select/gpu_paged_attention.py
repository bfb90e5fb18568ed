"""Attention over pages on a GPU: where the pages lie, parts over chunks of keys, and what joins
them (``rlx.kernels.attention.gpu_paged``)."""

from __future__ import annotations

from rlx.kernels.attention import gpu_paged
from rlx.kernels.attention.gpu_paged import GpuPagedConfig
from rlx.kernels.matmul.gpu_tile import power_below
from rlx.lowering.region import Region
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.paged_attention import operands_of, refused
from rlx.lowering.select.selector import Selector
from rlx.ops.nn.paged_attention import PagedAttention
from rlx.types import f32, i32

__all__ = ["SELECTOR"]


class GpuPagedSelector:
    """A single paged attention on tensors with elements."""

    def claim(self, region: Region) -> str | None:
        return refused(region)

    def lower(self, region: Region, lowering: Lowering) -> None:
        node = region.nodes[0]
        assert isinstance(node, PagedAttention)
        target = lowering.target.kernels
        q, keys, values, table, sequence, positions, out, sinks, error, sizes = operands_of(
            node, region, lowering
        )
        rows, pages = q.shape[0], table.shape[1]
        slots = lowering.fresh(i32, (rows, pages + 1))
        shape = (rows, sizes.heads, gpu_paged.splits_of(sizes), gpu_paged.part_length(sizes.dim))
        parts = lowering.fresh(f32, shape)
        config = gpu_paged.choose(target, keys.dtype, sizes)
        threads = power_below(min(256, target.most_threads))
        stages = (
            (
                GpuPagedConfig("slots", window=config.window),
                [table, sequence, positions, slots, error],
            ),
            (config, [q, keys, values, slots, parts]),
            (
                GpuPagedConfig(
                    "join",
                    dim=sizes.dim,
                    threads=min(threads, config.columns),
                    window=config.window,
                    sinks=bool(sinks),
                ),
                [slots, parts, *sinks, out],
            ),
        )
        site, cost = lowering.site(node.fault), node.cost()
        for stage, views in stages:
            launch = gpu_paged.launch(stage, sizes, site)
            work = (cost.flops, cost.bytes) if stage is config else ()
            lowering.launch(gpu_paged.name, stage, views, launch, *work)


SELECTOR: Selector = GpuPagedSelector()
