"""A cursor over a module's text: types, dictionaries of attributes, locations."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from rlx.errors import IRError, RlxError, did_you_mean
from rlx.ir.mlir_text import unquoted
from rlx.text.scanner import STRING, Scanner
from rlx.text.values import read_type
from rlx.types import TensorType

__all__ = ["Cursor"]

T = TypeVar("T")
Place = tuple[str, int]

_KEY = re.compile(r"[A-Za-z_][\w.]*")
_ALIAS = re.compile(r"^\s*(#\w+) = loc\((.*)\)\s*$", re.MULTILINE)
_PLACE = re.compile(rf"({STRING}):([0-9]{{1,9}})|(#\w+)")


class Cursor(Scanner):
    """A place in the text of a module; its lines ``#name = loc(...)`` are known from the start."""

    def __init__(self, text: str, source: str) -> None:
        super().__init__(text, source)
        self.aliases = {m[1]: m[2] for m in _ALIAS.finditer(text)}

    def skip_aliases(self) -> None:
        """Pass over lines that name places."""
        while found := _ALIAS.match(self.text, self.skip()):
            self.at = found.end()

    def types(self) -> list[TensorType]:
        """Take a type, or any number of them in parentheses."""
        if not self.accept("("):
            return [self.type_at(0)]
        found: list[TensorType] = []
        while not self.accept(")"):
            found.append(self.type_at(len(found)))
        return found

    def type_at(self, index: int) -> TensorType:
        """Take a type of a list, after a comma unless it is the first."""
        if index:
            self.expect(",")
        at = self.skip()
        return self.at_line(lambda: read_type(self), at)

    def attributes(
        self, value: Callable[[str], Any], known: Collection[str], of: str
    ) -> dict[str, Any]:
        """Take ``{key = value, ...}`` if it comes next, with keys among ``known``."""
        found: dict[str, Any] = {}
        if not self.accept("{"):
            return found
        while not self.accept("}"):
            if found:
                self.expect(",")
            at = self.skip()
            key = self.take(_KEY, "the name of an attribute")
            if key not in known:
                raise self.error(f"{of} has no attribute {key!r}{did_you_mean(key, known)}", at)
            if key in found:
                raise self.error(f"{of} has the attribute {key!r} twice", at)
            self.expect("=")
            found[key] = self.at_line(lambda key=key: value(key), at)
        return found

    def optional_place(self) -> Place | None:
        """Take ``loc(...)`` if it comes next; the first file and line in it, if it has one."""
        if not self.accept("loc"):
            return None
        at, text = self.at, self.parenthesised()
        try:
            return self._place_in(text)
        except ValueError:
            raise self.error(f"loc({text}) has an escape that there is not", at) from None

    def _place_in(self, text: str) -> Place | None:
        """The first file and line, aliases looked up; each once, whatever refers to what."""
        todo, seen = [text], set[str]()
        while todo:
            part = todo.pop()
            for found in _PLACE.finditer(part):
                file, line, alias = found.groups()
                if file:
                    return unquoted(file), int(line)
                if alias not in seen:
                    seen.add(alias)
                    todo += [part[found.end() :], self.aliases.get(alias, "")]
                    break
        return None

    def at_line(self, make: Callable[[], T], at: int, what: str = "") -> T:
        """What ``make`` makes; its error becomes one of this line."""
        try:
            return make()
        except RlxError as e:
            if isinstance(e, IRError) and e.location is not None:
                raise
            raise self.error(f"{what}{e.message}", at) from None
