"""The table of kernel families: from a family's name and a config to the text of a kernel."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

from rlx.codegen.builder import KernelTarget, KernelText
from rlx.codegen.family import Family
from rlx.errors import IRError

__all__ = ["FAMILIES", "emit_kernel", "load_families"]

FAMILIES = {
    "attention": "rlx.kernels.attention.emit",
    "attention_grad": "rlx.kernels.attention.grad",
    "common": "rlx.kernels.fallback.emit",
    "contraction": "rlx.kernels.matmul.emit",
    "conv": "rlx.kernels.conv.planes",
    "conv_layout": "rlx.kernels.conv.layout",
    "conv_weights": "rlx.kernels.conv.weights_grad",
    "copy": "rlx.kernels.elementwise.copy",
    "custom": "rlx.kernels.fallback.foreign",
    "elementwise": "rlx.kernels.elementwise.emit",
    "few_columns": "rlx.kernels.matmul.skinny",
    "fft": "rlx.kernels.fft.emit",
    "gather": "rlx.kernels.index.gather",
    "loop": "rlx.kernels.loop.emit",
    "pack": "rlx.kernels.matmul.pack",
    "pack_across": "rlx.kernels.matmul.pack_strided",
    "pool": "rlx.kernels.conv.pool",
    "reduce": "rlx.kernels.reduce.emit",
    "rowwise": "rlx.kernels.rowwise.config",
    "scatter": "rlx.kernels.index.scatter",
    "small_product": "rlx.kernels.matmul.batched_small",
    "integer_contraction": "rlx.kernels.matmul.emit",
    "gpu_attention": "rlx.kernels.attention.gpu",
    "gpu_contraction": "rlx.kernels.matmul.gpu",
    "gpu_reduce": "rlx.kernels.reduce.gpu",
    "triton_attention": "rlx.kernels.attention.triton",
    "triton_contraction": "rlx.kernels.matmul.triton",
}  # fmt: skip
"""The module of each family, loaded when a kernel of it is made."""


def load_families(names: Iterable[str]) -> None:
    """Load the modules of families, which takes longer than to make a kernel."""
    for name in names:
        importlib.import_module(FAMILIES[name])


def emit_kernel(family: str, name: str, config: Any, target: KernelTarget) -> KernelText:
    """The text of the kernel ``name`` of a family; IRError for a family that does not exist."""
    if family not in FAMILIES:
        raise IRError(f"no kernel family is called {family!r}; there are {', '.join(FAMILIES)}")
    found: Family = importlib.import_module(FAMILIES[family])  # pyright: ignore[reportAssignmentType]
    return found.emit(name, config, target)
