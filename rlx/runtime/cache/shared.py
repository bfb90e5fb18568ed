"""The store that the processes of a user share: where it is, and what its keys say of RLX."""

from __future__ import annotations

import os
import sys
import warnings
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import rlx
from rlx import knobs
from rlx.runtime.cache.entry import Entry
from rlx.runtime.cache.key import (
    Key,
    Part,
    Stamp,
    contents_digests,
    kernel_tools,
    newest,
    stamps,
    stamps_digest,
    toolchain,
)
from rlx.runtime.cache.store import Store

__all__ = ["PACKAGE", "folder", "log", "logged", "store", "tools", "tools_of_kernels", "unchanged"]

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from pathlib import Path
    from types import ModuleType

PACKAGE = os.path.dirname(rlx.__file__)

TICK_NS = 10_000_000
"""Systems are so much late, at most, in the times that they give to changes."""

SETTLED_NS = 2_000_000_000
"""What changed so long ago has a time of its own: file systems count time in steps."""


def folder() -> Path:
    """The directory of the cache; RuntimeError where it is in a home that nobody knows."""
    from pathlib import Path

    return Path(_folder())


def _folder() -> str:
    chosen = knobs.cache_dir.get()
    if chosen:
        path = _at_home(chosen)
        return path if os.path.isabs(path) else os.path.join(os.getcwd(), path)
    base = os.environ.get("XDG_CACHE_HOME", "")
    return os.path.join(base if os.path.isabs(base) else _at_home("~/.cache"), "rlx")


def _at_home(path: str) -> str:
    found = os.path.expanduser(path)
    if found.startswith("~"):
        raise RuntimeError(f"no home directory for {path}")
    return found


def store() -> Store | None:
    """The store; None where RLX_CACHE turns it off."""
    if not knobs.cache.get():
        return None
    try:
        path = _folder()
    except RuntimeError:
        _homeless()
        return None
    return _store(path, knobs.cache_size.get())


@cache
def _homeless() -> None:
    warnings.warn(
        "the compile cache is not used: this user has no home directory; RLX_CACHE_DIR names a"
        " directory for it",
        RuntimeWarning,
        stacklevel=2,
    )


@lru_cache(maxsize=8)
def _store(path: str, limit: int) -> Store:
    return Store(path, limit)  # one for each directory, so that it warns once


def tools(store: Store) -> tuple[Part, ...] | None:
    """The parts of a key for RLX and its toolchain; None if RLX changed after it was loaded, so
    that what runs is not what the files say."""
    found = _stamps()
    if newest(found) >= _limit() or not unchanged():
        return None
    return toolchain(_sources(found, store)[0])


def tools_of_kernels(store: Store) -> tuple[Part, ...] | None:
    """As ``tools``, for objects of kernels alone: neither the native module nor NumPy has a part in
    them, which differ between machines that RLX is installed on."""
    found = _stamps()
    if newest(found) >= _limit() or not unchanged():
        return None
    return kernel_tools(_sources(found, store)[1])


@cache
def _stamps() -> tuple[Stamp, ...]:
    """The stamps of all of RLX's files when they were first asked for. What is loaded later is held
    to the same by ``unchanged``."""
    return tuple(stamps(PACKAGE))


@lru_cache(maxsize=1)
def _sources(found: tuple[Stamp, ...], store: Store) -> tuple[str, str]:
    """The digests of RLX's files and of those in Python, which the store remembers by the files'
    stamps."""
    key = _key_of_sources(found)
    entry = store.read(key)
    if entry is not None:
        whole, python = entry.payload.decode().split()
        return whole, python
    digests = _contents(found)
    if newest(found) + SETTLED_NS < rlx.LOADED_NS:
        store.write((key, Entry.of(key, " ".join(digests).encode())))
    return digests


@lru_cache(maxsize=1)
def _key_of_sources(found: tuple[Stamp, ...]) -> Key:
    return Key("sources", (Part("stamps", stamps_digest(PACKAGE, found)),))


@lru_cache(maxsize=1)
def _contents(found: tuple[Stamp, ...]) -> tuple[str, str]:
    return contents_digests(PACKAGE, found)


def unchanged() -> bool:
    """Whether the modules of RLX that are loaded are what their files said when the first was. A
    file is looked at once for each time that it is loaded: what changes later is not what runs."""
    limit = _limit()
    try:
        return all([
            _changed_ns(name, module) < limit
            for name, module in list(sys.modules.items())
            if name.startswith("rlx.") or name == "rlx"
        ])  # fmt: skip
    except OSError:
        return False


_changes: dict[str, tuple[ModuleSpec, int]] = {}
"""By module what it was loaded by, and when its file had changed last, in ns since the epoch."""


def _changed_ns(name: str, module: ModuleType) -> int:
    spec, file = getattr(module, "__spec__", None), getattr(module, "__file__", None)
    if file is None:
        return -sys.maxsize
    kept = _changes.get(name)
    if kept is not None and kept[0] is spec:  # which is another after a reload
        return kept[1]
    changed = os.stat(file).st_ctime_ns
    if spec is not None:
        _changes[name] = spec, changed
    return changed


def _limit() -> int:
    """Before this, in ns since the epoch, changed what RLX was loaded from."""
    return rlx.LOADED_NS - TICK_NS


def logged() -> bool:
    """Whether RLX_LOG asks for the looks into the cache."""
    return "cache" in knobs.log.get()


def log(line: str) -> None:
    """Report a line on standard error, if RLX_LOG asks for it."""
    if logged():
        print(f"rlx: cache: {line}", file=sys.stderr)
