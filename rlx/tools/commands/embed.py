"""``rlx embed DIR "a sentence" ...``: how alike sentences are; ``-o`` writes their vectors."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from rlx.errors import RlxError
from rlx.tools.arrays import add_overwrite, check_free, save_array
from rlx.tools.options import add_device, add_threads

if TYPE_CHECKING:
    import numpy as np

__all__ = ["add_arguments", "run", "similarity_table"]

_SHOWN = 50
"""Sentences whose similarities make a table that can be read."""


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    p.add_argument("model", help="directory with config.json, model.safetensors, tokenizer.json")
    p.add_argument("sentences", nargs="*", metavar="SENTENCE")
    p.add_argument(
        "--file", metavar="FILE",
        help="a sentence a line, blank lines left out; - for standard input",
    )  # fmt: skip
    p.add_argument(
        "-o", dest="output", metavar="FILE",
        help="write the vectors, f32 of length 1, in place of the table: .npy, .safetensors"
        " (the tensor 'vectors') or .jsonl (a line with text and vector each)",
    )  # fmt: skip
    add_overwrite(p)
    p.add_argument("--batch-size", type=int, default=32, help="sentences in a run (32)")
    p.add_argument("--precision", default="f32", help="f32, bf16, f16 or high")
    add_device(p)
    add_threads(p)
    p.add_argument("--explain", action="store_true", help="say how it was compiled, to stderr")


def run(args: argparse.Namespace) -> int:
    """Encode the sentences; write their vectors, or print how alike they are."""
    from rlx import knobs
    from rlx.base.clock import Tick
    from rlx.models import Embed

    sentences = _sentences(args)
    _check_output(args, len(sentences))
    if args.explain:
        knobs.log.set(knobs.log.get() | {"cache"})
    start = Tick.now()
    model = Embed.from_dir(args.model, args.device, args.precision, args.threads)
    loaded = Tick.now()
    vectors = model.encode(sentences, batch_size=args.batch_size)
    done = Tick.now()
    if args.output:
        _write(args, sentences, vectors)
    else:
        print(similarity_table(sentences, vectors @ vectors.T))
    if args.explain:
        print(f"{loaded.elapsed_ns(start) * 1e-6:9.2f} ms  load the model", file=sys.stderr)
        print(
            f"{done.elapsed_ns(loaded) * 1e-6:9.2f} ms  encode, compiles included", file=sys.stderr
        )
        for report in model.reports:
            print(f"\n{report}", file=sys.stderr)
    return 0


def _sentences(args: argparse.Namespace) -> list[str]:
    """What is to be encoded; RlxError if it is given in no way, or in two, or is a file's name."""
    if args.file is not None and args.sentences:
        raise RlxError("sentences stand on the command line or in --file, not in both")
    if args.file is not None:
        found = _lines(args.file)
        if not found:
            raise RlxError(f"{args.file} has no sentences; expected one a line")
        return found
    if not args.sentences:
        raise RlxError('nothing to encode; give "a sentence" ..., or --file FILE (- for stdin)')
    for text in args.sentences:
        if text == "-" or os.path.isfile(text):
            raise RlxError(f"{text!r} would be taken for a sentence; write --file {text}")
    return args.sentences


def _lines(path: str) -> list[str]:
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


def _check_output(args: argparse.Namespace, count: int) -> None:
    """RlxError, before anything is computed, for what could not be written or read."""
    if args.output is None:
        if count > _SHOWN:
            raise RlxError(
                f"a table of {count} sentences is too large to read; give -o FILE (.npy,"
                f" .safetensors or .jsonl) for their vectors, or at most {_SHOWN} sentences"
            )
        return
    if not args.output.endswith((".npy", ".safetensors", ".jsonl")):
        raise RlxError(f"-o {args.output}: expected a name in .npy, .safetensors or .jsonl")
    check_free(args.output, args.overwrite)


def _write(args: argparse.Namespace, sentences: list[str], vectors: np.ndarray[Any, Any]) -> None:
    path = args.output
    if path.endswith(".npy"):
        save_array(path, vectors, args.overwrite)
    elif path.endswith(".safetensors"):
        from rlx.models.safetensors import write_safetensors

        write_safetensors(path, {"vectors": vectors}, {})
    else:
        rows = zip(sentences, vectors.tolist(), strict=True)
        with open(path, "w", encoding="utf-8") as f:
            for text, vector in rows:
                print(json.dumps({"text": text, "vector": vector}, ensure_ascii=False), file=f)
    print(f"{path}: {len(sentences)} vectors of {vectors.shape[1]}", file=sys.stderr)


def similarity_table(names: list[str], values: np.ndarray[Any, Any], width: int = 40) -> str:
    """Cosine similarities as a table: a numbered row and column a sentence."""
    lines = [" " * (width + 5) + "".join(f"{j + 1:7d}" for j in range(len(names)))]
    for i, name in enumerate(names):
        text = name if len(name) <= width else name[: width - 1] + "…"
        row = "".join(f"{float(v):7.3f}" for v in values[i])
        lines.append(f"{i + 1:3d}  {text:{width}s}{row}")
    return "\n".join(lines)
