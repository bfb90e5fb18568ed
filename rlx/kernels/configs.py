"""The config classes of all kernel families by name, to read configs back from lir text."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping

__all__ = ["config_classes"]

_CLASSES: dict[str, tuple[str, ...]] = {
    "rlx.kernels.attention.emit": ("AttentionConfig",),
    "rlx.kernels.attention.grad": ("AttentionGradConfig",),
    "rlx.kernels.fallback.emit": ("CommonConfig",),
    "rlx.kernels.matmul.emit": ("ContractionConfig",),
    "rlx.kernels.fallback.foreign": ("CustomConfig",),
    "rlx.kernels.elementwise.emit": ("ElementwiseConfig",),
    "rlx.kernels.index.gather": ("GatherConfig",),
    "rlx.kernels.attention.gpu": ("GpuAttentionConfig",),
    "rlx.kernels.matmul.gpu": ("GpuContractionConfig", "Split", "Tile", "Fragments"),
    "rlx.kernels.reduce.gpu": ("GpuReduceConfig",),
    "rlx.kernels.loop.emit": (
        "LoopConfig", "Rows", "Row", "Literal", "Move", "Apply", "If", "While", "For",
    ),
    "rlx.kernels.matmul.pack": ("PackConfig",),
    "rlx.codegen.program": ("Program", "Step"),
    "rlx.kernels.reduce.emit": ("ReduceConfig",),
    "rlx.kernels.rowwise.config": ("Reduce", "RowProgram", "RowwiseConfig"),
    "rlx.kernels.index.scatter": ("ScatterConfig",),
    "rlx.kernels.matmul.skinny": ("FewColumnsConfig",),
    "rlx.kernels.matmul.batched_small": ("SmallProductConfig",),
    "rlx.kernels.elementwise.gathered_operand": ("Take",),
    "rlx.kernels.attention.triton": ("TritonAttentionConfig", "AttentionTile"),
    "rlx.kernels.matmul.triton": ("TritonContractionConfig", "ProductTile"),
    "rlx.kernels.fft.emit": ("FftConfig",),
    "rlx.kernels.conv.planes": ("ConvConfig",),
    "rlx.kernels.conv.channels_plan": ("ConvChannelsConfig", "ChannelsTile"),
    "rlx.kernels.conv.depthwise_channels": ("ConvDepthwiseAcrossConfig",),
    "rlx.kernels.conv.depthwise_plan": ("ConvDepthwiseConfig", "DepthwiseTile"),
    "rlx.kernels.conv.layout": ("BlocksConfig", "PlanesConfig"),
    "rlx.kernels.matmul.pack_strided": ("PackAcrossConfig",),
    "rlx.kernels.conv.pool": ("PoolConfig", "PoolBackConfig"),
    "rlx.kernels.conv.weights_grad": ("ConvWeightsConfig",),
    "rlx.kernels.conv.weights_grad_depthwise": ("ConvWeightsAlongConfig",),
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
