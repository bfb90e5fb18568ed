"""The table of kernel families: from a family's name and a config to the text of a kernel."""

from __future__ import annotations

from typing import Any

from rlx.errors import IRError
from rlx.kernels import (
    attention,
    attention_grad,
    common,
    contraction,
    conv,
    conv_layout,
    conv_weights,
    copy,
    custom,
    elementwise,
    fft,
    gather,
    loop,
    pack,
    pack_across,
    pool,
    reduce,
    rowwise,
    scatter,
)
from rlx.kernels.builder import KernelTarget, KernelText
from rlx.kernels.family import Family
from rlx.kernels.gpu import attention as gpu_attention
from rlx.kernels.gpu import contraction as gpu_contraction
from rlx.kernels.gpu import reduce as gpu_reduce
from rlx.kernels.triton import attention as triton_attention
from rlx.kernels.triton import contraction as triton_contraction

__all__ = ["FAMILIES", "emit_kernel"]

FAMILIES: dict[str, Family] = {
    "attention": attention,
    "attention_grad": attention_grad,
    "common": common,
    "contraction": contraction,
    "conv": conv,
    "conv_layout": conv_layout,
    "conv_weights": conv_weights,
    "copy": copy,
    "custom": custom,
    "elementwise": elementwise,
    "fft": fft,
    "gather": gather,
    "gpu_attention": gpu_attention,
    "gpu_contraction": gpu_contraction,
    "gpu_reduce": gpu_reduce,
    "loop": loop,
    "pack": pack,
    "pack_across": pack_across,
    "pool": pool,
    "reduce": reduce,
    "rowwise": rowwise,
    "scatter": scatter,
    "triton_attention": triton_attention,
    "triton_contraction": triton_contraction,
}


def emit_kernel(family: str, name: str, config: Any, target: KernelTarget) -> KernelText:
    """The text of the kernel ``name`` of a family; IRError for a family that does not exist."""
    if family not in FAMILIES:
        raise IRError(f"no kernel family is called {family!r}; there are {', '.join(FAMILIES)}")
    return FAMILIES[family].emit(name, config, target)
