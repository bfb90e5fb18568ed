"""Executables by the sizes that they are bound to, as many as a number of bytes holds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from rlx.runtime.executable import Executable

__all__ = ["LIMIT", "Bindings"]

LIMIT = 64 << 20
"""Bytes that the bindings of one graph take at most, but for the last one."""
OTHERS = 1 << 20
"""Bytes counted for an executable that does not tell its own, as one of a backend from outside."""

Key: TypeAlias = tuple[int, ...]


class Bindings:
    """Executables by sizes. The least recently used ones go where all would take too much. For one
    thread at a time."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Key, tuple[Executable, int]] = OrderedDict()
        self._bytes = 0

    def get(self, key: Key) -> Executable | None:
        """What is kept for sizes."""
        found = self._kept.get(key)
        if found is None:
            return None
        self._kept.move_to_end(key)
        return found[0]

    def put(self, key: Key, executable: Executable) -> None:
        """Keep an executable for sizes."""
        size = getattr(executable, "held_bytes", OTHERS)
        self._bytes += size - self._kept.pop(key, (None, 0))[1]
        self._kept[key] = executable, size
        while self._bytes > LIMIT and len(self._kept) > 1:
            self._bytes -= self._kept.popitem(last=False)[1][1]

    def drop(self, unwanted: Callable[[Key], bool]) -> None:
        """Keep nothing for some sizes."""
        for key in [k for k in self._kept if unwanted(k)]:
            self._bytes -= self._kept.pop(key)[1]

    def clear(self) -> None:
        """Keep nothing."""
        self._kept.clear()
        self._bytes = 0

    def __iter__(self) -> Iterator[Key]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def values(self) -> list[Executable]:
        """All that is kept, what was used last at the end."""
        return [executable for executable, _ in self._kept.values()]
