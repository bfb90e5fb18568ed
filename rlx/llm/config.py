"""A decoder's configuration, from the metadata of a GGUF file or a Hugging Face config.json."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from rlx.base.frozen import frozen
from rlx.errors import ModelError
from rlx.llm.defaults import completed, of_text
from rlx.llm.entries import GGUF_FILE, HF_FILE, entries_of, mapping, real, whole
from rlx.llm.families import FAMILIES, Family, family_of
from rlx.llm.layers import (
    Kind,
    kinds_of,
    layer_types_of,
    split_by_layer,
    turned_of,
    windows_of,
)
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
    ``kinds`` says what each layer is; those with states have such of the sizes ``recurrent``.

    The rest says which weights a file has, None for what it may lack, as the metadata of GGUF files
    do not say: ``qk_norm``, norms of queries and keys; ``second``, two norms where both blocks of a
    layer take one input; ``shared``, an expert that all rows take in layers with experts;
    ``output``, a matrix of the logits beside that of the embeddings. ``biased`` are the products,
    norms and routers' scores whose bias a file must have, and ``others``: more may have one.
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
    recurrent: Recurrent | None = None
    kinds: tuple[Kind, ...] = ()
    qk_norm: bool | None = False
    second: bool | None = False
    shared: bool | None = False
    output: bool | None = None
    biased: tuple[str, ...] = ()
    others: bool = True

    @property
    def attends(self) -> tuple[bool, ...]:
        """Which layers have keys and values."""
        return tuple(kind in ("full", "window") for kind in self.kinds)

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
        kinds = split_by_layer(own, family)
        found = entries_of(own, GGUF_FILE)
        if kinds is not None:
            found["layer_types"] = kinds
        if family.name == "granite-hybrid":
            # Whether it has rotary embeddings is said so.
            found["turns"] = [own.get("rope.scaling.finetuned", True)] * len(kinds or ())
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
        if family.recurrent == "mamba2":
            # Whose files say how many heads there are by what is a rank elsewhere.
            found["ssm_heads"] = heads = whole(found, GGUF_FILE, "step_rank")
            found["ssm_width"] = whole(found, GGUF_FILE, "ssm_inner") // heads
        if own.get("ssm.dt_b_c_rms"):
            found["part_eps"] = found.get("eps", 1e-5)
        if family.latent:
            found["rope_dim"] = found.pop("rotary_dim", None)
            found["plain_dim"] = found.get("head_dim", 0) - (found["rope_dim"] or 0)
        if family.name in ("gemma2", "gemma3") and found.get("layers") in (46, 62):
            # The files of the 27B models do not say that their scale is another.
            hidden, heads = (whole(found, GGUF_FILE, name) for name in ("hidden", "heads"))
            found["query_scalar"] = hidden / heads
        return _made(family, found, GGUF_FILE)

    @staticmethod
    def from_hf(config: Mapping[str, Any]) -> ModelConfig:
        """From a config.json."""
        tied = config.get("tie_word_embeddings")
        config = of_text(config)
        family = family_of("hf", config.get("model_type"))
        config = completed(config)
        found = entries_of(config, HF_FILE)
        if config.get("rope_interleave") is False:
            family = replace(family, adjacent="")
        if config.get("use_post_norm") is False:
            family = replace(family, after=False)
        if config.get("alibi"):
            raise ModelError(f"a {family.name} with ALiBi cannot be run: RLX has rotary embeddings")
        for key, plain in _PLAIN.items():
            if config.get(key) not in (plain, None):
                raise ModelError(f"a {family.name} whose {key} is {config[key]!r} cannot be run")
        _find_sizes(config, found)
        _find_layers(config, found)
        _find_rope(config, found)
        found["activation"] = _activation(family, config)
        found["biased"] = _biased(family, config)
        if family.qk_said is not None:
            entry, default = family.qk_said
            found["qk_norm"] = bool(config.get(entry, default))
        # A configuration that ties both may come with a file that has both, and then these count.
        # What the part for texts says of it is for that part alone, as transformers reads it.
        found["output"] = True if tied is False else None
        if config.get("topk_method") == "greedy":
            found["expert_groups"] = found["groups_used"] = 1
        if config.get("use_sliding_window") is False:
            found.pop("window", None)
        return _made(family, found, HF_FILE)


_PLAIN = {
    "use_bidirectional_attention": False,
    "scale_attn_by_inverse_layer_idx": False,
    "scale_attn_weights": True,
}
"""Entries that have one value alone in what RLX runs."""

_UNCORRECTED = ("greedy", "group_limited_greedy")
"""Ways to choose experts by their scores alone."""


def _biased(family: Family, config: Mapping[str, Any]) -> tuple[str, ...]:
    """The products whose bias a file must have, of its family and as its configuration says."""
    found = [*family.biased]
    for entry, default, parts in family.said:
        value = config.get(entry, default)
        found = [name for name in found if name not in parts]
        found += parts if value and value not in _UNCORRECTED else ()
    return tuple(found)


def _find_rope(config: Mapping[str, Any], found: dict[str, Any]) -> None:
    """What is said of rotary embeddings, in the ways of newer and of older files."""
    rope, scaling = (mapping(config, HF_FILE, n) for n in ("rope_parameters", "rope_scaling"))
    if "full_attention" in rope:
        found["local_rope"] = mapping(rope, "rope_parameters", "sliding_attention")
        rope = mapping(rope, "rope_parameters", "full_attention")
    found["rope"] = {"rope_theta": config.get("rope_theta", 10000.0), **scaling, **rope}
    if "local_theta" in found:
        found["local_rope"] = {"rope_theta": found["local_theta"]}
    share = config.get("rotary_pct", config.get("partial_rotary_factor"))
    share = found["rope"].get("partial_rotary_factor", share)
    if share is not None:
        head = found.get("head_dim") or whole(found, HF_FILE, "hidden") // whole(
            found, HF_FILE, "heads"
        )
        found["rotary_dim"] = int(head * real(share, HF_FILE, "partial_rotary_factor"))


def _find_layers(config: Mapping[str, Any], found: dict[str, Any]) -> None:
    """What the layers are, and how many."""
    layers = whole(found, HF_FILE, "layers") if "layers" in found else 0
    every = config.get("no_rope_layer_interval")
    if isinstance(every, int) and every > 0 and not found.get("turns"):
        found["turns"] = [(i + 1) % every for i in range(layers)]
    own = layer_types_of(config, layers, found.get("turns", ()))
    kinds = found.setdefault("layer_types", own)
    if kinds is not None:
        found.setdefault("layers", len(kinds))
    if "position_embedding_type" in config:
        found["turns"] = [config["position_embedding_type"] == "rope"] * len(kinds or ())


def _find_sizes(config: Mapping[str, Any], found: dict[str, Any]) -> None:
    """Sizes that some configurations say in a way of their own."""
    if "intermediate_size_mlp" in config:
        found["expert_inner"] = found.get("inner")
        found["inner"] = config["intermediate_size_mlp"]
    if "n_shared_experts" in config:
        found.setdefault("shared", 0)  # null: there is none
    if "multi_query" in config and not config.get("new_decoder_architecture"):
        found["kv_heads"] = 1 if config["multi_query"] else found.get("heads")
    if "multi_query" in config:
        new = bool(config.get("new_decoder_architecture"))
        norms = config.get("num_ln_in_parallel_attn")
        found["second"] = new if norms is None else norms == 2
    if config.get("model_type") == "falcon_mamba":
        found.setdefault("part_eps", 1e-6)  # files that do not say it have the norms too
    if "mamba_n_heads" in config and config.get("mamba_d_head", "auto") == "auto":
        inner = whole(found, HF_FILE, "hidden") * real(found.get("expand", 2), HF_FILE, "expand")
        found["ssm_width"] = int(inner) // whole(found, HF_FILE, "ssm_heads")
    if config.get("model_type") == "nemotron_h":
        # The step sizes have no other limits there, whatever time_step_limit says.
        least = real(config.get("time_step_min", 0.001), HF_FILE, "time_step_min")
        found["step_limits"] = [least, math.inf]
        found.setdefault("ssm_activation", "silu")
    if config.get("block_auto_adjust_ff_dim"):
        found["inner"] = _rounded(config)
    if "hidden" in found and config.get("model_type") in _FOURFOLD:
        found.setdefault("inner", 4 * found["hidden"])


_FOURFOLD = ("gpt2", "gpt_bigcode", "gptj", "falcon")
"""Whose networks have four times as many units as a row where that is not said."""


def _rounded(config: Mapping[str, Any]) -> Any:
    """The units of a network that are two thirds of what is said, times a factor, rounded up."""
    inner, step = config.get("intermediate_size"), config.get("block_multiple_of", 256)
    if not isinstance(inner, int) or not isinstance(step, int) or step < 1:
        return inner
    factor = config.get("block_ffn_dim_multiplier")
    factor = 1 if factor is None else real(factor, HF_FILE, "block_ffn_dim_multiplier")
    inner = int(factor * int(2 * inner / 3))
    return -(-inner // step) * step


_UNIT_LIMIT, _UNIT_SLOPE = 7.0, 1.702
"""Of clamped units, where files do not say."""

_SIGMOID = 2
"""llama.cpp's number of that router."""


