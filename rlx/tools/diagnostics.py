"""Diagnostics of rlx-opt: MLIR's and our own, printed with the source line, or checked.

``--verify-diagnostics`` follows mlir-opt: ``// expected-error@+1 {{text}}`` (also ``@-1``,
``@above``, ``@below``, ``@unknown``; for error, warning, note and remark; ``expected-error-re``
with ``{{regex}}`` inside the text) expects a diagnostic that contains the text at that line. Every
diagnostic must be expected and every expectation met.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rlx.base.frozen import frozen
from rlx.errors import IRError, RlxError, did_you_mean
from rlx.ir.mlir_text import ELEMENTS

__all__ = ["Collector", "Found"]

_EXPECTED = re.compile(
    r"expected-(?P<severity>error|warning|note|remark)(?P<re>-re)?\s*"
    r"(?:@(?P<at>[+-]\d+|above|below|unknown))?\s*\{\{(?P<text>.*)\}\}\s*$"
)
_PLACE = re.compile(r'"([^"]*)":(\d+):(\d+)')
_NO_OP = re.compile(
    r"unregistered operation '(\w+\.\w+)'|'?((?:hir|mir|lir)\.\w+)'? .*unregistered"
)
_ELEMENT = re.compile(r"(?:[\d?]+x)*(\w+)")
WIDTH = 100
"""Characters of a line of the input that a diagnostic shows."""


@dataclass
class Found:
    """A diagnostic: its line in the input (1-based, 0 unknown), or a place in another file."""

    severity: str
    line: int
    column: int
    message: str
    elsewhere: str = ""


@frozen
class Expected:
    """What a comment expects: a part of a message of a severity at a line (0: no place known)."""

    severity: str
    line: int
    text: str
    regex: bool

    def fits(self, f: Found) -> bool:
        if (self.severity, self.line) != (f.severity, f.line):
            return False
        return bool(re.search(self.pattern, f.message)) if self.regex else self.text in f.message

    @property
    def pattern(self) -> str:
        """The text with its ``{{...}}`` parts as regular expressions."""
        parts = re.split(r"\{\{(.*?)\}\}", self.text)
        return "".join(f"(?:{p})" if i % 2 else re.escape(p) for i, p in enumerate(parts))


class Collector:
    """Collects the diagnostics of one part of the input; ``doing`` says what runs just now."""

    def __init__(
        self,
        text: str,
        name: str,
        *,
        print_op: bool = False,
        ignored: re.Pattern[str] | None = None,
    ) -> None:
        """``print_op`` keeps the op that MLIR attaches to a diagnostic as a note; ``ignored`` are
        messages to leave out."""
        self.lines, self.name = text.split("\n"), name
        self.print_op, self.ignored = print_op, ignored
        self.doing = ""
        self.aside = ""
        self.found: list[Found] = []

    @contextmanager
    def listening(self, context: Any) -> Generator[None]:
        """Take the diagnostics that MLIR emits in a context."""
        handler = context.attach_diagnostic_handler(self._take)
        try:
            yield
        finally:
            handler.detach()

    def _take(self, d: Any) -> bool:
        """One diagnostic of MLIR, live or kept by an exception, with its notes."""
        severity = str(d.severity).rsplit(".", 1)[-1].lower()
        self._add(severity, str(d.location), d.message)
        for note in d.notes:
            self._add("note", str(note.location), note.message)
        return True

    def _add(self, severity: str, location: str, message: str) -> None:
        if self.ignored is not None and self.ignored.search(message):
            return
        text, place = message if self.print_op else _short(message), _PLACE.search(location)
        found = Found(severity, 0, 0, text)
        if place is not None and place[1] == "-":
            found = Found(severity, int(place[2]), int(place[3]), text)
        elif place is not None:
            found.elsewhere = f"{place[1]}:{place[2]}"
        # A note may hold nothing but the dump that was cut off.
        if text and found not in self.found:
            self.found.append(found)

    def add_error(self, error: RlxError) -> None:
        """Take an error of ours. Where it wraps MLIR's, those say more: columns and notes."""
        wrapped = getattr(error.__context__, "error_diagnostics", None)
        if wrapped:
            for d in wrapped:
                self._take(d)
            if not self.doing.startswith("the "):
                self.aside = f"found after {self.doing}"
            return
        line, elsewhere = 0, ""
        if error.location is not None:
            file, number = error.location
            line, elsewhere = (number, "") if file == "-" else (0, f"{file}:{number}")
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        column = len(text) - len(text.lstrip()) + 1 if line else 0
        self.found.append(Found("error", line, column, error.message, elsewhere))

    def report(self) -> bool:
        """Print the diagnostics to stderr; returns whether none is an error."""
        for f in self.found:
            where = f.elsewhere or (f"{self.name}:{f.line}:{f.column}" if f.line else self.name)
            print(f"{where}: {f.severity}: {f.message}", file=sys.stderr)
            if f.line and f.line <= len(self.lines):
                print(_excerpt(self.lines[f.line - 1], f.column), file=sys.stderr)
            if help_ := _help(f, self.lines[f.line - 1] if 0 < f.line <= len(self.lines) else ""):
                print(f"    help: {help_}", file=sys.stderr)
        if self.aside:
            print(f"{self.name}: note: {self.aside}", file=sys.stderr)
        return not any(f.severity == "error" for f in self.found)

    def check_expected(self, every: bool = True) -> bool:
        """Match diagnostics and expectations; what is left over of either is printed. Diagnostics
        that nothing expects are errors if ``every`` one must be expected."""
        left, missing = list[Found](), self.expectations()
        for f in self.found:
            match = next((e for e in missing if e.fits(f)), None)
            if match is None:
                left.append(f)
            else:
                missing.remove(match)
        for f in left if every else ():
            where = f.elsewhere or f"{self.name}:{f.line}"
            print(f"{where}: unexpected {f.severity}: {f.message}", file=sys.stderr)
        for e in missing:
            where = f"{self.name}:{e.line}"
            print(f"{where}: expected {e.severity} {e.text!r} was not seen", file=sys.stderr)
        return not missing and not (every and left)

    def expectations(self) -> list[Expected]:
        """The comments of the input; IRError for a malformed one. ``@above`` and ``@below`` mean
        the next line that is no such comment itself."""
        marks = {n: m for n, text in enumerate(self.lines, 1) if (m := _EXPECTED.search(text))}
        out: list[Expected] = []
        for number, m in marks.items():
            at, line = m["at"], number
            if at in ("above", "below"):
                step = -1 if at == "above" else 1
                line += step
                while line in marks:
                    line += step
            elif at == "unknown":
                line = 0
            elif at:
                line += int(at)
            expected = Expected(m["severity"], line, m["text"], bool(m["re"]))
            try:
                re.compile(expected.pattern)
            except re.error as e:
                message = f"the expectation {m['text']!r} is no regular expression: {e}"
                raise IRError(message, (self.name, number)) from None
            out.append(expected)
        return out


