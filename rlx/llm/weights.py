"""The weights of a decoder by one set of names, those of GGUF files, whatever file they are in.

Blocks stay the bytes that the file has. What is stored as one matrix, such as Phi-3's q, k and v,
is taken apart: rows of a matrix are a view of it.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import numpy as np

from rlx.errors import ModelError
from rlx.frontends.gguf import GGUF, Tensor
from rlx.llm.arrange import arranged
from rlx.llm.config import ModelConfig
from rlx.llm.defaults import of_text
from rlx.llm.families import Family
from rlx.llm.names import expert_of_hf, is_beside, names_of_gguf, names_of_hf
from rlx.models.files import read_json
from rlx.models.safetensors import SafeTensors
from rlx.quant.scheme import BlockScheme
from rlx.quant.table import scheme_named
from rlx.types import dtype

__all__ = ["PLAIN", "block_of", "from_gguf", "from_hf", "model_of", "part_of", "read_model"]

Array = np.ndarray[Any, Any]
Weights = dict[str, Tensor]
_T = TypeVar("_T")

PLAIN = ("f32", "f16", "bf16")
"""What weights are in that are in no blocks."""

_PART = re.compile(r"blk\.\d+\.(\w+)\.(?:weight|bias)")
_VECTORS = ("attn_q_norm", "attn_k_norm", "ffn_gate_inp_shexp", "exp_probs_b", "ssm_norm")
"""What files may have as a matrix, and is a vector here."""


def read_model(path: str | os.PathLike[str]) -> tuple[ModelConfig, Weights]:
    """The configuration and the weights of a GGUF file, or of a folder of Hugging Face's."""
    path = os.fspath(path)
    if not os.path.isdir(path):
        return model_of(GGUF(path))
    config = ModelConfig.from_hf(read_json(os.path.join(path, "config.json"), dict))
    return config, from_hf(path, config)


def model_of(file: GGUF) -> tuple[ModelConfig, Weights]:
    """The configuration and the weights of an open GGUF file."""
    if "token_embd.weight" not in file:
        raise ModelError(f"{file.file} has no token_embd.weight: it is no language model")
    config = ModelConfig.from_gguf(file.metadata, file["token_embd.weight"].shape[0])
    return config, from_gguf(file, config)


def from_gguf(file: GGUF, config: ModelConfig) -> Weights:
    """The weights of a GGUF file."""
    found: Weights = {}
    for name in file:
        _put(found, names_of_gguf(name, config.family), file[name])
    for i in range(config.layers):
        for kind in ("weight", "bias"):
            first, second, other, after = (
                f"blk.{i}.{n}.{kind}"
                for n in ("attn_norm", "ffn_norm", "attn_norm_2", "post_attention_norm")
            )
            # Some files call the second norm what comes after attention in other families.
            if not config.family.after and after in found:
                _put(found, second, found.pop(after))
            # Falcon's have the norm of attention under another name where there are two.
            if other in found and first in found:
                _put(found, second, found.pop(first))
                found[first] = found.pop(other)
    return _apart(found, config, "gguf")


def from_hf(path: str, config: ModelConfig) -> Weights:
    """The weights of a folder of safetensors files, of one or of several with an index."""
    from rlx.llm.few_bits import joined

    arrays: dict[str, Array] = {}
    for file in _files(path):
        for name, array in SafeTensors(file).items():
            _put(arrays, name, array)
    family = config.family
    found: Weights = {}
    stacks: dict[str, dict[str, Tensor]] = {}
    whole = read_json(os.path.join(path, "config.json"), dict, {})
    said = of_text(whole)
    for name, array in joined(arrays, whole).items():
        if is_beside(name, said):
            continue
        part = expert_of_hf(name)
        if part is not None:
            tensor = array if isinstance(array, Tensor) else Tensor.of(array)
            _put(stacks.setdefault(part[0], {}), f"{part[0]}.{part[1]}", tensor)
            continue
        known = names_of_hf(name, family)
        if known is None:
            if name.endswith((".rotary_emb.inv_freq", ".masked_bias", ".attn.bias")):
                continue
            raise ModelError(f"{path}: no tensor of a {family.name} is called {name!r}")
        here = array if isinstance(array, Tensor) else Tensor.of(_as_here(known, array, family))
        _put(found, known, here)
    for name, stack in stacks.items():
        count = _parts_of(name, config)
        parts = [f"{name}.{i}" for i in range(count)]
        if {*stack} != {*parts}:
            raise ModelError(f"{path}: {name} has {len(stack)} parts of {count}")
        _put(found, name, _stacked([stack[part] for part in parts]))
    return _apart(found, config, "hf")


