"""Texts to vectors with a sentence-transformers model directory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.errors import DTypeError, FaultError, ShapeError
from rlx.ir.builders import located, public
from rlx.models.encoders import (
    EncoderConfig,
    Runner,
    check_files,
    compiled,
    config_of,
    device_of,
    encoder_graph,
    integers_of,
)
from rlx.models.progress import Progress
from rlx.models.runs import Runs
from rlx.models.tokens import checked_texts, encoded, limits_of, load_tokenizer
from rlx.types import DTYPES

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Embed", "encoder_graph"]

Array = np.ndarray[Any, Any]


@public
class Embed:
    """A sentence encoder.

        model = rlx.models.Embed.from_dir("all-MiniLM-L6-v2")
        vectors = model.encode(["a text", "another"])

    The families are those of BERT and RoBERTa, and ModernBERT. A text's vector does not depend on
    the texts that it is encoded with: texts of one length run together, and what one is padded to,
    where that is done, follows from its own length.
    """

    def __init__(
        self,
        config: EncoderConfig,
        runner: Runner,
        tokenizer: str | Path,
        max_tokens: int,
        *,
        lower_case: bool = False,
        integers: str = "i64",
        pads: bool = True,
    ) -> None:
        """``runner`` runs the encoder's graph, which takes ``integers``; ``tokenizer`` is a
        tokenizer.json. ``pads`` makes texts of few lengths, for a runner to which each new size
        is dear; without it a run takes texts of one length, and no token is padding."""
        self.config = config
        self.max_tokens = max_tokens
        self._runner = runner
        self._integers = DTYPES[integers].numpy
        self._tokenizer_file = os.fspath(tokenizer)
        self._tokenizer: Any = None
        self._lower_case, self._runs = lower_case, Runs(max_tokens, pads=pads)

    @classmethod
    def from_dir(
        cls,
        path: str | Path,
        device: str | None = None,
        precision: str = "f32",
        threads: int | None = None,
    ) -> Embed:
        """Load a directory with config.json, model.safetensors and tokenizer.json.

        ``device``, ``precision`` and ``threads`` are those of ``Session``. "int8" is another
        precision: weights of products are 8-bit integers with a scale for each output, and rows
        are rounded to 8 bits by their largest element (``rlx.quant.quantize_graph``).
        sentence_bert_config.json, modules.json and the pooling's config.json are followed where
        they are there. ModelError if a file is missing or does not fit.
        """
        path, device = os.fspath(path), device_of(device)
        check_files(path, "config.json", "model.safetensors", "tokenizer.json")
        config = config_of(path)
        integers = integers_of(device)
        graph = encoder_graph(path, integers=integers)
        max_tokens, lower_case = limits_of(path, config.longest)
        return cls(
            config,
            compiled(graph, device, precision, threads),
            os.path.join(path, "tokenizer.json"),
            max_tokens,
            lower_case=lower_case,
            integers=integers,
            pads=device != "cpu",  # one compile serves all sizes there
        )

    def __repr__(self) -> str:
        return f"Embed: f32[texts, {self.dim}] of texts of up to {self.max_tokens} tokens"

    @property
    def reports(self) -> list[Any]:
        """What the compiles of the encoder said of themselves, one a shape."""
        return list(getattr(self._runner, "reports", []))

    @property
    def dim(self) -> int:
        """The length of a vector."""
        return self.config.hidden

    @located
    def encode(
        self, texts: Sequence[str], batch_size: int = 32, progress: bool | None = None
    ) -> Array:
        """The vectors of ``texts`` in their order: f32 ``[len(texts), dim]``, each of length 1.

        What a text has beyond ``max_tokens`` tokens is cut off. A run takes ``batch_size`` texts at
        the most, on a CPU fewer where they are long. ``progress`` forces the bar on or off; by
        default it is drawn for long work on a terminal.
        """
        texts = checked_texts(texts, "encode")
        rows = self._tokenize(texts)
        out = np.empty((len(texts), self.dim), np.float32)
        with Progress("encode", len(texts), progress) as bar:
            for length, members in self._runs.of([len(row) for row in rows], batch_size):
                ids = np.zeros((len(members), length), np.int64)
                mask = np.zeros_like(ids)
                for at, i in enumerate(members):
                    ids[at, : len(rows[i])] = rows[i]
                    mask[at, : len(rows[i])] = 1
                out[members] = self.encode_ids(ids, mask)
                bar.advance(len(members))
        return out

    @located
    def encode_ids(self, ids: Any, mask: Any) -> Array:
        """The vectors of token rows: f32 ``[batch, dim]``.

        ``ids`` and ``mask`` are int64 ``[batch, tokens]``, run at exactly this shape; the mask is
        1 for tokens and 0 for padding. FaultError for an id that the vocabulary does not have.
        """
        for name, a in (("ids", ids), ("mask", mask)):
            if not isinstance(a, np.ndarray) or a.dtype != np.int64:
                found = a.dtype if isinstance(a, np.ndarray) else type(a).__name__
                raise DTypeError(f"{name} must be an int64 array, found {found}")
        if ids.ndim != 2 or ids.shape != mask.shape or not ids.size:
            raise ShapeError(
                "ids and mask must have one shape [batch, tokens] with no dim 0, found"
                f" {list(ids.shape)} and {list(mask.shape)}"
            )
        if ids.shape[1] > self.config.longest:
            raise ShapeError(f"the model has {self.config.longest} positions, found {ids.shape[1]}")
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high >= self.config.vocab:
            bad = low if low < 0 else high
            raise FaultError(
                f"token id {bad} is out of range; the vocabulary has {self.config.vocab}"
            )
        if mask.min() < 0 or mask.max() > 1:
            raise FaultError("the mask must be 1 for tokens and 0 for padding")
        feeds = {"ids": ids, "mask": mask}
        (out,) = self._runner.run(
            {n: a.astype(self._integers, copy=False) for n, a in feeds.items()}
        )
        return np.asarray(out)

    @located
    def count_tokens(self, texts: Sequence[str]) -> int:
        """The tokens of texts, without what is cut off."""
        return sum(map(len, self._tokenize(checked_texts(texts, "count_tokens"))))

    def _tokenize(self, texts: list[str]) -> list[list[int]]:
        if self._tokenizer is None:
            self._tokenizer = load_tokenizer(self._tokenizer_file, self.max_tokens)
        if self._lower_case:
            texts = [t.lower() for t in texts]
        return [e.ids for e in encoded(self._tokenizer, texts)]
