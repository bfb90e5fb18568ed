"""What Hugging Face calls the tensors of decoders, and what GGUF files and RLX do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rlx.llm.families import Family

__all__ = ["LAYER_PARTS", "expert_of_hf", "is_beside", "names_of_gguf", "names_of_hf"]

_TOP = {
    "embed_tokens": "token_embd", "wte": "token_embd", "embed_in": "token_embd",
    "word_embeddings": "token_embd", "wpe": "position_embd", "embeddings": "token_embd",
    "embedding": "token_embd", "norm_f": "output_norm",
    "norm": "output_norm", "embedding_norm": "output_norm", "ln_f": "output_norm",
    "final_layernorm": "output_norm", "final_layer_norm": "output_norm", "lm_head": "output",
    "embed_out": "output",
}  # fmt: skip
_NORMS = {
    "attn_norm": "input_layernorm ln_1 ln_attn norm operator_norm",
    "ffn_norm": "post_attention_layernorm ln_2 ln_mlp pre_ff_layernorm ffn_norm",
}
_ATTENTION = {
    "attn_q": "q_proj",
    "attn_k": "k_proj",
    "attn_v": "v_proj",
    "attn_qkv": "qkv_proj query_key_value c_attn",
    "attn_output": "o_proj dense c_proj out_proj",
    "attn_q_norm": "q_norm query_layernorm q_layernorm",
    "attn_k_norm": "k_norm key_layernorm k_layernorm",
    "attn_q_a": "q_a_proj",
    "attn_q_a_norm": "q_a_layernorm",
    "attn_q_b": "q_b_proj",
    "attn_kv_a_mqa": "kv_a_proj_with_mqa",
    "attn_kv_a_norm": "kv_a_layernorm",
    "attn_kv_b": "kv_b_proj",
    "attn_sinks": "sinks",
}
_MIXER = {
    "ssm_in": "in_proj in_proj_qkvz",
    "ssm_ba": "in_proj_ba",
    "ssm_qkv": "in_proj_qkv",
    "ssm_gate": "in_proj_z",
    "ssm_beta": "in_proj_b",
    "ssm_alpha": "in_proj_a",
    "ssm_conv1d": "conv1d conv",
    "ssm_x": "x_proj",
    "ssm_dt": "dt_proj",
    "ssm_dt_norm": "dt_layernorm",
    "ssm_b_norm": "b_layernorm",
    "ssm_c_norm": "c_layernorm",
    "ssm_norm": "norm",
    "ssm_out": "out_proj",
}
_NETWORK = {
    "ffn_gate": "gate_proj w1",
    "ffn_up": "up_proj gate_up_proj c_fc fc1 fc_in dense_h_to_4h w3",
    "ffn_down": "down_proj c_proj fc2 fc_out dense_4h_to_h w2",
    "ffn_gate_inp": "gate gate.wg router router.layer",
    "ffn_gate_up_exps": "input_linear",
    "ffn_down_exps": "output_linear",
    "ffn_gate_inp_shexp": "shared_expert_gate",
    "ffn_latent_down": "fc1_latent_proj",
    "ffn_latent_up": "fc2_latent_proj",
}
_SHARES = (
    "mlp.shared_expert. mlp.shared_experts. mlp.shared_mlp. shared_mlp. feed_forward.shared_expert."
    " mixer.shared_experts."
)
_SHARED = {
    "ffn_gate_shexp": "gate_proj",
    "ffn_up_shexp": "up_proj input_linear",
    "ffn_down_shexp": "down_proj output_linear",
}
_EXPERTS = {
    "gate_proj": "ffn_gate_exps", "up_proj": "ffn_up_exps", "down_proj": "ffn_down_exps",
    "w1": "ffn_gate_exps", "w3": "ffn_up_exps", "w2": "ffn_down_exps",
}  # fmt: skip


def _layer() -> dict[str, str]:
    """Parts of a layer, by what Hugging Face calls them under all the names of their blocks."""
    out: dict[str, str] = {}
    for blocks, parts in (
        ("", _NORMS),
        ("self_attn. attention. self_attention. attn. mixer.", _ATTENTION),
        ("mixer. linear_attn. mamba. conv.", _MIXER),
        ("mlp. block_sparse_moe. feed_forward. mixer.", _NETWORK),
        (_SHARES, _SHARED),
    ):
        for block in blocks.split() or [""]:
            for name, theirs in parts.items():
                out.update((block + word, name) for word in theirs.split())
    return out


_LAYER = _layer()
_CORRECTIONS = (
    "mlp.gate.e_score_correction_bias",
    "mlp.e_score_correction_bias",
    "mlp.moe_statics.e_score_correction_bias",
    "block_sparse_moe.e_score_correction_bias",
    "mixer.gate.e_score_correction_bias",
    "feed_forward.expert_bias",
)
_STACKS = {
    "feed_forward.experts.gate_up_proj": "ffn_gate_up_exps.weight",
    "feed_forward.experts.down_proj": "ffn_down_exps.weight",
    "mlp.experts.gate_up_proj": "ffn_gate_up_exps.weight",
    "mlp.experts.gate_up_proj_bias": "ffn_gate_up_exps.bias",
    "mlp.experts.down_proj": "ffn_down_exps.weight",
    "mlp.experts.down_proj_bias": "ffn_down_exps.bias",
    "block_sparse_moe.experts.gate_up_proj": "ffn_gate_up_exps.weight",
    "block_sparse_moe.experts.down_proj": "ffn_down_exps.weight",
    "mixer.experts.up_proj": "ffn_up_exps.weight",
    "mixer.experts.down_proj": "ffn_down_exps.weight",
    "self_attn.sinks": "attn_sinks.weight",
    **{
        f"{block}.{theirs}": own
        for block in ("mixer", "mamba", "linear_attn")
        for theirs, own in (("A_log", "ssm_a"), ("D", "ssm_d"), ("dt_bias", "ssm_dt.bias"))
    },
}
"""What has no "weight" or "bias" at its end, such as the matrices of all experts."""
LAYER_PARTS = sorted(
    {f"{part}.{kind}" for part in _LAYER.values() for kind in ("weight", "bias")}
    | {f"{part}.weight" for part in ("post_attention_norm", "post_ffw_norm", "attn_gate")}
    | {*_STACKS.values(), "exp_probs_b.bias"}
)
"""What layers of any family have."""
_LAYER_NAME = re.compile(r"(?:layers|h)\.(\d+)\.(.+?)(?:\.(weight|bias))?")
_OWN_NORM = re.compile(r"self_attn\.([qk])_layernorm\.norms\.(\d+)")
_EXPERT_NAME = re.compile(
    r"layers\.(\d+)\.(?:mlp|block_sparse_moe|feed_forward|mixer)\.experts\.(\d+)\.(\w+)\.weight"
)
_PREFIX = re.compile(
    r"^(?:language_model\.)?(?:model\.|transformer\.|gpt_neox\.|backbone\.)?(?:language_model\.)?"
)


_GGUF = {
    "token_embd_norm": "output_norm", ".shortconv.in_proj": ".ssm_in",
    ".shortconv.conv": ".ssm_conv1d", ".shortconv.out_proj": ".ssm_out",
}  # fmt: skip
"""What files of lfm2 call parts of it."""


def names_of_gguf(name: str, family: Family) -> str:
    """The name here of a tensor of a GGUF file, of most families the same."""
    for theirs, own in _GGUF.items() if family.recurrent == "conv" else ():
        name = name.replace(theirs, own)
    return name


def names_of_hf(name: str, family: Family) -> str | None:
    """The name here of a tensor of Hugging Face; None for one that is not known."""
    short = _PREFIX.sub("", name)
    top, _, kind = short.rpartition(".")
    if top in _TOP and kind in ("weight", "bias"):
        return f"{_TOP[top]}.{kind}"
    found = _LAYER_NAME.fullmatch(short)
    if found is None:
        return None
    layer, what, kind = found.groups()
    if kind is None and what in _STACKS:
        return f"blk.{layer}.{_STACKS[what]}"
    if kind is None:
        return f"blk.{layer}.exp_probs_b.bias" if what in _CORRECTIONS else None
    known = {**_LAYER, **dict(family.renamed)}
    return f"blk.{layer}.{known[what]}.{kind}" if what in known else None


_SEEING = re.compile(r"^(?:model\.)?(?:visual|vision_tower|vision_model|multi_modal_projector)\.")
_LAYER_OF = re.compile(r"^(?:model\.)?(?:language_model\.)?layers\.(\d+)\.")


def is_beside(name: str, config: Mapping[str, Any]) -> bool:
    """Whether a tensor of Hugging Face is not of the decoder: of layers that draft tokens, which
    lie behind the others or are called "mtp", or of the part that sees, if config.json has one.
    ``config`` is that of the part for texts and of the whole (``of_text``)."""
    if name.startswith("mtp.") or ("vision_config" in config and _SEEING.match(name)):
        return True
    first, count = (config.get(f"num_{n}_layers") for n in ("hidden", "nextn_predict"))
    layer = _LAYER_OF.match(name)
    if layer is None or not isinstance(first, int) or not isinstance(count, int):
        return False
    return first <= int(layer[1]) < first + count


def expert_of_hf(name: str) -> tuple[str, int] | None:
    """The stack that a tensor of Hugging Face is a part of, and its place there: an expert's
    matrix, or a head's norm. None for one that is whole."""
    short = _PREFIX.sub("", name)
    expert = _EXPERT_NAME.fullmatch(short)
    if expert is not None and expert[3] in _EXPERTS:
        return f"blk.{expert[1]}.{_EXPERTS[expert[3]]}.weight", int(expert[2])
    layer = _LAYER_NAME.fullmatch(short)
    norm = _OWN_NORM.fullmatch(layer[2]) if layer is not None else None
    if layer is not None and norm is not None:
        return f"blk.{layer[1]}.attn_{norm[1]}_norm.{layer[3]}", int(norm[2])
    return None
