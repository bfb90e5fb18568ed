"""Ranks as processes of this machine: started together, shown together, ended together."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Sequence
from typing import IO

__all__ = ["Launch"]

GRACE = 2.0
"""Seconds that a rank has to end by itself, once it is told to."""

POLL = 0.02
"""Seconds between looks at the ranks."""


def memory_folder() -> str:
    """A new folder, in memory if the system has a place there."""
    shared = "/dev/shm"
    usable = os.path.isdir(shared) and os.access(shared, os.W_OK)
    return tempfile.mkdtemp(prefix="rlx-ranks-", dir=shared if usable else None)


class Launch:
    """So many ranks of a script: ``command`` is its file and arguments, for this Python.

    Each finds in its environment which rank it is (``rlx.distributed.connect``), and has so many
    ``threads``. What it prints comes line by line, behind its number.
    """

    def __init__(self, command: Sequence[str], ranks: int, threads: int) -> None:
        self.command, self.ranks, self.threads = list(command), ranks, threads
        self._out = threading.Lock()

    def run(self) -> int:
        """Run all of them to their end; 0, or the status of the first that failed: its exit status,
        or 128 and the number of the signal that killed it."""
        with _ending():
            return self._run()

    def _run(self) -> int:
        folder = memory_folder()
        processes: list[subprocess.Popen[str]] = []
        readers: list[threading.Thread] = []
        try:
            for rank in range(self.ranks):
                processes.append(self._start(rank, folder))
                for stream, target in (
                    (processes[-1].stdout, sys.stdout), (processes[-1].stderr, sys.stderr),
                ):  # fmt: skip
                    assert stream is not None
                    readers.append(self._reader(rank, stream, target))
            status = self._wait(processes)
        finally:
            _end(processes)
            for reader in readers:
                reader.join(GRACE)
            shutil.rmtree(folder, ignore_errors=True)
        return status

    def _start(self, rank: int, folder: str) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            "RLX_RANK": str(rank),
            "RLX_RANKS": str(self.ranks),
            "RLX_RENDEZVOUS": folder,
            "RLX_NUM_THREADS": os.environ.get("RLX_NUM_THREADS", str(self.threads)),
            "PYTHONUNBUFFERED": "1",
        }
        return subprocess.Popen(
            [sys.executable, *self.command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # so that what a rank starts ends with it
        )

    def _reader(self, rank: int, stream: IO[str], target: IO[str]) -> threading.Thread:
        def read() -> None:
            for line in stream:
                with self._out:
                    target.write(f"[{rank}] {line.rstrip()}\n")
                    target.flush()

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        return thread

    def _wait(self, processes: Sequence[subprocess.Popen[str]]) -> int:
        """Wait for the end of all, or the failure of one."""
        while True:
            found = [p.poll() for p in processes]
            for rank, status in enumerate(found):
                if status:
                    with self._out:
                        print(f"rlx: rank {rank} of {self.ranks} {_told(status)}", file=sys.stderr)
                    return status if status > 0 else 128 - status
            if all(status == 0 for status in found):
                return 0
            time.sleep(POLL)


@contextlib.contextmanager
def _ending() -> Generator[None]:
    """In the block SIGTERM is an exit, which ends the ranks, and not the end at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _told(status: int) -> str:
    if status > 0:
        return f"ended with status {status}"
    with contextlib.suppress(ValueError):
        return f"killed by signal {-status} ({signal.Signals(-status).name})"
    return f"killed by signal {-status}"


def _end(processes: Sequence[subprocess.Popen[str]]) -> None:
    """End what still runs, with all that it has started: asked first, then killed."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        running = [p for p in processes if p.poll() is None]
        for p in running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(p.pid, how)
        end = time.monotonic() + GRACE
        for p in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                p.wait(max(0.0, end - time.monotonic()))
