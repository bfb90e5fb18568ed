"""The container of an artifact: named, checksummed, aligned parts in one file.

docs/artifact.md describes it byte by byte. The layout leaves no choice: parts follow each other in
the order of the directory, each at the next aligned place, with zeros between. So every byte of a
file is under a check, and equal parts give equal files.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from rlx.errors import ArtifactError
from rlx.runtime import _native

__all__ = ["FORMAT", "chunks", "unpack"]

FORMAT = 1
"""The number of the format; a reader refuses another."""

MAGIC = b"\x89RLX\r\n\x1a\n"
_HEADER = struct.Struct("<8sIIQIIQ16xQ")
_ENTRY = struct.Struct("<QQQII")
_LINE, _PAGE, _LARGE = 64, 4096, 65536
_NAME = re.compile(r"(?:[A-Za-z0-9_+-][A-Za-z0-9_+.-]*/)*[A-Za-z0-9_+-][A-Za-z0-9_+.-]*")


def chunks(parts: Mapping[str, Any], abi: int) -> Iterator[Any]:
    """The file of ``parts`` (buffers of bytes by name), piece by piece: nothing large is copied."""
    names = b"".join(name.encode() for name in parts)
    directory = bytearray()
    end = _HEADER.size + _ENTRY.size * len(parts) + len(names)
    places: list[int] = []
    for name, data in parts.items():
        if not _NAME.fullmatch(name):
            raise ArtifactError(f"{name!r} is no name of a part; {_NAMES}")
        begin, size = _aligned(end, len(data)), len(data)
        places.append(begin - end)
        directory += _ENTRY.pack(begin, size, _native.checksum(data), len(name), 0)
        end = begin + size
    directory += names
    head = _HEADER.pack(
        MAGIC, FORMAT, abi, end, len(parts), len(directory), _native.checksum(directory), 0
    )[:-8]
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


def unpack(data: Any, abi: int) -> dict[str, memoryview]:
    """The parts of a file's bytes, as views of them.

    ArtifactError says which part is damaged, or why the file is none that this version reads.
    """
    view = memoryview(data).cast("B")
    found, directory = _header(view, abi)
    parts: dict[str, memoryview] = {}
    end = _HEADER.size + len(directory)
    at = _ENTRY.size * found
    for number in range(found):
        begin, size, checksum, length, zero = _ENTRY.unpack_from(directory, number * _ENTRY.size)
        if length > len(directory) - at or zero:
            raise ArtifactError(f"the directory is malformed: entry {number} has no valid name")
        name = bytes(directory[at : at + length]).decode("ascii", "replace")
        at += length
        if not _NAME.fullmatch(name) or name in parts:
            raise ArtifactError(f"the directory is malformed: {name!r} is no name, or a second one")
        if begin != _aligned(end, size) or size > len(view) - begin:
            raise ArtifactError(
                f"part {name!r} should lie at {_aligned(end, size)} in the file of {len(view)}"
                f" bytes; the directory says {size} bytes at {begin}"
            )
        if any(view[end:begin]):
            raise ArtifactError(f"the bytes before part {name!r} are not zero: the file is damaged")
        end = begin + size
        parts[name] = view[begin:end]
        if _native.checksum(parts[name]) != checksum:
            raise ArtifactError(
                f"part {name!r} is damaged: its {size} bytes do not have the checksum that the"
                " directory says; compile or copy the artifact again"
            )
    if at != len(directory) or end != len(view):
        raise ArtifactError("the directory is malformed: bytes are left over that no part holds")
    return parts


def _header(view: memoryview, abi: int) -> tuple[int, memoryview]:
    """The number of parts, and the directory; the header is checked, what fits this version too."""
    if len(view) < _HEADER.size or bytes(view[:8]) != MAGIC:
        raise ArtifactError("this is no RLX artifact: it does not begin as one")
    _, version, made_for, size, count, length, checksum, own = _HEADER.unpack_from(view)
    # Before the checksum: another format may have another header.
    if version != FORMAT:
        newer = "; a newer RLX made it: use that one, or compile again" if version > FORMAT else ""
        raise ArtifactError(f"the artifact has format {version}, this RLX reads {FORMAT}{newer}")
    if _native.checksum(view[: _HEADER.size - 8]) != own or any(view[40:56]):
        raise ArtifactError("the header is damaged: its checksum does not fit")
    if made_for != abi:
        raise ArtifactError(
            f"the artifact's code is for runtime ABI {made_for}, this RLX has {abi};"
            " compile it again with this version"
        )
    if size != len(view):
        cut = "it is cut short" if len(view) < size else "something follows it"
        raise ArtifactError(f"the artifact has {size} bytes, found {len(view)}: {cut}")
    if count * _ENTRY.size > length or length > len(view) - _HEADER.size:
        raise ArtifactError(f"the directory is malformed: {count} parts in {length} bytes")
    directory = view[_HEADER.size : _HEADER.size + length]
    if _native.checksum(directory) != checksum:
        raise ArtifactError("the directory is damaged: its checksum does not fit")
    return count, directory
