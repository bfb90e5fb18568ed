"""The words of an artifact's structured parts: its manifest and its schedules.

A structured part is a row of 64-bit words. A text is its length in bytes, then UTF-8 padded with
zeros to whole words. docs/artifact.md lists what follows what. A reader trusts nothing: every count
is held against the words that are left before anything is made of it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from rlx.errors import ArtifactError

__all__ = ["Reader", "Writer", "read_step", "write_step"]

T = TypeVar("T")
Step = tuple[Any, ...]

DEPTH = 64
"""Steps nested deeper come from a mistake, and would overflow the stack that walks them."""


class Writer:
    """Makes a structured part."""

    def __init__(self) -> None:
        self.data = bytearray()

    def words(self, *values: int) -> None:
        """Add integers of 64 bits."""
        self.data += struct.pack(f"<{len(values)}q", *values)

    def text(self, text: str) -> None:
        """Add a text."""
        encoded = text.encode("utf-8", "surrogatepass")
        self.words(len(encoded))
        self.data += encoded + bytes(-len(encoded) % 8)

    def each(self, items: Sequence[T], write: Callable[[Writer, T], None]) -> None:
        """Add the number of the items, then each by ``write``."""
        self.words(len(items))
        for item in items:
            write(self, item)


class Reader:
    """Reads a structured part; ArtifactError names it where its words make no sense."""

    def __init__(self, name: str, data: memoryview) -> None:
        self.name, self._data = name, data
        if len(data) % 8:
            raise self.fail(f"it has {len(data)} bytes, which are no whole words")
        self._words: tuple[int, ...] = struct.unpack(f"<{len(data) // 8}q", data)
        self._at = 0

    def fail(self, problem: str) -> ArtifactError:
        """The error of what makes no sense here."""
        return ArtifactError(f"part {self.name!r} is malformed: {problem}")

    def words(self, count: int) -> tuple[int, ...]:
        """The next words."""
        if count > len(self._words) - self._at:
            left = len(self._words) - self._at
            raise self.fail(f"{count} words are wanted at word {self._at}, {left} are left")
        self._at += count
        return self._words[self._at - count : self._at]

    def word(self) -> int:
        """The next word."""
        return self.words(1)[0]

    def below(self, limit: int, what: str) -> int:
        """The next word, an index below ``limit``."""
        value = self.word()
        if not 0 <= value < limit:
            raise self.fail(
                f"{what} {value} at word {self._at - 1}, expected one in 0..{limit - 1}"
            )
        return value

    def count(self, words: int = 1) -> int:
        """The next word, a number of items of at least so many words each."""
        return self.below((len(self._words) - self._at - 1) // words + 1, "count")

    def each(self, read: Callable[[Reader], T], words: int = 1) -> list[T]:
        """The items that a count announces, each of at least so many words."""
        return [read(self) for _ in range(self.count(words))]

    def text(self) -> str:
        """The next text."""
        size = self.below(8 * (len(self._words) - self._at - 1) + 1, "length of a text")
        begin = 8 * self._at
        self.words(-(-size // 8))
        if any(self._data[begin + size : 8 * self._at]):
            raise self.fail(f"the text at word {begin // 8} is not padded with zeros")
        try:
            return bytes(self._data[begin : begin + size]).decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as e:
            raise self.fail(f"the text at word {begin // 8} is no UTF-8: {e.reason}") from None

    def end(self) -> None:
        """Refuse words that are left."""
        if self._at != len(self._words):
            raise self.fail(f"{len(self._words) - self._at} words follow its end")


LAUNCH, IF, WHILE, FOR = range(4)


def write_step(w: Writer, step: Step, kernels: dict[str, int]) -> None:
    """Add a step (of the form in ``rlx/runtime/_native.pyi``); ``kernels`` numbers their names."""

    def inner(steps: Sequence[Step]) -> None:
        w.each(steps, lambda w, s: write_step(w, s, kernels))

    match step:
        case ("launch", name, count, grain, scratch, refs, sizes):
            w.words(LAUNCH, kernels[name], count, grain, scratch)
            w.each(refs, lambda w, ref: w.words(*ref))
            w.each(sizes, lambda w, n: w.words(n))
        case ("if", flag, then, otherwise):
            w.words(IF, *flag)
            inner(then)
            inner(otherwise)
        case ("while", conditions, flag, body, limit, site):
            w.words(WHILE, *flag, limit, site)
            inner(conditions)
            inner(body)
        case ("for", count, body, counter):
            w.words(FOR, count, counter is not None, *(counter or (0, 0)))
            inner(body)
        case _:
            raise ArtifactError(f"no step of an artifact is called {step[0]!r}")


def read_step(r: Reader, kernels: Sequence[str], depth: int = 0) -> Step:
    """The next step."""
    if depth > DEPTH:
        raise r.fail(f"its steps are nested deeper than {DEPTH} levels")

    def inner() -> list[Step]:
        return r.each(lambda r: read_step(r, kernels, depth + 1), 4)

    kind = r.below(4, "kind of a step")
    if kind == LAUNCH:
        name = kernels[r.below(len(kernels), "kernel")]
        count, grain, scratch = r.words(3)
        refs = tuple((r.word(), r.word()) for _ in range(r.count(2)))
        return ("launch", name, count, grain, scratch, refs, r.words(r.count()))
    if kind == IF:
        flag = r.words(2)
        return ("if", flag, inner(), inner())
    if kind == WHILE:
        base, offset, limit, site = r.words(4)
        conditions = inner()
        return ("while", conditions, (base, offset), inner(), limit, site)
    count, counts = r.word(), r.below(2, "counter")
    counter = r.words(2)
    if not counts and any(counter):
        raise r.fail("a loop without a counter has a place for it")
    return ("for", count, inner(), counter if counts else None)
