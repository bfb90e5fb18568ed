"""GGUF files as bytes, right ones and any other, written without RLX."""

from __future__ import annotations

import struct
from typing import Any

__all__ = ["Raw", "key", "raw_file", "tensor", "text"]

CODES = {"u8": 0, "i8": 1, "u16": 2, "i16": 3, "u32": 4, "i32": 5, "f32": 6, "bool": 7, "str": 8}
CODES |= {"array": 9, "u64": 10, "i64": 11, "f64": 12}
FORMATS = {"u8": "B", "i8": "b", "u16": "H", "i16": "h", "u32": "I", "i32": "i", "f32": "f"}
FORMATS |= {"bool": "B", "u64": "Q", "i64": "q", "f64": "d"}


class Raw:
    """How a version and a byte order write counts and numbers."""

    def __init__(self, version: int = 3, order: str = "<") -> None:
        self.version, self.order = version, order

    def number(self, kind: str, value: Any) -> bytes:
        return struct.pack(self.order + FORMATS[kind], value)

    def count(self, value: int) -> bytes:
        return self.number("u32" if self.version == 1 else "u64", value)


LATEST = Raw()


def text(value: str | bytes, raw: Raw = LATEST) -> bytes:
    data = value if isinstance(value, bytes) else value.encode()
    return raw.count(len(data)) + data


def plain(kind: str, value: Any, raw: Raw) -> bytes:
    """The bytes of a value of a kind; of an array the value is (kind of its elements, them)."""
    if kind == "str":
        return text(value, raw)
    if kind == "array":
        inner, values = value
        parts = b"".join(plain(inner, v, raw) for v in values)
        return raw.number("u32", CODES[inner]) + raw.count(len(values)) + parts
    return raw.number(kind, value)


def key(name: str, kind: str, value: Any, raw: Raw = LATEST) -> bytes:
    """A key of the metadata."""
    return text(name, raw) + raw.number("u32", CODES[kind]) + plain(kind, value, raw)


def tensor(name: str, dims: list[int], type_: int, offset: int = 0, raw: Raw = LATEST) -> bytes:
    """What says where a tensor is; the innermost dim first."""
    sizes = b"".join(raw.count(d) for d in dims)
    head = text(name, raw) + raw.number("u32", len(dims)) + sizes
    return head + raw.number("u32", type_) + raw.number("u64", offset)


def raw_file(
    keys: list[bytes],
    tensors: list[bytes],
    data: bytes = b"",
    *,
    raw: Raw = LATEST,
    magic: bytes = b"GGUF",
    counts: tuple[int, int] | None = None,
    alignment: int = 32,
) -> bytes:
    """A file, whose counts may be a lie."""
    n, m = counts or (len(tensors), len(keys))
    head = magic + raw.number("u32", raw.version) + raw.count(n) + raw.count(m)
    head += b"".join([*keys, *tensors])
    return head + bytes(-len(head) % alignment) + data
