"""``rlx search MODEL "a question" --file lines.txt``: the sentences that are nearest to a text."""

from __future__ import annotations

import argparse

import numpy as np

from rlx.errors import RlxError, ShapeError
from rlx.tools.sentences import MODEL, Encoder, add_encoder, add_file, lines_of, read_vectors

__all__ = ["add_arguments", "run"]


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    p.add_argument("model", metavar="MODEL", help=MODEL)
    p.add_argument("queries", nargs="+", metavar="TEXT", help="what to look for")
    add_file(p)
    p.add_argument(
        "--vectors", metavar="FILE",
        help="their vectors, as rlx embed wrote them with this model; a .jsonl file has the"
        " sentences too",
    )  # fmt: skip
    p.add_argument("-k", dest="count", type=int, default=10, help="sentences to show (10)")
    add_encoder(p)


def run(args: argparse.Namespace) -> int:
    """Print for each text the sentences of the greatest cosine, the nearest first."""
    if args.count < 1:
        raise RlxError(f"-k {args.count}: expected 1 or more")
    texts, vectors = (None, None) if args.vectors is None else read_vectors(args.vectors)
    if args.file is not None:
        texts = lines_of(args.file)
    if not texts:
        raise RlxError("there are no sentences to search; give --file FILE, or --vectors of .jsonl")
    if vectors is not None and len(vectors) != len(texts):
        raise ShapeError(
            f"{args.vectors} has {len(vectors)} vectors, {args.file} {len(texts)} sentences"
        )
    encode = Encoder(args)
    wanted = encode(args.queries)
    found = encode(texts) if vectors is None else vectors
    if found.shape[1] != wanted.shape[1]:
        raise ShapeError(
            f"{args.vectors} has vectors of {found.shape[1]}, the model makes {wanted.shape[1]}"
        )
    for query, scores in zip(args.queries, wanted @ found.astype(np.float32).T, strict=True):
        if len(args.queries) > 1:
            print(f"# {query}")
        for i in np.argsort(-scores, kind="stable")[: args.count]:
            print(f"{float(scores[i]):6.3f}  {i + 1:6d}  {texts[i]}")
    return 0
