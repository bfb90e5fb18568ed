"""Ranks as processes: started together, shown together, ended together, and started again."""

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
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

from rlx.base.frozen import frozen
from rlx.distributed.status import ending
from rlx.distributed.supervisor import shown
from rlx.errors import GraphError

__all__ = ["GRACE", "Launch", "exit_on_sigterm", "way_of"]

GRACE = 2.0
"""Seconds that a rank has to end by itself, once it is told to."""

POLL = 0.02
"""Seconds between looks at the ranks."""


def way_of(environment: Mapping[str, str]) -> str:
    """By what ranks are started where nobody says it: by ``srun`` in a job of Slurm."""
    inside = "SLURM_JOB_ID" in environment and shutil.which("srun") is not None
    return "srun" if inside else "processes"


def memory_folder() -> str:
    """A new folder, in memory if the system has a place there."""
    shared = "/dev/shm"
    usable = os.path.isdir(shared) and os.access(shared, os.W_OK)
    return tempfile.mkdtemp(prefix="rlx-ranks-", dir=shared if usable else None)


@frozen
class Launch:
    """So many ranks of a script: ``command`` is its file and arguments, for this Python.

    Each finds in its environment which rank it is (``rlx.distributed.connect``), and has so many
    ``threads``. What it prints comes line by line, behind its number. When a rank fails, all are
    ended, and started again ``restarts`` times, then as ``restart_ranks``. Where this process is
    told to end, they have ``grace`` seconds for it.
    """

    command: tuple[str, ...]
    ranks: int
    threads: int
    way: str = "processes"
    restarts: int = 0
    restart_ranks: int = 0
    grace: float = GRACE

    def run(self) -> int:
        """Run all of them to their end; 0, or the status of the first that failed: its exit status,
        or 128 and the number of the signal that killed it. GraphError if there is no such starter.
        """
        ranks = self.ranks
        with exit_on_sigterm():
            for again in range(self.restarts + 1):
                run = _Run(self, ranks) if self.way == "processes" else _Started(self, ranks)
                status = run.run()
                if status == 0 or run.stopped or again == self.restarts:
                    return status
                ranks = self.restart_ranks or ranks
                said = f"rlx: restart {again + 1} of {self.restarts}, with {ranks} ranks"
                print(said, file=sys.stderr, flush=True)
        raise AssertionError("the last run gives its status")

    def environment(self) -> dict[str, str]:
        """What all ranks find."""
        own = {"RLX_NUM_THREADS": str(self.threads), **os.environ, "PYTHONUNBUFFERED": "1"}
        own.pop("RLX_RENDEZVOUS", None)
        return own


class _Processes:
    """Processes, which are waited for together."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[str]] = []
        self.stopped = False
        self.lock = threading.Lock()

    def wait_within(self, grace: float) -> int:
        """``wait``; where this process is told to end, they have so many seconds for it."""
        try:
            return self.wait()
        except SystemExit:
            _end(self.processes, grace)
            raise

    def wait(self) -> int:
        """Wait for the end of all, or the failure of one. The first Ctrl-C is passed on to them."""
        while True:
            try:
                found = [p.poll() for p in self.processes]
                if any(found) or all(status == 0 for status in found):
                    break
                time.sleep(POLL)
            except KeyboardInterrupt:
                if self.stopped:
                    raise
                self.stopped = True
                _signal(self.processes, signal.SIGINT)
        if not any(found):
            return 130 if self.stopped else 0
        # A rank that was killed goes before those that missed it.
        failed = [(status >= 0, n, status) for n, status in enumerate(found) if status]
        _, rank, status = min(failed)
        with self.lock:
            self.tell(rank, status)
        return status if status > 0 else 128 - status

    def tell(self, rank: int, status: int) -> None:
        """Say which has failed."""


class _Run(_Processes):
    """Ranks that this process starts itself."""

    def __init__(self, launch: Launch, ranks: int) -> None:
        super().__init__()
        self.launch, self.ranks, self.folder = launch, ranks, memory_folder()

    def run(self) -> int:
        readers: list[threading.Thread] = []
        try:
            for rank in range(self.ranks):
                self.processes.append(process := self._start(rank))
                assert process.stdout is not None and process.stderr is not None
                readers.append(shown(rank, process.stdout, sys.stdout, self.lock))
                readers.append(shown(rank, process.stderr, sys.stderr, self.lock))
            return self.wait_within(self.launch.grace)
        finally:
            _end(self.processes)
            for reader in readers:
                reader.join(GRACE)
            shutil.rmtree(self.folder, ignore_errors=True)

    def tell(self, rank: int, status: int) -> None:
        print(ending(rank, self.ranks, status, self._status(rank)), file=sys.stderr, flush=True)

    def _status(self, rank: int) -> str:
        return os.path.join(self.folder, f"status.{rank}")

    def _start(self, rank: int) -> subprocess.Popen[str]:
        environment = {
            **self.launch.environment(),
            "RLX_RANK": str(rank),
            "RLX_RANKS": str(self.ranks),
            "RLX_RENDEZVOUS": self.folder,
            "RLX_STATUS": self._status(rank),
        }
        return subprocess.Popen(
            [sys.executable, *self.launch.command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # so that what a rank starts ends with it
        )


class _Started(_Processes):
    """Ranks that a starter of MPI or Slurm starts, each below a supervisor, which tells of it."""

    def __init__(self, launch: Launch, ranks: int) -> None:
        super().__init__()
        self.launch, self.ranks = launch, ranks

    def run(self) -> int:
        environment = self.launch.environment()
        if self.ranks > (os.cpu_count() or 1):
            # Ranks that wait are to leave the cores to others.
            environment = {**OVERSUBSCRIBED, **environment}
        supervised = [sys.executable, "-m", "rlx.distributed.supervisor", *self.launch.command]
        try:
            self.processes.append(
                subprocess.Popen(
                    [*_starter(self.launch.way), "-n", str(self.ranks), *supervised],
                    env=environment, stdin=subprocess.DEVNULL, start_new_session=True, text=True,
                )
            )  # fmt: skip
            return self.wait_within(self.launch.grace)
        finally:
            _end(self.processes)


OVERSUBSCRIBED = {
    "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
"""What MPICH and Open MPI need for more ranks than cores."""


def _starter(way: str) -> list[str]:
    if way == "srun":
        if (found := shutil.which("srun")) is None:
            raise GraphError("launch --over srun: found no srun; run it in a job of Slurm")
        return [found, "--kill-on-bad-exit=1"]
    beside = Path(sys.prefix) / "bin" / "mpiexec"
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        raise GraphError(
            f"launch --over mpi: found no mpiexec beside {sys.executable}, or on the PATH; install"
            " an MPI, as by `pip install mpich`"
        )
    return [found]


@contextlib.contextmanager
def exit_on_sigterm() -> Generator[None]:
    """In the block SIGTERM is an exit, which ends the ranks, and not the end at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _signal(processes: Sequence[subprocess.Popen[str]], number: int) -> None:
    """Send a signal to those that still run, with all that they have started."""
    for p in processes:
        if p.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(p.pid, number)


def _end(processes: Sequence[subprocess.Popen[str]], grace: float = GRACE) -> None:
    """End what still runs, with all that it has started: asked first, then killed."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        running = [p for p in processes if p.poll() is None]
        _signal(running, how)
        end = time.monotonic() + grace
        for p in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                p.wait(max(0.0, end - time.monotonic()))
