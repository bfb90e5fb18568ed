"""A progress bar on stderr for work that takes long."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self, TextIO

__all__ = ["Progress"]


class Progress:
    """Counts steps to ``total`` and draws a bar, once the work has taken a second.

    ``show`` forces the bar on or off; None draws it if the stream is a terminal. Use it as a
    context manager, so that the line is cleared whatever happens.
    """

    def __init__(
        self, label: str, total: int, show: bool | None = None, stream: TextIO | None = None
    ) -> None:
        self.label, self.total, self.done = label, total, 0
        self._stream = sys.stderr if stream is None else stream
        self._show = self._stream.isatty() if show is None else show
        self._start = time.monotonic()
        self._next = self._start + (0.0 if show else 1.0)
        self._drawn = False

    def advance(self, steps: int = 1) -> None:
        """Count finished steps; redraws at most ten times a second."""
        self.done += steps
        now = time.monotonic()
        if self._show and now >= self._next:
            self._next, self._drawn = now + 0.1, True
            part = self.done / max(self.total, 1)
            left = (now - self._start) * (1 - part) / part if part else 0.0
            bar = ("#" * round(24 * part)).ljust(24, ".")
            self._stream.write(
                f"\r{self.label} [{bar}] {self.done}/{self.total}, {left:.0f} s left "
            )
            self._stream.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
