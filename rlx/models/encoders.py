"""The encoder in a model's folder as a graph, whatever its family, and what runs it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rlx.base.gc_pause import importing
from rlx.errors import ModelError
from rlx.ir.arrays import fixed
from rlx.ir.graph import Graph
from rlx.ir.value import Value
from rlx.models.bert import FAMILIES, BertConfig, bert_score, bert_states
from rlx.models.files import check_there, expect, read_json
from rlx.models.layers import pooled
from rlx.models.modernbert import FAMILY, ModernBertConfig, modernbert_score, modernbert_states
from rlx.models.safetensors import SafeTensors
from rlx.targets import TARGETS, find_target
from rlx.types import i64

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "EncoderConfig", "Runner", "check_files", "compiled", "config_of", "device_of", "encoder_graph",
    "integers_of", "score_graph",
]  # fmt: skip

Array = np.ndarray[Any, Any]

EncoderConfig = BertConfig | ModernBertConfig

PREFIXES = ("", "bert.", "roberta.", "model.")
EMBEDDINGS = ("embeddings.word_embeddings.weight", "embeddings.tok_embeddings.weight")


class Runner(Protocol):
    """What runs the encoder's graph: a compiled graph."""

    def run(self, feeds: Mapping[str, Array], /) -> Sequence[Array]:
        """The outputs for inputs by name."""
        ...


def integers_of(device: str) -> str:
    """The integers that ids come in: of 64 bits, but for a device that has none so wide."""
    if device not in TARGETS or device == "cpu":
        return "i64"
    return "i32" if i64 in find_target(device).kernels.lacks else "i64"


def config_of(path: str | Path) -> EncoderConfig:
    """The configuration of the model in a folder. ModelError if there is no builder for it."""
    path = os.fspath(path)
    raw = read_json(os.path.join(path, "config.json"), dict)
    expect(path, raw, "model_type", (*FAMILIES, FAMILY))
    made = ModernBertConfig if raw.get("model_type") == FAMILY else BertConfig
    return made.from_dir(path)


def encoder_graph(path: str | Path, *, integers: str = "i64") -> Graph:
    """The graph of the encoder in a folder, as that of ``bert_encoder``, whose params have their
    values: views of the mapped model.safetensors. ModelError if a file is missing or does not
    fit."""
    g, config, weights, inputs = _begin(path, integers, "encoder", ("ids", "mask"))
    x = _states(g, config, weights, inputs)
    g.set_outputs([pooled(x, inputs["mask"], config.pooling, normalize=True)])
    return _filled(g, weights)


def score_graph(path: str | Path, *, integers: str = "i64") -> Graph:
    """The graph of a classifier with one label: ``ids``, ``kinds`` (which text of a pair a token
    belongs to, for a model that tells them apart) and ``mask``, ``integers`` of ``[batch,
    tokens]``, to f32 ``[batch, 1]``. ModelError for another."""
    path = os.fspath(path)
    file = os.path.join(path, "config.json")
    labels = read_json(file, dict).get("id2label")
    if not isinstance(labels, dict) or len(labels) != 1:
        count = len(labels) if isinstance(labels, dict) else 2
        raise ModelError(f"{file}: the model has {count} labels (id2label), and a reranker has one")
    g, config, weights, inputs = _begin(path, integers, "score", ("ids", "kinds", "mask"))
    x = _states(g, config, weights, inputs)
    score = modernbert_score if isinstance(config, ModernBertConfig) else bert_score
    prefix = _prefix(weights)
    g.set_outputs([score(g, config, prefix, x, inputs["mask"])])  # pyright: ignore[reportArgumentType]
    return _filled(g, weights)


def _begin(
    path: str | Path, integers: str, name: str, inputs: Sequence[str]
) -> tuple[Graph, EncoderConfig, SafeTensors, dict[str, Value]]:
    path = os.fspath(path)
    check_files(path, "config.json", "model.safetensors")
    g, config = Graph(name), config_of(path)
    if not _tells_kinds(config):
        inputs = [n for n in inputs if n != "kinds"]
    made = {n: g.input(n, ["batch", "tokens"], integers) for n in inputs}
    return g, config, SafeTensors(os.path.join(path, "model.safetensors")), made


def _tells_kinds(config: EncoderConfig) -> bool:
    """Whether a model tells the first text of a pair from the second."""
    return isinstance(config, BertConfig) and config.kinds > 1


def _states(
    g: Graph, config: EncoderConfig, weights: SafeTensors, inputs: Mapping[str, Value]
) -> Value:
    prefix, ids, mask = _prefix(weights), inputs["ids"], inputs["mask"]
    if isinstance(config, ModernBertConfig):
        return modernbert_states(g, config, prefix, ids, mask)
    return bert_states(g, config, prefix, ids, mask, inputs.get("kinds"))


def _prefix(weights: SafeTensors) -> str:
    """What stands before the names of the encoder's tensors, beside those of a head."""
    found = (p for p in PREFIXES for name in EMBEDDINGS if p + name in weights)
    return next(found, "")


def _filled(g: Graph, weights: SafeTensors) -> Graph:
    for p in g.params:
        name = str(p.name)
        g.param_values[name] = fixed(_weight(weights, name, p.type.static_shape))
    return g


def device_of(device: str | None) -> str:
    """The name of a device, by default the one that the settings name."""
    with importing():
        from rlx.runtime.backend import default_device, device_name

    return default_device() if device is None else device_name(device)


def check_files(path: str, *names: str) -> None:
    """ModelError for files that a folder lacks."""
    check_there(path, "folder")
    if not os.path.isdir(path):
        raise ModelError(
            f"{path} is a file, expected a model directory, with {' and '.join(names)}"
        )
    for name in names:
        if not os.path.isfile(os.path.join(path, name)):
            raise ModelError(f"{path} has no {name}; a model directory needs it")


def compiled(graph: Graph, device: str, precision: str, threads: int | None) -> Runner:
    """A graph for a device; precision "int8" is of products with weights in 8 bits."""
    with importing():
        from rlx.runtime.session import Session

    values: dict[str, Array] = {}
    if precision == "int8":
        from rlx.ptq import quantize_graph

        graph, values, _ = quantize_graph(graph, scheme="int8")
        precision = "f32"
    made = Session(device, precision, threads=threads).compile(graph)
    for name, value in values.items():
        made.set_param(name, value)
    return made


def _weight(weights: SafeTensors, name: str, shape: tuple[int, ...]) -> Array:
    """A view of the mapped file; a copy only if the tensor is stored in another float type."""
    a = weights[name]
    if a.shape != shape:
        raise ModelError(
            f"{weights.path}: {name!r} has shape {list(a.shape)}, config.json says {list(shape)}"
        )
    return a.astype(np.float32, copy=False)
