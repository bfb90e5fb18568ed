"""Relocatable ELF objects, as LLVM writes them: sections, symbols and relocations.

Little-endian, of 64 bits; those of 32 bits are read. Layouts: System V ABI (gABI), chapters 4
and 5.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from rlx.base.frozen import frozen

__all__ = [
    "ALLOCATED", "EXECUTABLE", "HEADER", "MAGIC", "RELOCATION", "SECTION", "SYMBOL", "WRITABLE",
    "Object", "Relocation", "Section", "SectionType", "Symbol",
]  # fmt: skip

MAGIC = b"\x7fELF"

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
RELOCATION = struct.Struct("<QQq")

_HEADER_OF_32 = struct.Struct("<16sHHIIIIIHHHHHH")
_SECTION_OF_32 = struct.Struct("<IIIIIIIIII")
_SYMBOL_OF_32 = struct.Struct("<IIIBBH")
_OF_32 = 1  # the class, byte 4 of a file

WRITABLE, ALLOCATED, EXECUTABLE = 1, 2, 4
"""Of a section's flags."""


class SectionType:
    """Of ``Section.kind``."""

    SYMBOLS, STRINGS, RELOCATIONS, HASH, DYNAMIC, NOTE, NO_BITS, DYNAMIC_SYMBOLS = (
        2, 3, 4, 5, 6, 7, 8, 11,
    )  # fmt: skip


class Section(NamedTuple):
    """A section; ``link`` and ``info`` say what its type has them say, and ``entry`` is the size of
    an entry, if it is a table."""

    name: str
    kind: int
    flags: int
    data: bytes
    link: int
    info: int
    alignment: int
    entry: int


class Symbol(NamedTuple):
    """A symbol of a relocatable object: ``value`` is its place in its section."""

    name: str
    info: int
    other: int
    section: int
    value: int
    size: int

    @property
    def defined(self) -> bool:
        """Whether it stands in the object; else it is needed from outside."""
        return self.section != 0

    @property
    def local(self) -> bool:
        """Whether nothing outside of the object sees it."""
        return self.info >> 4 == 0


class Relocation(NamedTuple):
    """The value of the symbol of a number plus ``addend``, to be put at ``offset`` of the section
    of a number, in the way of ``kind``."""

    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


@frozen
class Object:
    """A relocatable object. ``identity`` are the first 16 bytes of the file."""

    identity: bytes
    machine: int
    flags: int
    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]

    @classmethod
    def read(cls, data: bytes) -> Object:
        """An object from the bytes of its file."""
        narrow = data[4] == _OF_32
        head, row = (_HEADER_OF_32, _SECTION_OF_32) if narrow else (HEADER, SECTION)
        identity, _, machine, _, _, _, at, flags, *_, size, count, names = head.unpack_from(data)
        headers = [row.unpack_from(data, at + size * n) for n in range(count)]
        strings = headers[names][4]
        sections = tuple(
            Section(
                _text(data, strings + name), kind, flags,
                b"" if kind == SectionType.NO_BITS else data[start : start + length],
                link, info, align, entry,
            )
            for name, kind, flags, _, start, length, link, info, align, entry in headers
        )  # fmt: skip
        return cls(identity, machine, flags, sections, tuple(_symbols(sections, narrow)))

    def relocations(self) -> Iterator[Relocation]:
        """The relocations of all sections, of an object of 64 bits."""
        for section in self.sections:
            if section.kind == SectionType.RELOCATIONS:
                for offset, info, addend in RELOCATION.iter_unpack(section.data):
                    kind, symbol = info & 0xFFFFFFFF, info >> 32
                    yield Relocation(section.info, offset, kind, symbol, addend)


def _symbols(sections: tuple[Section, ...], narrow: bool) -> Iterator[Symbol]:
    for section in sections:
        if section.kind == SectionType.SYMBOLS:
            strings = sections[section.link].data
            if narrow:
                for name, value, size, *rest in _SYMBOL_OF_32.iter_unpack(section.data):
                    info, other, place = rest
                    yield Symbol(_text(strings, name), info, other, place, value, size)
            else:
                for name, *rest in SYMBOL.iter_unpack(section.data):
                    yield Symbol(_text(strings, name), *rest)


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode()
