"""The table of model families: what tells one decoder from another, as data."""

from __future__ import annotations

from typing import Literal

from rlx.base.frozen import frozen
from rlx.errors import ModelError, did_you_mean

__all__ = ["FAMILIES", "Family", "family_of"]

_QKV = ("attn_q", "attn_k", "attn_v")
_NORMS = ("attn_norm", "ffn_norm", "output_norm")
_ALL = (*_NORMS, *_QKV, "attn_output", "ffn_up", "ffn_down")
# Entries of config.json that say whether products have a bias: by their name, by what they are
# where they are not there, and whose biases these are.
_ATTENTION = ("attention_bias", False, (*_QKV, "attn_output"))
_ALWAYS = ("attention_bias", True, (*_QKV, "attn_output"))
_READ = ("attention_bias", False, _QKV)
_ALWAYS_READ = ("attention_bias", True, _QKV)
_LATENT = ("attention_bias", False, ("attn_q_a", "attn_kv_a_mqa", "attn_output"))
_UNITS = ("ffn_gate", "ffn_up", "ffn_down")
_SHARED = ("ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp")
_NETWORK = ("mlp_bias", False, (*_UNITS, *_SHARED, "ffn_latent_down", "ffn_latent_up"))
_EVERY = (*_QKV, "attn_output", *_UNITS, *_SHARED)
_MIXED = ("ssm_in", "ssm_out")
_MAMBA = (("use_bias", False, _MIXED), ("use_conv_bias", True, ("ssm_conv1d",)))
_BESIDE = (("mamba_proj_bias", False, _MIXED), ("mamba_conv_bias", True, ("ssm_conv1d",)))
_SHORT = ("conv_bias", False, (*_MIXED, "ssm_conv1d"))
_CORRECTED = ("exp_probs_b",)
_OF_GPT_OSS = (
    *_QKV, "attn_output", "ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"
)  # fmt: skip


