"""The config classes of all kernel families by name, to read configs back from lir text."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping

__all__ = ["config_classes"]

_CLASSES: dict[str, tuple[str, ...]] = {
    "rlx.kernels.attention": ("AttentionConfig",),
    "rlx.kernels.attention_grad": ("AttentionGradConfig",),
    "rlx.kernels.common": ("CommonConfig",),
    "rlx.kernels.contraction": ("ContractionConfig",),
    "rlx.kernels.custom": ("CustomConfig",),
    "rlx.kernels.elementwise": ("ElementwiseConfig",),
    "rlx.kernels.gather": ("GatherConfig",),
    "rlx.kernels.gpu.attention": ("GpuAttentionConfig",),
    "rlx.kernels.gpu.contraction": ("GpuContractionConfig", "Split", "Tile", "Fragments"),
    "rlx.kernels.gpu.reduce": ("GpuReduceConfig",),
    "rlx.kernels.loop": (
        "LoopConfig", "Rows", "Row", "Literal", "Move", "Apply", "If", "While", "For",
    ),
    "rlx.kernels.pack": ("PackConfig",),
    "rlx.kernels.program": ("Program", "Step"),
    "rlx.kernels.reduce": ("ReduceConfig",),
    "rlx.kernels.rowwise": ("Reduce", "RowProgram", "RowwiseConfig"),
    "rlx.kernels.scatter": ("ScatterConfig",),
    "rlx.kernels.few_columns": ("FewColumnsConfig",),
    "rlx.kernels.small_product": ("SmallProductConfig",),
    "rlx.kernels.taken": ("Take",),
    "rlx.kernels.triton.attention": ("TritonAttentionConfig", "AttentionTile"),
    "rlx.kernels.triton.contraction": ("TritonContractionConfig", "ProductTile"),
    "rlx.kernels.fft": ("FftConfig",),
    "rlx.kernels.conv": ("ConvConfig",),
    "rlx.kernels.conv_channels_plan": ("ConvChannelsConfig", "ChannelsTile"),
    "rlx.kernels.conv_depthwise_across": ("ConvDepthwiseAcrossConfig",),
    "rlx.kernels.conv_depthwise_plan": ("ConvDepthwiseConfig", "DepthwiseTile"),
    "rlx.kernels.conv_layout": ("BlocksConfig", "PlanesConfig"),
    "rlx.kernels.pack_across": ("PackAcrossConfig",),
    "rlx.kernels.pool": ("PoolConfig", "PoolBackConfig"),
    "rlx.kernels.conv_weights": ("ConvWeightsConfig",),
    "rlx.kernels.conv_weights_along": ("ConvWeightsAlongConfig",),
    "rlx.types": ("TensorType",),
}  # fmt: skip


class _Classes(Mapping[str, type]):
    """Classes by name, each module loaded when one of its classes is asked for."""

    def __init__(self) -> None:
        self._modules = {name: module for module, names in _CLASSES.items() for name in names}

    def __getitem__(self, name: str) -> type:
        return getattr(importlib.import_module(self._modules[name]), name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


config_classes: Mapping[str, type] = _Classes()
"""Config classes, and the classes that configs are made of."""
