"""Calls in the text of an answer as it comes."""

from __future__ import annotations

from collections.abc import Mapping

from rlx.llm.calls.scan import MoreError, WrongError
from rlx.llm.calls.spelling import Call, Function, Spelling
from rlx.llm.text.stops import overlap

__all__ = ["CallReader"]

SHORT = 256
"""What is kept back is read again with each piece up to so many characters, then where a unit may
end: long arguments are not read anew at each of their braces."""


class CallReader:
    """Tells calls of ``tools`` from other text, which is given on.

    What may be a call is kept back until it is known. A text is lost nowhere: what turns out to be
    no call is other text. Space beside calls belongs to them.
    """

    def __init__(self, spelling: Spelling, tools: Mapping[str, Function]) -> None:
        self.calls: list[Call] = []
        self._spelling, self._tools, self._mark = spelling, tools, spelling.mark
        self._held = ""
        self._more = False
        """Whether what is held begins a call that is not whole."""
        self._begun = False
        """Whether the answer may have no ``first`` unit any more."""
        self._beside = True
        """Whether space that comes next stands beside a call, or may."""

    def add(self, piece: str) -> str:
        """The text that is known with a piece more, which may be empty."""
        self._held += piece
        if self._more and len(self._held) > SHORT and self._spelling.last not in piece:
            return ""
        return self._known(ended=False)

    def end(self) -> str:
        """What is left when no more comes."""
        return self._known(ended=True)

    def _known(self, *, ended: bool) -> str:
        out, at, self._more = "", 0, False
        while (start := self._start(at)) is not None:
            try:
                calls, end = self._spelling.unit(self._held, start, self._tools)
            except MoreError:
                if ended:
                    break
                self._more = True
                before = self._held[:start].rstrip()
                self._held = self._held[len(before) :]
                return out + self._other(before)
            except WrongError:
                at = start + max(len(self._mark), 1)
                self._begun = True
                continue
            out += self._other(self._held[:start].rstrip())
            self._held, at, self._begun, self._beside = self._held[end:], 0, True, True
            self.calls += calls
        kept = 0 if ended else self._kept()
        known, self._held = (
            self._held[: len(self._held) - kept], self._held[len(self._held) - kept :]
        )  # fmt: skip
        return out + self._other(known)

    def _start(self, at: int) -> int | None:
        """Where a unit may begin, from a place on."""
        if self._spelling.first:
            return None if self._begun or not self._held.strip() else 0
        found = self._held.find(self._mark, at)
        return None if found < 0 else found

    def _kept(self) -> int:
        """How many characters at the end may belong to a unit that follows."""
        if self._spelling.first:
            return 0 if self._begun and not self._beside else _space(self._held)
        text = self._held
        body = text[: len(text) - overlap(text, self._mark)]
        return len(text) - len(body) + _space(body)

    def _other(self, text: str) -> str:
        """Text that is no call; space beside one is left out."""
        if self._beside and self.calls:
            text = text.lstrip()
        if text:
            self._beside = False
        return text


def _space(text: str) -> int:
    return len(text) - len(text.rstrip())
