"""Model files that cannot be run, and steps for which a model has no place."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlx.errors import GraphError, ModelError, RlxError, ShapeError
from rlx.frontends import gguf
from rlx.llm.config import ModelConfig
from rlx.llm.decoder import Decoder
from rlx.llm.engine import StepRows
from rlx.models.safetensors import write_safetensors
from support.tiny_llm import config, weights

Array = np.ndarray[Any, Any]
SHAPES = json.loads(
    (Path(__file__).parents[1] / "llm" / "fixtures" / "shapes.json").read_text(encoding="utf-8")
)


def load(
    folder: Path,
    name: str = "llama",
    change: Callable[[dict[str, Array]], Any] = lambda w: None,
    **other: Any,
) -> Decoder:
    """A small model with entries of its configuration and its tensors changed."""
    (folder / "config.json").write_text(json.dumps({**config(name), **other}), encoding="utf-8")
    tensors = weights(SHAPES[name]["shapes"])
    change(tensors)
    write_safetensors(folder / "model.safetensors", tensors)
    return Decoder.load(folder, threads=1, context=64, page_size=16, sequences=2, max_rows=8)


QKV = "model.layers.0.self_attn.qkv_proj.weight"
CONFIGS: dict[str, tuple[dict[str, Any], str]] = {
    "architecture": ({"model_type": "lama"}, "architecture 'lama' .* did you mean 'llama'"),
    "no architecture": ({"model_type": 3}, "architecture 3 can be run; there are"),
    "size": ({"hidden_size": 0}, "json has 0 for hidden_size, expected a positive whole number"),
    "whole": ({"num_attention_heads": "4"}, "has '4' for num_attention_heads, expected a positive"),
    "none": (
        {"num_hidden_layers": None}, "json has None for num_hidden_layers or n_layer, expected"
    ),
    "negative": ({"sliding_window": -1}, "has -1 for sliding_window, expected a positive whole"),
    "many": ({"num_hidden_layers": 1 << 30}, "expected a positive whole number of 65536 at most"),
    "many of an order": (
        {"model_type": "jamba", "num_hidden_layers": 1 << 40, "attn_layer_period": 8,
         "attn_layer_offset": 4}, "for num_hidden_layers, expected a positive whole number of",
    ),
    "heads": ({"num_key_value_heads": 3}, "has 4 heads and 3 of keys, which must divide them"),
    "step": (
        {"model_type": "nemotron_h", "time_step_min": "x"}, "'x' for time_step_min, expected a num"
    ),
    "base": ({"rope_theta": -1.0}, "have rope_theta -1.0 and factor 1.0, expected positive"),
    "used": (
        {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 5},
        "json has 4 experts, of which a row takes 5",
    ),
    "number": ({"rms_norm_eps": "x"}, "config.json has 'x' for rms_norm_eps, expected a number"),
    "list": ({"layer_types": 3}, "config.json has 3 for layer_types, expected a list"),
    "object": ({"rope_scaling": "x"}, "config.json has 'x' for rope_scaling, expected an object"),
    "theta": ({"rope_theta": "x"}, "said of rotary embeddings.*cannot be read.*rope_theta among"),
    "indices": (
        {"model_type": "bamba", "attn_layer_indices": 3},
        "config.json has 3 for attn_layer_indices, expected a list of layers",
    ),
    "root": (
        {"model_type": "gemma2", "query_pre_attn_scalar": -4}, "by the root of -4.0, which has none"
    ),
    "activation": ({"hidden_act": "tanh"}, "the activation 'tanh' cannot be run"),
    "rotary": ({"rope_scaling": {"rope_type": "longrope"}}, "of the kind 'longrope' cannot be run"),
    "longrope by an old name": (
        {"model_type": "phi3", "rope_scaling": {"type": "yarn", "long_factor": [2.0] * 4}},
        "of the kind 'longrope' cannot be run",
    ),
    "alpha": (
        {"rope_scaling": {"rope_type": "dynamic", "alpha": 1000.0}}, "'dynamic with alpha' cannot"
    ),
    "layers": ({"layer_types": ["full_attention"]}, "1 layer_types in a model of 3 layers"),
    "kinds": ({"layer_types": ["chunked"] * 3}, "a layer of chunked in a model of 3 layers"),
    "alibi": ({"model_type": "falcon", "alibi": True}, "a falcon with ALiBi cannot be run"),
    "both ways": (
        {"model_type": "gemma3_text", "use_bidirectional_attention": True},
        "a gemma3 whose use_bidirectional_attention is True cannot be run",
    ),
    "scores by layer": (
        {"model_type": "gpt2", "scale_attn_by_inverse_layer_idx": True}, "inverse_layer_idx is True"
    ),
    "scores as they are": (
        {"model_type": "gpt_bigcode", "scale_attn_weights": False}, "scale_attn_weights is False"
    ),
    "groups": (
        {"model_type": "dots1", "n_routed_experts": 6, "n_group": 4,
         "num_experts_per_tok": 2}, "groups must divide experts"
    ),
    "pattern": (
        {"model_type": "cohere2", "sliding_window_pattern": "LLLG"}, "has 'LLLG' for how often a",
    ),
    "turns": (
        {"model_type": "smollm3", "no_rope_layers": [1]}, "1 entries say which of 3 layers have"
    ),
    "values": (
        {"model_type": "deepseek_v3", "kv_lora_rank": 8, "qk_nope_head_dim": 4,
         "qk_rope_head_dim": 4, "v_head_dim": 16}, "values of 16 elements, which keys of 8 are",
    ),
    "shape": ({"intermediate_size": 40}, r"ffn_gate.weight is \[48, 32\], .* asks for \[40, 32\]"),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_configurations(name: str, tmp_path: Path) -> None:
    other, says = CONFIGS[name]
    with pytest.raises(ModelError, match=says):
        load(tmp_path, **other)


@pytest.mark.parametrize("name", SHAPES)
def test_entries_of_other_kinds(name: str) -> None:
    """Whatever an entry is, a configuration is read, or a ModelError says why not."""
    whole = SHAPES[name]["config"]
    for key in whole:
        for wrong in ("x", [], {"a": 1}, -1, 0, 1.5, True, None):
            with suppress(ModelError):
                ModelConfig.from_hf({**whole, key: wrong})
        with suppress(ModelError):
            ModelConfig.from_hf({k: v for k, v in whole.items() if k != key})


@pytest.mark.parametrize(
    ("arch", "said", "match"),
    [
        ("llama", {"attention.head_count_kv": np.array([4, 2])}, "for attention.head_count_kv"),
        ("llama", {"feed_forward_length": np.array([64, 48])}, "for feed_forward_length, expected"),
        ("gemma2", {"block_count": 46, "attention.head_count": None}, "None for attention.head_c"),
    ],
)
def test_metadata_that_cannot_be_read(arch: str, said: dict[str, Any], match: str) -> None:
    whole = {"embedding_length": 32, "block_count": 2, "attention.head_count": 4,
             "context_length": 64, "feed_forward_length": 48, **said}  # fmt: skip
    metadata = {"general.architecture": arch, **{f"{arch}.{k}": v for k, v in whole.items()}}
    with pytest.raises(ModelError, match=match):
        ModelConfig.from_gguf(metadata, 96)


def test_a_router_that_the_family_has_not() -> None:
    said = {"general.architecture": "qwen2moe", "qwen2moe.expert_gating_func": 2}
    with pytest.raises(ModelError, match="a qwen2-moe whose router is a sigmoid cannot be run"):
        ModelConfig.from_gguf(said, 8)


def _more(name: str) -> Callable[[dict[str, Array]], Any]:
    return lambda w: w.update({name: np.zeros(2, np.float32)})


TENSORS: dict[str, tuple[str, Callable[[dict[str, Array]], Any], str]] = {
    "unknown": ("llama", _more("model.layers.0.what.weight"), "no tensor of a llama is called"),
    "missing": (
        "llama", lambda w: w.pop("model.norm.weight"), "a llama needs output_norm.weight"
    ),
    "no place": (
        "llama", _more("model.layers.0.self_attn.q_norm.weight"), "1 weights have no place"
    ),
    "expert": (
        "qwen3-moe", lambda w: w.pop("model.layers.0.mlp.experts.1.up_proj.weight"),
        "has 5 parts of 6",
    ),
    "parts": ("phi3", lambda w: w.update({QKV: w[QKV][1:]}), "a matrix of 63 rows is to be"),
}  # fmt: skip


@pytest.mark.parametrize("name", TENSORS)
def test_tensors(name: str, tmp_path: Path) -> None:
    family, change, says = TENSORS[name]
    with pytest.raises(ModelError, match=says):
        load(tmp_path, family, change)


def test_files(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config("llama")), encoding="utf-8")
    with pytest.raises(ModelError, match=r"has no model\.safetensors"):
        Decoder.load(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    for parts in ({}, {"x": "../y"}):
        index.write_text(json.dumps({"weight_map": parts, "x": 1}), encoding="utf-8")
        with pytest.raises(ModelError, match="no weight_map of files in it"):
            Decoder.load(tmp_path)
    gguf.write(tmp_path / "x.gguf", {"x": np.zeros(2, np.float32)}, {})
    with pytest.raises(ModelError, match=r"no token_embd\.weight: it is no language model"):
        Decoder.load(tmp_path / "x.gguf")


def rows(ids: list[int], at: int = 0, sequences: int = 1) -> StepRows:
    return StepRows.of([(ids, at, [0, 1])] * sequences)


STEPS: dict[str, tuple[StepRows, str]] = {
    "sequences": (rows([1], sequences=3), "2 sequences at most, found 3"),
    "rows": (rows([1] * 9), "8 rows at most, found 9"),
    "token": (rows([1, 96]), "tokens are from 0 to 95, found 1 to 96"),
    "position": (rows([1], at=64), "position 64 is beyond the context of 64"),
}


def test_steps(tmp_path: Path) -> None:
    model = load(tmp_path)
    for wrong, says in STEPS.values():
        with pytest.raises(ShapeError, match=says):
            model.step(wrong)
    with pytest.raises(RlxError, match="position or page is outside"):
        model.step(StepRows.of([([1], 20, [0])]))
    with pytest.raises(GraphError, match="a cache is of f32, f16 or bf16, found i8"):
        Decoder.load(tmp_path, cache="i8")
