"""What the metadata of a GGUF file and a config.json call the numbers of a decoder, and the checks
of these."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import Any

from rlx.errors import ModelError

__all__ = ["GGUF_FILE", "HF_FILE", "entries_of", "mapping", "real", "whole"]

GGUF_FILE, HF_FILE = "the metadata", "config.json"

GGUF = {
    "hidden": "embedding_length", "layers": "block_count", "heads": "attention.head_count",
    "kv_heads": "attention.head_count_kv", "head_dim": "attention.key_length",
    "inner": "feed_forward_length", "context": "context_length",
    "eps": "attention.layer_norm_rms_epsilon", "plain_eps": "attention.layer_norm_epsilon",
    "rotary_dim": "rope.dimension_count", "window": "attention.sliding_window",
    "attention_scale": "attention.scale", "attention_softcap": "attn_logit_softcapping",
    "logit_softcap": "final_logit_softcapping", "logit_divisor": "logit_scale",
    "embedding_scale": "embedding_scale", "residual_scale": "residual_scale",
    "clip": "attention.clamp_kqv", "experts": "expert_count", "experts_used": "expert_used_count",
    "expert_inner": "expert_feed_forward_length", "expert_norm": "expert_weights_norm",
    "expert_scale": "expert_weights_scale", "expert_groups": "expert_group_count",
    "groups_used": "expert_group_used_count", "parallel": "use_parallel_residual",
    "query_rank": "attention.q_lora_rank", "rank": "attention.kv_lora_rank",
    "value_dim": "attention.value_length", "conv": "ssm.conv_kernel shortconv.l_cache",
    "ssm_inner": "ssm.inner_size", "state": "ssm.state_size", "step_rank": "ssm.time_step_rank",
    "ssm_groups": "ssm.group_count",
    "shared": "expert_shared_feed_forward_length expert_shared_count",
}  # fmt: skip
HF = {
    "vocab": "vocab_size", "hidden": "hidden_size n_embd", "layers": "num_hidden_layers n_layer",
    "heads": "num_attention_heads n_head", "kv_heads": "num_key_value_heads num_kv_heads",
    "head_dim": "head_dim", "inner": "intermediate_size n_inner ffn_hidden_size",
    "context": "max_position_embeddings n_positions",
    "eps": "rms_norm_eps layer_norm_eps layer_norm_epsilon norm_epsilon norm_eps",
    "window": "sliding_window", "layer_types": "layer_types layers_block_type",
    "turns": "no_rope_layers", "every": "sliding_window_pattern full_attention_interval",
    "query_scalar": "query_pre_attn_scalar", "attention_softcap": "attn_logit_softcapping",
    "logit_softcap": "final_logit_softcapping", "logit_divisor": "logits_scaling",
    "logit_scale": "logit_scale", "attention_scale": "attention_multiplier",
    "embedding_scale": "embedding_multiplier", "residual_scale": "residual_multiplier",
    "clip": "clip_qkv", "experts": "num_local_experts num_experts n_routed_experts moe_num_experts",
    "experts_used": "num_experts_per_tok moe_k moe_topk", "expert_inner": "moe_intermediate_size",
    "expert_norm": "norm_topk_prob", "expert_scale": "routed_scaling_factor",
    "expert_groups": "n_group", "groups_used": "topk_group",
    "local_theta": "rope_local_base_freq", "parallel": "use_parallel_residual parallel_attn",
    "query_rank": "q_lora_rank", "rank": "kv_lora_rank", "plain_dim": "qk_nope_head_dim",
    "rope_dim": "qk_rope_head_dim", "value_dim": "v_head_dim",
    "rotary_dim": "rotary_dim",
    "chunk": "attention_chunk_size", "floor": "floor_scale", "unit_limit": "swiglu_limit",
    "unit_slope": "swiglu_alpha",
    "conv": "conv_kernel linear_conv_kernel_dim mamba_d_conv conv_L_cache",
    "state": "state_size ssm_state_size mamba_d_state", "expand": "expand mamba_expand",
    "step_rank": "time_step_rank mamba_dt_rank", "ssm_activation": "mamba_hidden_act",
    "part_eps": "mixer_rms_eps", "ssm_heads": "num_heads mamba_n_heads mamba_num_heads",
    "ssm_width": "head_dim mamba_d_head mamba_head_dim", "ssm_groups": "n_groups mamba_n_groups",
    "step_limits": "time_step_limit", "delta_heads": "linear_num_value_heads",
    "delta_key_heads": "linear_num_key_heads", "delta_width": "linear_value_head_dim",
    "delta_size": "linear_key_head_dim",
    "shared": "shared_expert_intermediate_size shared_intermediate_size moe_num_shared_experts"
    " n_shared_experts num_shared_experts",
}  # fmt: skip
"""What a configuration has, by the names in files: of several names the last that is there."""

_NAMES = {GGUF_FILE: GGUF, HF_FILE: HF}
_FREE = (
    "expert_norm", "parallel", "step_limits", "step_rank", "ssm_width", "expand",
    "ssm_activation", "every",
)  # fmt: skip
"""What is no number, or may be a word, and is checked where it is read."""
_MOST = {"layers": 1 << 16}
"""What lists are made of, which a number in a file must not make as large as memory."""
_LISTS = ("layer_types", "turns")
_REAL = (
    "eps", "plain_eps", "attention_scale", "attention_softcap", "logit_softcap", "logit_divisor",
    "logit_scale", "embedding_scale", "residual_scale", "clip", "expert_scale", "query_scalar",
    "local_theta", "floor", "unit_limit", "unit_slope", "part_eps",
)  # fmt: skip


def entries_of(said: Mapping[str, Any], where: str) -> dict[str, Any]:
    """What a configuration says, by the names that it has here. ModelError for what is no number,
    or no list, and should be."""
    found: dict[str, Any] = {}
    for name, keys in _NAMES[where].items():
        for key in keys.split():
            if (value := said.get(key)) is not None:
                found[name] = _checked(name, value, where, key)
    return found


def _checked(name: str, value: Any, where: str, key: str) -> Any:
    if name in _FREE:
        return value
    if name in _LISTS:
        if not isinstance(value, list):
            raise ModelError(f"{where} has {value!r} for {key}, expected a list, one entry a layer")
        return value
    if name in _REAL:
        return real(value, where, key)
    if (number := _index(value)) is None or number < 0:  # 0 often stands for what is not there
        raise ModelError(f"{where} has {value!r} for {key}, expected a positive whole number")
    return value


def _index(value: Any) -> int | None:
    """A whole number; None for what is none, such as an array of several."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def whole(found: dict[str, Any], where: str, name: str, default: int | None = None) -> int:
    """A positive whole number that is there."""
    n = found.get(name, default)
    number, most = _index(n), _MOST.get(name, (1 << 31) - 1)
    if number is None or not 0 < number <= most:
        keys = _NAMES[where].get(name, name).split()
        key = keys[0] if n is not None else " or ".join(keys)
        high = f" of {most} at most" if name in _MOST else ""
        raise ModelError(f"{where} has {n!r} for {key}, expected a positive whole number{high}")
    found[name] = number
    return number


def real(value: Any, where: str, key: str) -> float:
    """A number that is finite."""
    try:
        number = float(value) if not isinstance(value, str | bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ModelError(f"{where} has {value!r} for {key}, expected a number")
    return number


def mapping(said: Mapping[str, Any], where: str, key: str) -> Mapping[str, Any]:
    """An object, empty if there is none."""
    found = said.get(key) or {}
    if not isinstance(found, Mapping):
        raise ModelError(f"{where} has {found!r} for {key}, expected an object")
    return found
