"""Texts to vectors with a sentence-transformers model directory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rlx.base.gc_pause import importing
from rlx.errors import DTypeError, FaultError, ModelError, ShapeError
from rlx.ir.arrays import fixed
from rlx.ir.builders import located, public
from rlx.ir.graph import Graph
from rlx.models.bert import BertConfig, bert_encoder
from rlx.models.files import read_json
from rlx.models.progress import Progress
from rlx.models.safetensors import SafeTensors
from rlx.targets import TARGETS, find_target
from rlx.types import DTYPES, i64

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Embed", "encoder_graph"]

Array = np.ndarray[Any, Any]

TOKENS = 256
"""The most tokens for each thread in a run on a CPU: with more, what a layer makes of them leaves
the second level of its caches, and the same products take a tenth longer (Zen 4, 1 MiB)."""


class Runner(Protocol):
    """What runs the encoder's graph: a compiled graph."""

    def run(self, feeds: Mapping[str, Array], /) -> Sequence[Array]: ...


@public
class Embed:
    """A sentence encoder.

        model = rlx.models.Embed.from_dir("all-MiniLM-L6-v2")
        vectors = model.encode(["a text", "another"])

    A text's vector does not depend on the texts that it is encoded with: texts of one length run
    together, and what one is padded to, where that is done, follows from its own length.
    """

    def __init__(
        self,
        config: BertConfig,
        runner: Runner,
        tokenizer: str | Path,
        max_tokens: int,
        *,
        lower_case: bool = False,
        integers: str = "i64",
        pads: bool = True,
    ) -> None:
        """``runner`` runs ``bert_encoder(config)``, which takes ``integers``; ``tokenizer`` is a
        tokenizer.json. ``pads`` makes texts of few lengths, for a runner to which each new size
        is dear; without it a run takes texts of one length, and no token is padding."""
        self.config = config
        self.max_tokens = max_tokens
        self._runner = runner
        self._integers = DTYPES[integers].numpy
        self._tokenizer_file = os.fspath(tokenizer)
        self._tokenizer: Any = None
        self._lower_case, self._pads = lower_case, pads

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
        path = os.fspath(path)
        with importing():
            from rlx.runtime.backend import default_device, device_name

        device = default_device() if device is None else device_name(device)
        _check_files(path, "config.json", "model.safetensors", "tokenizer.json")
        config = BertConfig.from_dir(path)
        integers = _integers_of(device)
        graph = encoder_graph(path, integers=integers)
        limits_file = os.path.join(path, "sentence_bert_config.json")
        limits = read_json(limits_file, dict, {})
        longest = limits.get("max_seq_length") or config.positions
        if not isinstance(longest, int) or longest < 1:
            raise ModelError(
                f"{limits_file}: max_seq_length is {longest!r}, expected a number of tokens"
            )
        max_tokens = min(longest, config.positions)
        return cls(
            config,
            _compiled(graph, device, precision, threads),
            os.path.join(path, "tokenizer.json"),
            max_tokens,
            lower_case=bool(limits.get("do_lower_case")),
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
        texts = _checked_texts(texts)
        if not isinstance(batch_size, int) or batch_size < 1:
            raise ShapeError(f"batch_size must be 1 or more, found {batch_size!r}")
        rows = self._tokenize(texts)
        groups: dict[int, list[int]] = {}
        for i, row in enumerate(rows):
            groups.setdefault(self._padded(len(row)), []).append(i)
        out = np.empty((len(texts), self.dim), np.float32)
        with Progress("encode", len(texts), progress) as bar:
            for length, members in sorted(groups.items()):
                for chunk in self._chunks(members, length, batch_size):
                    ids = np.zeros((len(chunk), length), np.int64)
                    mask = np.zeros_like(ids)
                    for at, i in enumerate(chunk):
                        ids[at, : len(rows[i])] = rows[i]
                        mask[at, : len(rows[i])] = 1
                    out[chunk] = self.encode_ids(ids, mask)
                    bar.advance(len(chunk))
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
        if ids.shape[1] > self.config.positions:
            raise ShapeError(
                f"the model has {self.config.positions} positions, found {ids.shape[1]}"
            )
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

    def _tokenize(self, texts: list[str]) -> list[list[int]]:
        if self._tokenizer is None:
            self._tokenizer = _load_tokenizer(self._tokenizer_file, self.max_tokens)
        if self._lower_case:
            texts = [t.lower() for t in texts]
        return [e.ids for e in self._tokenizer.encode_batch_fast(texts)]

    def _chunks(self, members: list[int], length: int, most: int) -> Iterator[list[int]]:
        """The texts of a length in parts of at most so many, each of which is a run."""
        if self._pads:
            return _powers_of_two(members, most)
        from rlx.runtime import _native

        fitting = TOKENS * _native.num_threads() // length
        return _even(members, max(1, min(most, fitting)))

    def _padded(self, tokens: int) -> int:
        """The length that a text is run at. It depends on nothing else; where texts are padded,
        few exist: steps of 16 up to 64, then of 32."""
        if not self._pads:
            return max(tokens, 1)
        step = 16 if tokens <= 64 else 32
        return min(-(-max(tokens, 1) // step) * step, self.max_tokens)


def _checked_texts(texts: Any) -> list[str]:
    if isinstance(texts, str):
        raise DTypeError("encode takes a list of texts, found one str; write [text]")
    if not isinstance(texts, Iterable):
        raise DTypeError(f"encode takes a list of texts, found {texts!r}")
    texts = list(texts)
    if not texts:
        raise ShapeError("encode needs at least one text, found an empty list")
    for i, t in enumerate(texts):
        if not isinstance(t, str):
            raise DTypeError(f"encode takes str items, found {type(t).__name__} at index {i}")
    return texts


def _even(members: list[int], size: int) -> Iterator[list[int]]:
    """As few parts of at most ``size`` as there can be, whose lengths differ by one at most."""
    count = -(-len(members) // size)
    cuts = [n * len(members) // count for n in range(count + 1)]
    return (members[a:b] for a, b in pairwise(cuts))


def _powers_of_two(members: list[int], size: int) -> Iterator[list[int]]:
    """Parts of ``size``, then of powers of two: few shapes occur, and no row is padding."""
    at = 0
    while at < len(members):
        left = len(members) - at
        n = size if left >= size else 1 << (left.bit_length() - 1)
        yield members[at : at + n]
        at += n


def _load_tokenizer(path: str, max_tokens: int) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise ModelError(
            "texts need the package tokenizers: pip install 'rlx[models]'; encode_ids does not"
        ) from None
    try:
        tokenizer = Tokenizer.from_file(path)
    except Exception as e:  # the package raises plain Exceptions
        raise ModelError(f"cannot read {path}: {e}") from None
    # The file's own settings are those of its training; ours pads, and cuts at max_tokens with
    # the special tokens kept.
    special = tokenizer.num_special_tokens_to_add(is_pair=False)
    if max_tokens <= special:
        raise ModelError(
            f"{path} adds {special} tokens to every text, and the model takes {max_tokens} in all"
        )
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length=max_tokens)
    return tokenizer


def _integers_of(device: str) -> str:
    """The integers that ids come in: of 64 bits, but for a device that has none so wide."""
    if device not in TARGETS or device == "cpu":
        return "i64"
    return "i32" if i64 in find_target(device).kernels.lacks else "i64"


def encoder_graph(path: str | Path, *, integers: str = "i64") -> Graph:
    """The graph of ``bert_encoder`` for a directory, whose params have their values: views of the
    mapped model.safetensors. ModelError if a file is missing or does not fit."""
    path = os.fspath(path)
    _check_files(path, "config.json", "model.safetensors")
    weights = SafeTensors(os.path.join(path, "model.safetensors"))
    prefix = "bert." if "bert.embeddings.word_embeddings.weight" in weights else ""
    graph = bert_encoder(BertConfig.from_dir(path), prefix=prefix, integers=integers)
    for p in graph.params:
        name = str(p.name)
        graph.param_values[name] = fixed(_weight(weights, name, p.type.static_shape))
    return graph


def _check_files(path: str, *names: str) -> None:
    if not os.path.exists(path):
        fetch = f"; fetch it: hf download {path} --local-dir FOLDER" if path.count("/") == 1 else ""
        raise ModelError(f"there is no folder {path}, and RLX downloads nothing{fetch}")
    for name in names:
        if not os.path.isfile(os.path.join(path, name)):
            raise ModelError(f"{path} has no {name}; a model directory needs it")


def _compiled(graph: Graph, device: str, precision: str, threads: int | None) -> Runner:
    with importing():
        from rlx.runtime.session import Session

    values: dict[str, Array] = {}
    if precision == "int8":
        from rlx.ptq import quantize_graph

        graph, values, _ = quantize_graph(graph, scheme="int8")
        precision = "f32"
    compiled = Session(device, precision, threads=threads).compile(graph)
    for name, value in values.items():
        compiled.set_param(name, value)
    return compiled


def _weight(weights: SafeTensors, name: str, shape: tuple[int, ...]) -> Array:
    """A view of the mapped file; a copy only if the tensor is stored in another float type."""
    a = weights[name]
    if a.shape != shape:
        raise ModelError(
            f"{weights.path}: {name!r} has shape {list(a.shape)}, config.json says {list(shape)}"
        )
    return a.astype(np.float32, copy=False)
