"""The table of kernel families: from a family's name and a config to the text of a kernel."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

from rlx.errors import IRError
from rlx.kernels.builder import KernelTarget, KernelText
from rlx.kernels.family import Family

__all__ = ["FAMILIES", "emit_kernel", "load_families"]

FAMILIES = {
    **{name: f"rlx.kernels.{name}" for name in (
        "attention", "attention_grad", "common", "contraction", "conv", "conv_layout",
        "conv_weights", "copy", "custom", "elementwise", "few_columns", "fft", "gather", "loop",
        "pack", "pack_across", "pool", "reduce", "rowwise", "scatter", "small_product",
    )},
    "integer_contraction": "rlx.kernels.contraction",
    "gpu_attention": "rlx.kernels.gpu.attention",
    "gpu_contraction": "rlx.kernels.gpu.contraction",
    "gpu_reduce": "rlx.kernels.gpu.reduce",
    "triton_attention": "rlx.kernels.triton.attention",
    "triton_contraction": "rlx.kernels.triton.contraction",
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
