"""``rlx similar MODEL "a sentence" ...``: how alike sentences are."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from rlx.errors import RlxError
from rlx.tools.sentences import MODEL, Encoder, add_encoder, add_sentences, sentences_from

if TYPE_CHECKING:
    import numpy as np

__all__ = ["add_arguments", "run", "similarity_table"]

_SHOWN = 50
"""Sentences whose similarities make a table that can be read."""


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    p.add_argument("model", metavar="MODEL", help=MODEL)
    add_sentences(p)
    add_encoder(p)


def run(args: argparse.Namespace) -> int:
    """Print the cosine of every two sentences."""
    sentences = sentences_from(args)
    if len(sentences) > _SHOWN:
        raise RlxError(
            f"a table of {len(sentences)} sentences is too large to read: give {_SHOWN} at most;"
            " rlx search finds those that are nearest to one, and rlx embed writes vectors"
        )
    vectors = Encoder(args)(sentences)
    print(similarity_table(sentences, vectors @ vectors.T))
    return 0


def similarity_table(names: list[str], values: np.ndarray[Any, Any], width: int = 40) -> str:
    """Cosine similarities as a table: a numbered row and column a sentence."""
    lines = [" " * (width + 5) + "".join(f"{j + 1:7d}" for j in range(len(names)))]
    for i, name in enumerate(names):
        text = name if len(name) <= width else name[: width - 1] + "…"
        row = "".join(f"{float(v):7.3f}" for v in values[i])
        lines.append(f"{i + 1:3d}  {text:{width}s}{row}")
    return "\n".join(lines)
