"""Small decoders of every family: configurations of Hugging Face, weights made from their names."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlx.llm.families import family_of
from rlx.models.safetensors import write_safetensors

__all__ = [
    "CONFIGS",
    "KEPT",
    "LENGTH",
    "PROMPT",
    "WIDER",
    "large",
    "no_biases",
    "weights",
    "write_model",
    "write_talker",
]

Array = np.ndarray[Any, Any]

LENGTH = 40
VOCAB = 96
PROMPT = [int(i) for i in np.random.default_rng(5).integers(0, VOCAB, LENGTH)]
KEPT = slice(3, None, 6)
"""The rows of its logits that fixtures have, the last among them."""

_NONE = ("q_lora_rank", "sliding_window")
"""What None says something of."""

_BASE: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "rope_theta": 10000.0, "head_dim": 8,
}  # fmt: skip

_GROUPED: dict[str, Any] = {
    "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 4, "topk_group": 2,
    "moe_intermediate_size": 24, "n_shared_experts": 1, "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.5,
}  # fmt: skip
_LATENT: dict[str, Any] = {
    "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8,
    "num_key_value_heads": 4, "head_dim": None,
}  # fmt: skip

_HEADS_OF_STATES: dict[str, Any] = {
    "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_n_groups": 2,
    "mamba_chunk_size": 16, "time_step_limit": [0.0, 0.9],
}  # fmt: skip
_ALONE: dict[str, Any] = dict.fromkeys(
    ("num_attention_heads", "num_key_value_heads", "intermediate_size", "max_position_embeddings",
     "rope_theta", "head_dim")
)  # fmt: skip
"""What models without attention have no entries for."""

_DELTA: dict[str, Any] = {
    "num_hidden_layers": 4, "partial_rotary_factor": 0.5, "linear_num_value_heads": 4,
    "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 12,
}  # fmt: skip
_CHOSEN: dict[str, Any] = {
    "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 20,
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama"},
    "llama-3.1": {
        "model_type": "llama", "tie_word_embeddings": True, "rope_theta": 500000.0,
        "rope_scaling": {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    },
    "llama-linear": {"model_type": "llama", "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    "llama-yarn": {
        "model_type": "llama", "attention_bias": True,
        "rope_scaling": {
            "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32,
        },
    },
    "mistral": {"model_type": "mistral", "sliding_window": 7},
    "qwen2": {"model_type": "qwen2"},
    "qwen3": {"model_type": "qwen3", "head_dim": 16, "tie_word_embeddings": True},
    "qwen3-moe": {
        "model_type": "qwen3_moe", "num_experts": 6, "num_experts_per_tok": 2,
        "moe_intermediate_size": 24, "norm_topk_prob": True, "decoder_sparse_step": 1,
    },
    "gemma": {"model_type": "gemma", "hidden_activation": "gelu_pytorch_tanh",
              "tie_word_embeddings": True},
    "gemma2": {
        "model_type": "gemma2", "sliding_window": 9, "query_pre_attn_scalar": 24,
        "attn_logit_softcapping": 20.0, "final_logit_softcapping": 10.0,
        "tie_word_embeddings": True, "hidden_activation": "gelu_pytorch_tanh",
    },
    "gemma3": {
        "model_type": "gemma3_text", "sliding_window": 9, "query_pre_attn_scalar": 24,
        "num_hidden_layers": 7, "rope_local_base_freq": 100.0, "tie_word_embeddings": True,
        "hidden_activation": "gelu_pytorch_tanh",
    },
    "phi3": {"model_type": "phi3", "partial_rotary_factor": 0.5},
    "granite": {
        "model_type": "granite", "attention_multiplier": 0.2, "embedding_multiplier": 3.0,
        "residual_multiplier": 0.5, "logits_scaling": 2.0,
    },
    "olmo": {"model_type": "olmo", "clip_qkv": 0.8},
    "olmo2": {"model_type": "olmo2"},
    "olmo3": {"model_type": "olmo3", "sliding_window": 8, "num_hidden_layers": 5},
    "vaultgemma": {
        "model_type": "vaultgemma", "sliding_window": 9, "query_pre_attn_scalar": 24,
        "attn_logit_softcapping": 20.0, "hidden_activation": "gelu_pytorch_tanh",
    },
    "ministral": {
        "model_type": "ministral", "sliding_window": 7, "num_hidden_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "cwm": {
        "model_type": "cwm", "sliding_window": 7, "num_hidden_layers": 5,
        "rope_scaling": {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    },
    "smollm3": {"model_type": "smollm3", "no_rope_layers": [1, 0, 1]},
    "seed-oss": {"model_type": "seed_oss", "attention_bias": True},
    "arcee": {"model_type": "arcee"},
    "helium": {"model_type": "helium"},
    "ernie4.5": {"model_type": "ernie4_5", "use_bias": True},
    "hunyuan": {"model_type": "hunyuan_v1_dense"},
    "hunyuan-moe": {
        "model_type": "hunyuan_v1_moe", "num_experts": 6, "moe_topk": 2,
    },
    "llama4": {
        "model_type": "llama4_text", "num_local_experts": 6, "num_experts_per_tok": 2,
        "intermediate_size_mlp": 40, "no_rope_layers": [1, 0, 1], "interleave_moe_layer_step": 2,
        "use_qk_norm": True, "layer_types": ["chunked_attention", "full_attention"] * 1
        + ["chunked_attention"], "moe_layers": [1],
    },
    "gpt-oss": {
        "model_type": "gpt_oss", "num_local_experts": 6, "num_experts_per_tok": 2,
        "intermediate_size": 64, "sliding_window": 9, "swiglu_limit": 1.5,
        "attention_bias": True,
        "rope_scaling": {
            "rope_type": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
            "truncate": False, "original_max_position_embeddings": 32,
        },
    },
    "mamba": {"model_type": "mamba", "state_size": 6, **_ALONE},
    "falcon-mamba": {"model_type": "falcon_mamba", "state_size": 16, "time_step_rank": 3, **_ALONE},
    "mamba2": {
        "model_type": "mamba2", "state_size": 8, **_ALONE, "num_heads": 4, "head_dim": 16,
        "n_groups": 2, "chunk_size": 16, "time_step_limit": [0.0, 0.9],
    },
    "qwen3-next": {"model_type": "qwen3_next", **_DELTA, **_CHOSEN},
    "qwen3.5": {"model_type": "qwen3_5_text", **_DELTA},
    "qwen3.5-moe": {"model_type": "qwen3_5_moe_text", **_DELTA, **_CHOSEN},
    "jamba": {
        "model_type": "jamba", "num_hidden_layers": 4, "attn_layer_period": 3,
        "attn_layer_offset": 1, "num_experts": 6, "num_experts_per_tok": 2, "mamba_d_state": 6,
        "mamba_dt_rank": 3, "head_dim": None,
    },
    "bamba": {"model_type": "bamba", "attn_layer_indices": [1], **_HEADS_OF_STATES,
              "head_dim": None},
    "granite-hybrid": {
        "model_type": "granitemoehybrid", **_HEADS_OF_STATES, "head_dim": None,
        "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        "num_local_experts": 6, "num_experts_per_tok": 2, "shared_intermediate_size": 20,
        "attention_multiplier": 0.2, "residual_multiplier": 0.5, "logits_scaling": 2.0,
    },
    "granite-hybrid-dense": {
        "model_type": "granitemoehybrid", **_HEADS_OF_STATES, "head_dim": None,
        "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        "num_local_experts": 0, "shared_intermediate_size": 20, "attention_multiplier": 0.2,
        "position_embedding_type": "rope",
    },
    "nemotron-h": {
        "model_type": "nemotron_h", "num_hidden_layers": 5,
        "layers_block_type": ["linear_attention", "mlp", "full_attention", "moe",
                              "linear_attention"],
        "ssm_state_size": 8, "mamba_num_heads": 4, "mamba_head_dim": 12, "n_groups": 2,
        "chunk_size": 16, "n_routed_experts": 8, "moe_intermediate_size": 24,
        "moe_shared_expert_intermediate_size": 20, "moe_latent_size": 16, "n_group": 4,
        "topk_group": 2, "routed_scaling_factor": 1.5, "time_step_min": 0.3,
    },
    "lfm2": {
        "model_type": "lfm2", "layer_types": ["conv", "full_attention", "conv"], "head_dim": None,
        "intermediate_size": 72, "block_multiple_of": 16, "conv_bias": True,
    },
    "lfm2-moe": {
        "model_type": "lfm2_moe", "layer_types": ["conv", "full_attention", "conv"],
        "head_dim": None, "num_experts": 6, "num_experts_per_tok": 2, "num_dense_layers": 1,
        "moe_intermediate_size": 24,
    },
    "gpt-j": {"model_type": "gptj", "num_key_value_heads": None, "head_dim": None, "rotary_dim": 4,
              "n_inner": 48},
    "solar-open": {"model_type": "solar_open", **_GROUPED, "n_group": 1, "topk_group": 1},
    "exaone4": {
        "model_type": "exaone4", "sliding_window": 8, "sliding_window_pattern": 2,
        "num_hidden_layers": 4,
    },
    "exaone": {"model_type": "exaone"},
    "exaone-moe": {
        "model_type": "exaone_moe", "sliding_window": 8, "sliding_window_pattern": 2,
        "num_hidden_layers": 4, "num_experts": 8, "num_experts_per_tok": 2, "n_group": 4,
        "topk_group": 2, "moe_intermediate_size": 24, "num_shared_experts": 1,
        "routed_scaling_factor": 1.5,
    },
    "hyperclovax": {
        "model_type": "hyperclovax", "attention_multiplier": 0.2, "embedding_multiplier": 3.0,
        "residual_multiplier": 0.5, "logits_scaling": 0.5,
    },
    "internlm3": {"model_type": "internlm3", "attention_bias": True, "mlp_bias": True},
    "iquestcoder": {"model_type": "iquestcoder"},
    "youtu": {  # whose row of a pad transformers sets to 0
        "model_type": "youtu", **_LATENT, "q_lora_rank": None, "pad_token_id": None,
    },
    "glm4-moe-lite": {"model_type": "glm4_moe_lite", **_GROUPED, **_LATENT, "q_lora_rank": 24},
    "glm": {"model_type": "glm", "partial_rotary_factor": 0.5, "attention_bias": True},
    "glm4": {"model_type": "glm4", "partial_rotary_factor": 0.5, "attention_bias": True},
    "cohere": {"model_type": "cohere", "use_qk_norm": True, "logit_scale": 0.5},
    "cohere2": {
        "model_type": "cohere2", "sliding_window": 8, "logit_scale": 0.5, "num_hidden_layers": 4,
    },
    "starcoder2": {"model_type": "starcoder2", "use_bias": True, "sliding_window": 9},
    "stablelm": {"model_type": "stablelm", "qk_layernorm": True, "use_qkv_bias": True,
                 "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                                     "partial_rotary_factor": 0.5}},
    "stablelm-parallel": {"model_type": "stablelm", "use_parallel_residual": True},
    "nemotron": {"model_type": "nemotron", "hidden_act": "relu2", "partial_rotary_factor": 0.5},
    "jais2": {"model_type": "jais2"},
    "phi": {"model_type": "phi", "partial_rotary_factor": 0.5, "num_key_value_heads": 4},
    "gpt-neox": {"model_type": "gpt_neox", "num_key_value_heads": None, "head_dim": None,
                 "partial_rotary_factor": 0.5},
    "gpt-neox-serial": {"model_type": "gpt_neox", "num_key_value_heads": None, "head_dim": None,
                        "use_parallel_residual": False},
    "falcon": {"model_type": "falcon", "num_key_value_heads": None, "head_dim": None},
    "falcon-new": {"model_type": "falcon", "num_key_value_heads": None, "head_dim": None,
                   "new_decoder_architecture": True, "num_kv_heads": 2, "bias": True},
    "gpt2": {"model_type": "gpt2", "num_key_value_heads": None, "head_dim": None, "n_inner": 48},
    "starcoder": {"model_type": "gpt_bigcode", "num_key_value_heads": None, "head_dim": None,
                  "n_inner": 48},
    "mixtral": {"model_type": "mixtral", "num_local_experts": 6, "num_experts_per_tok": 2,
                "sliding_window": None},
    "qwen2-moe": {
        "model_type": "qwen2_moe", "num_experts": 6, "num_experts_per_tok": 2,
        "moe_intermediate_size": 24, "shared_expert_intermediate_size": 20,
        "decoder_sparse_step": 2,
    },
    "granite-moe": {
        "model_type": "granitemoe", "num_local_experts": 6, "num_experts_per_tok": 2,
        "attention_multiplier": 0.2, "residual_multiplier": 0.5, "logits_scaling": 2.0,
    },
    "granite-moe-shared": {
        "model_type": "granitemoeshared", "num_local_experts": 6, "num_experts_per_tok": 2,
        "shared_intermediate_size": 20, "attention_multiplier": 0.2,
    },
    "olmoe": {"model_type": "olmoe", "num_experts": 6, "num_experts_per_tok": 2},
    "flex-olmo": {"model_type": "flex_olmo", "num_experts": 6, "num_experts_per_tok": 2},
    "ernie4.5-moe": {
        "model_type": "ernie4_5_moe", "moe_num_experts": 6, "moe_k": 2, "moe_intermediate_size": 24,
        "moe_num_shared_experts": 2, "moe_layer_start_index": 1,
    },
    "glm4-moe": {
        "model_type": "glm4_moe", **_GROUPED, "partial_rotary_factor": 0.5, "use_qk_norm": True,
    },
    "dots1": {"model_type": "dots1", **_GROUPED},
    "minimax-m2": {
        "model_type": "minimax_m2", "num_local_experts": 6, "num_experts_per_tok": 2,
        "rotary_dim": 4,
    },
    "deepseek-v2": {
        "model_type": "deepseek_v2", **_GROUPED, **_LATENT, "q_lora_rank": None,
        "topk_method": "group_limited_greedy", "norm_topk_prob": False,
    },
    "deepseek-v3-halves": {
        "model_type": "deepseek_v3", **_GROUPED, **_LATENT, "q_lora_rank": 24,
        "rope_interleave": False,
    },
    "deepseek-v3": {
        "model_type": "deepseek_v3", **_GROUPED, **_LATENT, "q_lora_rank": 24,
        "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "mscale": 1.0,
            "mscale_all_dim": 0.7, "original_max_position_embeddings": 32,
        },
    },
}  # fmt: skip
"""Configurations, over those that all share."""


def config(name: str) -> dict[str, Any]:
    """A whole configuration. None is for what a kind of model has no entry for."""
    return {k: v for k, v in {**_BASE, **CONFIGS[name]}.items() if v is not None or k in _NONE}


_HEADS = (
    "num_attention_heads", "num_key_value_heads", "num_kv_heads", "num_heads",
    "linear_num_value_heads", "linear_num_key_heads", "mamba_n_heads", "mamba_num_heads",
)  # fmt: skip
_HEAD_DIMS = (
    "head_dim", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "rotary_dim",
    "linear_key_head_dim", "linear_value_head_dim", "moe_intermediate_size",
    "shared_expert_intermediate_size", "shared_intermediate_size", "mamba_d_head",
    "mamba_head_dim", "moe_shared_expert_intermediate_size", "moe_latent_size",
    "query_pre_attn_scalar",
)  # fmt: skip
_WIDTHS = (
    "hidden_size", "intermediate_size", "n_inner", "intermediate_size_mlp", "kv_lora_rank",
    "q_lora_rank", "time_step_rank", "mamba_dt_rank",
)  # fmt: skip
WIDER = 48
"""How often the widths of large configurations are those of small ones."""


def large(small: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration of some 0.6 billion weights, by a small one: 4 times the heads, each 12 times
    as long, 7 times the layers, and a vocabulary of 49152. Experts have 12 times the units."""
    experts = any("experts" in key for key in small)
    factors = dict.fromkeys(_HEADS, 4) | dict.fromkeys(_HEAD_DIMS, 12)
    factors |= dict.fromkeys(_WIDTHS, WIDER) | {"num_hidden_layers": 7}
    if experts and "moe_intermediate_size" not in small:
        factors["intermediate_size"] = 12
    found = dict(small)
    for key, factor in factors.items():
        if small.get(key):
            found[key] = small[key] * factor
    for key in ("layer_types", "layers_block_type", "no_rope_layers"):
        if key in small:
            found[key] = small[key] * 7
    if "attention_multiplier" in small:  # as sharp as with short heads
        found["attention_multiplier"] = small["attention_multiplier"] / 12**0.5
    if "attn_layer_indices" in small:
        count = small["num_hidden_layers"]
        found["attn_layer_indices"] = [
            n * count + i for n in range(7) for i in small["attn_layer_indices"]
        ]
    return found | {"vocab_size": 49152}