def _with_sigmoid(family: Family, arch: str) -> Family:
    """The family of an architecture whose router is a sigmoid."""
    rows = (f for f in FAMILIES.values() if arch in f.gguf and f.router == "sigmoid")
    found = next(rows, None)
    if found is None:
        raise ModelError(f"a {family.name} whose router is a sigmoid cannot be run")
    return found


def _made(family: Family, found: dict[str, Any], where: str) -> ModelConfig:
    if family.multiplied and "logit_divisor" in found:
        found["logit_scale"] = found.pop("logit_divisor")
    for name in ("vocab", "hidden", "layers"):
        whole(found, where, name)
    kinds = kinds_of(family, found)
    recurrent = _recurrent(family, found, where, kinds)
    whole(found, where, "context")
    _heads(found, where)
    latent = _latent(found, where) if family.latent else None
    whole(found, where, "head_dim", found["hidden"] // found["heads"])
    whole(found, where, "inner", 1 if family.experts or not family.network else None)
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
    if (squared := found.get("query_scalar") or head_dim) <= 0:
        raise ModelError(f"{where}: queries are divided by the root of {squared}, which has none")
    scale = found.get("attention_scale") or 1 / math.sqrt(squared)
    if latent is not None:
        scale *= rotary.sharpness(rope.get("mscale_all_dim") or 0.0)
    embedding = found.get("embedding_scale", 1.0)
    if family.embedding == "root":
        embedding = math.sqrt(found["hidden"])
    windows = windows_of(kinds, found)
    gguf = where == GGUF_FILE
    qk_norm = found.get("qk_norm", None if gguf and family.qk_said else bool(family.qk_norm))
    # In files of GGUF no number of shared experts is none, or one that is not said.
    shared = found.get("shared", family.shared or (None if gguf else 0))
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
        float(found.get("unit_slope", _UNIT_SLOPE)), turned_of(family, found, kinds, windows),
        bool(found.get("parallel", family.parallel)), latent, recurrent, kinds, qk_norm,
        found.get("second", family.second if gguf else bool(family.second)),
        family.shared is not None and (None if shared is None else bool(shared)),
        found.get("output"), found.get("biased", family.biased), gguf,
    )  # fmt: skip


