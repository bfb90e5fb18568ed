"""What a rank tells who has started it: in which step it is, and with which error it ended."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import signal
import struct
import sys
from types import TracebackType

from rlx import knobs

__all__ = [
    "begin", "ending", "how_ended", "note_step", "read_error", "read_step", "with_parent",
]  # fmt: skip

_STEP = struct.Struct("<q")

_shared: list[mmap.mmap] = []
"""The file of this process, once it has noted a step."""


def note_step(step: int) -> None:
    """Note that this rank begins a step, counted from 1; it is there for others even if the rank
    is killed. Nothing where nobody has asked."""
    if not _shared:
        path = knobs.status.get()
        if not path:
            return
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            # Never cut: a process that this one has started may have the same file.
            os.ftruncate(fd, _STEP.size)
            _shared.append(mmap.mmap(fd, _STEP.size))
        finally:
            os.close(fd)
    _STEP.pack_into(_shared[0], 0, step)


def begin() -> None:
    """Have the error that ends this process noted beside its step, and this process end with the
    one that has started it. Nothing where nobody has asked."""
    path = knobs.status.get()
    if not path:
        return
    with_parent()
    before = sys.excepthook

    def told(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        with contextlib.suppress(OSError), open(f"{path}.error", "w", encoding="utf-8") as f:
            f.write(f"{kind.__name__}: {error}".splitlines()[0])
        before(kind, error, trace)

    sys.excepthook = told


def with_parent() -> None:
    """Have the kernel kill this process when its parent ends, where it does such things."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)


def read_step(path: str) -> int:
    """The step that a rank was in; 0 if it has begun none."""
    with contextlib.suppress(OSError), open(path, "rb") as f:
        found = f.read(_STEP.size)
        return _STEP.unpack(found)[0] if len(found) == _STEP.size else 0
    return 0


def read_error(path: str) -> str:
    """The error with which a rank ended, "" if it told none."""
    with contextlib.suppress(OSError), open(f"{path}.error", encoding="utf-8") as f:
        return f.read()
    return ""


def ending(rank: int, ranks: int, status: int, path: str) -> str:
    """What became of a rank that ended with a status of ``subprocess``, where it was."""
    step, error = read_step(path), read_error(path) if status > 0 else ""
    at = f" in step {step}" if step else ""
    return f"rlx: rank {rank} of {ranks} {how_ended(status)}{at}{': ' if error else ''}{error}"


def how_ended(status: int) -> str:
    """What a status of ``subprocess`` says of the end."""
    if status > 0:
        return f"ended with status {status}"
    with contextlib.suppress(ValueError):
        return f"killed by signal {-status} ({signal.Signals(-status).name})"
    return f"killed by signal {-status}"
