"""Vectors of texts from the states of a decoder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.frontends.gguf import GGUF
from rlx.llm.decoder import Decoder
from rlx.llm.engine import StepRows
from rlx.models.bert import read_json

__all__ = ["POOLINGS", "embedded", "pooling_of"]

Array = np.ndarray[Any, Any]

POOLINGS = ("mean", "last")
"""How one vector is made of those of a text's tokens."""

_GGUF = {1: "mean", 3: "last"}
_HF = {"pooling_mode_mean_tokens": "mean", "pooling_mode_lasttoken": "last"}


def pooling_of(path: str, file: GGUF | None) -> str | None:
    """What a model's files say of how it makes vectors: a GGUF ``file``, or the folder at ``path``
    as sentence-transformers writes it. None if they say nothing."""
    if file is not None:
        arch = file.metadata.get("general.architecture")
        return _GGUF.get(file.metadata.get(f"{arch}.pooling_type", 0))
    said = read_json(os.path.join(path, "1_Pooling", "config.json"), dict, {})
    return next((name for key, name in _HF.items() if said.get(key)), None)


def embedded(decoder: Decoder, ids: Sequence[int], pages: Sequence[int], pooling: str) -> Array:
    """The vector of a text, of length 1: f32 ``[hidden]``. Keys and values go into ``pages``."""
    total = found = np.zeros(decoder.config.hidden)
    for at in range(0, len(ids), decoder.max_rows):
        part = ids[at : at + decoder.max_rows]
        states = decoder.hidden(StepRows.of([(part, at, pages)]))
        total = total + states.sum(0, dtype=np.float64)
        found = states[-1].astype(np.float64)
    found = total if pooling == "mean" else found
    return (found / max(float(np.linalg.norm(found)), 1e-12)).astype(np.float32)
