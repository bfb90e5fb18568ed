"""The rlx command: ``rlx embed DIR "a sentence" ...``."""

from __future__ import annotations

import argparse
import sys
import time

from rlx.errors import RlxError

__all__ = ["main"]


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser("rlx", description="A compiler and runtime for tensor graphs.")
    commands = p.add_subparsers(dest="command", required=True)
    embed = commands.add_parser("embed", help="similarities of sentences under a sentence encoder")
    embed.add_argument(
        "model", help="directory with config.json, model.safetensors, tokenizer.json"
    )
    embed.add_argument("sentences", nargs="+", metavar="SENTENCE")
    embed.add_argument("--device", default="cpu")
    embed.add_argument("--threads", type=int, help="number of threads; by default what is allowed")
    embed.add_argument("--explain", action="store_true", help="say how it was compiled, to stderr")
    p.add_argument("--debug", action="store_true", help="show Python tracebacks")
    return p


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    args = parser().parse_args(argv)
    try:
        return _embed(args)
    except RlxError as e:
        if args.debug:
            raise
        print(f"rlx: {e}", file=sys.stderr)
        return 1


def _embed(args: argparse.Namespace) -> int:
    from rlx.models import Embed

    start = time.perf_counter()
    model = Embed.from_dir(args.model, device=args.device, threads=args.threads)
    loaded = time.perf_counter()
    vectors = model.encode(args.sentences)
    done = time.perf_counter()
    print(similarity_table(args.sentences, vectors @ vectors.T))
    if args.explain:
        print(f"{(loaded - start) * 1e3:9.2f} ms  load the model", file=sys.stderr)
        print(f"{(done - loaded) * 1e3:9.2f} ms  encode, compiles included", file=sys.stderr)
        for report in model.reports:
            print(f"\n{report}", file=sys.stderr)
    return 0


def similarity_table(names: list[str], values: object, width: int = 40) -> str:
    """Cosine similarities as a table: a numbered row and column a sentence."""
    lines = [" " * (width + 5) + "".join(f"{j + 1:7d}" for j in range(len(names)))]
    for i, name in enumerate(names):
        text = name if len(name) <= width else name[: width - 1] + "…"
        row = "".join(f"{float(v):7.3f}" for v in values[i])  # type: ignore[index]
        lines.append(f"{i + 1:3d}  {text:{width}s}{row}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
