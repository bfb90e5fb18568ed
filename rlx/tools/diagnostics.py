"""Diagnostics of rlx-opt: MLIR's and our own, printed with the source line, or checked.

``--verify-diagnostics`` follows mlir-opt: ``// expected-error@+1 {{text}}`` (also ``@-1``, ``@above``,
``@below``, ``@unknown``, and for error, warning, note and remark) expects a diagnostic that contains the
text at that line; every diagnostic must be expected and every expectation met.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import Any

from rlx.errors import RlxError

__all__ = ["Collector", "Found"]

_EXPECTED = re.compile(
    r"expected-(error|warning|note|remark)(?:@([+-]\d+|above|below|unknown))?\s*\{\{(.*?)\}\}"
)
_PLACE = re.compile(r'"([^"]*)":(\d+):(\d+)')


@dataclass
class Found:
    """A diagnostic: its line in the input (1-based, 0 unknown), or a place in another file."""

    severity: str
    line: int
    column: int
    message: str
    elsewhere: str = ""


class Collector:
    """Collects the diagnostics of one part of the input. ``offset`` is the part's first line."""

    def __init__(self, text: str, name: str, offset: int) -> None:
        self.lines, self.name, self.offset = text.split("\n"), name, offset
        self.found: list[Found] = []
        self._handler: Any = None

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *_: object) -> None:
        if self._handler is not None:
            self._handler.detach()

    def attach(self, context: Any) -> None:
        """Take the diagnostics that MLIR emits in a context."""
        self._handler = context.attach_diagnostic_handler(self._take)

    def _take(self, d: Any) -> bool:
        severity = str(d.severity).rsplit(".", 1)[-1].lower()
        self.found.append(self._located(severity, str(d.location), _short(d.message)))
        for note in d.notes:
            self.found.append(self._located("note", str(note.location), _short(note.message)))
        return True

    def _located(self, severity: str, location: str, message: str) -> Found:
        place = _PLACE.search(location)
        if place is None:
            return Found(severity, 0, 0, message)
        if place[1] != "-":
            return Found(severity, 0, 0, message, f"{place[1]}:{place[2]}")
        return Found(severity, int(place[2]), int(place[3]), message)

    def add_error(self, error: RlxError) -> None:
        """Take an error of ours, unless it only repeats what MLIR has said."""
        if any(f.severity == "error" and f.message[:60] in error.message for f in self.found):
            return
        line, elsewhere = 0, ""
        if error.location is not None:
            file, number = error.location
            line, elsewhere = (number, "") if file == "-" else (0, f"{file}:{number}")
        self.found.append(Found("error", line, 1 if line else 0, error.message, elsewhere))

    def report(self) -> bool:
        """Print the diagnostics to stderr; returns whether none is an error."""
        for f in self.found:
            where = f.elsewhere or (f"{self.name}:{f.line + self.offset}:{f.column}" if f.line else self.name)
            print(f"{where}: {f.severity}: {f.message}", file=sys.stderr)
            if f.line and f.line <= len(self.lines):
                print(f"    {self.lines[f.line - 1]}", file=sys.stderr)
                print(f"    {' ' * (f.column - 1)}^", file=sys.stderr)
        return not any(f.severity == "error" for f in self.found)

    def check_expected(self) -> bool:
        """Match diagnostics and expectations; what is left over of either is printed."""
        open_: list[tuple[str, int, str]] = []
        for number, text in enumerate(self.lines, 1):
            for severity, at, message in _EXPECTED.findall(text):
                shift = {"": 0, "above": -1, "below": 1}.get(at)
                line = 0 if at == "unknown" else number + (int(at) if shift is None else shift)
                open_.append((severity, line, message))
        left: list[Found] = []
        for f in self.found:
            match = next((e for e in open_ if e[0] == f.severity and e[1] == f.line and e[2] in f.message), None)
            if match is None:
                left.append(f)
            else:
                open_.remove(match)
        for f in left:
            print(f"{self.name}:{f.line + self.offset}: unexpected {f.severity}: {f.message}", file=sys.stderr)
        for severity, line, message in open_:
            print(f"{self.name}:{line + self.offset}: expected {severity} {message!r} was not seen", file=sys.stderr)
        return not left and not open_


def _short(message: str) -> str:
    """The message without MLIR's dump of the whole op."""
    return message.split("see current operation", 1)[0].strip().rstrip(";:,")
