"""A language model as one graph, of which an artifact is made that runs without Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlx.llm.builder import Cache, StepGraph, sequence_graph
from rlx.llm.weights import read_model
from rlx.types import dtype

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["graph_of_model"]


def graph_of_model(path: str | Path, context: int, precision: str, cache: str = "f16") -> StepGraph:
    """The graph of a step of one sequence, with the weights of a model as its params.

    Its inputs are ``ids`` and ``positions``, i32 ``[rows]``, and for each layer ``keys.i`` and
    ``values.i``, ``[context, kv_heads * head_dim]``, in the type ``cache``. Its outputs are the
    logits of the last row, f32 ``[1, vocab]``, and the keys and values with those of the rows.
    ``precision`` is that of the session or artifact that the graph is for; ``context`` may be
    longer than the model's, which counts then.
    """
    config, weights = read_model(path)
    context = min(context, config.context)
    return sequence_graph(config, weights, Cache(1, context, dtype(cache), 1, context), precision)
