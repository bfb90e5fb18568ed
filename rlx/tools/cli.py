"""The rlx command: ``rlx COMMAND ...``. A command is a module of ``rlx.tools.commands``."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import Any

from rlx.errors import RlxError
from rlx.ir.location import caller
from rlx.knobs import check_names

__all__ = ["COMMANDS", "main"]

COMMANDS = {
    "bench": "what each kernel of a graph takes, against what the machine allows",
    "chat": "talk with a language model, or ask it once",
    "cache": "what the compile cache holds, and why something was not there",
    "compare": "a graph on several devices: the first op that differs from the interpreter",
    "compile": "a graph's text or an ONNX model to an artifact, which runs without a compiler",
    "devices": "the devices of this machine, and why others are not there",
    "doctor": "what is missing here, and how to get it",
    "embed": "vectors of sentences by a sentence encoder, or how alike they are",
    "export-web": "a folder that a web page loads, and runs on WebGPU",
    "inspect": "what a file of weights holds: the metadata and tensors of a GGUF file",
    "launch": "a script as several ranks on this machine, for graphs with collectives",
    "quantize": "the weights of a GGUF or safetensors file in blocks of few bits, as GGUF",
    "reduce": "the part of a graph that makes it fail, as a test",
    "run": "an artifact, a graph's text or an ONNX model on arrays; a language model on a prompt",
    "serve": "a language model over HTTP, by the API of OpenAI",
    "view": "a compile as one HTML page, every level linked to the next",
}
"""What each command does. Its module has ``add_arguments(parser)`` and ``run(args) -> int``, and is
imported only when the command is called."""


def parser(chosen: str | None) -> argparse.ArgumentParser:
    """The command line; only the ``chosen`` command has its arguments."""
    p = argparse.ArgumentParser("rlx", description="A compiler and runtime for tensor graphs.")
    p.add_argument("--debug", action="store_true", help="show Python tracebacks")
    commands = p.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        if name == chosen:
            _module(name).add_arguments(command)
    return p


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit code: 0, 1 for an error, 2 for wrong usage, 130 for Ctrl-C."""
    argv = sys.argv[1:] if argv is None else argv
    words = [a for a in argv if not a.startswith("-")]
    args = parser(words[0] if words else None).parse_args(argv)
    here = caller()
    check_names()
    try:
        status = _module(args.command).run(args)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # The reader has what it wants; Python would complain once more as it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except RlxError as e:
        if args.debug:
            raise
        # What called this is no file of the user's.
        print(f"rlx: {e.message if e.location == here else e}", file=sys.stderr)
        return 1
    except OSError as e:
        if args.debug or e.filename is None:
            raise
        print(f"rlx: {e.filename}: {e.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _module(name: str) -> Any:
    return importlib.import_module(f"rlx.tools.commands.{name.replace('-', '_')}")


if __name__ == "__main__":
    sys.exit(main())