def _put(found: dict[str, _T], name: str, value: _T) -> None:
    """Add what has a name. ModelError if something else has it: of two names in files for one
    weight a file may have either."""
    if name in found:
        raise ModelError(f"the file has {name} twice: two of its tensors are called so here")
    found[name] = value


def _stacked(parts: list[Tensor]) -> Tensor:
    """Tensors of a shape as one."""
    schemes = {t.scheme for t in parts}
    if len(schemes) > 1:
        return Tensor.of(np.stack([t.dequantize() for t in parts]))
    if parts[0].scheme in PLAIN:
        return Tensor.of(np.stack([t.numpy() for t in parts]))
    data = np.stack([t.data for t in parts])
    return Tensor(parts[0].scheme, (len(parts), *parts[0].shape), data)


def _as_here(name: str, array: Array, family: Family) -> Array:
    """A tensor of Hugging Face's as GGUF files have it."""
    if name.endswith(("ssm_a", "ssm_d")):
        found = -np.exp(array.astype(np.float32)) if name.endswith("a") else array
        return found.reshape(-1, 1) if family.recurrent == "mamba2" else found
    if name.endswith("ssm_conv1d.weight"):
        return array.reshape(len(array), -1)
    if family.shifted and name.endswith("norm.weight") and not name.endswith("ssm_norm.weight"):
        return array.astype(np.float32) + np.float32(1)
    if name.startswith("blk.") and array.ndim == (2 if family.transposed else 3):
        turned = family.transposed or family.expert_turned
        return np.ascontiguousarray(array.swapaxes(-1, -2)) if turned else array
    return array


def _parts_of(name: str, config: ModelConfig) -> int:
    """How many tensors a stack is made of: one an expert, or one a head."""
    if "_exps." in name:
        return config.experts
    return config.heads if "attn_q" in name else config.kv_heads


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


def _apart(found: Weights, config: ModelConfig, file: Literal["gguf", "hf"]) -> Weights:
    """With one name for one matrix, and rows in the order that they have here."""
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    for name, tensor in found.items():
        part = _PART.fullmatch(name)
        if part is not None:
            flat = _vector(tensor) if part[1] in _VECTORS else tensor
            found[name] = arranged(part[1], flat, config, file)
    for i in range(config.layers):
        for kind in ("weight", "bias"):
            whole = found.pop(f"blk.{i}.attn_qkv.{kind}", None)
            if whole is not None:
                parts = _rows(whole, (queries, keys, keys))
                for n, p in zip("qkv", parts, strict=True):
                    _put(found, f"blk.{i}.attn_{n}.{kind}", p)
            name = f"blk.{i}.attn_q.{kind}"
            whole = found.pop(name, None) if config.family.gated else None
            if whole is not None:
                found[name], gates = _rows(whole, (queries, queries))
                _put(found, f"blk.{i}.attn_gate.{kind}", gates)
        ends = (".weight", "_shexp.weight", "_exps.weight", "_exps.bias")
        for end in () if config.family.ungated else ends:
            _part_gate(found, config, f"blk.{i}.ffn_", end)
    return found


def _part_gate(found: Weights, config: ModelConfig, name: str, end: str) -> None:
    """Gate and up from what is both, each unit's side by side or all gates first."""
    gate, up, both = (f"{name}{n}{end}" for n in ("gate", "up", "gate_up"))
    experts = end.startswith("_exps")
    whole, dim = found.pop(both, None) if experts else found.get(up), int(experts)
    size = 0 if whole is None else whole.shape[dim] // 2
    apart = experts or (gate not in found and (end != ".weight" or size == config.inner))
    if whole is None or not apart:
        return
    if experts and config.family.expert_pairs:
        parts = [_every_other(whole, n) for n in (0, 1)]
    else:
        parts = [part_of(whole, dim, range(n * size, n * size + size)) for n in (0, 1)]
    if not experts:
        del found[up]
    _put(found, gate, parts[0])
    _put(found, up, parts[1])


def _every_other(tensor: Tensor, first: int) -> Tensor:
    """Every other of what lies along the second dim."""
    if tensor.scheme in PLAIN:
        return Tensor.of(np.ascontiguousarray(tensor.numpy()[:, first::2]))
    data = np.ascontiguousarray(tensor.data[:, first::2])
    shape = (tensor.shape[0], tensor.shape[1] // 2, *tensor.shape[2:])
    return Tensor(tensor.scheme, shape, data, tensor.byteorder)


def _vector(tensor: Tensor) -> Tensor:
    """A tensor as one dim."""
    flat = tensor.data.reshape(-1)
    return Tensor(tensor.scheme, (math.prod(tensor.shape),), flat, tensor.byteorder)


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
