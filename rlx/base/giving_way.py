"""Work that gives way: a compile in the background stops at the next of its stages where somebody
waits to compile, or the process ends, and is begun anew later."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

__all__ = ["GaveWayError", "Turns", "checkpoint", "compiles", "giving_way"]


class GaveWayError(Exception):
    """Work has stopped for other work. What it had to do is still to be done."""


def _nobody() -> bool:
    return False


_asked: ContextVar[Callable[[], bool]] = ContextVar("giving way", default=_nobody)


@contextmanager
def giving_way(asked: Callable[[], bool]) -> Generator[None]:
    """What is done in the block stops at its next checkpoint where it is ``asked`` to."""
    outer = _asked.get()
    token = _asked.set(lambda: outer() or asked())
    try:
        yield
    finally:
        _asked.reset(token)


def checkpoint() -> Callable[[], None]:
    """GaveWayError where this work is asked to give way. Threads that work for this one call what
    it returns."""
    asked = _asked.get()

    def check() -> None:
        if asked():
            raise GaveWayError

    check()
    return check


class Turns:
    """A lock that a thread may take several times, and that tells whether another one waits for
    it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._waiting: deque[None] = deque()

    @property
    def wanted(self) -> bool:
        """Whether a thread waits for it."""
        return bool(self._waiting)

    def __enter__(self) -> None:
        if self._lock.acquire(blocking=False):
            return
        self._waiting.append(None)  # at its ends threads need no lock
        try:
            self._lock.acquire()
        finally:
            self._waiting.pop()

    def __exit__(self, kind: object, error: BaseException | None, where: Any) -> None:
        if isinstance(error, GaveWayError):
            from traceback import clear_frames  # which takes a millisecond to import

            clear_frames(where)  # what it had begun ends here, and not in another one's turn
        self.leave()

    def leave(self) -> None:
        """Let it go."""
        self._lock.release()

    def in_child(self) -> None:
        """Let it go in a child of a fork, where nobody waits."""
        self._waiting.clear()
        self._lock.release()


compiles = Turns()
"""Whose turn it is to compile: MLIR's context and LLVM serve one at a time."""
if hasattr(os, "register_at_fork"):
    # A fork waits for the compile at hand: a child could use neither its context nor LLVM's locks.
    os.register_at_fork(
        before=compiles.__enter__,
        after_in_parent=compiles.leave,
        after_in_child=compiles.in_child,
    )
