"""Texts in the order of how well they answer a query, by a cross-encoder's directory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.errors import DTypeError, ModelError, ShapeError
from rlx.ir.builders import located, public
from rlx.models.encoders import (
    Runner,
    check_files,
    compiled,
    config_of,
    device_of,
    integers_of,
    score_graph,
)
from rlx.models.files import read_json
from rlx.models.progress import Progress
from rlx.models.runs import Runs
from rlx.models.tokens import checked_texts, encoded, limits_of, load_tokenizer
from rlx.types import DTYPES

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Rerank"]

Array = np.ndarray[Any, Any]


@public
class Rerank:
    """A cross-encoder, which reads a query and a text together.

        model = rlx.models.Rerank.from_dir("bge-reranker-base")
        scores = model.score("what is a panda?", ["hi", "The giant panda is a bear."])

    The families are those of ``Embed``, with a classifier of one label. A score does not depend on
    the other texts.
    """

    def __init__(
        self,
        runner: Runner,
        inputs: Sequence[str],
        tokenizer: str | Path,
        max_tokens: int,
        *,
        sigmoid: bool,
        lower_case: bool = False,
        integers: str = "i64",
        pads: bool = True,
    ) -> None:
        """``runner`` runs the classifier's graph, which takes ``inputs`` in ``integers``;
        ``sigmoid`` makes its scores numbers from 0 to 1; ``tokenizer`` and ``pads`` are as for
        ``Embed``."""
        self.max_tokens = max_tokens
        self._runner, self._inputs, self._sigmoid = runner, tuple(inputs), sigmoid
        self._integers = DTYPES[integers].numpy
        self._tokenizer_file, self._lower_case = os.fspath(tokenizer), lower_case
        self._tokenizer: Any = None
        self._runs = Runs(max_tokens, pads=pads)

    @classmethod
    def from_dir(
        cls,
        path: str | Path,
        device: str | None = None,
        precision: str = "f32",
        threads: int | None = None,
    ) -> Rerank:
        """Load a directory with config.json, model.safetensors and tokenizer.json; ``device``,
        ``precision`` and ``threads`` are those of ``Embed.from_dir``. ModelError if a file is
        missing or does not fit."""
        path, device = os.fspath(path), device_of(device)
        check_files(path, "config.json", "model.safetensors", "tokenizer.json")
        integers = integers_of(device)
        graph = score_graph(path, integers=integers)
        max_tokens, lower_case = limits_of(path, config_of(path).longest)
        return cls(
            compiled(graph, device, precision, threads),
            [str(n.name) for n in graph.inputs],
            os.path.join(path, "tokenizer.json"),
            max_tokens,
            sigmoid=_sigmoid(path),
            lower_case=lower_case,
            integers=integers,
            pads=device != "cpu",
        )

    def __repr__(self) -> str:
        return f"Rerank: scores of texts beside a query, {self.max_tokens} tokens together"

    @property
    def reports(self) -> list[Any]:
        """What the compiles said of themselves, one a shape."""
        return list(getattr(self._runner, "reports", []))

    @located
    def score(
        self,
        query: str,
        texts: Sequence[str],
        batch_size: int = 32,
        progress: bool | None = None,
    ) -> Array:
        """How well each of ``texts`` answers ``query``: f32 ``[len(texts)]``, larger is better.

        Of what a query and a text have beyond ``max_tokens`` tokens together the longer is cut.
        ``batch_size`` and ``progress`` are those of ``Embed.encode``.
        """
        return self._scores(self._logits(query, texts, batch_size, progress))

    @located
    def count_tokens(self, query: str, texts: Sequence[str]) -> int:
        """The tokens of texts, each beside ``query``, without what is cut off."""
        rows = self._tokenize(query, checked_texts(texts, "count_tokens"))
        return sum(len(row.ids) for row in rows)

    def _scores(self, logits: Array) -> Array:
        return np.exp(-np.logaddexp(0, -logits)) if self._sigmoid else logits

    def _logits(
        self, query: str, texts: Sequence[str], batch_size: int, progress: bool | None
    ) -> Array:
        if not isinstance(query, str):
            raise DTypeError(f"a query is a str, found {type(query).__name__}")
        rows = self._tokenize(query, checked_texts(texts, "score"))
        out = np.empty(len(rows), np.float32)
        with Progress("score", len(rows), progress) as bar:
            for length, members in self._runs.of([len(row.ids) for row in rows], batch_size):
                feeds = {n: np.zeros((len(members), length), self._integers) for n in self._inputs}
                for at, i in enumerate(members):
                    row = rows[i]
                    for name, found in (("ids", row.ids), ("kinds", row.type_ids), ("mask", 1)):
                        if name in feeds:
                            feeds[name][at, : len(row.ids)] = found
                (found,) = self._runner.run(feeds)
                out[members] = np.asarray(found)[:, 0]
                bar.advance(len(members))
        return out

    @located
    def rank(
        self,
        query: str,
        texts: Sequence[str],
        top: int | None = None,
        batch_size: int = 32,
        progress: bool | None = None,
    ) -> list[tuple[int, float]]:
        """The numbers of ``texts`` and their scores, the best first, ``top`` of them.

        ``batch_size`` and ``progress`` are those of ``score``. ShapeError for a ``top`` below 1.
        """
        if top is not None and top < 1:
            raise ShapeError(f"top must be 1 or more, found {top}; leave it out for all")
        return self._best(self._logits(query, texts, batch_size, progress), top)

    def _best(self, logits: Array, top: int | None) -> list[tuple[int, float]]:
        # Scores near 1 are the same number where logits still differ.
        best, scores = np.argsort(-logits, kind="stable")[:top], self._scores(logits)
        return [(int(n), float(scores[n])) for n in best]

    def _tokenize(self, query: str, texts: list[str]) -> list[Any]:
        if self._tokenizer is None:
            self._tokenizer = load_tokenizer(self._tokenizer_file, self.max_tokens, pairs=True)
        if self._lower_case:
            query, texts = query.lower(), [t.lower() for t in texts]
        return encoded(self._tokenizer, [(query, text) for text in texts])


def _sigmoid(path: str) -> bool:
    """Whether scores go through a sigmoid: they do unless the folder names the identity."""
    file = os.path.join(path, "config.json")
    raw = read_json(file, dict)
    own = raw.get("sentence_transformers")
    named = own.get("activation_fn") if isinstance(own, dict) else None
    named = named or raw.get("sbert_ce_default_activation_function") or "Sigmoid"
    kind = str(named).rpartition(".")[2]
    if kind not in ("Sigmoid", "Identity"):
        raise ModelError(f"{file}: the activation is {named!r}; supported are Sigmoid and Identity")
    return kind == "Sigmoid"
