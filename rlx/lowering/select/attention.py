"""Attention and its gradients: q, k, v read in place, results in the layout that is read next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rlx.base.frozen import frozen
from rlx.kernels.attention import emit as attention
from rlx.kernels.attention import grad as attention_grad
from rlx.kernels.attention.emit import AttentionConfig, AttentionSizes, Strides
from rlx.kernels.attention.grad import AttentionGradConfig, AttentionGradSizes
from rlx.lowering.region import Region
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.selector import Selector
from rlx.lowering.select.views import View
from rlx.ops.nn.attention import Attention
from rlx.ops.nn.attention_grad import AttentionGrad
from rlx.ops.nn.attention_heads import Heads
from rlx.types import DType

__all__ = ["GRAD", "SELECTOR", "heads_of"]

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
        return _single(region, Attention)

    def lower(self, region: Region, lowering: Lowering) -> None:
        node = region.nodes[0]
        assert isinstance(node, Attention)
        call = _Call.of(node, region, lowering)
        out, rows = call.result(0, node.num_heads)
        config = AttentionConfig(*call.config)
        sizes = AttentionSizes(out=_steps(rows), **call.sizes)
        target = lowering.target.kernels
        if lowering.shares:
            # Imported here: compiling for a CPU needs no GPU's kernels.
            from rlx.kernels.attention import gpu as gpu_attention
            from rlx.lowering.select import triton

            views = [*call.views, out]
            if triton.attend(lowering, config, sizes, views, region.flops):
                return
            by_blocks, launch = gpu_attention.launch(config, target, sizes)
            lowering.launch("gpu_attention", by_blocks, views, launch, region.flops)
            return
        if attention.decodes(config, target, sizes):
            config = replace(config, decode=True)
        elif attention.pairs(config, target, sizes):
            config = replace(config, pairs=True)
        launch = attention.launch(config, target, sizes)
        lowering.launch("attention", config, [*call.views, out], launch, region.flops)


class GradSelector:
    """A single op of attention's gradients on non-empty tensors."""

    def claim(self, region: Region) -> str | None:
        return _single(region, AttentionGrad)

    def lower(self, region: Region, lowering: Lowering) -> None:
        node = region.nodes[0]
        assert isinstance(node, AttentionGrad)
        call = _Call.of(node, region, lowering)
        g = heads_of(lowering, lowering.view(region.leaves[node.g]), node.num_heads, node.layout)
        (dq, by_q), (dk, by_k), (dv, by_v) = (
            call.result(i, heads)
            for i, heads in enumerate((node.num_heads, node.kv_heads, node.kv_heads))
        )
        config = AttentionGradConfig(*call.config)
        sizes = AttentionGradSizes(
            out=_steps(g), dq=_steps(by_q), dk=_steps(by_k), dv=_steps(by_v), **call.sizes
        )
        launch = attention_grad.launch(config, lowering.target.kernels, sizes)
        lowering.launch(
            "attention_grad", config, [*call.views, g, dq, dk, dv], launch, region.flops
        )


def _single(region: Region, kind: type[Heads]) -> str | None:
    """Why a region is not one op of a kind on tensors with elements."""
    node = region.nodes[0]
    if len(region.nodes) != 1 or not isinstance(node, kind):
        return f"it is no single {kind.name.partition('.')[2]}"
    if any(0 in v.shape for v in node.present):
        return "a dim is empty"
    return None


@frozen
class _Call:
    """The arguments that the kernels of attention and of its gradients share.

    ``views`` are q, k, v and the mask if there is one; ``config`` has the first fields of the
    families' configs, and ``sizes`` what all calls say.
    """

    node: Heads
    region: Region
    lowering: Lowering
    views: list[View]
    config: tuple[DType, Any, DType | None, bool]
    sizes: dict[str, Any]

    @staticmethod
    def of(node: Heads, region: Region, lowering: Lowering) -> _Call:
        """The operands that all have, where they lie."""
        heads = (node.num_heads, node.kv_heads, node.kv_heads)
        q, k, v = (
            heads_of(lowering, lowering.view(region.leaves[x]), h, node.layout)
            for x, h in zip((node.q, node.k, node.v), heads, strict=True)
        )
        batch, h, queries, dim = q.shape
        kind, keys, views, steps = _MASKS[node.mask_kind], k.shape[2], [q, k, v], Strides(0, 0, 0)
        dtype = None
        if node.mask is not None:
            mask = lowering.view(region.leaves[node.mask])
            mask, steps = _mask(lowering, mask, kind, (batch, h, queries, keys))
            views.append(mask)
            dtype = mask.dtype
        sizes = {
            "batch": batch, "heads": h, "key_heads": node.kv_heads, "queries": queries,
            "keys": keys, "dim": dim, "scale": node.scale, "q": _steps(q), "k": _steps(k),
            "v": _steps(v), "mask": steps, "softcap": node.softcap, "window": node.window,
        }  # fmt: skip
        config = (q.dtype, kind, dtype, node.softcap != 0)
        return _Call(node, region, lowering, views, config, sizes)

    def result(self, i: int, heads: int) -> tuple[View, View]:
        """Where a result lies, and the same head by head.

        "bhsd" results are stored rows first, as "bshd" is: what follows is mostly a projection.
        """
        out, layout = self.region.op.results[i], self.node.layout
        turned = layout == "bhsd" and out not in self.lowering.destinations
        view = self.lowering.result(out, (0, 2, 1, 3) if turned else None)
        return view, heads_of(self.lowering, view, heads, layout)


def heads_of(lowering: Lowering, x: View, heads: int, layout: str) -> View:
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
    if keys > 1 and (mask.shape[-1:] in ((), (1,)) or mask.strides[-1] != 1):
        mask = lowering.copied(mask.expand((*mask.shape[:-1], keys)))
    if kind == "custom":
        return mask, Strides(mask.strides[0], 0, 0)
    spread = mask.expand(shape)
    return spread, Strides(*spread.strides[:3])


SELECTOR: Selector = AttentionSelector()
GRAD: Selector = GradSelector()
