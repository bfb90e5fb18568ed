"""WebAssembly objects of LLVM as modules that stand alone.

Formats: the WebAssembly core specification 2.0, chapter 5, and the "linking" section of the tool
conventions (github.com/WebAssembly/tool-conventions, Linking.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rlx.errors import ToolchainError

__all__ = ["MAGIC", "data_bytes", "exporting", "shared_imports"]

MAGIC = b"\0asm"

_CUSTOM, _IMPORTS, _EXPORTS, _DATA = 0, 2, 7, 11
_BEFORE_EXPORTS = frozenset([1, 2, 3, 4, 5, 6, 13])  # types to globals, and tags

_PROVIDED = ("__linear_memory", "__stack_pointer", "__indirect_function_table")
"""What whoever runs the module gives it."""

_FUNCTION, _MEMORY, _SYMBOLS = 0, 2, 8
_SHARED, _MOST_PAGES = b"\x03", 1 << 16  # limits with a most, of a memory that is shared
_UNDEFINED, _NAMED = 0x10, 0x40  # flags of a symbol


class Section(NamedTuple):
    """A section of a module: its number and what it holds."""

    kind: int
    body: bytes


class _Reader:
    """Numbers and names, one after another."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def name(self) -> str:
        return self.bytes(self.number()).decode()

    def bytes(self, count: int) -> bytes:
        found = self.data[self.at : self.at + count]
        self.at += count
        return found


def sections(module: bytes) -> Iterator[Section]:
    """The sections of a module, in order."""
    r = _Reader(module)
    r.bytes(8)  # the magic number and the version
    while r.at < len(module):
        (kind,) = r.bytes(1)
        yield Section(kind, r.bytes(r.number()))


def exporting(module: bytes, names: Sequence[str]) -> bytes:
    """The object with an export for each function of ``names``, and without what is for linkers.

    ToolchainError if it imports a function.
    """
    found = list(sections(module))
    if missing := [name for s in found if s.kind == _IMPORTS for name in _wanted(s.body)]:
        raise ToolchainError(
            f"LLVM made calls of {', '.join(missing)} for WebAssembly, and a module of RLX stands"
            " alone; write the kernel without the operation that becomes this call"
        )
    indices = _functions(found)
    rows = b"".join(_text(n) + bytes([_FUNCTION]) + _number(indices[n]) for n in names)
    parts = [s for s in found if s.kind != _CUSTOM]
    after = next((n for n, s in enumerate(parts) if s.kind not in _BEFORE_EXPORTS), len(parts))
    parts.insert(after, Section(_EXPORTS, _number(len(names)) + rows))
    return module[:8] + b"".join(bytes([s.kind]) + _number(len(s.body)) + s.body for s in parts)


def data_bytes(module: bytes) -> int:
    """The end of a module's constants in memory; they begin at 0."""
    end = 0
    for body in (s.body for s in sections(module) if s.kind == _DATA):
        r = _Reader(body)
        for _ in range(r.number()):
            r.number()  # how the segment is used: at an address
            r.bytes(1)  # i32.const
            start = r.number()
            r.bytes(1)  # end
            size = r.number()
            r.bytes(size)
            end = max(end, start + size)
    return end


def shared_imports(module: bytes) -> tuple[int, int, bytes]:
    """Where the import section of a module begins, its bytes, and the section of the same module
    with a memory that threads share, of up to 4 GiB."""
    at = 8
    for s in sections(module):
        whole = bytes([s.kind]) + _number(len(s.body)) + s.body
        if s.kind == _IMPORTS:
            body = _sharing(s.body)
            return at, len(whole), bytes([_IMPORTS]) + _number(len(body)) + body
        at += len(whole)
    raise AssertionError("a module of RLX imports its memory")


def _sharing(imports: bytes) -> bytes:
    """The body of an import section whose memory is shared."""
    r = _Reader(imports)
    out = b""
    for _ in range(r.number()):
        start = r.at
        r.name()
        r.name()
        (kind,) = r.bytes(1)
        before = imports[start : r.at]
        start = r.at
        if kind == _MEMORY:
            r.bytes(1)
            out += before + _SHARED + _number(r.number()) + _number(_MOST_PAGES)
            assert imports[start] == 0, "a module asks for no most"
        else:
            _skip_type(r, kind)
            out += before + imports[start : r.at]
    return _number(_count(imports)) + out


def _count(imports: bytes) -> int:
    return _Reader(imports).number()


def _wanted(imports: bytes) -> Iterator[str]:
    """The names that a module imports and nobody provides."""
    r = _Reader(imports)
    for _ in range(r.number()):
        r.name()
        name, (kind,) = r.name(), r.bytes(1)
        if name not in _PROVIDED:
            yield name
        _skip_type(r, kind)


def _skip_type(r: _Reader, kind: int) -> None:
    """Step over what an import says of its type."""
    if kind == _FUNCTION:
        r.number()
    elif kind == 3:  # a global: its type, and whether it changes
        r.bytes(2)
    else:  # a table, whose elements have a type, or a memory: limits
        r.bytes(int(kind == 1))
        for _ in range(1 + (r.number() & 1)):
            r.number()


def _functions(found: Sequence[Section]) -> dict[str, int]:
    """The functions that an object defines, by its symbol table: their numbers by name."""
    indices: dict[str, int] = {}
    for r in (_Reader(s.body) for s in found if s.kind == _CUSTOM):
        if r.name() != "linking":
            continue
        r.number()  # the version
        while r.at < len(r.data):
            (part,) = r.bytes(1)
            inside = _Reader(r.bytes(r.number()))
            if part == _SYMBOLS:
                indices.update(_symbols(inside))
    return indices


def _symbols(r: _Reader) -> Iterator[tuple[str, int]]:
    for _ in range(r.number()):
        (kind,), flags = r.bytes(1), r.number()
        if kind == 1:  # data: a name, and where it lies if it is here
            r.name()
            for _ in range(0 if flags & _UNDEFINED else 3):
                r.number()
            continue
        index = r.number()
        if kind != 3 and (not flags & _UNDEFINED or flags & _NAMED):  # 3: a section
            name = r.name()
            if kind == _FUNCTION:
                yield name, index


def _number(n: int) -> bytes:
    out = b""
    while True:
        n, low = n >> 7, n & 127
        out += bytes([low | (128 if n else 0)])
        if not n:
            return out


def _text(name: str) -> bytes:
    return _number(len(name.encode())) + name.encode()
