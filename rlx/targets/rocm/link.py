"""From LLVM's relocatable object to a HSACO: the ELF shared object that ROCm loads.

What a linker would do for a single object that needs nothing from outside. The loader maps three
segments: what is read (notes with the kernels' metadata, symbols, kernel descriptors), the code,
and the dynamic section. All addresses in them are relative, so that nothing is left to relocate.

ELF: System V ABI (gABI), chapters 4 and 5. Relocations: LLVM's "User Guide for AMDGPU Backend".
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlx.errors import ToolchainError
from rlx.targets.llvm.elf import (
    ALLOCATED,
    EXECUTABLE,
    HEADER,
    SECTION,
    SYMBOL,
    WRITABLE,
    Object,
    SectionType,
    Symbol,
)

__all__ = ["link"]

_AMDGPU, _SHARED_OBJECT = 224, 3
_PAGE = 0x1000
_SEGMENTS = 6

_SEGMENT = struct.Struct("<IIQQQQQQ")
_LOAD, _DYNAMIC, _NOTE, _HEADERS = 1, 2, 4, 6
"""Of a segment's types."""
_ACCESS = (4, 5, 6)
"""Of the loaded segments: read, read and execute, read and write."""

_ENTRY = struct.Struct("<QQ")
_HASH, _STRINGS, _SYMBOLS, _STRINGS_SIZE, _SYMBOL_SIZE = 4, 5, 6, 10, 11
"""Of the tags of the dynamic section."""

_RELATIVE = {4: ("<I", 0), 5: ("<Q", 0), 10: ("<I", 0), 11: ("<I", 32)}
"""R_AMDGPU_REL32, REL64, REL32_LO and REL32_HI: what is written of the distance to a symbol, and
how far it is shifted down first."""


def link(obj: bytes) -> bytes:
    """The HSACO of an object.

    Raises ToolchainError for what kernels of RLX never have: writable data, symbols from outside,
    and addresses that only the loader can know.
    """
    source = Object.read(obj)
    if source.machine != _AMDGPU:
        raise ToolchainError(f"an object for machine {source.machine} is not one of an AMD GPU")
    own = {
        n: _Piece(s.name, s.kind, bytearray(s.data), s.alignment, s.flags)
        for n, s in enumerate(source.sections)
        if s.flags & ALLOCATED and s.data
    }
    if not any(p.segment == 1 for p in own.values()):
        raise ToolchainError("an object for an AMD GPU has no kernel")
    if data := [p.name for p in own.values() if p.flags & WRITABLE]:
        raise ToolchainError(f"code for an AMD GPU has writable data in {', '.join(data)}")
    exported = [s for s in source.symbols if s.section in own and not s.local]
    tables = _Tables(own, exported)
    pieces = sorted([*own.values(), *tables.pieces], key=lambda p: (p.segment, not p.is_note))
    _lay_out(pieces)
    tables.fill({p.name: n for n, p in enumerate(pieces, 1)})
    _relocate(source, own)
    return _file(source, pieces)


@dataclass
class _Piece:
    """A section of the file, at ``offset`` of it. ``segment`` is the number of the loaded one that
    it is in."""

    name: str
    kind: int
    data: bytearray
    alignment: int
    flags: int = ALLOCATED
    entry: int = 0
    link: int = 0
    info: int = 0
    offset: int = 0

    @property
    def segment(self) -> int:
        return 1 if self.flags & EXECUTABLE else 2 if self.flags & WRITABLE else 0

    @property
    def is_note(self) -> bool:
        return self.kind == SectionType.NOTE

    @property
    def address(self) -> int:
        """Its place in memory. A segment is a page further on than in the file, as the page of its
        first byte is mapped for the one before it too."""
        return self.offset + self.segment * _PAGE

    @property
    def end(self) -> int:
        """The place in the file after it."""
        return self.offset + len(self.data)


class _Tables:
    """The sections by which a loader finds symbols by name."""

    def __init__(self, own: Mapping[int, _Piece], exported: Sequence[Symbol]) -> None:
        self.own, self.exported = own, exported
        count, types = 1 + len(exported), SectionType
        strings = bytearray(b"\0".join([b"", *(s.name.encode() for s in exported), b""]))
        self.symbols = _Piece(
            ".dynsym", types.DYNAMIC_SYMBOLS, bytearray(SYMBOL.size * count), 8, entry=SYMBOL.size
        )
        self.symbols.info = 1  # the first that is not local
        self.hash = _Piece(".hash", types.HASH, _one_chain(count), 4, entry=4)
        self.strings = _Piece(".dynstr", types.STRINGS, strings, 1)
        self.dynamic = _Piece(
            ".dynamic", types.DYNAMIC, bytearray(_ENTRY.size * 6), 8, ALLOCATED | WRITABLE,
            entry=_ENTRY.size,
        )  # fmt: skip
        self.pieces = [self.symbols, self.hash, self.strings, self.dynamic]

    def fill(self, numbers: Mapping[str, int]) -> None:
        """Write them, now that it is known where everything lies and what its number is."""
        self.symbols.link = self.dynamic.link = numbers[self.strings.name]
        self.hash.link = numbers[self.symbols.name]
        name = 1
        for n, s in enumerate(self.exported, 1):
            home = self.own[s.section]
            where = numbers[home.name], home.address + s.value, s.size
            SYMBOL.pack_into(self.symbols.data, SYMBOL.size * n, name, s.info, s.other, *where)
            name += len(s.name.encode()) + 1
        tags = {
            _SYMBOLS: self.symbols.address,
            _SYMBOL_SIZE: SYMBOL.size,
            _STRINGS: self.strings.address,
            _STRINGS_SIZE: len(self.strings.data),
            _HASH: self.hash.address,
            0: 0,  # the end
        }
        self.dynamic.data[:] = b"".join(_ENTRY.pack(*tag) for tag in tags.items())


