"""Reading text from left to right, with errors that say where, what was found and expected."""

from __future__ import annotations

import re
from bisect import bisect_right

from rlx.errors import IRError

__all__ = ["STRING", "Scanner"]

STRING = r'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"'
"""The pattern of a string in quotes; what is not escaped goes fast, since it may be megabytes."""

_SPACE = re.compile(r"(?:\s+|//[^\n]*)*+")
_TOKEN = re.compile(rf"{STRING}|[\w.%@#$]+|->|\S|\Z")
_NESTED = re.compile(rf"{STRING}|[()]")
_WORD = re.compile(r"\w")
SHOWN = 40
"""Characters of what was found that an error shows."""


class Scanner:
    """A place in a text. ``source`` is the name of the file that errors give."""

    def __init__(self, text: str, source: str) -> None:
        self.text, self.source, self.at = text, source, 0
        self._ends = [m.start() for m in re.finditer("\n", text)]

    def skip(self) -> int:
        """Pass over space and comments; returns the place after them."""
        found = _SPACE.match(self.text, self.at)
        assert found is not None  # it matches nothing at all, too
        self.at = found.end()
        return self.at

    def accept(self, literal: str) -> bool:
        """Take ``literal`` if it comes next; a word does not come next as a part of a longer."""
        at = self.skip()
        if not self.text.startswith(literal, at):
            return False
        end = at + len(literal)
        if literal[-1].isalnum() and _WORD.match(self.text, end):
            return False
        self.at = end
        return True

    def expect(self, literal: str) -> None:
        """Take ``literal``, or IRError."""
        if not self.accept(literal):
            raise self.expected(repr(literal))

    def take(self, pattern: re.Pattern[str], what: str) -> str:
        """Take what ``pattern`` matches, or IRError that says ``what`` was expected."""
        found = pattern.match(self.text, self.skip())
        if found is None:
            raise self.expected(what)
        self.at = found.end()
        return found[0]

    def parenthesised(self) -> str:
        """Take what stands between a parenthesis and the one that closes it."""
        self.expect("(")
        start, depth = self.at, 1
        while depth:
            found = _NESTED.search(self.text, self.at)
            if found is None:
                raise self.error("a parenthesis is not closed", start)
            self.at = found.end()
            depth += {"(": 1, ")": -1}.get(found[0], 0)
        return self.text[start : self.at - 1]

    def place(self, at: int | None = None) -> tuple[str, int]:
        """The file and line of a place in the text, by default of what comes next."""
        return self.source, bisect_right(self._ends, (self.skip() if at is None else at) - 1) + 1

    def expected(self, what: str) -> IRError:
        """The error that something else than ``what`` comes next."""
        found = _TOKEN.match(self.text, self.skip())
        token = found[0] if found else ""
        shown = token if len(token) <= SHOWN else f"{token[:SHOWN]}..."
        return self.error(f"expected {what}, found {shown or 'the end'}")

    def error(self, message: str, at: int | None = None) -> IRError:
        """An error at a place of the text, by default at what comes next."""
        return IRError(message, self.place(at))