def _excerpt(line: str, column: int) -> str:
    """A line, or the part of a long one around a column, with a caret below it."""
    start = max(0, column - WIDTH // 2) if len(line) > WIDTH else 0
    shown = line[start : start + WIDTH]
    return f"    {shown}\n    {' ' * (column - 1 - start)}^"


def _short(message: str) -> str:
    """The message without MLIR's dump of the whole op."""
    return message.split("see current operation", 1)[0].strip().rstrip(";:,")


def _help(f: Found, line: str) -> str:
    """What to do about a diagnostic of MLIR's parser, in a line; ours say it themselves."""
    if f.message == "expected non-function type" and (word := _ELEMENT.match(line[f.column - 1 :])):
        names = {d.long_name: name for name, d in ELEMENTS.items()}
        meant = names.get(word[1])
        hint = f"write {meant}" if meant else f"there are {', '.join(ELEMENTS)}"
        return f"no element type is called {word[1]!r}; {hint}"
    unknown = _NO_OP.search(f.message)
    if unknown:
        from rlx.ir.op import registry
        from rlx.ops import load_all

        load_all()
        name = unknown[1] or unknown[2]
        return f"no op is called {name}{did_you_mean(name, registry)}"
    if "external resources for 'mlir_reproducer'" in f.message:
        return "--run-reproducer runs the pipeline that it holds"
    if f.severity == "error" and re.match(r"expected|custom op|use of|unbalanced", f.message):
        return (
            'an op is written %y = "mir.add"(%a, %b) : (tensor<4xf32>, tensor<4xf32>) -> '
            "tensor<4xf32>; Graph.to_mlir() prints valid text"
        )
    return ""
