"""The text of tokens as they come, up to the first of some strings."""

from __future__ import annotations

from collections.abc import Sequence

from rlx.llm.text.stream import Detokenizer

__all__ = ["StopText", "overlap"]


class StopText:
    """Gives the text of ids one at a time, and ends before the first of ``stops``: what may be the
    beginning of one is kept back until it is known."""

    def __init__(self, stream: Detokenizer, stops: Sequence[str] = ()) -> None:
        self._stream, self._stops, self._held = stream, tuple(stops), ""
        self.hit: str | None = None
        """The string that ended the text."""

    def add(self, token: int) -> str:
        """The text that is known with a token more, which may be empty."""
        return self._known(self._stream.add(token))

    def end(self) -> str:
        """What is left when no more tokens come."""
        rest = self._known(self._stream.end())
        held, self._held = self._held, ""
        return rest + held

    def _known(self, piece: str) -> str:
        if self.hit is not None:
            return ""
        text = self._held + piece
        found = [(at, -len(s), s) for s in self._stops if (at := text.find(s)) >= 0]
        if found:
            at, _, self.hit = min(found)
            self._held = ""
            return text[:at]
        kept = max((overlap(text, s) for s in self._stops), default=0)
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept]


def overlap(text: str, stop: str) -> int:
    """How many characters at the end of a text are the beginning of a string."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
