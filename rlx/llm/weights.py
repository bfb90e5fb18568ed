"""The weights of a decoder by one set of names, those of GGUF files, whatever file they are in.

Blocks stay the bytes that the file has. What is stored as one matrix, such as Phi-3's q, k and v,
is taken apart: rows of a matrix are a view of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlx.errors import ModelError
from rlx.frontends.gguf import GGUF, Tensor
from rlx.llm.config import ModelConfig
from rlx.models.files import read_json
from rlx.models.safetensors import SafeTensors
from rlx.quant.scheme import BlockScheme
from rlx.quant.table import scheme_named
from rlx.types import dtype

__all__ = ["PLAIN", "block_of", "from_gguf", "from_hf", "halves", "names_of_hf", "part_of"]

Array = np.ndarray[Any, Any]
Weights = dict[str, Tensor]

_TOP = {
    "embed_tokens.weight": "token_embd.weight",
    "norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.gate": "ffn_gate_inp",
}
_AFTER = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_EXPERTS = {"gate_proj": "ffn_gate_exps", "up_proj": "ffn_up_exps", "down_proj": "ffn_down_exps"}

PLAIN = ("f32", "f16", "bf16")
"""What weights are in that are in no blocks."""

_LAYER_NAME = re.compile(r"layers\.(\d+)\.(.+)\.(weight|bias)")
_EXPERT_NAME = re.compile(r"layers\.(\d+)\.mlp\.experts\.(\d+)\.(\w+)\.weight")
_PREFIX = re.compile(r"^(?:language_model\.)?(?:model\.)?(?:language_model\.)?")


def names_of_hf(name: str, config: ModelConfig) -> str | None:
    """The name here of a tensor of Hugging Face; None for one that is not known."""
    short = _PREFIX.sub("", name)
    if short in _TOP:
        return _TOP[short]
    found = _LAYER_NAME.fullmatch(short)
    if found is None:
        return None
    layer, what, kind = found.groups()
    known = {**_LAYER, **_AFTER} if config.family.after else _LAYER
    return f"blk.{layer}.{known[what]}.{kind}" if what in known else None


def from_gguf(file: GGUF, config: ModelConfig) -> Weights:
    """The weights of a GGUF file."""
    found = {name: file[name] for name in file}
    if config.family.adjacent:
        for name, tensor in found.items():
            for part, heads in (("attn_q", config.heads), ("attn_k", config.kv_heads)):
                if re.fullmatch(rf"blk\.\d+\.{part}\.(weight|bias)", name):
                    found[name] = halves(tensor, heads)
    return _apart(found, config)


def halves(tensor: Tensor, heads: int) -> Tensor:
    """Rows in the order of rotary pairs that lie half a head apart, from pairs side by side."""
    data = _by_rows(tensor)
    rows = data.reshape(heads, -1, 2, data.shape[-1]).swapaxes(1, 2)
    fixed = np.ascontiguousarray(rows).reshape(tensor.data.shape)
    fixed.flags.writeable = False
    return Tensor(tensor.scheme, tensor.shape, fixed, tensor.byteorder)


def from_hf(path: str, config: ModelConfig) -> Weights:
    """The weights of a folder of safetensors files, of one or of several with an index."""
    arrays: dict[str, Array] = {}
    for file in _files(path):
        arrays.update(SafeTensors(file))
    found: Weights = {}
    experts: dict[str, dict[int, Array]] = {}
    for name, array in arrays.items():
        expert = _EXPERT_NAME.fullmatch(_PREFIX.sub("", name))
        if expert is not None and expert[3] in _EXPERTS:
            stack = experts.setdefault(f"blk.{expert[1]}.{_EXPERTS[expert[3]]}.weight", {})
            stack[int(expert[2])] = array
            continue
        known = names_of_hf(name, config)
        if known is None:
            if name.endswith((".rotary_emb.inv_freq", ".masked_bias")):
                continue
            raise ModelError(f"{path}: no tensor of a {config.family.name} is called {name!r}")
        shifted = config.family.shifted and known.endswith("norm.weight")
        found[known] = Tensor.of(array.astype(np.float32) + np.float32(1) if shifted else array)
    for name, stack in experts.items():
        if sorted(stack) != list(range(config.experts)):
            raise ModelError(f"{path}: {name} has {len(stack)} experts of {config.experts}")
        found[name] = Tensor.of(np.stack([stack[i] for i in range(config.experts)]))
    return _apart(found, config)


def _files(path: str) -> list[str]:
    """The safetensors files of a folder."""
    index = read_json(os.path.join(path, "model.safetensors.index.json"), dict, {})
    whole = os.path.join(path, "model.safetensors")
    if not index:
        if not os.path.isfile(whole):
            raise ModelError(f"{path} has no model.safetensors; a model folder needs it")
        return [whole]
    parts: Mapping[str, Any] = index.get("weight_map") or {}
    names = sorted({str(v) for v in parts.values()})
    if not names or any(os.path.basename(n) != n for n in names):
        raise ModelError(f"{path}/model.safetensors.index.json has no weight_map of files in it")
    return [os.path.join(path, n) for n in names]


def _apart(found: Weights, config: ModelConfig) -> Weights:
    """With one name for one matrix."""
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    for i in range(config.layers):
        for kind in ("weight", "bias"):
            whole = found.pop(f"blk.{i}.attn_qkv.{kind}", None)
            if whole is not None:
                parts = _rows(whole, (queries, keys, keys))
                found.update(
                    (f"blk.{i}.attn_{n}.{kind}", p) for n, p in zip("qkv", parts, strict=True)
                )
        up = found.get(f"blk.{i}.ffn_up.weight")
        if up is not None and f"blk.{i}.ffn_gate.weight" not in found:
            gate, found[f"blk.{i}.ffn_up.weight"] = _rows(up, (config.inner, config.inner))
            found[f"blk.{i}.ffn_gate.weight"] = gate
    return found


def _by_rows(tensor: Tensor) -> Array:
    """The bytes of each row, which of a vector is an element."""
    vector = len(tensor.shape) == 1
    return tensor.data.reshape(tensor.shape[0], -1) if vector else tensor.data


def _rows(tensor: Tensor, counts: tuple[int, ...]) -> list[Tensor]:
    """The rows of a tensor, so many to each."""
    if tensor.shape[0] != sum(counts):
        raise ModelError(f"a matrix of {tensor.shape[0]} rows is to be parted into {counts}")
    ends = np.cumsum(counts).tolist()
    return [part_of(tensor, 0, range(end - n, end)) for n, end in zip(counts, ends, strict=True)]


def block_of(tensor: Tensor) -> tuple[int, int]:
    """The elements of a block of a tensor, and its bytes: of an element where it has no blocks."""
    if tensor.scheme in PLAIN:
        return 1, dtype(tensor.scheme).bytes
    scheme = scheme_named(tensor.scheme)
    assert isinstance(scheme, BlockScheme)
    return scheme.block, scheme.bytes


def part_of(tensor: Tensor, dim: int, where: range) -> Tensor:
    """A part of a tensor along a dim; along the last one, of whole blocks, which are copied."""
    shape = (*tensor.shape[:dim], len(where), *tensor.shape[dim + 1 :])
    if dim < len(shape) - 1:
        data = tensor.data[(slice(None),) * dim + (slice(where.start, where.stop),)]
    else:
        elements, size = block_of(tensor)
        assert where.start % elements == 0 and where.stop % elements == 0
        start, stop = (at // elements * size for at in (where.start, where.stop))
        data = np.ascontiguousarray(tensor.data[..., start:stop])
    return Tensor(tensor.scheme, shape, data, tensor.byteorder)
