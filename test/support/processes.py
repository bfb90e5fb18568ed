"""The processes of this machine."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["left"]


def left(folder: Path) -> list[str]:
    """The processes that still name a folder in their command line, but for this one."""
    found: list[str] = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = entry.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(folder) in command and entry.parent.name != str(os.getpid()):
            found.append(command.replace("\0", " "))
    return found
