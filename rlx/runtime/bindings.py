"""Executables by the sizes that they are bound to, as many as a number of bytes holds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from rlx.base.process import Lock, lock_of

if TYPE_CHECKING:
    from rlx.runtime.executable import Executable
    from rlx.runtime.sized import Variants
    from rlx.runtime.sized_variant import ArtifactVariants

__all__ = ["LIMIT", "Bindings"]

LIMIT = 64 << 20
"""Bytes that the bindings of one graph take at most, but for the last one."""
OTHERS = 1 << 20
"""Bytes counted for an executable that does not tell its own, as one of a backend from outside."""

Key: TypeAlias = tuple[int, ...]


class Bindings:
    """Executables by sizes, of ``variants`` if they are compiled for many. The least recently used
    ones go where all would take too much. Every use is by one thread ``alone``."""

    def __init__(self, variants: Variants | ArtifactVariants | None = None) -> None:
        self._kept: OrderedDict[Key, tuple[Executable, int]] = OrderedDict()
        self._bytes = 0
        self._variants, self._lock = variants, lock_of(self)
        self._changes = 0  # of the variants, when what is kept was bound
        self._latest: Executable | None = None

    def alone(self) -> Lock:
        """Waits for other threads."""
        return self._lock

    def latest(self) -> Executable | None:
        """What was used last: many calls are of the sizes of the call before. A thread need not be
        alone for it."""
        if self._variants is not None and self._changes != self._variants.changes:
            return None
        return self._latest

    def bound(self, key: Key) -> Executable | None:
        """What is kept for sizes, or what a variant that is there makes for them."""
        found = self.get(key)
        if found is None and self._variants is not None:
            found = self._variants.bound(key)
            if found is not None:
                self.put(key, found)
        return found

    def get(self, key: Key) -> Executable | None:
        """What is kept for sizes."""
        if self._variants is not None and self._changes != self._variants.changes:
            self._changes = self._variants.changes
            self.clear()  # a better variant may serve what another one does
        found = self._kept.get(key)
        if found is None:
            return None
        self._kept.move_to_end(key)
        self._latest = found[0]
        return found[0]

    def put(self, key: Key, executable: Executable) -> None:
        """Keep an executable for sizes."""
        size = getattr(executable, "held_bytes", OTHERS)
        self._bytes += size - self._kept.pop(key, (None, 0))[1]
        self._kept[key] = executable, size
        self._latest = executable
        while self._bytes > LIMIT and len(self._kept) > 1:
            self._bytes -= self._kept.popitem(last=False)[1][1]

    def drop(self, unwanted: Callable[[Key], bool]) -> None:
        """Keep nothing for some sizes."""
        self._latest = None
        for key in [k for k in self._kept if unwanted(k)]:
            self._bytes -= self._kept.pop(key)[1]

    def clear(self) -> None:
        """Keep nothing."""
        self._kept.clear()
        self._bytes, self._latest = 0, None

    def __iter__(self) -> Iterator[Key]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def values(self) -> list[Executable]:
        """All that is kept, what was used last at the end."""
        return [executable for executable, _ in self._kept.values()]
