"""The kinds of values that GGUF has, and a cursor over a file's bytes that checks every step."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from rlx.errors import ModelError

__all__ = ["ARRAY", "BOOL", "CODES", "KINDS", "STRING", "Cursor"]

Array = np.ndarray[Any, Any]

KINDS: dict[int, tuple[str, str]] = {
    0: ("u8", "u1"), 1: ("i8", "i1"), 2: ("u16", "u2"), 3: ("i16", "i2"), 4: ("u32", "u4"),
    5: ("i32", "i4"), 6: ("f32", "f4"), 7: ("bool", "u1"), 8: ("str", ""), 9: ("array", ""),
    10: ("u64", "u8"), 11: ("i64", "i8"), 12: ("f64", "f8"),
}  # fmt: skip
"""The number of a kind, its name here and its type in NumPy."""

CODES = {name: (code, numpy) for code, (name, numpy) in KINDS.items()}
BOOL, STRING, ARRAY = CODES["bool"][0], CODES["str"][0], CODES["array"][0]

_STRUCT = {
    "u1": "B", "i1": "b", "u2": "H", "i2": "h", "u4": "I", "i4": "i", "f4": "f", "u8": "Q",
    "i8": "q", "f8": "d",
}  # fmt: skip

_DEPTH = 4
"""How deep arrays may nest."""


class Cursor:
    """A place in a file that moves over values. ModelError names the offset where one is wrong."""

    def __init__(self, data: Any, file: str) -> None:
        self.data, self.file, self.at = data, file, 0
        self.size = len(data)
        self.order = "<"
        self.wide = True
        """Whether counts have 64 bits, as from version 2 on."""

    def fail(self, problem: str, at: int | None = None) -> ModelError:
        """The error of a file that is wrong at an offset (where the cursor is)."""
        place = self.at if at is None else at
        return ModelError(f"{self.file} is no valid GGUF file: at byte {place}: {problem}")

    def need(self, count: int, what: str) -> int:
        """The offset of the next ``count`` bytes, which the cursor passes."""
        at = self.at
        if count > self.size - at:
            raise self.fail(f"{what} takes {count} bytes, and {self.size - at} are left")
        self.at += count
        return at

    def number(self, numpy: str, what: str) -> Any:
        """A number of a type of NumPy."""
        code = self.order + _STRUCT[numpy]
        return struct.unpack_from(code, self.data, self.need(struct.calcsize(code), what))[0]

    def count(self, what: str) -> int:
        """A length or a number of things."""
        return self.number("u8" if self.wide else "u4", what)

    def listed(self, what: str, least: int) -> int:
        """A count of things of so many bytes at least, which the rest of the file can hold."""
        at, found = self.at, self.count(what)
        if found * least > self.size - self.at:
            raise self.fail(f"{what} is {found}, and {self.size - self.at} bytes are left", at)
        return found

    def text(self, what: str) -> str:
        """A string. Bytes that are no UTF-8 become lone surrogates, from which they come back."""
        length = self.count(f"the length of {what}")
        at = self.need(length, what)
        return bytes(self.data[at : at + length]).decode("utf-8", "surrogateescape")

    def _texts(self, count: int, what: str) -> list[str]:
        """So many strings, as ``text`` has them, but in one loop: a vocabulary has hundreds of
        thousands. From one that does not fit on, ``text`` says what is wrong."""
        length = struct.Struct(self.order + _STRUCT["u8" if self.wide else "u4"])
        data, size, width, read = self.data, self.size, length.size, length.unpack_from
        found: list[str] = []
        at, last = self.at, size - width
        while len(found) < count and at <= last:
            begin = at + width
            end = begin + read(data, at)[0]
            if end > size:
                break
            found.append(str(data[begin:end], "utf-8", "surrogateescape"))
            at = end
        self.at = at
        return found + [self.text(f"{what}[{i}]") for i in range(len(found), count)]

    def kind(self, what: str) -> int:
        """The number of a kind of values."""
        at, code = self.at, self.number("u4", f"the kind of {what}")
        if code not in KINDS:
            raise self.fail(f"{what} is of kind {code}; known are 0 to {max(KINDS)}", at)
        return code

    def value(self, code: int, what: str, depth: int = 0) -> tuple[Any, str]:
        """A value and the name of its kind, such as ``"u32"`` or ``"str[]"``."""
        name, numpy = KINDS[code]
        if code == STRING:
            return self.text(what), name
        if code == ARRAY:
            return self._array(what, depth + 1)
        at, found = self.at, self.number(numpy, what)
        if code == BOOL:
            if found > 1:
                raise self.fail(f"{what} is a bool, and its byte is {found}", at)
            found = bool(found)
        return found, name

    def _array(self, what: str, depth: int) -> tuple[Any, str]:
        if depth > _DEPTH:
            raise self.fail(f"{what} has arrays in arrays, deeper than {_DEPTH}")
        code = self.kind(f"the elements of {what}")
        name, numpy = KINDS[code]
        length = f"the length of {what}"
        if code == STRING:
            n = self.listed(length, 8 if self.wide else 4)
            return self._texts(n, what), "str[]"
        if code == ARRAY:
            n = self.listed(length, 12 if self.wide else 8)
            found = [self.value(code, f"{what}[{i}]", depth) for i in range(n)]
            return [v for v, _ in found], "array[]"
        dt = np.dtype(self.order + numpy)
        n = self.listed(length, dt.itemsize)
        at = self.need(n * dt.itemsize, what)
        values = np.frombuffer(self.data, dt, n, at)
        if code == BOOL:
            if (values > 1).any():
                raise self.fail(f"{what} is bools, and a byte is {values.max()}", at)
            values = values.view(np.bool_)
        return values, f"{name}[]"
