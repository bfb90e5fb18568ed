"""``rlx launch -n 4 SCRIPT``: a script as several ranks."""

from __future__ import annotations

import argparse
import os

from rlx.errors import GraphError
from rlx.tools.options import add_threads

__all__ = ["add_arguments", "run"]

WAYS = ("processes", "mpi", "srun")
"""By what ranks are started: by RLX, on this machine, or by a starter of MPI or of Slurm."""


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    p.add_argument("-n", "--ranks", type=int, required=True, help="how many processes to start")
    add_threads(p)
    p.add_argument("--over", choices=WAYS, help="by what they are started; srun in a job of Slurm")
    p.add_argument("--restarts", type=int, default=0,
                   help="how often to start all again when one has failed")  # fmt: skip
    p.add_argument("--restart-ranks", type=int, default=0, metavar="RANKS",
                   help="how many to start again, by default as many as before")  # fmt: skip
    p.add_argument("script", help="a script in Python, which calls rlx.distributed.connect")
    p.add_argument("arguments", nargs=argparse.REMAINDER, help="what the script is called with")


def run(args: argparse.Namespace) -> int:
    """Start the ranks, show what they print, and end all of them with the first that fails."""
    from rlx.distributed.launcher import Launch, way_of

    for what, found, least in (
        ("-n", args.ranks, 1), ("--restarts", args.restarts, 0),
        ("--restart-ranks", args.restart_ranks, 0),
    ):  # fmt: skip
        if found < least:
            raise GraphError(f"launch: found {what} {found}, expected {least} or more")
    threads = args.threads or max(1, (os.cpu_count() or 1) // args.ranks)
    return Launch(
        (args.script, *args.arguments), args.ranks, threads, args.over or way_of(os.environ),
        args.restarts, args.restart_ranks,
    ).run()  # fmt: skip