@frozen
class Family:
    """A family of decoders, beside what its configurations say.

    ``gguf`` and ``hf`` are its names in GGUF files (``general.architecture``) and in config.json
    (``model_type``). ``renamed`` has what Hugging Face calls parts of its layers, where that is not
    what others call them (``rlx.llm.names``).

    **Norms.** ``norm``: "rms", "layer" (with a bias where the file has one, as ``biased`` says
    that it must), or "plain" for a layer norm without weights; ``shifted``: norms' weights are
    stored less 1, but in GGUF files.
    ``before`` and ``after`` say whether the two blocks of a layer have a norm there. ``parallel``:
    both blocks take the layer's input, by a norm each or by one (``second``; None: as a
    configuration or a file has it); a configuration may say otherwise. ``qk_norm``: of each head,
    of all together, of each head by weights of its own ("heads"), or of each head without weights,
    where it is turned ("plain"); ``qk_said``: the entry of config.json that says whether there is
    one, and what it is where it is not there; ``qk_late``: it follows the rotation.

    **Positions.** ``adjacent``: rotary pairs lie side by side, in GGUF files alone or in all.
    ``every``: of so many layers the last sees all keys, where there is a window or a state, unless
    a configuration says otherwise. ``local_theta`` is
    the rotary base of the layers with a window, 0 for that of all, which is not stretched there.
    ``unturned``: of so many layers the last has no rotary embedding, of 1 none has; "full": those
    that see all keys, where others have a window. ``learned``: a table has an embedding of
    each position.

    **Products.** ``activation`` of a configuration that says none under ``activation_key``;
    ``biased``: those, norms, and routers' scores ("exp_probs_b"), whose bias a file must have, of
    all that may have one; ``said``: entries of config.json that say whether some have one (GGUF
    files have no such entries: what is not of ``biased`` may be missing there);
    ``ungated``: networks have one product before it, and no gate.
    ``together``: q, k and v of each group of heads lie together. ``transposed``: matrices are
    ``[in, out]`` in Hugging Face's files. ``embedding``: a factor of the embeddings, "root" for the
    root of their length; ``multiplied``: logits are multiplied by what files call their scaling.
    ``latent``: keys and values come from a latent vector (``rlx.llm.latent``). ``sinks``: each head
    has a score that no key has.

    **Experts.** ``experts``: layers may have some, and a layer whose file has a router has.
    ``router``: what makes scores of its logits; ``expert_norm``: the scores of the chosen are made
    to sum to 1, unless a configuration says otherwise. ``group_best``: the best so many of a
    group's scores are added to choose groups. ``expert_early``: rows are multiplied by their scores
    before their experts, not after. ``shared``: whether layers with experts have one that all rows
    take where a configuration does not say (0: not; None: never); ``shared_gate``: it is multiplied
    by a gate. ``expert_turned``: in Hugging Face's files the matrices of all
    experts are ``[in, out]``; ``expert_pairs``: gate and up of a unit lie side by side there.
    ``clamped``: what gate and up make is clamped; ``narrowed``: files may have matrices that make
    rows narrower before experts and wide again behind them (``rlx.llm.experts``).

    **States.** ``recurrent``: the kind of the layers that have a state in place of keys and values
    (``rlx.llm.mixers``), all of them or those that a configuration says. ``part_norms``: what
    says how a state is written and read has norms with weights. ``network``: such a block,
    or attention, has a feed-forward network behind it; without, networks are layers of their own,
    if there are any. ``apart``: what the gated delta rule is made of are matrices of their own,
    not two. ``gated``: what attention gives is multiplied by gates, whose rows lie beside
    those of queries.
    """

    name: str
    gguf: tuple[str, ...]
    hf: tuple[str, ...]
    renamed: tuple[tuple[str, str], ...] = ()
    norm: Literal["rms", "layer", "plain"] = "rms"
    shifted: bool = False
    before: bool = True
    after: bool = False
    parallel: bool = False
    second: bool | None = False
    qk_norm: Literal["", "head", "whole", "heads", "plain"] = ""
    qk_said: tuple[str, bool] | None = None
    qk_late: bool = False
    adjacent: Literal["", "gguf", "all"] = ""
    every: int = 0
    local_theta: float | None = None
    unturned: int | Literal["full"] = 0
    learned: bool = False
    activation: Literal["silu", "gelu", "gelu_approx", "relu2"] = "silu"
    activation_key: str = "hidden_act"
    biased: tuple[str, ...] = ()
    said: tuple[tuple[str, bool | str, tuple[str, ...]], ...] = (_ATTENTION,)
    ungated: bool = False
    together: bool = False
    transposed: bool = False
    embedding: Literal["", "root"] = ""
    multiplied: bool = False
    latent: bool = False
    sinks: bool = False
    experts: bool = False
    router: Literal["softmax", "sigmoid"] = "softmax"
    expert_norm: bool = True
    group_best: int = 2
    expert_early: bool = False
    shared: int | None = None
    shared_gate: bool = False
    expert_turned: bool = False
    expert_pairs: bool = False
    clamped: bool = False
    narrowed: bool = False
    recurrent: Literal["", "mamba", "mamba2", "delta", "conv"] = ""
    part_norms: bool = False
    network: bool = True
    apart: bool = False
    gated: bool = False


