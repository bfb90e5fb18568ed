"""Replicas of a server: processes that each have the whole model, watched and started again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from types import TracebackType

from rlx.distributed.launcher import GRACE
from rlx.distributed.status import how_ended, read_error
from rlx.errors import RlxError
from rlx.llm.server.exchange import get

__all__ = ["Replica", "Replicas"]

POLL = 0.1
"""Seconds between looks at a replica that starts."""

WATCH = 2.0
"""Seconds between looks at one that serves."""

SILENCE = 30.0
"""Seconds after which one that does not say how it is counts as hung."""

LONGEST_PAUSE = 60.0
"""Seconds before another start of one that has failed to start time and again."""


class Replica:
    """A server at a Unix socket, in a process of its own."""

    def __init__(self, number: int, folder: str) -> None:
        self.number = number
        self.socket = os.path.join(folder, f"{number}.sock")
        self.status = os.path.join(folder, f"{number}.status")
        self.process: asyncio.subprocess.Process | None = None
        self.shown: asyncio.Task[None] | None = None
        """What shows its lines."""
        self.serving = False
        self.active = self.served = self.restarts = 0
        """Requests that it serves now, and has served; starts after the first."""
        self.why = "it is being started"
        """Why it does not serve."""
        self.ended = asyncio.Event()
        """Whether it has ended, and is not started again yet."""

    @property
    def pid(self) -> int | None:
        """The number of its process."""
        return None if self.process is None else self.process.pid

    async def reason(self) -> str:
        """Why it has cut a connection."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.ended.wait(), 1.0)
        return f"replica {self.number} failed: {self.why}"

    def signal(self, number: int) -> None:
        """Send a signal to its process, and to what that has started."""
        if self.process is not None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)


class Replicas:
    """So many replicas of a server: ``command`` gives what this Python runs at a socket.

    In ``async with`` they are started, and whoever enters waits until all serve; RlxError if one
    ends before that. Later, one that ends, that says it does not serve, or that says nothing is
    started again. At the end they have ``grace`` seconds.
    """

    def __init__(
        self, command: Callable[[str], Sequence[str]], count: int, *, grace: float = GRACE
    ) -> None:
        self.command, self.grace = command, grace
        self.folder = tempfile.mkdtemp(prefix="rlx-serve-")  # which nobody else may enter
        self.replicas = [Replica(n, self.folder) for n in range(count)]
        self._keepers: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Replicas:
        ready = [asyncio.Event() for _ in self.replicas]
        for replica, event in zip(self.replicas, ready, strict=True):
            self._keepers.append(asyncio.create_task(self._keep(replica, event)))
        waiting = [asyncio.create_task(event.wait()) for event in ready]
        everyone = asyncio.gather(*waiting)
        try:
            await asyncio.wait([everyone, *self._keepers], return_when=asyncio.FIRST_COMPLETED)
            for keeper in self._keepers:
                if keeper.done():
                    keeper.result()  # it raises: a keeper ends by an error alone
        except BaseException:
            await self._stop()
            raise
        finally:
            everyone.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await everyone
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stop()

    def least_loaded(self, tried: Collection[Replica]) -> Replica | None:
        """The one that serves the fewest requests, of those that serve and are not ``tried``; None
        if there is none."""
        usable = [r for r in self.replicas if r.serving and r not in tried]
        return min(usable, key=lambda r: (r.active, r.served), default=None)

    # -- processes -------------------------------------------------------------------------

    async def _keep(self, replica: Replica, ready: asyncio.Event) -> None:
        """Start a replica, and start it again whenever it has ended. RlxError if it ends before it
        has served at all."""
        pause = 0.0
        while True:
            try:
                served, status = await self._run(replica, ready)
            except OSError as e:
                served, replica.why = False, f"cannot be started: {e}"
            else:
                error = read_error(replica.status) if status > 0 else ""
                replica.why = f"{how_ended(status)}{': ' if error else ''}{error}"
            replica.ended.set()
            said = f"replica {replica.number} of {len(self.replicas)} {replica.why}"
            if not ready.is_set():
                raise RlxError(f"serve: {said}")
            pause = 0.0 if served else min(max(1.0, 2 * pause), LONGEST_PAUSE)
            then = f" in {pause:.0f} s" if pause else ""
            print(f"rlx: {said}; it is started again{then}", file=sys.stderr, flush=True)
            await asyncio.sleep(pause)
            replica.restarts += 1

    async def _run(self, replica: Replica, ready: asyncio.Event) -> tuple[bool, int]:
        """One process from its start to its end: whether it served, and its status."""
        for path in (replica.socket, replica.status, f"{replica.status}.error"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        replica.ended.clear()
        replica.process = process = await asyncio.create_subprocess_exec(
            sys.executable, *self.command(replica.socket),
            env={**os.environ, "RLX_STATUS": replica.status, "PYTHONUNBUFFERED": "1"},
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,  # so that Ctrl-C lets requests end, and what it starts ends too
        )  # fmt: skip
        watch = asyncio.create_task(self._watch(replica, ready))
        assert process.stdout is not None
        replica.shown = asyncio.create_task(_show(replica.number, process.stdout))
        try:
            status = await process.wait()
        finally:
            served, replica.serving = replica.serving, False
            watch.cancel()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what it has started
        await asyncio.wait([replica.shown], timeout=1.0)
        return served, status

    async def _watch(self, replica: Replica, ready: asyncio.Event) -> None:
        """Note when a replica serves, and kill it once it does not any more."""
        while not await _is_well(replica):
            await asyncio.sleep(POLL)
        replica.serving = True
        ready.set()
        while await _is_well(replica):
            await asyncio.sleep(WATCH)
        print(f"rlx: replica {replica.number} does not serve; it is killed", file=sys.stderr)
        replica.signal(signal.SIGKILL)

    async def _stop(self) -> None:
        """End all: asked first, then killed."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        running = [r.process for r in self.replicas if r.process is not None]
        for number, seconds in ((signal.SIGTERM, self.grace), (signal.SIGKILL, GRACE)):
            for replica in self.replicas:
                replica.signal(number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.gather(*(p.wait() for p in running)), seconds)
        shutil.rmtree(self.folder, ignore_errors=True)


async def _is_well(replica: Replica) -> bool:
    """Whether a replica says that it serves."""
    try:
        async with asyncio.timeout(SILENCE):
            return (await get(replica.socket, "/health")).status == 200
    except (OSError, EOFError):  # TimeoutError is an OSError
        return False


async def _show(number: int, stream: asyncio.StreamReader) -> None:
    """Write the lines of a replica behind its number."""
    async for line in stream:
        sys.stderr.write(f"[{number}] {line.decode('utf-8', 'replace').rstrip()}\n")
        sys.stderr.flush()
