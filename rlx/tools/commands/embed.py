"""``rlx embed MODEL "a sentence" ...``: vectors of sentences, of the command line or a file."""

from __future__ import annotations

import argparse
import sys

from rlx.tools.options import add_force
from rlx.tools.sentences import (
    MODEL,
    Encoder,
    add_encoder,
    add_sentences,
    check_output,
    sentences_from,
    write_lines,
    write_vectors,
)

__all__ = ["add_arguments", "run"]


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    p.add_argument("model", metavar="MODEL", help=MODEL)
    add_sentences(p)
    p.add_argument(
        "-o", dest="output", metavar="FILE",
        help="where the vectors go, f32 of length 1: .npy, .safetensors (the tensor 'vectors') or"
        " .jsonl (a line with text and vector each), which is what is printed by default",
    )  # fmt: skip
    add_force(p)
    add_encoder(p)
    p.add_argument("--explain", action="store_true", help="say how it was compiled, to stderr")


def run(args: argparse.Namespace) -> int:
    """Encode the sentences, and write or print their vectors."""
    from rlx import knobs
    from rlx.base.clock import Tick

    sentences = sentences_from(args)
    if args.output:
        check_output(args.output, args.force)
    if args.explain:
        knobs.log.set(knobs.log.get() | {"cache"})
    start = Tick.now()
    encode = Encoder(args)
    loaded = Tick.now()
    vectors = encode(sentences)
    done = Tick.now()
    if args.output:
        write_vectors(args.output, sentences, vectors, args.force)
    else:
        write_lines(sys.stdout, sentences, vectors)
    if args.explain:
        load, took = loaded.elapsed_ns(start) * 1e-6, done.elapsed_ns(loaded) * 1e-6
        print(f"{load:9.2f} ms  load the model", file=sys.stderr)
        print(f"{took:9.2f} ms  encode, compiles included", file=sys.stderr)
        for report in encode.reports:
            print(f"\n{report}", file=sys.stderr)
    return 0