_AFTER = (
    ("post_attention_layernorm", "post_attention_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
)
_GLM = (
    ("post_self_attn_layernorm", "post_attention_norm"),
    ("post_mlp_layernorm", "post_ffw_norm"),
)
_EXAONE = (
    *((f"attn.attention.{n}_proj", f"attn_{n}") for n in "qkv"),
    ("attn.attention.out_proj", "attn_output"),
    ("mlp.c_fc_0", "ffn_gate"),
    ("mlp.c_fc_1", "ffn_up"),
)  # fmt: skip
_PERI = (("post_norm1", "post_attention_norm"), ("post_norm2", "post_ffw_norm"))

_ROWS = (
    Family("llama", ("llama",), ("llama", "mistral", "mixtral", "internlm3", "iquestcoder"),
           adjacent="gguf", experts=True, said=(_ATTENTION, _NETWORK)),
    Family("ministral", (), ("ministral",), said=()),
    Family("cwm", (), ("cwm",), said=(_NETWORK,)),
    Family("smollm3", ("smollm3",), ("smollm3",), adjacent="gguf", unturned=4,
           said=(_ATTENTION, _NETWORK)),
    Family("seed-oss", ("seed_oss",), ("seed_oss",),
           said=(_ALWAYS_READ, ("attention_out_bias", False, ("attn_output",)), _NETWORK)),
    Family("arcee", ("arcee",), ("arcee",), adjacent="gguf", activation="relu2", ungated=True,
           said=(_ATTENTION, _NETWORK)),
    Family("helium", (), ("helium",), adjacent="all", said=(_READ, _NETWORK)),
    Family("ernie4.5", ("ernie4_5",), ("ernie4_5",), adjacent="all",
           said=(("use_bias", False, _EVERY),)),
    Family("ernie4.5-moe", ("ernie4_5-moe",), ("ernie4_5_moe",), adjacent="all", experts=True,
           biased=_CORRECTED, said=(("use_bias", False, (*_EVERY, "output")),), shared=2),
    Family("hunyuan", ("hunyuan-dense",), ("hunyuan_v1_dense",), qk_norm="head", qk_late=True),
    Family("hunyuan-moe", ("hunyuan-moe",), ("hunyuan_v1_moe",), qk_norm="head", qk_late=True,
           experts=True, shared=1),
    Family("llama4", (), ("llama4_text",), qk_norm="plain", qk_late=True,
           qk_said=("use_qk_norm", True), adjacent="all", unturned=4, experts=True,
           router="sigmoid", expert_norm=False, expert_early=True,
           expert_turned=True, shared=1),
    Family("gpt-oss", ("gpt-oss",), ("gpt_oss",), every=2, sinks=True, experts=True,
           expert_turned=True, expert_pairs=True, clamped=True, biased=_OF_GPT_OSS,
           said=(_ALWAYS,)),
    Family("qwen2", ("qwen2",), ("qwen2",), biased=_QKV, said=()),
    Family("qwen2-moe", ("qwen2moe",), ("qwen2_moe",), experts=True, expert_norm=False,
           biased=_QKV, said=(("qkv_bias", True, _QKV),), shared=1, shared_gate=True),
    Family("qwen3", ("qwen3",), ("qwen3",), qk_norm="head"),
    Family("qwen3-moe", ("qwen3moe",), ("qwen3_moe",), qk_norm="head", experts=True),
    Family(
        "gemma2", ("gemma2",), ("gemma2",), _AFTER, shifted=True, after=True, every=2,
        activation="gelu_approx", activation_key="hidden_activation", embedding="root",
    ),
    Family(
        "gemma3", ("gemma3",), ("gemma3_text", "gemma3"), _AFTER, shifted=True, after=True,
        qk_norm="head", every=6, local_theta=10000.0, activation="gelu_approx",
        activation_key="hidden_activation", embedding="root",
    ),
    Family("gemma", ("gemma",), ("gemma",), shifted=True, activation="gelu_approx",
           activation_key="hidden_activation", embedding="root"),
    Family("vaultgemma", (), ("vaultgemma",), _AFTER, shifted=True, every=2,
           activation="gelu_approx", activation_key="hidden_activation", embedding="root"),
    Family("phi", ("phi2",), ("phi",), norm="layer", parallel=True, activation="gelu_approx",
           biased=(*_ALL, "output"), said=(), ungated=True),
    Family("phi3", ("phi3",), ("phi3",), said=()),
    Family("mamba", ("mamba",), ("mamba", "falcon_mamba"), recurrent="mamba", network=False,
           biased=("ssm_dt",), said=_MAMBA),
    Family("mamba2", ("mamba2",), ("mamba2",), recurrent="mamba2", network=False,
           said=_MAMBA),
    Family("qwen3-next", (), ("qwen3_next",), shifted=True, qk_norm="head", every=4,
           experts=True, recurrent="delta", gated=True, shared=1, shared_gate=True),
    Family("qwen3.5", (), ("qwen3_5_text", "qwen3_5"), shifted=True, qk_norm="head", every=4,
           recurrent="delta", apart=True, gated=True),
    Family("qwen3.5-moe", (), ("qwen3_5_moe_text", "qwen3_5_moe"), shifted=True, qk_norm="head",
           every=4, experts=True, recurrent="delta", apart=True, gated=True, shared=1,
           shared_gate=True),
    Family("jamba", ("jamba",), ("jamba",), unturned=1, experts=True, expert_norm=False,
           recurrent="mamba", part_norms=True, biased=("ssm_dt",), said=_BESIDE),
    Family("bamba", (), ("bamba",), recurrent="mamba2",
           said=(_ATTENTION, _NETWORK, *_BESIDE)),
    Family("granite-hybrid", ("granitehybrid",), ("granitemoehybrid",), adjacent="gguf",
           unturned=1, experts=True, recurrent="mamba2", shared=1,
           said=(_ATTENTION, *_BESIDE)),
    Family("nemotron-h", ("nemotron_h", "nemotron_h_moe"), ("nemotron_h",), unturned=1,
           activation="relu2", activation_key="mlp_hidden_act", experts=True, router="sigmoid",
           recurrent="mamba2", network=False, ungated=True, biased=_CORRECTED,
           said=(_ATTENTION, _NETWORK, *_MAMBA), shared=1, narrowed=True),
    Family("lfm2", ("lfm2",), ("lfm2",), qk_norm="head", recurrent="conv",
           said=(_SHORT,)),
    Family("lfm2-moe", ("lfm2moe",), ("lfm2_moe",), qk_norm="head", experts=True, router="sigmoid",
           recurrent="conv", biased=_CORRECTED,
           said=(_SHORT, ("use_expert_bias", True, _CORRECTED))),
    Family("granite", ("granite",), ("granite",), adjacent="gguf", said=(_ATTENTION, _NETWORK)),
    Family("granite-moe", ("granitemoe",), ("granitemoe", "granitemoeshared"), adjacent="gguf",
           experts=True, shared=0),
    Family("olmo", ("olmo",), ("olmo",), adjacent="gguf", norm="plain"),
    Family("olmo2", ("olmo2",), ("olmo2",), _AFTER, before=False, after=True, qk_norm="whole"),
    Family("olmo3", (), ("olmo3",), _AFTER, before=False, after=True, qk_norm="whole", every=4,
           local_theta=0.0),
    Family("olmoe", ("olmoe",), ("olmoe",), qk_norm="whole", experts=True, expert_norm=False),
    Family("flex-olmo", (), ("flex_olmo",), _AFTER, before=False, after=True, qk_norm="whole",
           experts=True, expert_norm=False),
    Family("exaone4", ("exaone4",), ("exaone4",), _AFTER, before=False, after=True,
           qk_norm="head", every=4, unturned="full", said=()),
    Family("exaone", ("exaone",), ("exaone",), _EXAONE, said=(_ATTENTION, _NETWORK)),
    Family("exaone-moe", (), ("exaone_moe",), qk_norm="head", every=4, unturned="full",
           experts=True, router="sigmoid", biased=_CORRECTED, shared=1, said=()),
    Family("hyperclovax", (), ("hyperclovax",), _PERI, after=True, multiplied=True,
           said=(_ATTENTION, _NETWORK)),
    Family("glm", (), ("glm",), adjacent="all", said=(_ALWAYS_READ,)),
    Family("glm4", ("glm4",), ("glm4",), _GLM, after=True, adjacent="all",
           said=(_ALWAYS_READ,)),
    Family("glm4-moe", ("glm4moe",), ("glm4_moe",), qk_norm="head",
           qk_said=("use_qk_norm", False), experts=True, router="sigmoid",
           biased=_CORRECTED, said=(_READ,), shared=1),
    Family("dots1", ("dots1",), ("dots1",), qk_norm="head", experts=True, router="sigmoid",
           biased=_CORRECTED, shared=0),
    Family("solar-open", (), ("solar_open",), experts=True, router="sigmoid",
           biased=_CORRECTED, said=(_READ,), shared=1),
    Family("minimax-m2", ("minimax-m2",), ("minimax_m2",), qk_norm="whole", experts=True,
           router="sigmoid", biased=_CORRECTED, said=()),
    Family("deepseek-v2", ("deepseek2",), ("deepseek_v2",), adjacent="all", latent=True,
           experts=True, expert_norm=False, group_best=1, shared=2,
           said=(_LATENT, _NETWORK, ("topk_method", "greedy", _CORRECTED))),
    Family("youtu", (), ("youtu",), adjacent="all", latent=True, said=(_LATENT,)),
    Family("deepseek-v3", ("deepseek2",), ("deepseek_v3", "glm4_moe_lite"), adjacent="all",
           latent=True, experts=True, router="sigmoid", biased=_CORRECTED, shared=1,
           said=(_LATENT, ("topk_method", "noaux_tc", _CORRECTED))),
    Family("cohere", ("command-r",), ("cohere",), norm="layer", parallel=True, qk_norm="heads",
           qk_said=("use_qk_norm", False), adjacent="all", multiplied=True),
    Family("cohere2", ("cohere2",), ("cohere2",), norm="layer", parallel=True, adjacent="all",
           every=4, unturned="full", multiplied=True),
    Family("starcoder2", ("starcoder2",), ("starcoder2",), norm="layer", biased=_NORMS,
           activation="gelu_approx", ungated=True, said=(("use_bias", True, _EVERY),)),
    Family("stablelm", ("stablelm",), ("stablelm",), norm="layer", biased=_NORMS, qk_norm="heads",
           qk_said=("qk_layernorm", False), said=(("use_qkv_bias", False, _QKV),)),
    Family("nemotron", ("nemotron",), ("nemotron",), norm="layer", biased=_NORMS, shifted=True,
           activation="relu2", ungated=True, said=(_ATTENTION, _NETWORK)),
    Family("jais2", ("jais2",), ("jais2",), norm="layer", biased=_NORMS,
           activation="relu2", ungated=True, said=(_ALWAYS, ("mlp_bias", True, _UNITS))),
    Family("gpt-neox", ("gptneox",), ("gpt_neox",), norm="layer", parallel=True,
           second=True, activation="gelu", together=True, biased=(*_NORMS, "ffn_up", "ffn_down"),
           said=(_ALWAYS,), ungated=True),
    Family("gpt-j", (), ("gptj",), norm="layer", parallel=True, adjacent="all",
           activation="gelu_approx", activation_key="activation_function", ungated=True,
           biased=(*_NORMS, "ffn_up", "ffn_down", "output"), said=()),
    Family("falcon", ("falcon",), ("falcon",), norm="layer", biased=_NORMS, parallel=True,
           second=None, activation="gelu", activation_key="activation", together=True, ungated=True,
           said=(("bias", False, _EVERY),)),
    Family("gpt2", ("gpt2",), ("gpt2",), norm="layer", learned=True, activation="gelu_approx",
           activation_key="activation_function", transposed=True, biased=_ALL,
           said=(), ungated=True),
    Family("starcoder", ("starcoder",), ("gpt_bigcode",), norm="layer", learned=True,
           activation="gelu_approx", activation_key="activation_function", biased=_ALL,
           said=(), ungated=True),
)  # fmt: skip

FAMILIES = {row.name: row for row in _ROWS}
"""Every family by name."""


def family_of(kind: Literal["gguf", "hf"], name: object) -> Family:
    """The family that a file names, the first of several; ModelError if it is none of the table."""
    rows = reversed(_ROWS)
    known = {n: row for row in rows for n in (row.gguf if kind == "gguf" else row.hf)}
    if not isinstance(name, str) or name not in known:
        hint = did_you_mean(name, known) if isinstance(name, str) else ""
        raise ModelError(
            f"no model of architecture {name!r} can be run{hint}; there are"
            f" {', '.join(sorted(known))}"
        )
    return known[name]
