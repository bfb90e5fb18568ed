"""Language models in fewer bits, by what texts make of the inputs of their matrices.

A file is run over the texts in f32, and for each input of a matrix the products of its elements
are summed. ``awq`` scales inputs that two matrices of a layer hand on (``rlx.ptq.awq``): those
behind a norm, whose weight is divided, and those between the up and the down projection.
``gptq`` lets rounding errors make up for one another (``rlx.ptq.feedback``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rlx.errors import ModelError
from rlx.frontends.gguf import GGUF, Tensor
from rlx.llm.builder import Cache, layer_inputs
from rlx.llm.config import ModelConfig
from rlx.llm.text import Tokenizer
from rlx.llm.weights import from_gguf
from rlx.models.progress import Progress
from rlx.ptq.awq import input_scales
from rlx.ptq.feedback import FEEDBACK, with_feedback
from rlx.quant import dequantize, quantize
from rlx.quant.scheme import BlockScheme
from rlx.types import f32

__all__ = ["METHODS", "Inputs", "calibrated", "chunks_of"]

Array = np.ndarray[Any, Any]

METHODS = {"awq": (True, False), "gptq": (False, True), "awq+gptq": (True, True)}
"""Whether inputs are scaled, and whether errors make up for one another."""

CHUNK = 256
"""Tokens that are read together."""
CHUNKS = 32
PAGE = 32


class Inputs:
    """What an input of matrices was: the sums of its sizes ``[n]`` and of its elements' products
    ``[n, n]``, of so many rows."""

    def __init__(self, size: int) -> None:
        self.sizes, self.products = np.zeros(size), np.zeros((size, size), np.float32)
        self.rows = 0

    def add(self, x: Array) -> None:
        """Count rows."""
        self.sizes += np.abs(x).sum(0)
        self.products += x.T @ x
        self.rows += len(x)

    @property
    def mean(self) -> Array:
        """The mean sizes, f32."""
        return (self.sizes / max(self.rows, 1)).astype(np.float32)


def chunks_of(file: GGUF, text: str) -> list[list[int]]:
    """The tokens of a text, in chunks of at most ``CHUNK``, and at most ``CHUNKS`` of them.
    ModelError: the file has no tokenizer, or the text no tokens."""
    ids = Tokenizer.from_gguf(file.metadata).encode(text)
    found = [ids[n : n + CHUNK] for n in range(0, len(ids), CHUNK)]
    found = [chunk for chunk in found if len(chunk) >= min(len(ids), CHUNK // 2)]
    if not found:
        raise ModelError("the text to calibrate by has no tokens")
    step = max(1, len(found) // CHUNKS)
    return found[::step][:CHUNKS]


def inputs_of(
    file: GGUF, chunks: Sequence[Sequence[int]], progress: bool | None = None
) -> dict[str, Inputs]:
    """By matrix, such as ``blk.0.attn_q``, what its input was as the model read chunks of
    tokens; matrices with one input share it."""
    from rlx.runtime.session import Session

    config = ModelConfig.from_gguf(file.metadata, file["token_embd.weight"].shape[0])
    if config.experts:
        raise ModelError("a model with experts cannot be calibrated: few texts reach each of them")
    pages = -(-max(map(len, chunks)) // PAGE)
    cache = Cache(pages, PAGE, f32, 1, pages * PAGE)
    made, names = layer_inputs(config, from_gguf(file, config), cache)
    f = Session("cpu").compile(made.graph)
    for name, value in made.params.items():
        f.set_param(name, value)
    state = {
        name: np.zeros(shape, dt.numpy)
        for name, (shape, dt) in cache.memories(config, config.kv_heads).items()
    }
    if config.recurrent is not None:
        state["states"] = np.zeros(1, np.int32)
    found: dict[str, Inputs] = {}
    with Progress("calibrate", len(chunks), progress) as bar:
        for ids in chunks:
            count = len(ids)
            feeds = {
                "ids": np.asarray(ids, np.int32), "positions": np.arange(count, dtype=np.int32),
                "sequence": np.zeros(count, np.int32),
                "table": np.arange(pages, dtype=np.int32).reshape(1, pages), **state,
            }  # fmt: skip
            for own, x in zip(names, f.run(feeds), strict=True):
                for name in own:
                    if name not in found:
                        found[name] = found[own[0]] if own[0] in found else Inputs(x.shape[1])
                found[own[0]].add(np.asarray(x))
            bar.advance()
    return found


def calibrated(
    file: GGUF,
    chunks: Sequence[Sequence[int]],
    scheme: BlockScheme,
    method: str,
    progress: bool | None = None,
) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a file that change by chunks of tokens: matrices in a scheme, and norms that
    took up scales. The others, such as embeddings, stay. ModelError for a scheme or a model that
    this cannot be done with."""
    scales, feeds_back = METHODS[method]
    if feeds_back and scheme.name not in FEEDBACK:
        raise ModelError(f"gptq makes {', '.join(FEEDBACK)}, found {scheme}")
    config = ModelConfig.from_gguf(file.metadata, file["token_embd.weight"].shape[0])
    if scales and (not config.family.before or config.family.norm == "plain"):
        name = config.family.name
        raise ModelError(f"awq: no norm of a {name} stands before its matrices; use gptq")
    inputs = inputs_of(file, chunks, progress)
    known = {
        name: i for name, i in inputs.items()
        if f"{name}.weight" in file and file[f"{name}.weight"].shape[1] % scheme.block == 0
    }  # fmt: skip

    def rounded(w: Array) -> Array:
        return dequantize(quantize(w, scheme), scheme, w.shape)

    with Progress("quantize", config.layers, progress) as bar:
        for i in range(config.layers):
            names = [n for n in known if n.startswith(f"blk.{i}.")]
            weights = {n: file[f"{n}.weight"].dequantize() for n in names}
            products = {n: known[n].products for n in names}
            if scales:
                yield from _scaled(file, f"blk.{i}", weights, products, inputs, rounded)
            for name in names:
                if feeds_back:
                    data = with_feedback(weights[name], products[name], scheme)
                    yield f"{name}.weight", Tensor(scheme.name, weights[name].shape, data)
                else:
                    yield f"{name}.weight", Tensor.of(weights[name], scheme.name)
            bar.advance()


