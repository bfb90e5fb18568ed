"""Steps as words and back, by the table of ``rlx.schedule.steps``."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

from rlx.schedule.plan import PrologueStep
from rlx.schedule.steps import KINDS, VERSION, Field, FieldKind, Place, Step
from rlx.schedule.words import Reader

__all__ = ["main_items", "main_words", "prologue_words", "read_main", "read_prologue"]


def main_words(steps: Sequence[Step[Place]]) -> bytes:
    """Steps as words, after the number of the format."""
    out = main_items(steps)
    return struct.pack(f"<{len(out)}q", *out)


def main_items(steps: Sequence[Step[Place]]) -> list[int]:
    """The numbers that ``main_words`` packs; of a schedule of symbolic sizes some are dims."""
    out = [VERSION]
    _steps(out, steps)
    return out


def prologue_words(prologue: Sequence[PrologueStep]) -> bytes:
    """As ``main_words``, with the params that a step follows before each."""
    out = [VERSION, len(prologue)]
    for step, follows in prologue:
        _numbers(out, follows)
        _step(out, step)
    return struct.pack(f"<{len(out)}q", *out)


def read_main(words: bytes) -> tuple[Step[Place], ...]:
    """The steps that ``main_words`` wrote."""
    return _read_steps(_reader(words))


def read_prologue(words: bytes) -> tuple[PrologueStep, ...]:
    """The steps that ``prologue_words`` wrote."""
    r, read = _reader(words), list[PrologueStep]()
    for _ in range(r.word()):
        follows = r.list()
        read.append((_read_step(r), follows))
    return tuple(read)


# -- writing -------------------------------------------------------------------------------


def _step(out: list[int], step: Step[Place]) -> None:
    number = _NUMBERS[type(step)]
    out.append(number)
    for get, write in _WRITTEN[number]:
        write(out, get(step))


def _steps(out: list[int], steps: Sequence[Step[Place]]) -> None:
    out.append(len(steps))
    for step in steps:
        _step(out, step)


def _numbers(out: list[int], numbers: Sequence[int]) -> None:
    out.append(len(numbers))
    out += numbers


def _place(out: list[int], place: Place) -> None:
    out += (place.base, place.offset, len(place.moves))
    for move in place.moves:
        out += move


def _places(out: list[int], places: Sequence[Place]) -> None:
    out.append(len(places))
    for place in places:
        _place(out, place)


def _optional_place(out: list[int], place: Place | None) -> None:
    out.append(place is not None)
    _place(out, place or Place(0, 0))


_WRITE: dict[FieldKind, Callable[[list[int], Any], None]] = {
    "kernel": list.append, "word": list.append, "flag": list.append, "grid": list.extend,
    "words": _numbers, "place": _place, "place?": _optional_place, "places": _places,
    "steps": _steps,
}  # fmt: skip

_NUMBERS = {kind: n for n, kind in enumerate(KINDS)}
_WRITTEN = [[(attrgetter(f.name), _WRITE[f.kind]) for f in fields] for fields in KINDS.values()]


# -- reading -------------------------------------------------------------------------------


def _reader(words: bytes) -> Reader:
    r = Reader(memoryview(words))
    version = r.word()
    assert version == VERSION, "the native runtime has refused other versions"
    return r


def _read_steps(r: Reader) -> tuple[Step[Place], ...]:
    return tuple([_read_step(r) for _ in range(r.word())])


def _read_step(r: Reader) -> Step[Place]:
    cls, fields = _KINDS[r.word()]
    return cls(**{f.name: _READ[f.kind](r) for f in fields})


def _read_place(r: Reader) -> Place:
    base, offset, count = r.words(3)
    return Place(base, offset, _pairs(r.words(2 * count)))


def _pairs(numbers: Sequence[int]) -> tuple[tuple[int, int], ...]:
    pairs: Iterable[tuple[int, int]] = zip(numbers[::2], numbers[1::2], strict=True)
    return tuple(pairs)


def _read_optional_place(r: Reader) -> Place | None:
    there, place = r.word(), _read_place(r)
    return place if there else None


_READ: dict[FieldKind, Callable[[Reader], Any]] = {
    "kernel": Reader.word, "word": Reader.word, "flag": lambda r: bool(r.word()),
    "grid": lambda r: r.words(3), "words": Reader.list, "place": _read_place,
    "place?": _read_optional_place, "places": lambda r: tuple(r.each(_read_place)),
    "steps": _read_steps,
}  # fmt: skip

_KINDS: list[tuple[Any, tuple[Field, ...]]] = list(KINDS.items())
