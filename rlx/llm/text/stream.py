"""Ids to text as they come."""

from __future__ import annotations

from collections.abc import Callable, Sequence

__all__ = ["Detokenizer"]

REPLACEMENT = "\ufffd"
"""What stands for bytes that are no character, or not yet one."""


class Detokenizer:
    """Gives the text of ids one at a time: what is returned in all is the text of all ids.

    A character whose bytes lie in several tokens comes with the last of them.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        """``decode`` gives the text of ids."""
        self._decode = decode
        self._ids: list[int] = []
        self._kept = 0  # the first ids, whose text is out: what follows them may depend on them
        self._out = 0  # the length of the text of the ids that is out

    def add(self, token: int) -> str:
        """The text that a token adds, which may be empty."""
        self._ids.append(token)
        text = self._decode(self._ids)
        end = len(text)
        while end > self._out and text[end - 1] == REPLACEMENT:
            end -= 1
        new = text[self._out : end]
        self._out = max(self._out, end)
        if new and end == len(text):  # a whole character ends here
            self._ids = self._ids[self._kept :]
            self._kept = len(self._ids)
            self._out = len(self._decode(self._ids))
        return new

    def end(self) -> str:
        """What is left when no more tokens come: characters that were never complete."""
        new = self._decode(self._ids)[self._out :]
        self._ids, self._kept, self._out = [], 0, 0
        return new
