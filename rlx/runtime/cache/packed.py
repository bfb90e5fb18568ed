"""What prologues make of the weights of files, kept beside the compile cache, so that the next
process maps it in place of packing them anew.

    packed/NAME     packed memory, as it lies

A name is the digest of all that the memory depends on: the steps and kernels of the prologue, and
of every param that they read its place in a file and that file's state. A file that was changed
since, or moments ago, has nothing kept of it.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from weakref import ref

import numpy as np

from rlx import knobs
from rlx.base.digest import digest
from rlx.base.file_maps import place_of
from rlx.base.giving_way import checkpoint
from rlx.runtime import _native
from rlx.runtime.background import later
from rlx.runtime.cache import shared
from rlx.runtime.weights import Weights, plain

__all__ = ["PackedFolder", "settle"]

Array = np.ndarray[Any, Any]

PART = 8 << 20
"""Bytes that are written at a time."""

LEFT_BEHIND = 3600
"""Seconds after which nobody is still at a file that was not written to."""


class PackedFolder:
    """The files in the folder of a cache, of up to ``limit`` bytes; what was used longest ago goes
    first."""

    def __init__(self, root: str, limit: int) -> None:
        self.path, self.limit = os.path.join(root, "packed"), limit

    def files(self) -> list[tuple[str, int, float]]:
        """The path of each, its bytes, and when it was last used, the one used last first."""
        return [file for file in self._all() if "." not in os.path.basename(file[0])]

    def _all(self) -> list[tuple[str, int, float]]:
        """Those that are being written too."""
        found: list[tuple[str, int, float]] = []
        with suppress(OSError), os.scandir(self.path) as listed:
            for entry in listed:
                with suppress(OSError):
                    s = entry.stat(follow_symlinks=False)
                    found.append((entry.path, s.st_size, s.st_mtime))
        return sorted(found, key=lambda f: -f[2])

    def clear(self) -> int:
        """Remove all; returns how many went. Who has one mapped keeps it."""
        return sum([_gone(path) for path, _, _ in self._all()])

    def read(self, name: str) -> Array | None:
        """The file of a name, mapped; None if there is none."""
        path = os.path.join(self.path, name)
        try:
            with open(path, "rb") as f:
                found = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
            os.utime(path)
        except (OSError, ValueError):  # the latter for an empty one
            return None
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):
                found.madvise(mmap.MADV_HUGEPAGE)
        return np.frombuffer(found, np.uint8)

    def write(self, name: str, memory: Array, still: Callable[[], bool]) -> None:
        """Keep memory by a name, if it is ``still`` right once it is written, and no other process
        has written it meanwhile. Gives way; nothing is kept where there is no room, or the system
        refuses. The folder above is there."""
        path = os.path.join(self.path, name)
        with suppress(OSError):
            os.makedirs(self.path, 0o700, exist_ok=True)
            if memory.nbytes > self.limit or _free(self.path) < 4 * memory.nbytes:
                return
            if _size(path) == memory.nbytes:
                return
            staged = f"{path}.{os.urandom(8).hex()}"
            out = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                with open(out, "wb") as f:
                    for at in range(0, memory.nbytes, PART):
                        checkpoint()
                        f.write(memory[at : at + PART].data)
                    f.flush()
                    os.fsync(f.fileno())
                if still():
                    os.replace(staged, path)
            finally:
                _gone(staged)
        self._trim()

    def _trim(self) -> None:
        """Remove what is too much, and what writers that died have left."""
        total = 0
        for path, size, used in self._all():
            total += size
            left = "." in os.path.basename(path) and used < time.time() - LEFT_BEHIND
            if total > self.limit or left:
                _gone(path)


def settle(weights: Weights, params: Mapping[str, Array]) -> None:
    """Give weights what their prologue made of these params before, if that is kept; else keep it,
    once it is made and nothing else is to be done."""
    store, limit = shared.store(), knobs.packed_size.get()
    name = _name(weights, params) if store is not None and limit and store.usable else None
    if store is None or name is None:
        return
    folder = PackedFolder(store.root, limit)
    found = folder.read(name)
    if found is not None:
        with suppress(_native.Error):  # of a file that something has cut short, which is kept anew
            weights.native.use_packed(found)
            return
    mine, changes = ref(weights), weights.changes

    def keep() -> None:
        made = mine()
        if made is None or made.changes != changes:
            return
        # Params that no prologue reads may be unset still: who sets the last one asks again.
        with suppress(_native.Error, _native.Fault):
            memory = made.packed()
            if not store.make():
                return
            folder.write(
                name, memory, lambda: made.changes == changes and _name(made, params) == name
            )

    later(keep)


def _name(weights: Weights, params: Mapping[str, Array]) -> str | None:
    """The name of what is packed of params; None where one is missing or in a file that was
    changed, or where most are in no file."""
    variant, prologue = weights.code.variant, weights.prologue
    if variant.functions or variant.packed is not None:
        return None
    followed = sorted({i for _, own in variant.prologue for i in own})
    signatures = [prologue.params[i] for i in followed]
    names = [name for name, _, _ in signatures]
    if not params.keys() >= {*names}:
        return None
    values = [plain(params[name]) for name in names]
    places = [place_of(value) for value in values]
    before = time.time_ns() - shared.SETTLED_NS
    if any(p is not None and (p.changed > before or not p.stands) for p in places):
        return None
    mapped = sum(v.nbytes for v, p in zip(values, places, strict=True) if p is not None)
    if sum(v.nbytes for v in values) > 2 * mapped:
        return None
    # What is in no file is mostly rows of one in another order.
    sources = [p or _native.checksum(v) for v, p in zip(values, places, strict=True)]
    kernels = variant.kernels[: variant.prologue_kernels]
    code = [part for k in kernels for part in (k.symbol.encode(), variant.objects[k.object])]
    versions = _native.ABI_VERSION, _native.ARTIFACT_FORMAT
    facts = (versions, signatures, prologue.constants, prologue.packed_bytes, sources)
    return digest(repr(facts).encode(), prologue.words, *code)


def _free(path: str) -> int:
    """The bytes that a file system has left."""
    if not hasattr(os, "statvfs"):
        return 1 << 62
    s = os.statvfs(path)
    return s.f_bavail * s.f_frsize


def _size(path: str) -> int | None:
    """The bytes of a file, if it is there."""
    try:
        return os.stat(path).st_size
    except OSError:
        return None


def _gone(path: str) -> bool:
    try:
        os.unlink(path)
    except OSError:
        return False
    return True
