"""A small random BERT: its directory as Hugging Face writes it, and its forward pass in numpy."""

from __future__ import annotations

import json
from math import erf
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["CONFIG", "WORDS", "encode", "tokens", "weights", "write"]

Array = np.ndarray[Any, Any]

WORDS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", *"abcdefghijklmnop"]
CONFIG = {
    "model_type": "bert", "vocab_size": len(WORDS), "hidden_size": 8, "num_hidden_layers": 2,
    "num_attention_heads": 2, "intermediate_size": 12, "max_position_embeddings": 100,
    "type_vocab_size": 2, "layer_norm_eps": 1e-6, "hidden_act": "gelu",
}  # fmt: skip


def tokens(text: str) -> list[int]:
    """What the tokenizer gives, before anything is cut."""
    return [1, *(WORDS.index(w) if w in WORDS else 3 for w in text.split()), 2]


def weights(seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    e, f = 8, 12
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (len(WORDS), e),
        "embeddings.position_embeddings.weight": (100, e),
        "embeddings.token_type_embeddings.weight": (2, e),
        "embeddings.LayerNorm.weight": (e,),
        "embeddings.LayerNorm.bias": (e,),
    }
    for layer in ("encoder.layer.0.", "encoder.layer.1."):
        for name in ("attention.self.query", "attention.self.key", "attention.self.value"):
            shapes |= {f"{layer}{name}.weight": (e, e), f"{layer}{name}.bias": (e,)}
        shapes |= {
            layer + "attention.output.dense.weight": (e, e),
            layer + "attention.output.dense.bias": (e,),
            layer + "attention.output.LayerNorm.weight": (e,),
            layer + "attention.output.LayerNorm.bias": (e,),
            layer + "intermediate.dense.weight": (f, e),
            layer + "intermediate.dense.bias": (f,),
            layer + "output.dense.weight": (e, f),
            layer + "output.dense.bias": (e,),
            layer + "output.LayerNorm.weight": (e,),
            layer + "output.LayerNorm.bias": (e,),
        }
    return {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}


def write(path: Path, tensors: dict[str, Array] | None = None, **changed: Any) -> Path:
    """Write the directory; ``changed`` are further keys of config.json."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing

    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(CONFIG | changed))
    vocab = {w: i for i, w in enumerate(WORDS)}
    tokenizer = Tokenizer(WordLevel(vocab, "[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    # What the file says of length must not be followed.
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=9)
    tokenizer.save(str(path / "tokenizer.json"))
    write_safetensors(path / "model.safetensors", weights() if tensors is None else tensors)
    return path


def write_safetensors(path: Path, tensors: dict[str, Array]) -> None:
    header, data = {}, b""
    for name, a in tensors.items():
        kind = {"float32": "F32", "float16": "F16"}[a.dtype.name]
        ends = [len(data), len(data) + a.nbytes]
        header[name] = {"dtype": kind, "shape": list(a.shape), "data_offsets": ends}
        data += a.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def encode(ids: list[int], w: dict[str, Array], pooling: str = "mean") -> Array:
    """The vector of one unpadded row of tokens, in f64."""
    w = {n: a.astype(np.float64) for n, a in w.items()}

    def norm(x: Array, name: str) -> Array:
        c = x - x.mean(-1, keepdims=True)
        scale = np.sqrt((c * c).mean(-1, keepdims=True) + CONFIG["layer_norm_eps"])
        return c / scale * w[name + ".weight"] + w[name + ".bias"]

    def dense(x: Array, name: str) -> Array:
        return x @ w[name + ".weight"].T + w[name + ".bias"]

    x = w["embeddings.word_embeddings.weight"][ids]
    x = x + w["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for layer in ("encoder.layer.0.", "encoder.layer.1."):
        at = layer + "attention.self."
        q, k, v = (dense(x, at + n).reshape(-1, 2, 4) for n in ("query", "key", "value"))
        scores = np.einsum("qhd,khd->hqk", q, k) / 2.0
        p = np.exp(scores - scores.max(-1, keepdims=True))
        context = np.einsum("hqk,khd->qhd", p / p.sum(-1, keepdims=True), v).reshape(-1, 8)
        at = layer + "attention.output."
        x = norm(x + dense(context, at + "dense"), at + "LayerNorm")
        inner = dense(x, layer + "intermediate.dense")
        inner = inner * 0.5 * (1 + np.vectorize(erf)(inner / np.sqrt(2)))
        x = norm(x + dense(inner, layer + "output.dense"), layer + "output.LayerNorm")
    pooled = x.mean(0) if pooling == "mean" else x[0]
    return pooled / np.linalg.norm(pooled)
