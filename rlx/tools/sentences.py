"""Sentences on the command line, and their vectors."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Sequence
from typing import Any, TextIO

import numpy as np

from rlx.base.clock import Tick
from rlx.errors import ModelError, RlxError
from rlx.models.progress import Progress
from rlx.tools.arrays import check_free, save_array
from rlx.tools.kinds import LANGUAGE, kind_of
from rlx.tools.options import add_device, add_precision, add_threads

__all__ = [
    "ENDINGS",
    "MODEL",
    "Encoder",
    "add_encoder",
    "add_file",
    "add_sentences",
    "check_output",
    "lines_of",
    "read_vectors",
    "sentences_from",
    "write_lines",
    "write_vectors",
]  # fmt: skip

Array = np.ndarray[Any, Any]

MODEL = "the folder of a sentence encoder, or a language model (.gguf, or a folder)"

ENDINGS = (".npy", ".safetensors", ".jsonl")
"""The files that vectors are written to."""


def add_encoder(p: argparse.ArgumentParser) -> None:
    """How the model is run."""
    p.add_argument("--batch-size", type=int, default=32, help="sentences in a run (32)")
    add_device(p)
    add_precision(p, "f32, bf16, f16, high or int8; of a language model q8, bf16 or f32")
    add_threads(p)
    p.add_argument(
        "--pooling", choices=("mean", "last"),
        help="how a language model's vector is made of its states, where its files do not say",
    )  # fmt: skip


def add_sentences(p: argparse.ArgumentParser) -> None:
    """Sentences, or a file of them."""
    p.add_argument("sentences", nargs="*", default=[], metavar="SENTENCE")
    add_file(p)


def add_file(p: argparse.ArgumentParser, required: bool = False) -> None:
    """A file of sentences."""
    p.add_argument(
        "--file", metavar="FILE", required=required,
        help="a sentence a line, blank lines left out; - for standard input",
    )  # fmt: skip


def sentences_from(args: argparse.Namespace) -> list[str]:
    """What is to be encoded; RlxError if it is given in no way, or in two, or is a file's name."""
    if args.file is not None and args.sentences:
        raise RlxError("sentences stand on the command line or in --file, not in both")
    if args.file is not None:
        found = lines_of(args.file)
        if not found:
            raise RlxError(f"{args.file} has no sentences; expected one a line")
        return found
    if not args.sentences:
        raise RlxError('nothing to encode; give "a sentence" ..., or --file FILE (- for stdin)')
    for text in args.sentences:
        if text == "-" or os.path.isfile(text):
            raise RlxError(f"{text!r} would be taken for a sentence; write --file {text}")
    return args.sentences


def lines_of(path: str) -> list[str]:
    """The lines of a file that are not blank, without their ends. Other breaks than those of lines,
    such as form feeds, are a sentence's own."""
    try:
        text = (sys.stdin.buffer.read() if path == "-" else _bytes(path)).decode("utf-8-sig")
        return [line for line in io.StringIO(text, newline=None).read().split("\n") if line.strip()]
    except UnicodeDecodeError as e:
        raise RlxError(f"{path} is no text in UTF-8: byte {e.start} of it") from None


def _bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError as e:
        raise RlxError(f"cannot read {path}: {e.strerror or e}") from None


class Encoder:
    """The model of a command line, which makes vectors of sentences: f32 ``[texts, dim]``, each
    of length 1. ``reports`` are those of its compiles."""

    def __init__(self, args: argparse.Namespace) -> None:
        from rlx.runtime.backend import default_device

        self._batch, self._pooling = args.batch_size, args.pooling
        if kind_of(args.model) not in LANGUAGE:
            from rlx.models import Embed

            if args.pooling is not None:
                raise RlxError(f"--pooling is of language models; {args.model} has its own")
            precision = args.precision or "f32"
            self._model: Any = Embed.from_dir(args.model, args.device, precision, args.threads)
            return
        from rlx.llm.model import LLM

        given = {} if args.precision is None else {"precision": args.precision}
        device = args.device or default_device()
        self._model = LLM(args.model, device=device, threads=args.threads, **given)

    @property
    def reports(self) -> list[Any]:
        """What the compiles said of themselves."""
        return list(getattr(self._model, "reports", []))

    def __call__(self, texts: Sequence[str]) -> Array:
        """The vectors of texts; what it took goes to stderr for more than a few."""
        start = Tick.now()
        if hasattr(self._model, "encode"):
            found = self._model.encode(texts, batch_size=self._batch)
        else:
            found = self._one_by_one(texts)
        took = Tick.now().seconds_since(start)
        if len(texts) > 100:
            print(
                f"{len(texts)} sentences in {took:.1f} s: {len(texts) / took:.0f} sentences/s",
                file=sys.stderr,
            )
        return found

    def _one_by_one(self, texts: Sequence[str]) -> Array:
        found: list[Array] = []
        with Progress("embed", len(texts)) as bar:
            for text in texts:
                found.append(self._model.embed([text], pooling=self._pooling)[0])
                bar.advance()
        return np.stack(found)


# -- files of vectors ----------------------------------------------------------------------


def check_output(path: str, force: bool) -> None:
    """RlxError, before anything is computed, for a file that vectors do not go to."""
    if not path.endswith(ENDINGS):
        raise RlxError(f"-o {path}: expected a name in .npy, .safetensors or .jsonl")
    check_free(path, force)


def write_vectors(path: str, texts: Sequence[str], vectors: Array, force: bool) -> None:
    """Write vectors to a file; those of .jsonl have their texts beside them."""
    if path.endswith(".npy"):
        save_array(path, vectors, force)
    elif path.endswith(".safetensors"):
        from rlx.models.safetensors import write_safetensors

        write_safetensors(path, {"vectors": vectors}, {})
    else:
        with open(path, "w", encoding="utf-8") as f:
            write_lines(f, texts, vectors)
    print(f"{path}: {len(texts)} vectors of {vectors.shape[1]}", file=sys.stderr)


def write_lines(f: TextIO, texts: Sequence[str], vectors: Array) -> None:
    """A line of JSON with text and vector each."""
    for text, vector in zip(texts, vectors.tolist(), strict=True):
        print(json.dumps({"text": text, "vector": vector}, ensure_ascii=False), file=f)


def read_vectors(path: str) -> tuple[list[str] | None, Array]:
    """The vectors of a file that ``write_vectors`` wrote, and the texts if it has them."""
    if path.endswith(".jsonl"):
        return _read_lines(path)
    if path.endswith(".safetensors"):
        from rlx.models.safetensors import SafeTensors

        found: Any = SafeTensors(path)["vectors"]
    else:
        try:
            found = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as e:
            raise ModelError(f"cannot read vectors from {path}: {e}") from None
    if not isinstance(found, np.ndarray) or found.ndim != 2 or found.dtype.kind != "f":
        raise ModelError(f"{path} holds no table of vectors; expected floats [sentences, length]")
    return None, found


def _read_lines(path: str) -> tuple[list[str], Array]:
    texts: list[str] = []
    rows: list[Array] = []
    for n, line in enumerate(lines_of(path), 1):
        try:
            row = json.loads(line)
            texts.append(row["text"])
            rows.append(np.asarray(row["vector"], np.float32))
        except (KeyError, TypeError, ValueError):
            raise ModelError(
                f"{path}:{n} is no text with its vector, as rlx embed writes"
            ) from None
    if len({r.shape for r in rows}) != 1 or rows[0].ndim != 1:
        raise ModelError(f"{path} has no vectors of one length")
    return texts, np.stack(rows)
