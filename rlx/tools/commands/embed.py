"""``rlx embed DIR "a sentence" ...``: a table of similarities."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

__all__ = ["add_arguments", "run", "similarity_table"]


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    p.add_argument("model", help="directory with config.json, model.safetensors, tokenizer.json")
    p.add_argument("sentences", nargs="+", metavar="SENTENCE")
    p.add_argument("--device", default="cpu")
    p.add_argument("--threads", type=int, help="number of threads; by default what is allowed")
    p.add_argument("--explain", action="store_true", help="say how it was compiled, to stderr")


def run(args: argparse.Namespace) -> int:
    """Encode the sentences and print how alike they are."""
    from rlx import knobs
    from rlx.clock import Tick
    from rlx.models import Embed

    if args.explain:
        knobs.log.set(knobs.log.get() | {"cache"})
    start = Tick.now()
    model = Embed.from_dir(args.model, device=args.device, threads=args.threads)
    loaded = Tick.now()
    vectors = model.encode(args.sentences)
    done = Tick.now()
    print(similarity_table(args.sentences, vectors @ vectors.T))
    if args.explain:
        print(f"{loaded.elapsed_ns(start) * 1e-6:9.2f} ms  load the model", file=sys.stderr)
        print(
            f"{done.elapsed_ns(loaded) * 1e-6:9.2f} ms  encode, compiles included", file=sys.stderr
        )
        for report in model.reports:
            print(f"\n{report}", file=sys.stderr)
    return 0


def similarity_table(names: list[str], values: np.ndarray[Any, Any], width: int = 40) -> str:
    """Cosine similarities as a table: a numbered row and column a sentence."""
    lines = [" " * (width + 5) + "".join(f"{j + 1:7d}" for j in range(len(names)))]
    for i, name in enumerate(names):
        text = name if len(name) <= width else name[: width - 1] + "…"
        row = "".join(f"{float(v):7.3f}" for v in values[i])
        lines.append(f"{i + 1:3d}  {text:{width}s}{row}")
    return "\n".join(lines)