def _recurrent(
    family: Family, found: dict[str, Any], where: str, kinds: tuple[Kind, ...]
) -> Recurrent | None:
    """The sizes of the blocks with states, if there are any."""
    if "state" not in kinds:
        return None
    recurrent = Recurrent.of(family.recurrent, found, partial(whole, found, where))
    if not {"full", "window"} & {*kinds}:
        # Without attention a sequence may be as long as one likes.
        found.update(heads=1, kv_heads=1, head_dim=1)
        found.setdefault("context", 1 << 20)
    return recurrent


def _heads(found: dict[str, Any], where: str) -> None:
    """Check how many heads there are."""
    heads = whole(found, where, "heads")
    keys = whole(found, where, "kv_heads", heads)
    if heads % keys:
        raise ModelError(f"{where} has {heads} heads and {keys} of keys, which must divide them")


def _latent(found: dict[str, Any], where: str) -> Latent:
    """The sizes of latent attention. Every head has keys of its own, which share what turns."""
    for name in ("rank", "plain_dim", "rope_dim", "value_dim"):
        whole(found, where, name)
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
        whole(found, where, name)
    whole(found, where, "expert_inner", found["inner"])
    for name in ("expert_groups", "groups_used"):
        whole(found, where, name, 1)
    groups = found["expert_groups"]
    if found["experts_used"] > found["experts"]:
        raise ModelError(
            f"{where} has {found['experts']} experts, of which a row takes {found['experts_used']}"
        )
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
    if not isinstance(name, str) or name not in _ACTIVATIONS:
        raise ModelError(f"the activation {name!r} cannot be run; there are {list(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]
