"""A progress bar on stderr for work that takes long."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self, TextIO

__all__ = ["Progress"]

_LONGEST = 60.0
"""Seconds between two lines."""


class Progress:
    """Counts steps to ``total`` and draws a bar, once the work has taken a second.

    ``show`` forces the bar on or off; None draws it if the stream is a terminal. With ``lines``
    another stream, such as a log or a notebook, gets a line after 1, 2, 4, ... seconds, and at
    least one every minute. Use it as a context manager, so that the bar is cleared whatever
    happens; ``shown`` says whether anything was written.
    """

    def __init__(
        self,
        label: str,
        total: int,
        show: bool | None = None,
        stream: TextIO | None = None,
        *,
        lines: bool = False,
    ) -> None:
        self.label, self.total, self.done = label, total, 0
        self._stream = sys.stderr if stream is None else stream
        self._bar = self._stream.isatty() if show is None else show
        self._lines = lines and show is None and not self._bar
        self._start = time.monotonic()
        self._next = self._start + (0.0 if show else 1.0)
        self.shown = False

    def advance(self, steps: int = 1) -> None:
        """Count finished steps; redraws a bar at most ten times a second."""
        self.done += steps
        if not (self._bar or self._lines):
            return
        now = time.monotonic()
        if now < self._next:
            return
        took = now - self._start
        part = self.done / max(self.total, 1)
        left = took * (1 - part) / part if part else 0.0
        if self._bar:
            bar = ("#" * round(24 * part)).ljust(24, ".")
            text = f"\r{self.label} [{bar}] {self.done}/{self.total}, {left:.0f} s left "
            self._next = now + 0.1
        else:
            text = f"{self.done}/{self.total}: {self.label}, {left:.0f} s left\n"
            self._next = now + min(max(took, 1.0), _LONGEST)
        self.shown = True
        self._stream.write(text)
        self._stream.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.shown and self._bar:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
