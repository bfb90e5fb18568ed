"""The words of steps: which kinds there are, their numbers, and what follows what.

This table is the only place that says so. ``rlx.schedule.codec`` writes and reads by it, and so do
the native runtime and the one of browsers: ``tools/make_stubs.py`` writes it for them.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from rlx.base.frozen import frozen
from rlx.schedule.steps import For, If, Launch, While

__all__ = ["KINDS", "NUMBERS", "VERSION", "FieldKind", "StepKind", "least_words"]

VERSION = 1
"""The number that stands before steps; a change of this table, or of what a step means, is a new
one, and one of the artifacts' format."""

FieldKind: TypeAlias = Literal[
    "kernel", "word", "flag", "grid", "words", "place", "place?", "places", "steps"
]
"""What a field of a step is: the number of a kernel; a word; 0 or 1; three words; the count of
words and the words; a place; 0 or 1 and a place; the counts and the items of places and steps."""


@frozen
class StepKind:
    """A class of steps, and its fields in the order in which they are written."""

    cls: type[Launch[object] | If[object] | While[object] | For[object]]
    fields: tuple[tuple[str, FieldKind], ...]


KINDS: tuple[StepKind, ...] = (
    StepKind(Launch, (
        ("kernel", "kernel"), ("grid", "grid"), ("places", "places"), ("sizes", "words"),
    )),
    StepKind(If, (("flag", "place"), ("then", "steps"), ("otherwise", "steps"))),
    StepKind(While, (
        ("flag", "place"), ("limit", "word"), ("site", "word"), ("test", "steps"),
        ("body", "steps"),
    )),
    StepKind(For, (
        ("rounds", "word"), ("reverse", "flag"), ("counter", "place?"), ("body", "steps"),
    )),
)  # fmt: skip
"""The kinds of steps; the number of one is its index. A place is the number of its memory, the
offset, and its moves: their count, then the depth and the bytes of each."""

NUMBERS: dict[type, int] = {kind.cls: n for n, kind in enumerate(KINDS)}
"""The number of each class."""

_WORDS: dict[FieldKind, int] = {"grid": 3, "place": 3, "place?": 4}


def least_words(kind: StepKind) -> int:
    """The words of the shortest step of a kind."""
    return 1 + sum(_WORDS.get(field, 1) for _, field in kind.fields)