def _scaled(
    file: GGUF,
    layer: str,
    weights: dict[str, Array],
    products: dict[str, Array],
    known: Mapping[str, Inputs],
    rounded: Any,
) -> Iterator[tuple[str, Tensor]]:
    """Scale the inputs of a layer's matrices; what changes beside them."""
    gate, up, down = (f"{layer}.ffn_{n}" for n in ("gate", "up", "down"))
    if {gate, up, down} <= {*weights}:  # else an activation lies between up and down
        s = input_scales([weights[down]], known[down].mean, products[down], rounded)
        weights[up] = weights[up] / s[:, None]
        _apply([down], s, weights, products)
        if f"{up}.bias" in file:
            yield f"{up}.bias", Tensor.of(file[f"{up}.bias"].dequantize() / s)
    for norm, first in (("attn_norm", "attn_q"), ("ffn_norm", "ffn_up")):
        name = f"{layer}.{first}"
        names = [n for n, x in known.items() if name in known and x is known[name]]
        if f"{layer}.{norm}.weight" not in file or not names or not {*names} <= {*weights}:
            continue
        own = [weights[n] for n in names]
        s = input_scales(own, known[name].mean, products[name], rounded)
        _apply(names, s, weights, products)
        for part in ("weight", "bias"):
            gain = f"{layer}.{norm}.{part}"
            if gain in file:
                yield gain, Tensor.of(file[gain].dequantize() / s)


def _apply(
    names: Sequence[str], s: Array, weights: dict[str, Array], products: dict[str, Array]
) -> None:
    """Have matrices take inputs that are divided by scales."""
    for name in names:
        weights[name] = weights[name] * s
        products[name] = products[name] / np.outer(s, s)
