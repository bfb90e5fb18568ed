"""Encoders of the family of BERT as graphs: token ids and mask in, one vector a text out."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

from rlx.base.frozen import frozen
from rlx.errors import ModelError
from rlx.ir.builders import located, public
from rlx.ir.graph import Graph
from rlx.ir.value import Value
from rlx.models.files import expect, read_json
from rlx.models.layers import ACTIVATIONS, dense, first_token, pooled
from rlx.models.pooling import pooling_of_folder
from rlx.ops.nn.normalization import LayerNorm
from rlx.ops.nn.transformer import BertLayer

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["FAMILIES", "BertConfig", "bert_encoder", "bert_score", "bert_states"]

FAMILIES = {"bert": False, "roberta": True, "xlm-roberta": True, "camembert": True}
"""What transformers calls the families, and whether they count positions from the padding token on,
as RoBERTa does."""

# The tensors of a layer in the order of BertLayer's operands.
_LAYER = (
    "attention.self.query.weight",
    "attention.self.query.bias",
    "attention.self.key.weight",
    "attention.self.key.bias",
    "attention.self.value.weight",
    "attention.self.value.bias",
    "attention.output.dense.weight",
    "attention.output.dense.bias",
    "attention.output.LayerNorm.weight",
    "attention.output.LayerNorm.bias",
    "intermediate.dense.weight",
    "intermediate.dense.bias",
    "output.dense.weight",
    "output.dense.bias",
    "output.LayerNorm.weight",
    "output.LayerNorm.bias",
)


@public
@frozen
class BertConfig:
    """What decides the graph of an encoder; ``pooling`` is "mean" or "cls". Of RoBERTa and what
    came of it ``padding`` is the id of the padding token, from which positions are counted."""

    vocab: int
    hidden: int
    layers: int
    heads: int
    inner: int
    positions: int
    activation: str = "gelu"
    eps: float = 1e-12
    kinds: int = 2
    pooling: str = "mean"
    padding: int | None = None

    @property
    def longest(self) -> int:
        """The most tokens of a text."""
        return self.positions - (0 if self.padding is None else self.padding + 1)

    @staticmethod
    def from_dir(path: str | Path) -> BertConfig:
        """Read a model directory in the form of Hugging Face and sentence-transformers.

        ModelError if a file is missing or asks for what this encoder does not do.
        """
        path = os.fspath(path)
        file = os.path.join(path, "config.json")
        raw = read_json(file, dict)
        expect(path, raw, "model_type", tuple(FAMILIES))
        expect(path, raw, "position_embedding_type", ("absolute", None))
        expect(path, raw, "hidden_act", tuple(ACTIVATIONS))
        try:
            config = BertConfig(
                vocab=int(raw["vocab_size"]),
                hidden=int(raw["hidden_size"]),
                layers=int(raw["num_hidden_layers"]),
                heads=int(raw["num_attention_heads"]),
                inner=int(raw["intermediate_size"]),
                positions=int(raw["max_position_embeddings"]),
                activation=ACTIVATIONS[raw["hidden_act"]],
                eps=float(raw.get("layer_norm_eps", 1e-12)),
                kinds=int(raw.get("type_vocab_size", 2)),
                pooling=pooling_of_folder(path, ("mean", "cls")) or "mean",
                padding=int(raw.get("pad_token_id", 1)) if FAMILIES[raw["model_type"]] else None,
            )
        except KeyError as e:
            raise ModelError(f"{file} has no {e.args[0]!r}") from None
        except (OverflowError, TypeError, ValueError) as e:
            raise ModelError(f"{file} is malformed: {e}") from None
        _check_sizes(file, config)
        return config


@located
def bert_encoder(
    config: BertConfig, *, prefix: str = "", normalize: bool = True, integers: str = "i64"
) -> Graph:
    """The graph of an encoder.

    Inputs: ``ids`` and ``mask``, ``integers`` of ``[batch, tokens]``; the mask is 1 for tokens and
    0 for padding. Output: f32 ``[batch, hidden]``, of length 1 if ``normalize``. Params have the
    names of the checkpoint, each after ``prefix``, and its layout (weights ``[out, in]``).
    """
    g = Graph("bert_encoder")
    ids = g.input("ids", ["batch", "tokens"], integers)
    mask = g.input("mask", ["batch", "tokens"], integers)
    x = bert_states(g, config, prefix, ids, mask)
    g.set_outputs([pooled(x, mask, config.pooling, normalize=normalize)])
    return g


def bert_states(
    g: Graph, config: BertConfig, prefix: str, ids: Value, mask: Value, kinds: Value | None = None
) -> Value:
    """The states of tokens, f32 ``[batch, tokens, hidden]``; without ``kinds`` all are of the
    first."""
    x = _embedding(g, config, prefix, ids, kinds)
    for i in range(config.layers):
        weights = _layer_params(g, config, f"{prefix}encoder.layer.{i}.")
        x = BertLayer.build(
            x, *weights, mask,
            num_heads=config.heads, activation=config.activation, eps=config.eps, transposed=True,
        )  # fmt: skip
    return x


def bert_score(g: Graph, config: BertConfig, prefix: str, x: Value, mask: Value) -> Value:
    """The score of a classifier with one label: f32 ``[batch, 1]``."""
    width = config.hidden
    first, last = (
        (f"{prefix}pooler.dense.", "classifier.") if config.padding is None
        else ("classifier.dense.", "classifier.out_proj.")
    )  # fmt: skip
    hidden = dense(g, first, first_token(x), width).tanh()
    return dense(g, last, hidden, 1)


def _embedding(g: Graph, config: BertConfig, prefix: str, ids: Value, kinds: Value | None) -> Value:
    """Word + position + kind, normalised."""
    at, width = prefix + "embeddings.", config.hidden
    words = g.param(at + "word_embeddings.weight", [config.vocab, width])
    positions = g.param(at + "position_embeddings.weight", [config.positions, width])
    table = g.param(at + "token_type_embeddings.weight", [config.kinds, width])
    gamma = g.param(at + "LayerNorm.weight", [width])
    beta = g.param(at + "LayerNorm.bias", [width])
    tokens = ids.shape[1]
    if kinds is None:  # this sum depends on params alone, so it is made once
        positions = positions + table.slice((0, 0), (1, width))
    if config.padding is None:
        place = positions.slice((0, 0), (tokens, width))
    else:
        real = ids.ne(config.padding).cast(to=ids.dtype)
        place = positions.gather(real.cumsum(axis=1) * real + config.padding)
    x = words.gather(ids) + place
    x = x if kinds is None else x + table.gather(kinds)
    return LayerNorm.build(x, gamma, beta, eps=config.eps)


def _layer_params(g: Graph, config: BertConfig, at: str) -> list[Value]:
    width, inner = config.hidden, config.inner
    shapes = {
        "intermediate.dense.weight": [inner, width],
        "intermediate.dense.bias": [inner],
        "output.dense.weight": [width, inner],
    }
    square, row = [width, width], [width]

    def shape(name: str) -> list[int]:
        return shapes.get(name, row if "LayerNorm" in name or name.endswith("bias") else square)

    return [g.param(at + name, shape(name)) for name in _LAYER]


# -- the model directory -------------------------------------------------------------------

_LARGEST = 1 << 31


def _check_sizes(file: str, config: BertConfig) -> None:
    """Sizes of which a graph can be made."""
    sizes = {
        "vocab_size": config.vocab, "hidden_size": config.hidden, "intermediate_size": config.inner,
        "num_attention_heads": config.heads, "max_position_embeddings": config.positions,
        "type_vocab_size": config.kinds,
    }  # fmt: skip
    for name, size in {**sizes, "num_hidden_layers": config.layers}.items():
        least = 1 if name in sizes else 0
        if not least <= size < _LARGEST:
            raise ModelError(f"{file}: {name} is {size}, expected {least} or more, below 2**31")
    if config.hidden % config.heads:
        raise ModelError(
            f"{file}: num_attention_heads is {config.heads}, which does not divide hidden_size,"
            f" {config.hidden}"
        )
    if not 0 <= config.eps < math.inf:
        raise ModelError(f"{file}: layer_norm_eps is {config.eps}, expected a number from 0 on")
