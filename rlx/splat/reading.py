"""Reading files from outside: every complaint names the file and the place in it."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import numpy as np

from rlx.errors import ModelError

__all__ = ["Bytes", "Lines", "content"]

Array = np.ndarray[Any, Any]


def content(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a file; ModelError if it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError as e:
        raise ModelError(f"cannot read {os.fspath(path)}: {e.strerror}") from None


class Bytes:
    """A cursor over the bytes of a file."""

    def __init__(self, file: str, data: bytes, at: int = 0) -> None:
        self.file, self.data, self.at = file, data, at

    def fail(self, problem: str, at: int | None = None) -> ModelError:
        """The error of what stands at a byte."""
        return ModelError(f"{self.file}, at byte {self.at if at is None else at}: {problem}")

    @property
    def left(self) -> int:
        """The number of bytes that are left."""
        return len(self.data) - self.at

    def take(self, size: int, what: str) -> int:
        """Go over so many bytes; where they begin."""
        if size > self.left:
            raise self.fail(f"{what} takes {size} bytes, and {self.left} are left")
        begin = self.at
        self.at += size
        return begin

    def numbers(self, form: str, what: str) -> tuple[Any, ...]:
        """Little-endian numbers, as ``struct`` calls them."""
        form = "<" + form
        return struct.unpack_from(form, self.data, self.take(struct.calcsize(form), what))

    def rows(self, dtype: np.dtype[Any], count: int, what: str) -> Array:
        """An array of records."""
        begin = self.take(dtype.itemsize * count, what)
        return np.frombuffer(self.data, dtype, count, begin)

    def count(self, each: int, what: str) -> int:
        """A u64 that counts parts of at least ``each`` bytes."""
        at = self.at
        (n,) = self.numbers("Q", what)
        if n * each > self.left:
            raise self.fail(f"{what} is {n}, and {self.left} bytes are left", at)
        return n

    def text(self, what: str) -> str:
        """UTF-8 up to a zero byte."""
        end = self.data.find(b"\0", self.at)
        if end < 0:
            raise self.fail(f"{what} has no end")
        begin, self.at = self.at, end + 1
        try:
            return self.data[begin:end].decode()
        except UnicodeDecodeError:
            raise self.fail(f"{what} is no UTF-8", begin) from None

    def end(self) -> None:
        """ModelError if bytes are left over."""
        if self.left:
            raise self.fail(f"{self.left} bytes are left over")


class Lines:
    """A cursor over lines of words; ``number`` is that of the last line, from 1."""

    def __init__(self, file: str, data: bytes, first: int = 0) -> None:
        self.file, self.number = file, first
        try:
            self.lines = data.decode().splitlines()
        except UnicodeDecodeError as e:
            raise ModelError(f"{file}, at byte {e.start}: this is no UTF-8") from None
        self.next = 0

    def fail(self, problem: str) -> ModelError:
        """The error of what stands in the last line."""
        return ModelError(f"{self.file}, line {self.number}: {problem}")

    def line(self) -> str | None:
        """The next line; None at the end."""
        if self.next == len(self.lines):
            return None
        self.next += 1
        self.number += 1
        return self.lines[self.next - 1]

    def real(self, word: str, what: str) -> float:
        """A word as a number; ModelError for one that is none."""
        try:
            return float(word)
        except ValueError:
            raise self.fail(f"{what} is {word[:40]!r}, expected a number") from None

    def whole(self, word: str, what: str, bits: int = 63) -> int:
        """A word as an integer of so many bits and a sign; ModelError for one that is none."""
        try:
            number = int(word)
        except ValueError:
            raise self.fail(f"{what} is {word[:40]!r}, expected an integer") from None
        if not -(1 << bits) <= number < 1 << bits:
            raise self.fail(f"{what} is {word[:40]}, which is beyond {bits + 1} bits")
        return number
