"""LoRA adapters: matrices of low rank that are added to those of a model (E. Hu et al., LoRA:
Low-rank adaptation of large language models, 2021), from folders of PEFT and from GGUF files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlx.base.frozen import frozen
from rlx.errors import ModelError
from rlx.frontends.gguf import GGUF, Tensor
from rlx.llm.arrange import arranged
from rlx.llm.config import ModelConfig
from rlx.llm.names import names_of_hf
from rlx.llm.weights import PLAIN
from rlx.models.files import read_json
from rlx.models.safetensors import SafeTensors
from rlx.types import dtype

__all__ = ["Adapter", "Pair", "Stack", "merged", "read_adapter", "stacked"]

Array = np.ndarray[Any, Any]
Weights = Mapping[str, Tensor]

CHANGED_BASE = ("pissa", "olora", "corda", "loftq")
"""Ways to begin a training that change the weights of the base model, too."""

REFUSED = (
    "use_dora", "use_qalora", "use_bdlora", "lora_bias", "fan_in_fan_out", "modules_to_save",
    "trainable_token_indices", "target_parameters", "layer_replication", "arrow_config",
    "alora_invocation_tokens",
)  # fmt: skip
"""Entries of adapter_config.json that ask for more than the product of two matrices."""

_PEFT = re.compile(r"(?:base_model\.model\.)?(.+)\.lora_(A|B)(?:\.default)?\.weight")
_GGUF = re.compile(r"(.+)\.weight\.lora_(a|b)")
_MATRIX = re.compile(r"(blk\.(\d+)\.)?(attn_\w+|ffn_\w+|output)")

PARTS = {"attn_qkv": ("attn_q", "attn_k", "attn_v"), "ffn_up": ("ffn_gate", "ffn_up")}
"""What is one matrix in files of some families, and several here."""


@frozen
class Pair:
    """What is added to a matrix ``[out, in]``: ``b @ a``, of f32 ``[out, rank]``, with the scale in
    it, and ``[rank, in]``. ``scheme`` is the element type of the file."""

    a: Array
    b: Array
    scheme: str


@frozen
class Adapter:
    """An adapter: its file or folder, and the pairs of the matrices that it changes, by their
    names (``blk.0.attn_q``)."""

    path: str
    pairs: Mapping[str, Pair]


@frozen
class Stack:
    """The pairs that several adapters have for one matrix, side by side: ``a`` ``[ranks, in]`` and
    ``b`` ``[out, ranks]``; ``owners`` i32 ``[ranks]`` has the number of each rank's adapter, the
    first of which is 1."""

    a: Array
    b: Array
    owners: Array


@frozen
class _Read:
    """A pair as it is found: two tensors by the name of their matrix, and their scale."""

    a: Tensor
    b: Tensor
    scale: float


def read_adapter(path: str | Path, config: ModelConfig, weights: Weights) -> Adapter:
    """An adapter of a model with a configuration and these weights.

    ``path`` is a folder with adapter_config.json and adapter_model.safetensors, as PEFT writes it,
    or a GGUF file of llama.cpp. ModelError for what is no adapter, asks for more than products of
    low rank, lacks a tensor, or does not fit the model.
    """
    file = os.fspath(path)
    found = _of_folder(file, config) if os.path.isdir(file) else _of_gguf(file, config)
    pairs: dict[str, Pair] = {}
    for name, read in found.items():
        for own, b in _parts(name, read.b, config):
            pairs[own] = _checked(file, own, read, b, config, weights)
    return Adapter(file, pairs)


# -- files ---------------------------------------------------------------------------------


def _of_folder(path: str, config: ModelConfig) -> dict[str, _Read]:
    """The pairs of a folder of PEFT."""
    said = read_json(os.path.join(path, "adapter_config.json"), dict)
    _check_config(path, said)
    file = os.path.join(path, "adapter_model.safetensors")
    if not os.path.isfile(file):
        raise ModelError(f"{path} has no adapter_model.safetensors, which holds an adapter's pairs")
    modules: dict[str, str] = {}

    def matrix_of(module: str) -> str | None:
        name = names_of_hf(f"{module}.weight", config.family)
        if name is None or not _MATRIX.fullmatch(name.removesuffix(".weight")):
            return None
        modules[name.removesuffix(".weight")] = module
        return name.removesuffix(".weight")

    tensors = {name: Tensor.of(array) for name, array in SafeTensors(file).items()}
    both = _paired(path, tensors, _PEFT, matrix_of, config)
    found: dict[str, _Read] = {}
    for name, (a, b) in both.items():
        rank = _of_module(said, "r", modules[name])
        alpha = _of_module(said, "lora_alpha", modules[name])
        if a.shape[0] != rank:
            raise ModelError(
                f"{path}: {modules[name]} has rank {a.shape[0]}, and adapter_config.json says"
                f" {rank:g}"
            )
        scale = alpha / (rank**0.5 if said.get("use_rslora") else rank)
        found[name] = _Read(a, arranged(name.rpartition(".")[2], b, config, "hf"), scale)
    _check_targets(path, said, modules.values(), config)
    return found


def _check_config(path: str, said: Mapping[str, Any]) -> None:
    """Refuse what is no LoRA, and what asks for more."""
    kind = said.get("peft_type")
    if kind != "LORA":
        raise ModelError(f"{path} is an adapter of type {kind!r}; LORA can be run")
    more = [name for name in REFUSED if said.get(name)]
    if said.get("bias", "none") != "none":
        more.append("bias")
    begun = said.get("init_lora_weights")
    if isinstance(begun, str) and begun.lower().startswith(CHANGED_BASE):
        more.append("init_lora_weights")
    if more:
        shown = ", ".join(f"{name}: {said[name]!r}" for name in more)
        raise ModelError(f"{path} needs more than products of low rank, which RLX has not: {shown}")
    for name in ("r", "lora_alpha"):
        for n in (said.get(name), *_pattern(said, name).values()):
            if isinstance(n, bool) or not isinstance(n, int | float) or n <= 0:
                raise ModelError(
                    f"{path}/adapter_config.json has {n!r} for {name}, expected a positive number"
                )


def _pattern(said: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The values that single modules have for ``r`` or ``lora_alpha``."""
    return said.get({"r": "rank_pattern", "lora_alpha": "alpha_pattern"}[name]) or {}


