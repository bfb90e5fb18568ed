"""Results of pure functions that are kept: the layers of a model ask the same of dims again.

Keys hold the terms of dims and not dims: while a graph is lowered for sizes at hand, to compare
dims is a decision, and two of one hash would be compared.
"""

from __future__ import annotations

from typing import TypeVar

__all__ = ["Remembered"]

K = TypeVar("K")
V = TypeVar("V")

MOST = 4096
"""Results that are kept; with one more, all are let go."""


class Remembered(dict[K, V]):
    """A dict of at most ``MOST`` results. Threads may work out the same one at once."""

    def __setitem__(self, key: K, value: V) -> None:
        if len(self) >= MOST:
            self.clear()
        super().__setitem__(key, value)
