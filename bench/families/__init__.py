"""The families of cases: each module has ``cases()``, or a function that is named, or
``rows(options)`` where more than calls is measured."""

from __future__ import annotations

import importlib
from functools import cache
from types import ModuleType

from bench.case import Case

FAMILIES = {
    "limits": "bench.families.limits",
    "gemm": "bench.families.gemm",
    "attention": "bench.families.attention",
    "softmax": "bench.families.softmax",
    "norm": "bench.families.norm",
    "activation": "bench.families.activation",
    "products": "bench.families.products",
    "movement": "bench.families.movement",
    "conv": "bench.families.conv",
    "conv_int8": "bench.families.conv_int8",
    "minilm": "bench.families.minilm",
    "bert": "bench.families.bert",
    "llama": "bench.families.llama",
    "zoo": "bench.families.zoo",
    "llm": "bench.families.llm",
    "llm_process": "bench.families.llm_process",
    "bf16": "bench.families.bf16",
    "blocks": "bench.families.blocks",
    "fft": "bench.families.fft",
    "linalg": "bench.families.linalg",
    "loop": "bench.families.loop",
    "train": "bench.families.train",
    "overhead": "bench.families.overhead",
    "start": "bench.families.start",
    "compile": "bench.families.compile",
    "warm": "bench.families.warm",
    "sizes": "bench.families.sizes",
    "memory": "bench.families.memory",
    "resident": "bench.families.resident",
    "busy": "bench.families.busy",
    "speedup": "bench.families.speedup",
}

DEVICE_FAMILIES = {
    "gpu_limits": "bench.families.gpu:limits",
    "gpu_gemm": "bench.families.gpu:gemm",
    "gpu_attention": "bench.families.gpu:attention",
    "gpu_decode": "bench.families.gpu:decode",
    "gpu_blocks": "bench.families.gpu_blocks:products",
    "gpu_paged": "bench.families.gpu_blocks:paged",
    "gpu_bert": "bench.families.gpu:bert_base",
    "gpu_minilm": "bench.families.gpu:mini_lm",
}
"""Those of a run on a device (``--device``)."""


def family(name: str) -> ModuleType:
    """The module of a family."""
    return importlib.import_module((FAMILIES | DEVICE_FAMILIES)[name].partition(":")[0])


@cache
def cases(name: str) -> dict[str, Case]:
    """The cases of a family by name; none of one that has rows of its own."""
    module = family(name)
    function = (FAMILIES | DEVICE_FAMILIES)[name].partition(":")[2] or "cases"
    found = getattr(module, function)() if hasattr(module, function) else []
    by_name = {c.name: c for c in found}
    assert len(by_name) == len(found), f"two cases of {name} have one name"
    return by_name


def find_case(family_name: str, name: str) -> Case:
    """A case by its family and name."""
    return cases(family_name)[name]
