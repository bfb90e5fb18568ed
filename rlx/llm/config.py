"""A decoder's configuration, from the metadata of a GGUF file or a Hugging Face config.json."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from rlx.base.frozen import frozen
from rlx.errors import ModelError
from rlx.llm.families import FAMILIES, Family, family_of
from rlx.llm.recurrent import Recurrent
from rlx.llm.rotary import Rotary

__all__ = ["Latent", "ModelConfig"]


@frozen
class Latent:
    """The sizes of attention by latent vectors: those of queries (0 for none) and of keys and
    values, and of a head what has no rotary embedding, and its values."""

    queries: int
    rank: int
    plain: int
    value: int


@frozen
class ModelConfig:
    """What decides the graph of a decoder.

    ``windows`` has for every layer how many keys a row sees at most, 0 for all; the layers with a
    window have the rotary tables of ``local``, if there are such. ``turned`` says which layers have
    a rotary embedding. ``experts`` is 0 where no layer has any; else each row takes
    ``experts_used`` of so many, of ``expert_inner`` units, from ``groups_used`` of
    ``expert_groups`` groups of them. ``unit_limit`` and ``unit_slope`` are those of clamped units.
    ``plain_norm``: queries and keys have a norm without weights, in the families that may have it.
    ``states`` says which layers have states, of the sizes ``recurrent``, in place of keys and
    values.
    """

    family: Family
    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    context: int
    eps: float
    rotary: Rotary
    windows: tuple[int, ...]
    local: Rotary | None = None
    attention_scale: float = 0.0
    attention_softcap: float = 0.0
    logit_softcap: float = 0.0
    logit_scale: float = 1.0
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    clip: float = 0.0
    activation: str = "silu"
    experts: int = 0
    experts_used: int = 0
    expert_inner: int = 0
    expert_norm: bool = True
    expert_scale: float = 1.0
    expert_groups: int = 1
    groups_used: int = 1
    unit_limit: float = 0.0
    unit_slope: float = 0.0
    turned: tuple[bool, ...] = ()
    parallel: bool = False
    latent: Latent | None = None
    plain_norm: bool = True
    recurrent: Recurrent | None = None
    states: tuple[bool, ...] = ()

    @property
    def value_dim(self) -> int:
        """The elements of a head's values."""
        return self.head_dim if self.latent is None else self.latent.value

    @staticmethod
    def from_gguf(metadata: Mapping[str, Any], vocab: int) -> ModelConfig:
        """From the metadata of a GGUF file and the rows of its table of embeddings."""
        family = family_of("gguf", metadata.get("general.architecture"))
        arch = metadata["general.architecture"]
        prefix = f"{arch}."
        own = {k[len(prefix) :]: v for k, v in metadata.items() if k.startswith(prefix)}
        if own.get("expert_gating_func") == _SIGMOID and family.router != "sigmoid":
            family = _with_sigmoid(family, arch)
        found = {name: own[key] for name, key in _GGUF.items() if own.get(key) is not None}
        found["vocab"] = vocab
        found["rope"] = {
            "rope_theta": own.get("rope.freq_base", 10000.0),
            "rope_type": own.get("rope.scaling.type", "none"),
            "factor": own.get("rope.scaling.factor", 1.0),
            "original_max_position_embeddings": own.get("rope.scaling.original_context_length"),
            "attention_factor": own.get("rope.scaling.attn_factor"),
            "mscale_all_dim": 10 * own.get("rope.scaling.yarn_log_multiplier", 0.0),
        }
        if family.name == "gpt-oss":
            # Its config.json says so, and GGUF has no key for it.
            found["rope"]["truncate"] = False
        if family.multiplied and "logit_divisor" in found:
            found["logit_scale"] = found.pop("logit_divisor")
        if family.recurrent == "mamba2":
            # Whose files say how many heads there are by what is a rank elsewhere.
            found["ssm_heads"] = heads = _number(found, "the metadata", "step_rank")
            found["ssm_width"] = _number(found, "the metadata", "ssm_inner") // heads
        if own.get("ssm.dt_b_c_rms"):
            found["part_eps"] = found.get("eps", 1e-5)
        if family.latent:
            found["rope_dim"] = found.pop("rotary_dim", None)
            found["plain_dim"] = found.get("head_dim", 0) - (found["rope_dim"] or 0)
        if family.name in ("gemma2", "gemma3") and found.get("layers") in (46, 62):
            # The files of the 27B models do not say that their scale is another.
            found["query_scalar"] = found["hidden"] / found["heads"]
        return _made(family, found, "the metadata")

    @staticmethod
    def from_hf(config: Mapping[str, Any]) -> ModelConfig:
        """From a config.json."""
        text = config.get("text_config")
        if isinstance(text, Mapping):
            config = {**config, **text}
        family = family_of("hf", config.get("model_type"))
        found = {
            name: config[key]
            for name, keys in _HF.items()
            for key in keys.split()
            if config.get(key) is not None
        }
        if config.get("rope_interleave") is False:
            family = replace(family, adjacent="")
        if config.get("alibi"):
            raise ModelError(f"a {family.name} with ALiBi cannot be run: RLX has rotary embeddings")
        _find_sizes(config, found)
        rope = config.get("rope_parameters") or {}
        if "full_attention" in rope:
            found["local_rope"], rope = rope.get("sliding_attention"), rope["full_attention"]
        found["rope"] = {
            "rope_theta": config.get("rope_theta", 10000.0),
            **(config.get("rope_scaling") or {}), **rope,
        }  # fmt: skip
        if "local_theta" in found:
            found["local_rope"] = {"rope_theta": found["local_theta"]}
        share = config.get("rotary_pct", config.get("partial_rotary_factor"))
        share = found["rope"].get("partial_rotary_factor", share)
        if share is not None:
            head = found.get("head_dim") or found["hidden"] // found["heads"]
            found["rotary_dim"] = int(head * share)
        found["activation"] = _activation(family, config)
        if config.get("topk_method") == "greedy":
            found["expert_groups"] = found["groups_used"] = 1
        if config.get("use_sliding_window") is False:
            found.pop("window", None)
        return _made(family, found, "config.json")