def _one_chain(count: int) -> bytearray:
    """A hash table with one bucket, in which all symbols are found one after the other."""
    following = [0, *range(2, count), 0] if count > 1 else [0]
    first = 1 if count > 1 else 0
    return bytearray(struct.pack(f"<{3 + count}I", 1, count, first, *following))


def _lay_out(pieces: Sequence[_Piece]) -> None:
    """Place them one after the other, behind the header and those of the segments."""
    at = HEADER.size + _SEGMENT.size * _SEGMENTS
    for piece in pieces:
        at = piece.offset = _up(at, piece.alignment)
        at += len(piece.data)


def _relocate(source: Object, own: Mapping[int, _Piece]) -> None:
    """Write the distances that the code and the descriptors need."""
    for r in source.relocations():
        if r.section not in own:
            continue
        symbol, piece = source.symbols[r.symbol], own[r.section]
        if symbol.section not in own or r.kind not in _RELATIVE:
            raise ToolchainError(
                f"code for an AMD GPU needs {symbol.name or piece.name} by a relocation of type"
                f" {r.kind}, which only a loader could fill in"
            )
        form, shift = _RELATIVE[r.kind]
        target = own[symbol.section].address + symbol.value + r.addend
        distance = (target - (piece.address + r.offset)) >> shift
        struct.pack_into(form, piece.data, r.offset, distance % (1 << 8 * struct.calcsize(form)))


def _file(source: Object, pieces: Sequence[_Piece]) -> bytes:
    """The bytes of the file: header, segments, sections, and the table of sections."""
    names = bytearray(b"\0".join([b"", *(p.name.encode() for p in pieces), b".shstrtab", b""]))
    listed = [*pieces, _Piece(".shstrtab", SectionType.STRINGS, names, 1, 0)]
    _lay_out(listed)
    table = _up(listed[-1].end, 8)
    out = bytearray(table)
    count = len(listed) + 1
    HEADER.pack_into(
        out, 0, source.identity, _SHARED_OBJECT, source.machine, 1, 0, HEADER.size, table,
        source.flags, HEADER.size, _SEGMENT.size, _SEGMENTS, SECTION.size, count, count - 1,
    )  # fmt: skip
    for n, segment in enumerate(_segments(pieces)):
        _SEGMENT.pack_into(out, HEADER.size + _SEGMENT.size * n, *segment)
    headers, name = [bytes(SECTION.size)], 1
    for p in listed:
        out[p.offset : p.end] = p.data
        place = p.address if p.flags else 0, p.offset, len(p.data)
        headers.append(
            SECTION.pack(name, p.kind, p.flags, *place, p.link, p.info, p.alignment, p.entry)
        )
        name += len(p.name.encode()) + 1
    return bytes(out) + b"".join(headers)


def _segments(pieces: Sequence[_Piece]) -> list[tuple[int, ...]]:
    """The fields of the segments' headers: those headers, what is loaded, dynamic, and notes."""
    size = _SEGMENT.size * _SEGMENTS
    found = [(_HEADERS, 4, HEADER.size, HEADER.size, HEADER.size, size, size, 8)]
    for number, access in enumerate(_ACCESS):
        inside = [p for p in pieces if p.segment == number]
        # The first has the headers too.
        start, end = (inside[0].offset if number else 0), inside[-1].end
        shifted = start + number * _PAGE
        found.append((_LOAD, access, start, shifted, shifted, end - start, end - start, _PAGE))
    for kind, section in ((_DYNAMIC, SectionType.DYNAMIC), (_NOTE, SectionType.NOTE)):
        p = next(p for p in pieces if p.kind == section)
        place = p.offset, p.address, p.address, len(p.data), len(p.data)
        found.append((kind, _ACCESS[p.segment], *place, p.alignment))
    return found


def _up(at: int, alignment: int) -> int:
    """The next multiple of an alignment."""
    return -(-at // max(1, alignment)) * max(1, alignment)