def _of_module(said: Mapping[str, Any], name: str, module: str) -> float:
    """``r`` or ``lora_alpha`` of a module, whose name's end a pattern may match."""
    for pattern, value in _pattern(said, name).items():
        try:
            found = re.fullmatch(rf"(.*\.)?({pattern})", module)
        except re.error as e:
            raise ModelError(
                f"adapter_config.json has {pattern!r}, which is no regular expression: {e}"
            ) from None
        if found:
            return value
    return said[name]


def _check_targets(
    path: str, said: Mapping[str, Any], modules: Iterable[str], config: ModelConfig
) -> None:
    """ModelError if a module that the configuration lists has no pair, in any layer that is its."""
    targets, there = said.get("target_modules"), [*modules]
    if not isinstance(targets, list):
        return  # a regular expression, of which any module may be
    some = said.get("layers_to_transform")
    layers = range(config.layers) if some is None else [some] if isinstance(some, int) else some
    for target in targets:
        own = [m for m in there if m == target or m.endswith(f".{target}")]
        found = {int(n) for m in own if (n := (re.findall(r"\.layers\.(\d+)\.", m) or [""])[0])}
        missing = sorted({*layers} - found)
        if not own or (found and missing):
            where = f" in layer {missing[0]}" if found else ""
            raise ModelError(f"{path} has no pair for {target}{where}, which it lists as a target")


def _of_gguf(path: str, config: ModelConfig) -> dict[str, _Read]:
    """The pairs of a GGUF file."""
    file = GGUF(path)
    said = file.metadata
    kinds = said.get("general.type"), said.get("adapter.type")
    if kinds != ("adapter", "lora"):
        raise ModelError(
            f"{path} is no adapter: its general.type and adapter.type are {kinds[0]!r} and"
            f" {kinds[1]!r}, expected 'adapter' and 'lora'"
        )
    arch = said.get("general.architecture")
    if arch not in config.family.gguf:
        raise ModelError(f"{path} is for a model of {arch!r}, and this is a {config.family.name}")
    alpha = float(said.get("adapter.lora.alpha") or 0.0)

    def matrix_of(name: str) -> str | None:
        return name if _MATRIX.fullmatch(name) else None

    both = _paired(path, dict(file), _GGUF, matrix_of, config)
    found: dict[str, _Read] = {}
    for name, (a, b) in both.items():
        # A file without alpha has it in its matrices.
        scale = alpha / b.shape[1] if alpha else 1.0
        found[name] = _Read(a, arranged(name.rpartition(".")[2], b, config, "gguf"), scale)
    return found