def _find_sizes(config: Mapping[str, Any], found: dict[str, Any]) -> None:
    """Sizes that some configurations say in a way of their own."""
    if "intermediate_size_mlp" in config:
        found["expert_inner"] = found.get("inner")
        found["inner"] = config["intermediate_size_mlp"]
    if "multi_query" in config and not config.get("new_decoder_architecture"):
        found["kv_heads"] = 1 if config["multi_query"] else found.get("heads")
    if config.get("model_type") == "falcon_mamba":
        found.setdefault("part_eps", 1e-6)  # files that do not say it have the norms too
    if "hidden" in found and ("n_inner" in config or "ffn_hidden_size" in config):
        found.setdefault("inner", 4 * found["hidden"])


_UNIT_LIMIT, _UNIT_SLOPE = 7.0, 1.702
"""Of clamped units, where files do not say."""

_SIGMOID = 2
"""llama.cpp's number of that router."""

_GGUF = {
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
    "value_dim": "attention.value_length", "conv": "ssm.conv_kernel", "ssm_inner": "ssm.inner_size",
    "state": "ssm.state_size", "step_rank": "ssm.time_step_rank", "ssm_groups": "ssm.group_count",
}  # fmt: skip
_HF = {
    "vocab": "vocab_size", "hidden": "hidden_size n_embd", "layers": "num_hidden_layers n_layer",
    "heads": "num_attention_heads n_head", "kv_heads": "num_key_value_heads num_kv_heads",
    "head_dim": "head_dim", "inner": "intermediate_size n_inner ffn_hidden_size",
    "context": "max_position_embeddings n_positions",
    "eps": "rms_norm_eps layer_norm_eps layer_norm_epsilon norm_epsilon norm_eps",
    "window": "sliding_window", "layer_types": "layer_types", "turns": "no_rope_layers",
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
    "rotary_dim": "rotary_dim", "plain_norm": "use_qk_norm",
    "chunk": "attention_chunk_size", "floor": "floor_scale", "unit_limit": "swiglu_limit",
    "unit_slope": "swiglu_alpha", "conv": "conv_kernel linear_conv_kernel_dim",
    "state": "state_size", "expand": "expand", "step_rank": "time_step_rank",
    "part_eps": "mixer_rms_eps", "ssm_heads": "num_heads", "ssm_width": "head_dim",
    "ssm_groups": "n_groups",
    "step_limits": "time_step_limit", "delta_heads": "linear_num_value_heads",
    "delta_key_heads": "linear_num_key_heads", "delta_width": "linear_value_head_dim",
    "delta_size": "linear_key_head_dim",
}  # fmt: skip
"""What a configuration has, by the names in files."""


