"""The parent of one rank that MPI or Slurm starts: shows what it prints, and says how it ended.

    mpiexec -n 4 python -m rlx.distributed.supervisor script.py

``rlx launch --over mpi`` and ``--over srun`` start it on every machine.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from types import FrameType
from typing import IO

from rlx.base.world import started_rank, world_size
from rlx.distributed.status import ending, with_parent

__all__ = ["main", "shown"]


def shown(rank: int, stream: IO[str], target: IO[str], lock: threading.Lock) -> threading.Thread:
    """A thread that writes the lines of a rank behind its number."""

    def read() -> None:
        for line in stream:
            with lock:
                target.write(f"[{rank}] {line.rstrip()}\n")
                target.flush()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


def main(command: Sequence[str]) -> int:
    """Run a script with its arguments as this rank; its status, or 128 and the number of the signal
    that killed it."""
    folder = tempfile.mkdtemp(prefix="rlx-rank-")
    path, rank, lock = os.path.join(folder, "status"), started_rank(), threading.Lock()
    child = subprocess.Popen(
        [sys.executable, *command],
        env={**os.environ, "RLX_STATUS": path, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, errors="replace", close_fds=False,  # the one to MPI's starter stays open
        preexec_fn=with_parent,  # noqa: PLW1509  # no thread runs yet
    )  # fmt: skip
    told: list[int] = []

    def passed(number: int, frame: FrameType | None) -> None:
        told.append(number)
        child.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, passed)
    assert child.stdout is not None and child.stderr is not None
    readers = [
        shown(rank, child.stdout, sys.stdout, lock),
        shown(rank, child.stderr, sys.stderr, lock),
    ]
    status = child.wait()
    for reader in readers:
        reader.join(1)
    if status and not told:
        print(ending(rank, world_size(), status, path), file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
