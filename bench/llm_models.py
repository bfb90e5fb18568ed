"""Language models of random weights in GGUF files, of shapes and mixes of types that people run.

Speed does not depend on the numbers, so some random rows stand again and again. The types of a
mix's tensors are those that llama.cpp's own quantisation chooses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from bench.case import Array

SOME_ROWS = 64
"""Random rows of which a matrix is made."""


@dataclass(frozen=True)
class Shape:
    """A model's sizes. Embeddings are tied."""

    arch: str
    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    theta: float
    eps: float
    context: int = 4096


SHAPES = {
    "qwen3-0.6b": Shape("qwen3", 151936, 1024, 28, 16, 8, 128, 3072, 1e6, 1e-6),
    "llama-3.2-1b": Shape("llama", 128256, 2048, 16, 32, 8, 64, 8192, 5e5, 1e-5),
}


def _more_bits(layer: int, layers: int) -> bool:
    """Layers whose attn_v and ffn_down have more bits in a K mix: the first and last eighths, and
    each third of the rest."""
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2


def _q4_0(name: str, layer: int, layers: int) -> str:
    return "q6_k" if name == "token_embd" else "q4_0"


def _q4_k_m(name: str, layer: int, layers: int) -> str:
    more = name in ("attn_v", "ffn_down") and _more_bits(layer, layers)
    return "q6_k" if more or name == "token_embd" else "q4_k"


def _q8_0(name: str, layer: int, layers: int) -> str:
    return "q8_0"


MIXES: dict[str, Callable[[str, int, int], str]] = {
    "q4_0": _q4_0, "q4_k_m": _q4_k_m, "q8_0": _q8_0,
}  # fmt: skip
"""The type of a matrix by its name, its layer and how many there are."""


@cache
def _rows(scheme: str, width: int) -> Array:
    from rlx.quant import quantize

    x = np.random.default_rng(width).standard_normal((SOME_ROWS, width), np.float32)
    return quantize(x / np.float32(width**0.5), scheme)


def _matrix(scheme: str, rows: int, width: int) -> Any:
    from rlx.frontends.gguf import Tensor

    some = _rows(scheme, width)
    data = np.tile(some, (-(-rows // SOME_ROWS), 1))[:rows]
    return Tensor(scheme, (rows, width), data)


def write(path: Path, shape: Shape, mix: str) -> None:
    """Write the model of a shape and a mix of types. It has no tokenizer."""
    from rlx.frontends.gguf import write as write_gguf

    s, kind, rng = shape, MIXES[mix], np.random.default_rng(0)

    def gain(size: int) -> Array:
        return 1 + np.float32(0.1) * rng.standard_normal(size, np.float32)

    embedding = _matrix(kind("token_embd", 0, s.layers), s.vocab, s.hidden)
    tensors: dict[str, Any] = {"token_embd.weight": embedding}
    for i in range(s.layers):
        for name, size in _sizes(s).items():
            tensors[f"blk.{i}.{name}.weight"] = _matrix(kind(name, i, s.layers), *size)
        for name in ("attn_norm", "ffn_norm"):
            tensors[f"blk.{i}.{name}.weight"] = gain(s.hidden)
        if s.arch == "qwen3":
            for name in ("attn_q_norm", "attn_k_norm"):
                tensors[f"blk.{i}.{name}.weight"] = gain(s.head_dim)
    tensors["output_norm.weight"] = gain(s.hidden)
    own = {
        "context_length": s.context, "embedding_length": s.hidden, "block_count": s.layers,
        "feed_forward_length": s.inner, "attention.head_count": s.heads,
        "attention.head_count_kv": s.kv_heads, "attention.key_length": s.head_dim,
        "attention.value_length": s.head_dim, "rope.dimension_count": s.head_dim,
        "vocab_size": s.vocab,
    }  # fmt: skip
    metadata: dict[str, Any] = {"general.architecture": s.arch, "tokenizer.ggml.model": "no_vocab"}
    metadata |= {f"{s.arch}.{k}": v for k, v in own.items()}
    metadata[f"{s.arch}.rope.freq_base"] = s.theta
    metadata[f"{s.arch}.attention.layer_norm_rms_epsilon"] = s.eps
    write_gguf(path, tensors, metadata, {f"{s.arch}.{k}": "u32" for k in own})


def token_bytes(shape: Shape, mix: str) -> int:
    """Bytes of matrices that a decoded token reads: all, as the embeddings are the head too."""
    kind, layers = MIXES[mix], shape.layers
    found = _matrix_bytes(kind("token_embd", 0, layers), shape.vocab, shape.hidden)
    for i in range(layers):
        for name, size in _sizes(shape).items():
            found += _matrix_bytes(kind(name, i, layers), *size)
    return found


def _matrix_bytes(scheme: str, rows: int, width: int) -> int:
    from rlx.quant import schemes

    row: Any = schemes()[scheme]
    return rows * (width // row.block) * row.bytes


def _sizes(s: Shape) -> dict[str, tuple[int, int]]:
    """The matrices of a layer: their outputs and inputs."""
    queries, keys = s.heads * s.head_dim, s.kv_heads * s.head_dim
    return {
        "attn_q": (queries, s.hidden), "attn_k": (keys, s.hidden), "attn_v": (keys, s.hidden),
        "attn_output": (s.hidden, queries), "ffn_gate": (s.inner, s.hidden),
        "ffn_up": (s.inner, s.hidden), "ffn_down": (s.hidden, s.inner),
    }  # fmt: skip