def _with_sigmoid(family: Family, arch: str) -> Family:
    """The family of an architecture whose router is a sigmoid."""
    rows = (f for f in FAMILIES.values() if arch in f.gguf and f.router == "sigmoid")
    found = next(rows, None)
    if found is None:
        raise ModelError(f"a {family.name} whose router is a sigmoid cannot be run")
    return found


def _made(family: Family, found: dict[str, Any], where: str) -> ModelConfig:
    for name in ("vocab", "hidden", "layers"):
        _whole(found, name, where)
    states, recurrent = _states(family, found, where)
    for name in ("heads", "context"):
        _whole(found, name, where)
    _whole(found, "kv_heads", where, found["heads"])
    latent = _latent(found, where) if family.latent else None
    _whole(found, "head_dim", where, found["hidden"] // found["heads"])
    _whole(found, "inner", where, 1 if family.experts or not family.network else None)
    head_dim = found["head_dim"]
    rope = found["rope"]
    rotary = Rotary.of(rope, found.get("rotary_dim", head_dim), found["context"])
    local, local_rope = None, found.get("local_rope")
    if local_rope is None and family.local_theta is not None:
        local_rope = {"rope_theta": family.local_theta or rope["rope_theta"]}
    if local_rope is not None:
        local = Rotary.of(local_rope, head_dim, found["context"])
    experts = family.experts and bool(found.get("experts"))
    if experts:
        _experts(found, where)
    scale = found.get("attention_scale") or 1 / math.sqrt(found.get("query_scalar") or head_dim)
    if latent is not None:
        scale *= rotary.sharpness(rope.get("mscale_all_dim") or 0.0)
    embedding = found.get("embedding_scale", 1.0)
    if family.embedding == "root":
        embedding = math.sqrt(found["hidden"])
    windows = _windows(family, found)
    if family.unturned and "chunk" in found:
        # Up to here layers with chunks see all keys, and queries have no other temperature.
        found["context"] = min(found["context"], found["chunk"], found.get("floor", 8192) - 1)
    return ModelConfig(
        family, found["vocab"], found["hidden"], found["layers"], found["heads"],
        found["kv_heads"], head_dim, found["inner"], found["context"],
        float(found.get("eps", found.get("plain_eps", 1e-5))), rotary, windows,
        local, float(scale), float(found.get("attention_softcap", 0.0)),
        float(found.get("logit_softcap", 0.0)),
        float(found.get("logit_scale") or 1.0) / float(found.get("logit_divisor") or 1.0),
        float(embedding), float(found.get("residual_scale") or 1.0),
        float(found.get("clip") or 0.0), found.get("activation", family.activation),
        found["experts"] if experts else 0, found.get("experts_used", 0),
        found.get("expert_inner", 0), bool(found.get("expert_norm", family.expert_norm)),
        float(found.get("expert_scale") or 1.0), found.get("expert_groups") or 1,
        found.get("groups_used") or 1, float(found.get("unit_limit", _UNIT_LIMIT)),
        float(found.get("unit_slope", _UNIT_SLOPE)), _turned(family, found, windows, states),
        bool(found.get("parallel", family.parallel)), latent, bool(found.get("plain_norm", True)),
        recurrent, states,
    )  # fmt: skip


def _states(
    family: Family, found: dict[str, Any], where: str
) -> tuple[tuple[bool, ...], Recurrent | None]:
    """Which layers have states in place of keys and values, and the sizes of these."""
    layers, kinds = found["layers"], found.get("layer_types")
    if not family.recurrent:
        return (False,) * layers, None
    states = (True,) * layers if kinds is None else tuple(k == "linear_attention" for k in kinds)
    recurrent = Recurrent.of(family.recurrent, found, partial(_number, found, where))
    if all(states):
        # Without attention a sequence may be as long as one likes.
        found.update(heads=1, kv_heads=1, head_dim=1)
        found.setdefault("context", 1 << 20)
    return states, recurrent


def _latent(found: dict[str, Any], where: str) -> Latent:
    """The sizes of latent attention. Every head has keys of its own, which share what turns."""
    for name in ("rank", "plain_dim", "rope_dim", "value_dim"):
        _whole(found, name, where)
    found["head_dim"] = found["plain_dim"] + found["rope_dim"]
    found["rotary_dim"], found["kv_heads"] = found["rope_dim"], found["heads"]
    if found["value_dim"] > found["head_dim"]:
        raise ModelError(
            f"{where} has values of {found['value_dim']} elements, which keys of"
            f" {found['head_dim']} are too short for: the cache has rows of one length"
        )
    return Latent(
        int(found.get("query_rank") or 0), found["rank"], found["plain_dim"], found["value_dim"]
    )


def _experts(found: dict[str, Any], where: str) -> None:
    """Check what says which experts there are."""
    for name in ("experts", "experts_used"):
        _whole(found, name, where)
    _whole(found, "expert_inner", where, found["inner"])
    for name in ("expert_groups", "groups_used"):
        _whole(found, name, where, 1)
    groups = found["expert_groups"]
    if found["experts"] % groups or found["groups_used"] > groups:
        raise ModelError(
            f"{where} has {found['experts']} experts in {groups} groups, of which"
            f" {found['groups_used']} are used: groups must divide experts"
        )


_ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_pytorch_tanh": "gelu_approx",
    "gelu_new": "gelu_approx", "gelu_fast": "gelu_approx", "relu": "relu", "relu2": "relu2",
}  # fmt: skip


