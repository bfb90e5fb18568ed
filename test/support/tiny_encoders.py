"""Small encoders and classifiers of every family: configurations, weights made from their names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from rlx.models.safetensors import write_safetensors
from support import tiny_bert
from support.tiny_llm import weights

__all__ = ["CONFIGS", "LABELLED", "inputs", "with_tokenizer", "write_encoder"]

Array = np.ndarray[Any, Any]

VOCAB = 40
_BERT: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 24, "max_position_embeddings": 64, "type_vocab_size": 2,
    "layer_norm_eps": 1e-6, "hidden_act": "gelu", "pad_token_id": 0,
}  # fmt: skip
_ROBERTA = {**_BERT, "model_type": "xlm-roberta", "type_vocab_size": 1, "pad_token_id": 1}
_MODERN: dict[str, Any] = {
    "model_type": "modernbert", "vocab_size": VOCAB, "hidden_size": 16, "num_hidden_layers": 4,
    "num_attention_heads": 2, "intermediate_size": 24, "max_position_embeddings": 64,
    "local_attention": 6, "pad_token_id": 0, "global_rope_theta": 1000.0, "local_rope_theta": 50.0,
}  # fmt: skip
_OTHER: dict[str, Any] = {
    **_MODERN, "norm_bias": True, "attention_bias": True, "mlp_bias": True, "classifier_bias": True,
    "classifier_pooling": "mean", "classifier_activation": "relu",
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 300.0},
                        "sliding_attention": {"rope_type": "default", "rope_theta": 20.0}},
}  # fmt: skip
_ONE = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}

CONFIGS: dict[str, dict[str, Any]] = {
    "bert": {**_BERT, "model_type": "bert"},
    "xlm-roberta": _ROBERTA,
    "modernbert": _MODERN,
    "modernbert-biases": _OTHER,
    "bert-scores": {**_BERT, "model_type": "bert", **_ONE},
    "xlm-roberta-scores": {**_ROBERTA, **_ONE},
    "modernbert-scores": {**_MODERN, **_ONE},
    "modernbert-biases-scores": {**_OTHER, **_ONE},
}
"""Configurations as Hugging Face has them."""

LABELLED = [name for name in CONFIGS if name.endswith("-scores")]
"""Those of classifiers."""


def inputs(name: str) -> dict[str, Array]:
    """Three texts of several lengths, of pairs: ``ids``, ``kinds`` and ``mask``. The second has
    the padding token in its middle, where it is a token like others."""
    rng = np.random.default_rng(3)
    padding = CONFIGS[name]["pad_token_id"]
    ids = rng.integers(2, VOCAB, (3, 21))
    mask = np.ones_like(ids)
    for row, length in enumerate((21, 14, 5)):
        ids[row, length:], mask[row, length:] = padding, 0
    ids[1, 4] = padding
    kinds = np.zeros_like(ids)
    if CONFIGS[name].get("type_vocab_size") == 2:
        kinds[:, 3:] = mask[:, 3:]
    return {"ids": ids, "kinds": kinds, "mask": mask}


def write_encoder(folder: Path, name: str, shapes: dict[str, Any], **changed: Any) -> Path:
    """A model folder; ``changed`` are further entries of config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**CONFIGS[name], **changed}), encoding="utf-8")
    write_safetensors(folder / "model.safetensors", weights(shapes))
    return folder


def with_tokenizer(path: Path) -> Path:
    """A folder with a tokenizer of the words of ``tiny_bert``."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing

    made = Tokenizer(WordLevel({w: i for i, w in enumerate(tiny_bert.WORDS)}, "[UNK]"))
    made.pre_tokenizer = Whitespace()
    made.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )  # fmt: skip
    made.save(str(path / "tokenizer.json"))
    return path
