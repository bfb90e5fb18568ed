"""Ctrl-C held back while Python code changes what must stay whole, such as the state of a run."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["Held", "held"]


class Held:
    """The presses of Ctrl-C that a block has held back."""

    def __init__(self) -> None:
        self._noted: list[tuple[int, FrameType | None]] = []
        self._through = False
        self.before: Any = None

    def note(self, number: int, frame: FrameType | None) -> None:
        """The handler of the signal while the block runs."""
        self._noted.append((number, frame))
        if self._through:
            self.let_through()

    def let_through(self, more_than: int = 0) -> None:
        """Call the handler that there was before for every press so far, if there were more than
        so many; as a rule it raises KeyboardInterrupt."""
        while callable(self.before) and len(self._noted) > more_than:
            self.before(*self._noted.pop(0))

    @contextmanager
    def open(self) -> Generator[None]:
        """A part of the block in which nothing is held back."""
        self._through = True
        try:
            self.let_through()
            yield
        finally:
            self._through = False


@contextmanager
def held() -> Generator[Held]:
    """While the block runs, Ctrl-C is only noted; at its end the handler that there was before is
    called. Other threads than the main one get no signals, and a handler that is none of Python's
    is left alone."""
    found = Held()
    main = threading.current_thread() is threading.main_thread()
    if not main or not callable(signal.getsignal(signal.SIGINT)):
        yield found
        return
    found.before = signal.signal(signal.SIGINT, found.note)
    try:
        yield found
    finally:
        signal.signal(signal.SIGINT, found.before)
        found.let_through()