def _activation(family: Family, config: Mapping[str, Any]) -> str:
    """The op of the activation."""
    name = config.get(family.activation_key)
    if name is None:
        return family.activation
    if name not in _ACTIVATIONS:
        raise ModelError(f"the activation {name!r} cannot be run; there are {list(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


def _whole(found: dict[str, Any], name: str, where: str, default: int | None = None) -> None:
    """Check that a number is there, and a positive whole one."""
    n = found.get(name, default)
    if isinstance(n, bool) or not hasattr(n, "__index__") or not 0 < int(n) < 1 << 31:
        raise ModelError(f"{where} has {n!r} for {name}, expected a positive whole number")
    found[name] = int(n)


def _number(found: dict[str, Any], where: str, name: str, default: int | None = None) -> int:
    """A positive whole number that is there."""
    _whole(found, name, where, default)
    return found[name]


def _windows(family: Family, found: Mapping[str, Any]) -> tuple[int, ...]:
    """How many keys the rows of each layer see at most."""
    window, layers = int(found.get("window") or 0), found["layers"]
    kinds = found.get("layer_types")
    if kinds is None:
        full = [bool(family.every) and not (i + 1) % family.every for i in range(layers)]
    else:
        known = {"full_attention": True, "sliding_attention": False, "chunked_attention": True}
        if family.recurrent:
            known["linear_attention"] = True
        wrong = [k for k in kinds if k not in known]
        if wrong or len(kinds) != layers:
            found_ = f"a layer of {wrong[0]}" if wrong else f"{len(kinds)} layer_types"
            raise ModelError(f"{found_} in a model of {layers} layers, which RLX cannot run")
        full = [known[k] for k in kinds]
    return tuple(0 if f else window for f in full)


def _turned(
    family: Family, found: Mapping[str, Any], windows: tuple[int, ...], states: tuple[bool, ...]
) -> tuple[bool, ...]:
    """Which layers have a rotary embedding."""
    if any(states):
        return tuple(not s for s in states)
    if family.learned:
        return (False,) * len(windows)
    given = found.get("turns")
    if given is not None and family.unturned:
        if len(given) != len(windows):
            raise ModelError(
                f"{len(given)} entries say which of {len(windows)} layers have rotary embeddings"
            )
        return tuple(bool(n) for n in given)
    if family.unturned == "full":
        return tuple(bool(w) or not any(windows) for w in windows)
    every = family.unturned
    return tuple(not every or bool((i + 1) % every) for i in range(len(windows)))
