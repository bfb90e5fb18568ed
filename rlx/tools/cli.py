"""The rlx command: ``rlx COMMAND ...``. A command is a module of ``rlx.tools.commands``."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Container
from typing import Any

import rlx
from rlx.errors import RlxError, did_you_mean
from rlx.ir.location import caller
from rlx.knobs import check_names
from rlx.tools.parser import Parser, subcommands

__all__ = ["COMMANDS", "main", "parser"]

COMMANDS = {
    "bench": "what each kernel of a model takes, against what the machine allows",
    "cache": "what the compile cache holds, and why something was not there",
    "chat": "talk with a language model, or ask it once",
    "compare": "a model on several devices: the first op that differs from the interpreter",
    "compile": "a model to an artifact, which runs without a compiler",
    "completion": "a script by which a shell completes rlx's command lines",
    "config": "what C and C++ programs that load artifacts are built with",
    "cost": "what a step of a model takes on many ranks, by its collectives and a roofline",
    "devices": "the devices of this machine, and why others are not there",
    "doctor": "what is missing here, and how to get it",
    "embed": "vectors of sentences, of a command line or a file",
    "export-web": "a folder that a web page loads, and runs on WebGPU",
    "help": "what a command does, and its arguments",
    "inspect": "what a model or a file of weights is: inputs, outputs, ops, weights and sizes",
    "launch": "a script as several ranks on this machine, for graphs with collectives",
    "quantize": "the weights of a GGUF or safetensors file in blocks of few bits, as GGUF",
    "reduce": "the part of a model that makes it fail, as a test",
    "rerank": "sentences by how well they answer a text, by a cross-encoder",
    "run": "a model on arrays; a language model on a prompt",
    "search": "the sentences of a file that are nearest to a text",
    "serve": "a language model or an encoder over HTTP, by the API of OpenAI",
    "similar": "how alike sentences are, as a table",
    "view": "a compile as one HTML page, every level linked to the next",
}
"""What each command does. Its module has ``add_arguments(parser)`` and ``run(args) -> int``, and is
imported only when the command is called."""

MEANT = {
    **dict.fromkeys(("info", "show", "summary"), "inspect"),
    **dict.fromkeys(("profile", "benchmark", "time"), "bench"),
    **dict.fromkeys(("build", "convert"), "compile"),
    **dict.fromkeys(("infer", "predict", "exec"), "run"),
    **dict.fromkeys(("generate", "complete"), "chat"),
    "version": "--version", "visualize": "view", "web": "export-web", "diff": "compare",
    "encode": "embed", "quantise": "quantize",
}  # fmt: skip
"""What is meant by names that other tools have."""

DESCRIPTION = """\
RLX compiles machine-learning models and runs them.

A model is a graph that rlx.save wrote (.mlir), an ONNX model, an artifact of rlx compile (.rlx), a
program of StableHLO or torch.export (.pt2), a GGUF file, or a folder of Hugging Face's.
"""


class _Format(argparse.RawDescriptionHelpFormatter):
    """The list of commands, a line each."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=16, width=100)
        self._action_max_length = 16  # that of commands, which stand further in than options


def parser(chosen: Container[str]) -> Parser:
    """The command line; only the ``chosen`` commands have their arguments."""
    p = Parser("rlx", description=DESCRIPTION, formatter_class=_Format)
    p.add_argument("--version", action="version", version=f"rlx {rlx.__version__}")
    p.add_argument("--debug", action="store_true", help="show Python tracebacks")
    commands = p.add_subparsers(dest="command", metavar="COMMAND")
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        if name in chosen:
            _module(name).add_arguments(command)
    return p


def _parsed(argv: list[str]) -> argparse.Namespace:
    """What a command line says; it exits with 2 for a wrong one."""
    words = [a for a in argv if not a.startswith("-")]
    name = words[0] if words else ""
    p = parser([name])
    if name and name not in COMMANDS:
        hint = f"; write rlx {MEANT[name]}" if name in MEANT else did_you_mean(name, COMMANDS)
        hint = hint or f"; there are {', '.join(COMMANDS)}"
        p.error(f"no command is called {name!r}{hint}")
    args, left = p.parse_known_args(argv)
    args.argv = argv
    if not args.command:
        p.print_help(sys.stderr)
        p.exit(2)
    if left:
        command = subcommands(p)[args.command]
        inner = subcommands(command).get(getattr(args, "action", ""), command)
        assert isinstance(inner, Parser)
        inner.refuse(left)
    return args


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit code: 0, 1 for an error, 2 for wrong usage, 130 for Ctrl-C."""
    args = _parsed(sys.argv[1:] if argv is None else argv)
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
