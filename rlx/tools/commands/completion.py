"""``rlx completion SHELL``: a script by which a shell completes rlx's command lines."""

from __future__ import annotations

import argparse

from rlx.tools.shells import SHELLS, commands_of

__all__ = ["add_arguments", "run"]

EPILOG = """\
For a shell that runs, and in its start file for all:
  bash   source <(rlx completion bash)      in ~/.bashrc
  zsh    source <(rlx completion zsh)       in ~/.zshrc, after compinit
  fish   rlx completion fish | source       in ~/.config/fish/config.fish
"""


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The shell."""
    p.add_argument("shell", choices=SHELLS, help=f"one of {', '.join(SHELLS)}")
    p.epilog, p.formatter_class = EPILOG, argparse.RawDescriptionHelpFormatter


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    from rlx.tools.cli import COMMANDS, parser

    print(SHELLS[args.shell](commands_of(parser(COMMANDS))), end="")
    return 0
