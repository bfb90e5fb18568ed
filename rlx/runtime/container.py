"""The container of an artifact: named, checksummed, aligned parts in one file.

docs/artifact.md describes it byte by byte. The layout leaves no choice: parts follow each other in
the order of the directory, each at the next aligned place, with zeros between. So every byte of a
file is under a check, and equal parts give equal files. What is refused is decided once, in
``native/container.cpp``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from rlx.errors import ArtifactError
from rlx.runtime import _native

__all__ = ["chunks", "parts_of"]

MAGIC = b"\x89RLX\r\n\x1a\n"
_HEADER = struct.Struct("<8sIIQIIQ16xQ")
_ENTRY = struct.Struct("<QQQII")
_LINE, _PAGE, _LARGE = 64, 4096, 65536
_NAME = r"(?:[A-Za-z0-9_+-][A-Za-z0-9_+.-]*/)*[A-Za-z0-9_+-][A-Za-z0-9_+.-]*"


def chunks(parts: Mapping[str, Any]) -> Iterator[Any]:
    """The file of ``parts`` (buffers of bytes by name), piece by piece: nothing large is copied."""
    names = b"".join(name.encode() for name in parts)
    directory = bytearray()
    end = _HEADER.size + _ENTRY.size * len(parts) + len(names)
    places: list[int] = []
    for name, data in parts.items():
        if not re.fullmatch(_NAME, name):
            raise ArtifactError(f"{name!r} is no name of a part; {_NAMES}")
        begin, size = _aligned(end, len(data)), len(data)
        places.append(begin - end)
        directory += _ENTRY.pack(begin, size, _native.checksum(data), len(name), 0)
        end = begin + size
    directory += names
    head = _HEADER.pack(
        MAGIC, _native.ARTIFACT_FORMAT, _native.ABI_VERSION, end, len(parts), len(directory),
        _native.checksum(directory), 0,
    )[:-8]  # fmt: skip
    yield head + _native.checksum(head).to_bytes(8, "little")
    yield bytes(directory)
    for gap, data in zip(places, parts.values(), strict=True):
        yield bytes(gap)
        yield data


_NAMES = (
    "one has letters, digits and _+-. in parts between slashes, none of which begins with a dot"
)


def _aligned(offset: int, size: int) -> int:
    """Where a part lies: large ones on pages, so that they can be mapped and given back alone."""
    step = _PAGE if size >= _LARGE else _LINE
    return -(-offset // step) * step


def parts_of(data: Any) -> dict[str, memoryview]:
    """The parts of a file that ``_native.check_artifact`` has found whole, as views of it."""
    view = memoryview(data).cast("B").toreadonly()
    count = _HEADER.unpack_from(view)[4]
    names = _HEADER.size + _ENTRY.size * count
    parts: dict[str, memoryview] = {}
    for number in range(count):
        entry = _HEADER.size + _ENTRY.size * number
        begin, length, _, name, _ = _ENTRY.unpack_from(view, entry)
        parts[bytes(view[names : names + name]).decode()] = view[begin : begin + length]
        names += name
    return parts
