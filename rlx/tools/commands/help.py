"""``rlx help COMMAND``: what a command does, and its arguments."""

from __future__ import annotations

import argparse

from rlx.tools.parser import subcommands

__all__ = ["add_arguments", "run"]


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The command that is asked for."""
    from rlx.tools.cli import COMMANDS

    p.add_argument(
        "topic", nargs="?", choices=COMMANDS, metavar="COMMAND", help="by default all are listed"
    )


def run(args: argparse.Namespace) -> int:
    """Print the help of a command, or the list of all."""
    from rlx.tools.cli import parser

    p = parser((args.topic,))
    (p if args.topic is None else subcommands(p)[args.topic]).print_help()
    return 0
