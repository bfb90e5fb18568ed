"""Files that are mapped to be read, and which of them an array lies in."""

from __future__ import annotations

import mmap
import os
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

__all__ = ["Place", "mapped_file", "place_of"]


class Place(NamedTuple):
    """Where in which file bytes lie. ``state`` are its device and number, its size and the times of
    its last changes when it was mapped: a file that has another state now may hold other bytes."""

    path: str
    state: tuple[int, ...]
    begin: int

    @property
    def changed(self) -> int:
        """When the file was last changed, in nanoseconds since the epoch."""
        return max(self.state[3:])

    @property
    def stands(self) -> bool:
        """Whether the file is what it was."""
        try:
            return _state(os.stat(self.path)) == self.state
        except OSError:
            return False


_mapped: dict[int, tuple[ref[mmap.mmap], int, str, tuple[int, ...]]] = {}
"""The maps by the addresses at which they begin: where they end, and their files. One that is no
more counts for nothing: something else may lie there."""


def mapped_file(path: str) -> mmap.mmap:
    """A file, mapped to be read. OSError if it cannot be, ValueError for an empty one."""
    with open(path, "rb") as f:
        state = _state(os.fstat(f.fileno()))
        found = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
    for begin, (alive, *_) in list(_mapped.items()):
        if alive() is None:
            _mapped.pop(begin, None)
    begin = _address(np.frombuffer(found, np.uint8))
    _mapped[begin] = ref(found), begin + len(found), os.path.abspath(path), state
    return found


def place_of(array: np.ndarray[Any, Any]) -> Place | None:
    """The place of an array whose elements lie one after the other in a file."""
    if not array.flags.c_contiguous:
        return None
    at = _address(array)
    for begin, (alive, end, path, state) in list(_mapped.items()):
        if alive() is not None and begin <= at and at + array.nbytes <= end:
            return Place(path, state, at - begin)
    return None


def _address(array: np.ndarray[Any, Any]) -> int:
    return array.__array_interface__["data"][0]


def _state(s: os.stat_result) -> tuple[int, ...]:
    return s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns
