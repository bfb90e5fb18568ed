"""Kernels that a wheel brings: objects in archives, read only where the user's own cache has none.

    rlx/shipped/ISA.kernels    those of a level of CPUs, with the kernels for what goes beyond it

An archive begins with a line, and goes on with an index and the objects, compressed one by one:

    rlx-kernels 1 ISA TOOLS COUNT DIGEST
    COUNT times: 16 bytes of the kernel's digest, where its object begins and how long it is (u32)

``TOOLS`` is the digest of what made the objects (``kernel_tools`` of ``key.py``), ``DIGEST`` that
of the index. An archive that others made, or that is for another level, is as good as none. A
kernel's digest is that of all that its code depends on, the names of its instruction sets included,
so an object is never found for a CPU that lacks some. ``tools/packaging/ship_kernels.py`` writes
archives.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from mmap import ACCESS_READ, mmap
from struct import Struct

from rlx.base.digest import digest
from rlx.runtime.cache.key import Part
from rlx.runtime.cache.shared import PACKAGE, log

__all__ = ["FOLDER", "Archive", "archive_of", "packed_archive"]

FOLDER = os.path.join(PACKAGE, "shipped")
"""Where the archives lie."""

_FORMAT = "rlx-kernels 1"
_ROW = Struct("<16sII")
_LINE_BYTES = 256


class Archive:
    """The objects of one archive, by the texts that describe their kernels."""

    def __init__(self, file: mmap, found: Mapping[bytes, tuple[int, int]], path: str) -> None:
        self._file, self._found, self._path = file, found, path

    def __len__(self) -> int:
        return len(self._found)

    def read(self, kernel: str) -> bytes | None:
        """The object of a kernel; None for one that is not there, or is damaged."""
        place = self._found.get(_digest(kernel))
        if place is None:
            return None
        first, size = place
        try:
            return zlib.decompress(self._file[first : first + size])
        except zlib.error as e:
            log(f"{self._path} is damaged: {e}")
            return None


def archive_of(isa: str, tools: Sequence[Part]) -> Archive | None:
    """The archive of a level of CPUs, if one lies here that the same tools have made."""
    return _opened(os.path.join(FOLDER, f"{isa}.kernels"), isa, tools_digest(tools))


def tools_digest(tools: Sequence[Part]) -> str:
    """One digest of what makes kernels."""
    return digest("".join(f"{p.name}={p.digest}\n" for p in tools).encode())


def packed_archive(isa: str, tools: Sequence[Part], objects: Mapping[str, bytes]) -> bytes:
    """The file of an archive, of objects by what describes their kernels."""
    named = sorted((_digest(kernel), zlib.compress(data, 9)) for kernel, data in objects.items())
    at = 0
    rows: list[tuple[bytes, int, int]] = []
    for key, data in named:
        rows.append((key, at, len(data)))
        at += len(data)
    index = b"".join(_ROW.pack(*row) for row in rows)
    line = f"{_FORMAT} {isa} {tools_digest(tools)} {len(rows)} {digest(index)}\n"
    return b"".join([line.encode(), index, *(data for _, data in named)])


@lru_cache(maxsize=4)
def _opened(path: str, isa: str, tools: str) -> Archive | None:
    try:
        with open(path, "rb") as f:
            file = mmap(f.fileno(), 0, access=ACCESS_READ)
    except (OSError, ValueError):  # the latter for a file that is empty
        return None
    line = file[:_LINE_BYTES].partition(b"\n")[0]
    words = line.decode("ascii", "replace").split(" ")
    why = _refusal(words, isa, tools)
    if why is None:
        first = len(line) + 1 + _ROW.size * int(words[4])
        index = file[len(line) + 1 : first]
        if digest(index) == words[5]:
            rows = {key: (first + at, size) for key, at, size in _ROW.iter_unpack(index)}
            return Archive(file, rows, path)
        why = "its index is damaged"
    log(f"{path} is not used: {why}")
    return None


def _refusal(words: Sequence[str], isa: str, tools: str) -> str | None:
    """Why an archive with this first line is not used."""
    if len(words) != 6 or " ".join(words[:2]) != _FORMAT or not words[4].isdigit():
        return "it does not begin as an archive of kernels"
    if words[2] != isa:
        return f"it is for {words[2]}, and kernels are made for {isa}"
    return None if words[3] == tools else "it was made by other versions of RLX, MLIR or LLVM"


def _digest(kernel: str) -> bytes:
    return bytes.fromhex(digest(kernel.encode()))
