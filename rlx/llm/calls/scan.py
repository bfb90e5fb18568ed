"""Reading a text that may not be whole yet, from the left to the right."""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["NAME", "MoreError", "Scan", "WrongError"]

NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)
SPACE = re.compile(r"\s*")

LONGEST = len("\\u0000")
"""The most characters of JSON that are nothing until all are there."""


class MoreError(Exception):
    """The text may be right, and is not whole."""


class WrongError(Exception):
    """The text is not what was expected, whatever follows."""


def _no_number(name: str) -> Any:
    raise WrongError(name)


_DECODER = json.JSONDecoder(parse_constant=_no_number)


class Scan:
    """A text, and how far it has been read. Space before what is read is skipped."""

    def __init__(self, text: str, at: int = 0) -> None:
        self.text, self.at = text, at

    def space(self) -> None:
        """Skip space."""
        found = SPACE.match(self.text, self.at)
        assert found is not None
        self.at = found.end()

    def starts(self, word: str) -> bool:
        """Whether a word follows. MoreError if that is not known yet."""
        self.space()
        left = self.text[self.at : self.at + len(word)]
        if left != word and word.startswith(left):
            raise MoreError(word)
        return left == word

    def words(self, spelled: str) -> None:
        """Read words, with space between them or without."""
        for word in spelled.split():
            if not self.starts(word):
                raise WrongError(word)
            self.at += len(word)

    def name(self) -> str:
        """Read a name."""
        self.space()
        found = NAME.match(self.text, self.at)
        end = self.at if found is None else found.end()
        if end == len(self.text):
            raise MoreError("a name")
        if found is None:
            raise WrongError("a name")
        self.at = end
        return found[0]

    def until(self, spelled: str) -> str:
        """Read up to a text, and that too."""
        end = self.text.find(spelled, self.at)
        if end < 0:
            raise MoreError(spelled)
        found, self.at = self.text[self.at : end], end + len(spelled)
        return found

    def json(self) -> tuple[Any, str]:
        """A JSON value, and how it is written."""
        self.space()
        try:
            value, end = _DECODER.raw_decode(self.text, self.at)
        except RecursionError:
            raise WrongError("nested too deep") from None
        except json.JSONDecodeError as e:
            if e.msg.startswith("Unterminated") or len(self.text) - e.pos <= LONGEST:
                raise MoreError(e.msg) from None
            raise WrongError(e.msg) from None
        except ValueError as e:  # Python reads no number of thousands of digits
            raise WrongError(str(e)) from None
        written, self.at = self.text[self.at : end], end
        return value, written

    def members(self) -> dict[str, tuple[Any, str]]:
        """The members of a JSON object, each with how it is written."""
        self.words("{")
        found: dict[str, tuple[Any, str]] = {}
        while not self.starts("}"):
            if found:
                self.words(",")
            key, _ = self.json()
            if not isinstance(key, str):
                raise WrongError("a key is a string")
            self.words(":")
            found[key] = self.json()
        self.words("}")
        return found