def weights(
    shapes: Mapping[str, Any], scale: float = 0.25, dtype: Any = "f4", *, shifted: bool = False
) -> dict[str, Array]:
    """The weights of a model by name, from the names: norms near 1, which a ``shifted`` family's
    files have less 1, the rest normal numbers times ``scale``; in an element type."""
    out: dict[str, Array] = {}
    for name, shape in shapes.items():
        x = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape, np.float32)
        if name.endswith("norm.weight"):
            x = x / 8 + (not shifted or name.endswith("linear_attn.norm.weight"))
        else:
            np.multiply(x, np.float32(scale), out=x)
        out[name] = x.astype(dtype, copy=False)
    return out


def no_biases(config: Any) -> dict[str, Array]:
    """Zeros for the biases that a file of a qwen2 has, by their names."""
    rows = {"q": config.heads, "k": config.kv_heads, "v": config.kv_heads}
    return {
        f"blk.{n}.attn_{part}.bias": np.zeros(heads * config.head_dim, np.float32)
        for n in range(config.layers)
        for part, heads in rows.items()
    }


def write_model(
    folder: Path,
    whole: Mapping[str, Any],
    shapes: Mapping[str, Any],
    scale: float = 0.25,
    dtype: Any = "f4",
) -> None:
    """A model folder with a configuration and the weights that follow from names and shapes."""
    (folder / "config.json").write_text(json.dumps(whole), encoding="utf-8")
    shifted = family_of("hf", whole["model_type"]).shifted
    made = weights(shapes, scale, dtype, shifted=shifted)
    write_safetensors(folder / "model.safetensors", made)


