"""Objects of 64 bits put together as one, in which functions that several kernels share are local.

It is what ``ld -r`` does, with nothing laid out anew: sections stay as they are, and what changes
is their numbers, those of symbols, and the two in relocations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rlx.errors import ToolchainError
from rlx.targets.llvm.elf import (
    ALLOCATED,
    HEADER,
    RELOCATION,
    SECTION,
    SYMBOL,
    Object,
    Section,
    SectionType,
    Symbol,
)

__all__ = ["joined"]

_RELOCATABLE = 1
_RESERVED = 0xFF00
"""Numbers of sections from which on there are none, such as that of absolute values."""


def joined(own: bytes, shared: Sequence[bytes]) -> bytes:
    """An object with all sections of ``own`` and the code and data of ``shared`` ones, whose
    symbols nothing outside sees: equal functions may be in many objects of a program.

    ToolchainError for a symbol that none of them defines.
    """
    return _Joined([Object.read(data) for data in (own, *shared)]).file()


class _Place(NamedTuple):
    """Where an object's section or symbol comes from: the object's number, and its own there."""

    source: int
    number: int


class _Joined:
    """The sections and symbols of the whole, in order."""

    def __init__(self, objects: Sequence[Object]) -> None:
        self.objects = objects
        kept = [
            _Place(n, m)
            for n, o in enumerate(objects)
            for m, s in enumerate(o.sections)
            if _is_kept(o, s, n == 0)
        ]
        self.sections = {place: n for n, place in enumerate(kept, 1)}
        self.symbols: list[Symbol] = []
        self.numbers: dict[_Place, int] = {}
        self._add(local=True)
        self.first_global = len(self.symbols) + 1
        self._add(local=False)
        self._resolve()

    def _add(self, local: bool) -> None:
        """Take the defined symbols that are local in the whole, or those that are not."""
        for n, o in enumerate(self.objects):
            for m, s in enumerate(o.symbols[1:], 1):
                place = _Place(n, s.section)
                if not s.defined or (s.local or n > 0) != local:
                    continue
                if s.section < _RESERVED and place not in self.sections:
                    continue
                info = s.info & 0xF if local else s.info
                section = self.sections.get(place, s.section)
                self.symbols.append(s._replace(info=info, section=section))
                self.numbers[_Place(n, m)] = len(self.symbols)

    def _resolve(self) -> None:
        """Find what one object needs of another."""
        found = {s.name: n for n, s in enumerate(self.symbols, 1) if s.name}
        for n, o in enumerate(self.objects):
            self.numbers[_Place(n, 0)] = 0
            for m, s in enumerate(o.symbols[1:], 1):
                if not s.defined:
                    if s.name not in found:
                        raise ToolchainError(f"no part of a kernel's object defines {s.name}")
                    self.numbers[_Place(n, m)] = found[s.name]

    def file(self) -> bytes:
        """The bytes of the file."""
        count = len(self.sections) + 1
        parts = [self._part(place, symbols=count) for place in self.sections]
        names, rows = _strings([s.name for s in self.symbols])
        table = b"".join(
            SYMBOL.pack(at, s.info, s.other, s.section, s.value, s.size)
            for at, s in zip(rows, self.symbols, strict=True)
        )
        parts += [
            Section(
                ".symtab", SectionType.SYMBOLS, 0, bytes(SYMBOL.size) + table, count + 1,
                self.first_global, 8, SYMBOL.size,
            ),
            Section(".strtab", SectionType.STRINGS, 0, names, 0, 0, 1, 0),
        ]  # fmt: skip
        names, rows = _strings([*(p.name for p in parts), ".shstrtab"])
        parts.append(Section(".shstrtab", SectionType.STRINGS, 0, names, 0, 0, 1, 0))
        out, headers = bytearray(HEADER.size), [bytes(SECTION.size)]
        for at, p in zip(rows, parts, strict=True):
            out += bytes(-len(out) % max(p.alignment, 1))
            headers.append(
                SECTION.pack(
                    at, p.kind, p.flags, 0, len(out), len(p.data), p.link, p.info, p.alignment,
                    p.entry,
                )
            )  # fmt: skip
            out += p.data
        out += bytes(-len(out) % 8)
        first = self.objects[0]
        HEADER.pack_into(
            out, 0, first.identity, _RELOCATABLE, first.machine, 1, 0, 0, len(out), first.flags,
            HEADER.size, 0, 0, SECTION.size, len(headers), len(headers) - 1,
        )  # fmt: skip
        return bytes(out) + b"".join(headers)

    def _part(self, place: _Place, symbols: int) -> Section:
        """A section with the numbers of the whole."""
        section = self.objects[place.source].sections[place.number]
        if section.kind != SectionType.RELOCATIONS:
            assert section.link == section.info == 0, f"{section.name} has numbers of its file"
            return section
        rows = [
            RELOCATION.pack(
                offset, self.numbers[_Place(place.source, info >> 32)] << 32 | info & 0xFFFFFFFF,
                addend,
            )
            for offset, info, addend in RELOCATION.iter_unpack(section.data)
        ]  # fmt: skip
        info = self.sections[_Place(place.source, section.info)]
        return section._replace(data=b"".join(rows), link=symbols, info=info)


def _is_kept(source: Object, section: Section, own: bool) -> bool:
    """Whether a section is of the whole: tables of symbols are made anew, and notes and attributes
    are those of the first object."""
    if section.kind == SectionType.RELOCATIONS:
        return _is_kept(source, source.sections[section.info], own)
    if section.kind in (0, SectionType.SYMBOLS, SectionType.STRINGS):
        return False
    assert section.kind != SectionType.NO_BITS or not section.flags & ALLOCATED, section.name
    return own or bool(section.flags & ALLOCATED)


def _strings(names: Sequence[str]) -> tuple[bytes, list[int]]:
    """A table of strings, and where each begins."""
    out, places = bytearray(1), list[int]()
    for name in names:
        places.append(len(out) if name else 0)
        out += name.encode() + b"\0" if name else b""
    return bytes(out), places
