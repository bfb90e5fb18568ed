"""Vectors of texts from the states of a decoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import ModelError
from rlx.frontends.gguf import GGUF
from rlx.llm.decoder import Decoder
from rlx.llm.engine import StepRows
from rlx.models.pooling import pooling_of_folder

__all__ = ["POOLINGS", "embedded", "pooling_of"]

Array = np.ndarray[Any, Any]

POOLINGS = ("mean", "last")
"""How one vector is made of those of a text's tokens."""

_GGUF = {0: None, 1: "mean", 2: "cls", 3: "last", 4: "rank"}
"""llama.cpp's numbers of poolings."""


def pooling_of(path: str, file: GGUF | None) -> str | None:
    """What a model's files say of how it makes vectors: a GGUF ``file``, or the folder at ``path``
    as sentence-transformers writes it. None if they say nothing, ModelError if it is none of
    ``POOLINGS``."""
    if file is None:
        return pooling_of_folder(path, POOLINGS)
    arch = file.metadata.get("general.architecture")
    number = file.metadata.get(f"{arch}.pooling_type", 0)
    said = _GGUF.get(number, number)
    if said is not None and said not in POOLINGS:
        raise ModelError(
            f"{path}: the pooling is {said!r}; supported are {', '.join(POOLINGS)}, which embed"
            " takes as pooling"
        )
    return said


def embedded(
    decoder: Decoder,
    ids: Sequence[int],
    pages: Sequence[int],
    pooling: str,
    adapter: int = 0,
    states: Sequence[int] = (),
) -> Array:
    """The vector of a text, of length 1: f32 ``[hidden]``. Keys and values go into ``pages``, and
    of models with states these into the slot of ``states``."""
    total = found = np.zeros(decoder.config.hidden)
    for at in range(0, len(ids), decoder.max_rows):
        part = ids[at : at + decoder.max_rows]
        rows = StepRows.of([(part, at, pages)], adapters=[adapter], states=states)
        hidden = decoder.hidden(rows)
        total = total + hidden.sum(0, dtype=np.float64)
        found = hidden[-1].astype(np.float64)
    found = total if pooling == "mean" else found
    return (found / max(float(np.linalg.norm(found)), 1e-12)).astype(np.float32)