TALKER = 320
"""The vocabulary of the small model with a tokenizer: bytes, and special tokens after them."""

TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m.role }}: {{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant: {% endif %}"
)


def write_talker(folder: Path, template: str = TEMPLATE, **other: Any) -> Path:
    """A folder with a small llama of random weights, a tokenizer of bytes and a chat template;
    ``other`` are entries of its configuration."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    own = {"vocab_size": TALKER, "eos_token_id": 257, "num_hidden_layers": 2}
    whole = {**config("llama"), **own, **other}
    hidden, heads, inner = whole["hidden_size"], whole["num_attention_heads"], 48
    keys = whole["num_key_value_heads"] * whole["head_dim"]
    shapes: dict[str, Any] = {
        "model.embed_tokens.weight": [whole["vocab_size"], hidden],
        "lm_head.weight": [whole["vocab_size"], hidden],
        "model.norm.weight": [hidden],
    }  # fmt: skip
    for n in range(whole["num_hidden_layers"]):
        layer = f"model.layers.{n}"
        for name, shape in {
            "self_attn.q_proj": [heads * whole["head_dim"], hidden],
            "self_attn.k_proj": [keys, hidden],
            "self_attn.v_proj": [keys, hidden],
            "self_attn.o_proj": [hidden, heads * whole["head_dim"]],
            "mlp.gate_proj": [inner, hidden],
            "mlp.up_proj": [inner, hidden],
            "mlp.down_proj": [hidden, inner],
            "input_layernorm": [hidden],
            "post_attention_layernorm": [hidden],
        }.items():
            shapes[f"{layer}.{name}.weight"] = shape
    write_model(folder, whole, shapes)
    alphabet = {c: n for n, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    made = Tokenizer(models.BPE(alphabet, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(t, special=True) for t in ("<|start|>", "<|end|>")])
    made.save(str(folder / "tokenizer.json"))
    said = {"eos_token": "<|end|>", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(said), encoding="utf-8")
    return folder
