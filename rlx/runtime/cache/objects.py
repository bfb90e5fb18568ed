"""Objects of kernels: equal kernels are compiled once, across graphs and across processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from rlx.runtime.cache.entry import Entry
from rlx.runtime.cache.key import Key, Part
from rlx.runtime.cache.memory import Memory
from rlx.runtime.cache.shared import unchanged
from rlx.runtime.cache.shipped import Archive
from rlx.runtime.cache.store import Store

__all__ = ["Shelf", "found_or_made", "in_memory", "keep"]

LIMIT = 64 << 20
"""Bytes of objects that a process keeps."""

in_memory: Memory[bytes] = Memory(LIMIT)
"""The objects that this process has made or read, by the digests of their kernels."""


class Shelf:
    """The objects of a store, for kernels that are made with ``tools``, and below them those that
    RLX was installed with."""

    def __init__(
        self, store: Store, tools: tuple[Part, ...], shipped: Archive | None = None
    ) -> None:
        self._store, self._tools, self._shipped = store, tools, shipped

    def read(self, kernel: str) -> bytes | None:
        """The object of a kernel, which is described by all that its code depends on."""
        entry = self._store.read(self._key(kernel))
        if entry is not None:
            return entry.payload
        return None if self._shipped is None else self._shipped.read(kernel)

    def write(self, objects: Iterable[tuple[str, bytes]]) -> None:
        """Keep the objects of kernels."""
        if unchanged():
            keyed = ((self._key(kernel), data) for kernel, data in objects)
            self._store.write(*((key, Entry.of(key, data)) for key, data in keyed))

    def _key(self, kernel: str) -> Key:
        return Key("kernel", (Part("kernel", kernel), *self._tools))


def found_or_made(
    kernels: Mapping[str, str],
    make: Callable[[list[str]], dict[str, bytes]],
    shelf: Shelf | None,
) -> tuple[dict[str, bytes], int]:
    """The objects of kernels by digest, and how many of them had to be made.

    ``kernels`` describes each by all that its code depends on; ``make`` makes those that are
    neither in memory nor on the shelf.
    """
    found: dict[str, bytes] = {}
    for digest, text in kernels.items():
        data = in_memory.get(digest)
        if data is None and shelf is not None:
            data = shelf.read(text)
        if data is not None:
            found[digest] = data
    made = make([digest for digest in kernels if digest not in found])
    if shelf is not None and made:
        shelf.write((kernels[digest], data) for digest, data in made.items())
    objects = {digest: found[digest] if digest in found else made[digest] for digest in kernels}
    for digest, data in objects.items():
        keep(digest, data)
    return objects, len(made)


def keep(digest: str, data: bytes) -> None:
    """Keep an object in memory."""
    in_memory.put(digest, data, len(data))
