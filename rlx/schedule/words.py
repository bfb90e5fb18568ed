"""Rows of 64-bit words, in which an artifact says its manifest and its schedules.

A text is its length in bytes, then UTF-8 padded with zeros to whole words. docs/artifact.md lists
what follows what. The reader takes what ``_native.check_artifact`` has found sound: what is refused
is decided once, in ``rlx/runtime/native/``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TypeVar

__all__ = ["Reader", "Writer"]

T = TypeVar("T")


class Writer:
    """Makes a structured part."""

    def __init__(self) -> None:
        self.data = bytearray()

    def words(self, *values: int) -> None:
        """Add integers of 64 bits."""
        self.data += struct.pack(f"<{len(values)}q", *values)

    def text(self, text: str) -> None:
        """Add a text."""
        assert "\0" not in text, "names and messages have no zero byte"
        encoded = text.encode("utf-8", "backslashreplace")
        self.words(len(encoded))
        self.data += encoded + bytes(-len(encoded) % 8)

    def block(self, data: bytes) -> None:
        """Add words that belong together, after their number."""
        self.words(len(data) // 8)
        self.data += data

    def each(self, items: Sequence[T], write: Callable[[Writer, T], None]) -> None:
        """Add the number of the items, then each by ``write``."""
        self.words(len(items))
        for item in items:
            write(self, item)


class Reader:
    """Reads a structured part."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._words: tuple[int, ...] = struct.unpack(f"<{len(data) // 8}q", data)
        self._at = 0

    def words(self, count: int) -> tuple[int, ...]:
        """The next words."""
        self._at += count
        return self._words[self._at - count : self._at]

    def word(self) -> int:
        """The next word."""
        self._at += 1
        return self._words[self._at - 1]

    def text(self) -> str:
        """The next text."""
        size, begin = self.word(), 8 * self._at
        self._at += -(-size // 8)
        return bytes(self._data[begin : begin + size]).decode()

    def block(self) -> bytes:
        """The next words that belong together."""
        size, begin = self.word(), self._at
        self._at += size
        return bytes(self._data[8 * begin : 8 * self._at])

    def each(self, read: Callable[[Reader], T]) -> list[T]:
        """The items that a count announces."""
        return [read(self) for _ in range(self.word())]

    def list(self) -> tuple[int, ...]:
        """The words that a count announces."""
        return self.words(self.word())
