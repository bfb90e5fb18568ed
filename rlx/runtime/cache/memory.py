"""Bytes by key in the memory of a process, up to a limit."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import Generic, TypeVar

__all__ = ["Memory"]

T = TypeVar("T")


class Memory(Generic[T]):
    """What was used last of what was put in; safe to use from many threads and after a fork."""

    def __init__(self, limit: int) -> None:
        self.limit, self.size = limit, 0
        self._kept: OrderedDict[str, tuple[T, int]] = OrderedDict()
        self._renew()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        # A thread that held it is not there in the child.
        self._lock = threading.Lock()

    def get(self, key: str) -> T | None:
        """What is kept under a key."""
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def put(self, key: str, value: T, size: int) -> None:
        """Keep a value of so many bytes; what was used longest ago goes."""
        with self._lock:
            self.size -= self._kept.pop(key, (None, 0))[1]
            self._kept[key] = (value, size)
            self.size += size
            while self.size > self.limit:
                _, (_, gone) = self._kept.popitem(last=False)
                self.size -= gone

    def clear(self) -> None:
        """Keep nothing."""
        with self._lock:
            self._kept.clear()
            self.size = 0

    def __len__(self) -> int:
        return len(self._kept)
