"""Dims from text: the inverse of ``str(dim)``.

sum:     [-] product {+ product | - product}
product: factor {* factor | // factor | % factor}
factor:  12 | n | n[1..64] | n[1..] | min(sum, ...) | max(sum, ...) | (sum)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from rlx.base.dims import DEPTH, Dim, SymDim, floor_div, maximum, minimum
from rlx.errors import NameError

__all__ = ["parse_dim", "without_ranges"]

_TOKEN = re.compile(
    r"\s*(?:([0-9]+)|([A-Za-z_]\w*)(?:\[([0-9]{1,19})\.\.([0-9]{1,19})?\])?|(//|[-+*%(),]))"
)
_RANGE = re.compile(r"(?<=\w)\[\d+\.\.\d*\]")
T = TypeVar("T")

DIGITS = 78
"""The most digits of a number: no fewer than those of the largest that a dim has."""
LENGTH = 1 << 14
"""The most characters of a dim."""


def parse_dim(text: str) -> Dim:
    """The dim that a text says; NameError for text that is none, ShapeError for a division by
    zero."""
    return _Parser(text).whole()


def without_ranges(text: str) -> str:
    """The text of dims without the ranges of symbols, which tell symbols apart and are no news to
    people."""
    return _RANGE.sub("", text)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text, self._depth = text, 0
        self._tokens: list[re.Match[str]] = []
        at = 0
        stripped = text.rstrip() if len(text) <= LENGTH else ""
        while at < len(stripped):
            found = _TOKEN.match(stripped, at)
            if found is None:
                raise self._error()
            self._tokens.append(found)
            at = found.end()
        self._at = 0

    def whole(self) -> Dim:
        found = self._sum()
        if self._at < len(self._tokens):
            raise self._error()
        return found

    def _error(self) -> NameError:
        return NameError(
            f"{self._text[:80]!r} is no dim; write a sum of products such as 2*n+1, with"
            " quotients n//4, minima min(n,64) and maxima where needed"
        )

    def _peek(self) -> str:
        return self._tokens[self._at][5] or "" if self._at < len(self._tokens) else ""

    def _take(self, *signs: str) -> str:
        """The next token if it is one of these, else ""."""
        found = self._peek()
        if found not in signs:
            return ""
        self._at += 1
        return found

    def _sum(self) -> Dim:
        sign = self._take("-", "+")
        total = self._product() * (-1 if sign == "-" else 1)
        while sign := self._take("+", "-"):
            total = total + self._product() * (-1 if sign == "-" else 1)
        return total

    def _product(self) -> Dim:
        found = self._factor()
        while sign := self._take("*", "//", "%"):
            found = _APPLIED[sign](found, self._factor())
        return found

    def _factor(self) -> Dim:
        if self._take("("):
            return self._inside(self._sum)
        if self._at == len(self._tokens) or self._tokens[self._at][5]:
            raise self._error()
        number, name, low, high, _ = self._tokens[self._at].groups()
        self._at += 1
        if number is not None:
            if len(number) > DIGITS:
                raise self._error()
            return int(number)
        if low is not None:
            return SymDim.symbol(name, int(low), None if high is None else int(high))
        if name in ("min", "max") and self._take("("):
            args = self._inside(self._list)
            return minimum(*args) if name == "min" else maximum(*args)
        return SymDim.symbol(name)

    def _list(self) -> list[Dim]:
        found = [self._sum()]
        while self._take(","):
            found.append(self._sum())
        return found

    def _inside(self, read: Callable[[], T]) -> T:
        self._depth += 1
        if self._depth > 4 * DEPTH:
            raise self._error()
        found = read()
        if not self._take(")"):
            raise self._error()
        self._depth -= 1
        return found


_APPLIED: dict[str, Callable[[Dim, Dim], Dim]] = {
    "*": lambda a, b: a * b,
    "//": floor_div,
    "%": lambda a, b: a - floor_div(a, b) * b,
}
