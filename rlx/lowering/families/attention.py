"""Attention: q, k, v read where they lie, the result written in the layout that reads on."""

from __future__ import annotations

from dataclasses import replace

from rlx.kernels import attention
from rlx.kernels.attention import AttentionConfig, AttentionSizes, Strides
from rlx.kernels.gpu import attention as gpu_attention
from rlx.lowering.families.base import Selector
from rlx.lowering.lowering import Lowering
from rlx.lowering.region import Region
from rlx.lowering.views import View
from rlx.ops.attention import Attention

__all__ = ["SELECTOR"]

_MASKS = {
    "none": "none",
    "causal": "causal",
    "sliding_window": "window",
    "custom": "custom",
    "bias": "bias",
}


class AttentionSelector:
    """A single attention op on non-empty tensors."""

    def claim(self, region: Region) -> str | None:
        node = region.nodes[0]
        if len(region.nodes) != 1 or not isinstance(node, Attention):
            return "it is no single attention"
        if any(0 in v.shape for v in node.present):
            return "a dim is empty"
        return None

    def lower(self, region: Region, lowering: Lowering) -> None:
        node = region.nodes[0]
        assert isinstance(node, Attention)
        out = region.op.results[0]
        heads = (node.num_heads, node.kv_heads, node.kv_heads)
        operands = [lowering.view(region.leaves[v]) for v in node.present[:3]]
        q, k, v = (
            _heads(lowering, x, h, node.layout) for x, h in zip(operands, heads, strict=True)
        )
        # "bhsd" results are stored rows first, as "bshd" is: what follows is mostly a projection.
        result = lowering.result(
            out,
            (0, 2, 1, 3) if node.layout == "bhsd" and out not in lowering.destinations else None,
        )
        rows = _heads(lowering, result, node.num_heads, node.layout)
        mask = lowering.view(region.leaves[node.mask]) if node.mask is not None else None
        batch, h, queries, dim = q.shape
        kind = _MASKS[node.mask_kind]
        if mask is not None:
            mask, steps = _mask(lowering, mask, kind, (batch, h, queries, k.shape[2]))
        else:
            steps = Strides(0, 0, 0)
        sizes = AttentionSizes(
            batch, h, node.kv_heads, queries, k.shape[2], dim, node.scale,
            _steps(q), _steps(k), _steps(v), _steps(rows), steps, node.softcap, node.window,
        )  # fmt: skip
        config = AttentionConfig(q.dtype, kind, mask.dtype if mask else None, node.softcap != 0)  # type: ignore[arg-type]
        views = [q, k, v, *([mask] if mask else []), result]
        target = lowering.target.kernels
        if lowering.shares:
            by_blocks = gpu_attention.launch(config, target, sizes)
            lowering.launch("gpu_attention", by_blocks[0], views, by_blocks[1], region.flops)
            return
        if attention.decodes(config, target, sizes):
            config = replace(config, decode=True)
        launch = attention.launch(config, target, sizes)
        lowering.launch("attention", config, views, launch, region.flops)


def _heads(lowering: Lowering, x: View, heads: int, layout: str) -> View:
    """A view [B, H, S, D] with D contiguous, by a copy if it is not."""
    for place in (lambda: x, lambda: lowering.copied(x)):
        view: View | None = place()
        if layout == "bshd":
            b, s, width = x.shape
            split = place().reshape((b, s, heads, width // heads))
            view = split.transpose((0, 2, 1, 3)) if split is not None else None
        if view is not None and (view.strides[-1] == 1 or view.shape[-1] == 1):
            return view
    raise AssertionError("a dense copy has contiguous heads")


def _steps(v: View) -> Strides:
    return Strides(v.strides[0], v.strides[1], v.strides[2])


def _mask(
    lowering: Lowering, mask: View, kind: str, shape: tuple[int, int, int, int]
) -> tuple[View, Strides]:
    """The mask with keys side by side, and its distances; a bias broadcasts by strides of 0."""
    keys = shape[3]
    if keys > 1 and (mask.shape[-1] == 1 or mask.strides[-1] != 1):
        mask = lowering.copied(mask.expand((*mask.shape[:-1], keys)))
    if kind == "custom":
        return mask, Strides(mask.strides[0], 0, 0)
    spread = mask.expand(shape)
    return spread, Strides(*spread.strides[:3])


SELECTOR: Selector = AttentionSelector()
