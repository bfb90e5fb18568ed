"""``rlx rerank MODEL "a question" --file lines.txt``: sentences by how well they answer it."""

from __future__ import annotations

import argparse

from rlx.errors import RlxError
from rlx.tools.options import add_device, add_precision, add_threads
from rlx.tools.sentences import add_sentences, sentences_from

__all__ = ["add_arguments", "run"]


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    p.add_argument("model", metavar="MODEL", help="the folder of a cross-encoder with one label")
    p.add_argument("query", metavar="TEXT", help="what the sentences are to answer")
    add_sentences(p)
    p.add_argument("-k", dest="count", type=int, default=10, help="sentences to show (10)")
    p.add_argument("--batch-size", type=int, default=32, help="sentences in a run (32)")
    add_device(p)
    add_precision(p, "f32, bf16, f16, high or int8")
    add_threads(p)


def run(args: argparse.Namespace) -> int:
    """Print the sentences with the best scores, the best first."""
    from rlx.models import Rerank

    if args.count < 1:
        raise RlxError(f"-k {args.count}: expected 1 or more")
    texts = sentences_from(args)
    model = Rerank.from_dir(args.model, args.device, args.precision or "f32", args.threads)
    for n, score in model.rank(args.query, texts, args.count, args.batch_size):
        print(f"{score:6.3f}  {n + 1:6d}  {texts[n]}")
    return 0
