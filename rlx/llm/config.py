"""A decoder's configuration, from the metadata of a GGUF file or a Hugging Face config.json."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rlx.base.frozen import frozen
from rlx.errors import ModelError
from rlx.llm.families import Family, family_of
from rlx.llm.rotary import Rotary

__all__ = ["ModelConfig"]


@frozen
class ModelConfig:
    """What decides the graph of a decoder.

    ``windows`` has for every layer how many keys a row sees at most, 0 for all; the layers with a
    window have the rotary tables of ``local``, if there are such. ``experts`` is 0 where a layer
    has one feed-forward network; else each row takes ``experts_used`` of so many, of
    ``expert_inner`` units.
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

    @staticmethod
    def from_gguf(metadata: Mapping[str, Any], vocab: int) -> ModelConfig:
        """From the metadata of a GGUF file and the rows of its table of embeddings."""
        family = family_of("gguf", metadata.get("general.architecture"))
        arch = metadata["general.architecture"]
        prefix = f"{arch}."
        own = {k[len(prefix) :]: v for k, v in metadata.items() if k.startswith(prefix)}
        found = {name: own[key] for name, key in _GGUF.items() if own.get(key) is not None}
        found["vocab"] = vocab
        found["rope"] = {
            "rope_theta": own.get("rope.freq_base", 10000.0),
            "rope_type": own.get("rope.scaling.type", "none"),
            "factor": own.get("rope.scaling.factor", 1.0),
            "original_max_position_embeddings": own.get("rope.scaling.original_context_length"),
            "attention_factor": own.get("rope.scaling.attn_factor"),
        }
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
        found = {name: config[key] for name, key in _HF.items() if config.get(key) is not None}
        rope = config.get("rope_parameters") or {}
        if "full_attention" in rope:
            found["local_rope"], rope = rope.get("sliding_attention"), rope["full_attention"]
        found["rope"] = {
            "rope_theta": config.get("rope_theta", 10000.0),
            **(config.get("rope_scaling") or {}), **rope,
        }  # fmt: skip
        if "local_theta" in found:
            found["local_rope"] = {"rope_theta": found["local_theta"]}
        share = found["rope"].get("partial_rotary_factor", config.get("partial_rotary_factor"))
        if share is not None:
            head = found.get("head_dim") or found["hidden"] // found["heads"]
            found["rotary_dim"] = int(head * share)
        found.setdefault("experts", config.get("num_local_experts"))
        if family.experts and (
            config.get("mlp_only_layers") or config.get("decoder_sparse_step", 1) != 1
        ):
            raise ModelError("a model of which some layers alone have experts cannot be run")
        found["activation"] = _activation(family, config)
        if config.get("use_sliding_window") is False:
            found.pop("window", None)
        return _made(family, found, "config.json")


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
    "expert_inner": "expert_feed_forward_length",
}  # fmt: skip
_HF = {
    "vocab": "vocab_size", "hidden": "hidden_size", "layers": "num_hidden_layers",
    "heads": "num_attention_heads", "kv_heads": "num_key_value_heads", "head_dim": "head_dim",
    "inner": "intermediate_size", "context": "max_position_embeddings", "eps": "rms_norm_eps",
    "window": "sliding_window", "layer_types": "layer_types",
    "query_scalar": "query_pre_attn_scalar", "attention_softcap": "attn_logit_softcapping",
    "logit_softcap": "final_logit_softcapping", "logit_divisor": "logits_scaling",
    "attention_scale": "attention_multiplier", "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier", "clip": "clip_qkv", "experts": "num_experts",
    "experts_used": "num_experts_per_tok", "expert_inner": "moe_intermediate_size",
    "expert_norm": "norm_topk_prob", "local_theta": "rope_local_base_freq",
}  # fmt: skip
"""What a configuration has, by the names in files."""


def _made(family: Family, found: dict[str, Any], where: str) -> ModelConfig:
    for name in ("vocab", "hidden", "layers", "heads", "context"):
        _whole(found, name, where)
    _whole(found, "kv_heads", where, found["heads"])
    _whole(found, "head_dim", where, found["hidden"] // found["heads"])
    _whole(found, "inner", where, 1 if family.experts else None)
    head_dim = found["head_dim"]
    rotary = Rotary.of(found["rope"], found.get("rotary_dim", head_dim), found["context"])
    local, rope = None, found.get("local_rope")
    if rope is None and family.local_theta is not None:
        rope = {"rope_theta": family.local_theta or found["rope"]["rope_theta"]}
    if rope is not None:
        local = Rotary.of(rope, head_dim, found["context"])
    if family.experts:
        for name in ("experts", "experts_used", "expert_inner"):
            _whole(found, name, where)
    scale = found.get("attention_scale") or 1 / math.sqrt(found.get("query_scalar") or head_dim)
    embedding = found.get("embedding_scale", 1.0)
    if family.embedding == "root":
        embedding = math.sqrt(found["hidden"])
    return ModelConfig(
        family, found["vocab"], found["hidden"], found["layers"], found["heads"],
        found["kv_heads"], head_dim, found["inner"], found["context"],
        float(found.get("eps", found.get("plain_eps", 1e-5))), rotary, _windows(family, found),
        local, float(scale), float(found.get("attention_softcap", 0.0)),
        float(found.get("logit_softcap", 0.0)), 1.0 / float(found.get("logit_divisor") or 1.0),
        float(embedding), float(found.get("residual_scale") or 1.0),
        float(found.get("clip") or 0.0), found.get("activation", family.activation),
        found["experts"] if family.experts else 0, found.get("experts_used", 0),
        found.get("expert_inner", 0), bool(found.get("expert_norm", True)),
    )  # fmt: skip


_ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_pytorch_tanh": "gelu_approx",
    "gelu_new": "gelu_approx", "gelu_fast": "gelu_approx", "relu": "relu",
}  # fmt: skip


def _activation(family: Family, config: Mapping[str, Any]) -> str:
    """The op of the activation. Gemma's configurations say it by a name of their own."""
    known = family.activation == "gelu_approx"
    name = config.get("hidden_activation" if known else "hidden_act")
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


def _windows(family: Family, found: Mapping[str, Any]) -> tuple[int, ...]:
    """How many keys the rows of each layer see at most."""
    window, layers = int(found.get("window") or 0), found["layers"]
    kinds = found.get("layer_types")
    if kinds is None:
        full = [bool(family.every) and not (i + 1) % family.every for i in range(layers)]
    else:
        known = {"full_attention": True, "sliding_attention": False}
        wrong = [k for k in kinds if k not in known]
        if wrong or len(kinds) != layers:
            found_ = f"a layer of {wrong[0]}" if wrong else f"{len(kinds)} layer_types"
            raise ModelError(f"{found_} in a model of {layers} layers, which RLX cannot run")
        full = [known[k] for k in kinds]
    return tuple(0 if f else window for f in full)
