"""``rlx chat MODEL``: talk with a language model; ``rlx chat MODEL "a question"`` asks once."""

from __future__ import annotations

import argparse
import sys

from rlx.errors import GraphError
from rlx.tools.language import add_language, answer_options, load, show

__all__ = ["add_arguments", "run"]


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    p.add_argument("model", help="a GGUF file, or a folder with config.json and safetensors files")
    p.add_argument(
        "message", nargs="?", help="ask this, and end; else messages are read, a line each"
    )
    p.add_argument("--system", metavar="TEXT", help="what the model is told before all else")
    add_language(p)


def run(args: argparse.Namespace) -> int:
    """Answer one message, or those of standard input."""
    llm = load(args)
    messages = [] if args.system is None else [{"role": "system", "content": args.system}]
    options = answer_options(args)
    if args.message is not None:
        show(llm, [*messages, {"role": "user", "content": args.message}], options)
        return 0
    terminal = sys.stdin.isatty()
    if terminal:
        print(
            "A line is a message; Ctrl-C ends an answer, Ctrl-D the conversation.", file=sys.stderr
        )
    while True:
        print("> " if terminal else "", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            return 0
        if not line.strip():
            continue
        messages.append({"role": "user", "content": line.strip()})
        try:
            said = show(llm, messages, options)
        except GraphError as e:
            if not terminal:
                raise
            print(f"rlx: {e.message}", file=sys.stderr)
            messages.pop()
            continue
        messages.append({"role": "assistant", "content": said})
