"""Disk usage of a cache directory, without a look at each of its files.

The file has the bytes that were there when somebody counted, with a name for that count, and then
a line of bytes for each write since. Removals are not noted, so that the sum is never too small;
what it tells too early is put right by counting. Who counts removes the file first and links a new
one in the end, and who writes notes it before, and looks afterwards whether it stands in the file
that is there now: what a count can have missed is noted again, or leads to another count.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import NamedTuple

__all__ = ["LINES", "Noted", "Usage"]

LINES = 200
"""Writes after which the directory is counted anew."""

_BYTES = 24 * LINES
"""No file of so many lines is longer."""

_TEXT = rb"(\d+) ([0-9a-f]{16})\n((?:\d+\n)*)"
_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)


class Noted(NamedTuple):
    """After which count a write was noted, and the bytes of all with it. Both are None if they
    have to be counted."""

    after: bytes | None = None
    total: int | None = None


class Usage:
    """The file. Where the system refuses it, every write has to count."""

    def __init__(self, path: str) -> None:
        self.path = path

    def add(self, size: int) -> Noted:
        """Note that so many bytes are about to be written."""
        try:
            fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | _FLAGS)
            with open(fd, "wb", buffering=0) as f:
                f.write(b"%d\n" % size)
        except OSError:
            return Noted()
        return self._read()

    def written(self, size: int, before: Noted) -> int | None:
        """Say that the bytes are there now; the bytes of all, or None if they have to be
        counted."""
        now = self._read()
        return now.total if now.after == before.after else self.add(size).total

    def forget(self) -> None:
        """Say that somebody counts."""
        with suppress(OSError):
            os.unlink(self.path)

    def counted(self, total: int) -> None:
        """Say what a count found that began with ``forget``."""
        name = os.urandom(8).hex()
        new = f"{self.path}-{name}"
        with suppress(OSError):
            fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600)
            with open(fd, "wb") as f:
                f.write(f"{total} {name}\n".encode())
            os.link(new, self.path)  # fails if somebody else has counted meanwhile
        with suppress(OSError):
            os.unlink(new)

    def _read(self) -> Noted:
        try:
            with open(os.open(self.path, os.O_RDONLY | _FLAGS), "rb") as f:
                data = f.read(_BYTES)
        except OSError:
            return Noted()
        found = re.fullmatch(_TEXT, data)
        added = found[3].split() if found else []
        if found is None or len(added) > LINES:
            return Noted()
        return Noted(found[2], len(data) + int(found[1]) + sum(map(int, added)))