def _paired(
    path: str,
    tensors: Mapping[str, Tensor],
    pattern: re.Pattern[str],
    matrix_of: Callable[[str], str | None],
    config: ModelConfig,
) -> dict[str, tuple[Tensor, Tensor]]:
    """The two tensors of each matrix."""
    if not tensors:
        raise ModelError(f"{path} has no pairs of lora_A and lora_B: it changes nothing")
    halves_of: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        named = pattern.fullmatch(name)
        if named is None:
            raise ModelError(f"{path}: {name} is no part of a LoRA that RLX runs")
        matrix = matrix_of(named[1])
        if matrix is None:
            raise ModelError(
                f"{path} adapts {named[1]}, which is no matrix of a {config.family.name} that"
                " adapters may change: those of attention and of feed-forward networks, and the"
                " output's"
            )
        if len(tensor.shape) != 2 or 0 in tensor.shape:
            raise ModelError(f"{path}: {name} is {list(tensor.shape)}, expected a matrix")
        halves_of.setdefault(matrix, {})[named[2].lower()] = tensor
    for matrix, own in halves_of.items():
        if len(own) < 2:
            missing = "B" if "a" in own else "A"
            raise ModelError(f"{path} has no lora_{missing} for {matrix}, whose other half it has")
    return {matrix: (own["a"], own["b"]) for matrix, own in halves_of.items()}


# -- pairs ---------------------------------------------------------------------------------


def _parts(name: str, b: Tensor, config: ModelConfig) -> list[tuple[str, Array]]:
    """The matrices that a name stands for here, and the rows of ``b`` that each has."""
    rows, (before, _, kind) = b.dequantize(), name.rpartition(".")
    sizes: Sequence[int] = ()
    if kind == "attn_qkv":
        sizes = [n * config.head_dim for n in (config.heads, config.kv_heads, config.kv_heads)]
    elif kind == "ffn_up" and len(rows) == 2 * config.inner:
        sizes = [config.inner, config.inner]
    if len(rows) != sum(sizes):
        return [(name, rows)]
    ends = np.cumsum(sizes)[:-1]
    names = [f"{before}.{part}" for part in PARTS[kind]]
    return [*zip(names, np.split(rows, ends), strict=True)]


def _checked(
    path: str, name: str, read: _Read, b: Array, config: ModelConfig, weights: Weights
) -> Pair:
    """A pair that fits its matrix."""
    weight = _weight_of(weights, name)
    if weight is None:
        raise ModelError(
            f"{path} adapts {name}, which the model does not have: it is a {config.family.name} of"
            f" {config.layers} layers"
        )
    a = read.a.dequantize()
    if a.shape[0] != b.shape[1]:
        raise ModelError(
            f"{path}: lora_A of {name} has rank {a.shape[0]} and lora_B {b.shape[1]}; they must be"
            " one"
        )
    if (b.shape[0], a.shape[1]) != weight.shape:
        raise ModelError(
            f"{path} is for another model: it adapts a {name} of {[b.shape[0], a.shape[1]]}, and"
            f" this one's is {list(weight.shape)}"
        )
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise ModelError(f"{path}: the pair of {name} has numbers that are not finite")
    schemes = {read.a.scheme, read.b.scheme}
    return Pair(a, b * np.float32(read.scale), schemes.pop() if len(schemes) == 1 else "f32")


def _weight_of(weights: Weights, name: str) -> Tensor | None:
    """The matrix of a name; the output's may be that of the embeddings."""
    found = weights.get(f"{name}.weight")
    return weights.get("token_embd.weight") if found is None and name == "output" else found


def stacked(adapters: Sequence[Adapter]) -> dict[str, Stack]:
    """The pairs of adapters by the matrices that any of them changes, in the files' element type
    where that loses nothing."""
    found: dict[str, Stack] = {}
    for name in sorted({name for adapter in adapters for name in adapter.pairs}):
        pairs = {n: a.pairs[name] for n, a in enumerate(adapters, 1) if name in a.pairs}
        schemes = {pair.scheme for pair in pairs.values()}
        small = schemes.pop() if len(schemes) == 1 else "f32"
        found[name] = Stack(
            _narrowed(np.concatenate([pair.a for pair in pairs.values()]), small),
            _narrowed(np.concatenate([pair.b for pair in pairs.values()], axis=1), small),
            np.repeat([*pairs], [len(pair.a) for pair in pairs.values()]).astype(np.int32),
        )
    return found


def _narrowed(x: Array, scheme: str) -> Array:
    """Numbers in an element type, if it holds them all."""
    if scheme not in PLAIN:
        return x
    small = x.astype(dtype(scheme).numpy)
    return small if np.array_equal(small.astype(np.float32), x) else x


def merged(weights: Weights, adapter: Adapter) -> dict[str, Tensor]:
    """Weights with an adapter added to them. What has an element type keeps it; of what is in
    blocks, matrices that the adapter changes become f16, since blocks would lose the change."""
    found = dict(weights)
    for name, pair in adapter.pairs.items():
        weight = _weight_of(weights, name)
        assert weight is not None
        whole = weight.dequantize() + pair.b @ pair.a
        scheme = weight.scheme if weight.scheme in PLAIN else "f16"
        found[f"{name}.weight"] = Tensor.of(whole.astype(dtype(scheme).numpy))
    return found
