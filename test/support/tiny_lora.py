"""Small LoRA adapters of the small decoders: configurations of PEFT, numbers from names."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlx.models.safetensors import write_safetensors

__all__ = ["ADAPTERS", "adapter_tensors", "write_adapter"]

Array = np.ndarray[Any, Any]

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
NETWORK = ["gate_proj", "up_proj", "down_proj"]

ADAPTERS: dict[str, tuple[str, dict[str, Any]]] = {
    "every": (
        "llama",
        {"r": 4, "lora_alpha": 8, "target_modules": [*ATTENTION, *NETWORK, "lm_head"]},
    ),
    "some": (
        "llama",
        {
            "r": 3, "lora_alpha": 7, "target_modules": ["q_proj", "v_proj"], "use_rslora": True,
            "rank_pattern": {"v_proj": 5}, "alpha_pattern": {r"layers\.1\.self_attn\.q_proj": 2},
        },
    ),
    "layer": (
        "llama",
        {"r": 2, "lora_alpha": 2, "target_modules": ["down_proj"], "layers_to_transform": [1]},
    ),
    "fused": (
        "phi3",
        {"r": 4, "lora_alpha": 8, "target_modules": ["qkv_proj", "o_proj", "gate_up_proj"]},
    ),
    "tied": ("llama-3.1", {"r": 4, "lora_alpha": 4, "target_modules": ["v_proj", "lm_head"]}),
    "experts": ("qwen3-moe", {"r": 4, "lora_alpha": 8, "target_modules": ATTENTION}),
}  # fmt: skip
"""Adapters by name: whose they are, and what their configurations have beside the usual."""

_USUAL = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "bias": "none", "lora_dropout": 0.0}


def adapter_tensors(name: str, shapes: Mapping[str, list[int]]) -> dict[str, Array]:
    """The tensors of an adapter of a model whose weights have these shapes."""
    _, said = ADAPTERS[name]
    whole = {**shapes}
    whole.setdefault("lm_head.weight", shapes["model.embed_tokens.weight"])
    found: dict[str, Array] = {}
    for weight, shape in whole.items():
        module = weight.removesuffix(".weight")
        kind = module.rpartition(".")[2]
        layers = said.get("layers_to_transform")
        if kind not in said["target_modules"] or (
            layers and int(module.split(".")[2]) not in layers
        ):
            continue
        rank = said.get("rank_pattern", {}).get(kind, said["r"])
        for part, size in (("A", [rank, shape[1]]), ("B", [shape[0], rank])):
            tensor = f"base_model.model.{module}.lora_{part}.weight"
            rng = np.random.default_rng(zlib.crc32(f"{name}.{tensor}".encode()))
            found[tensor] = rng.standard_normal(size, np.float32) * np.float32(0.25)
    return found


def write_adapter(folder: Path, name: str, shapes: Mapping[str, list[int]], **other: Any) -> Path:
    """A folder with an adapter as PEFT has it; ``other`` are entries of its configuration."""
    folder.mkdir(exist_ok=True)
    said = {**_USUAL, **ADAPTERS[name][1], **other}
    (folder / "adapter_config.json").write_text(json.dumps(said), encoding="utf-8")
    write_safetensors(folder / "adapter_model.safetensors", adapter_tensors(name, shapes))
    return folder
