"""``rlx launch -n 4 SCRIPT``: a script as several ranks."""

from __future__ import annotations

import argparse
import os

from rlx.errors import GraphError
from rlx.tools.options import add_threads

__all__ = ["add_arguments", "run"]


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    p.add_argument("-n", "--ranks", type=int, required=True, help="how many processes to start")
    add_threads(p)
    p.add_argument("script", help="a script in Python, which calls rlx.distributed.connect")
    p.add_argument("arguments", nargs=argparse.REMAINDER, help="what the script is called with")


def run(args: argparse.Namespace) -> int:
    """Start the ranks, show what they print, and end all of them with the first that fails."""
    from rlx.distributed.launcher import Launch

    if args.ranks < 1:
        raise GraphError(f"launch: found -n {args.ranks}, expected 1 or more")
    threads = args.threads or max(1, (os.cpu_count() or 1) // args.ranks)
    return Launch([args.script, *args.arguments], args.ranks, threads).run()
