"""A directory that keeps bytes by key, for many processes at once.

    KIND/DIGEST      an entry (rlx/runtime/cache/entry.py)
    staging/...      what is being written, under names that no two writers share
    last-miss        the key that was looked for last and not there
    usage            how many bytes all that is (rlx/runtime/cache/usage.py)

There are no locks. An entry is staged and then published by one rename, so that a reader finds a
whole one or none, and a file that is damaged nevertheless is told by its digest. No directory is
ever removed, so that nobody's rename fails for it. What is used is touched, and what was used
longest ago goes first where all is more than ``limit``; an eighth of it is then left free, so that
not every write has to look at all files.

Only its owner can read or write the directory: an entry is code that will be run.
"""

from __future__ import annotations

import os
import stat
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from rlx.runtime.cache.entry import (
    FORMAT,
    HEAD_BYTES,
    Damaged,
    Entry,
    head,
    key_of,
    pieces,
    read,
    read_manifest,
    unpack,
)
from rlx.runtime.cache.key import Key
from rlx.runtime.cache.usage import Usage

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Found", "Store", "load", "manifest_of"]

STALE_SECONDS = 600
"""A staged file of this age was left by a writer that is no more."""

_STAGING = "staging"
_LAST_MISS = "last-miss"
_USAGE = "usage"


class Found(NamedTuple):
    """A file of the directory; ``used`` is when it was last used, in seconds since the epoch."""

    path: Path
    kind: str
    size: int
    used: float


class Store:
    """See the module. Where the system refuses to write, nothing new is kept, and where the
    directory cannot be trusted it is not read either: one warning says so, and nothing is raised.
    """

    def __init__(self, folder: str | Path, limit: int) -> None:
        self.root, self.limit = os.fspath(folder), limit
        self._folder = os.path.join(self.root, f"v{FORMAT}")
        self._usage = Usage(os.path.join(self._folder, _USAGE))
        self._off = self._read_only = self._trusted = False
        self._damaged: dict[str, str] = {}

    @property
    def folder(self) -> Path:
        """Where the files are."""
        from pathlib import Path  # a hit does without: to import it takes longer than to read one

        return Path(self._folder)

    # -- entries ---------------------------------------------------------------------------

    @property
    def usable(self) -> bool:
        """Whether nothing has failed, and nobody else can have written what is there."""
        return self._usable()

    def read(self, key: Key) -> Entry | None:
        """The entry of a key, if there is one; ``why`` says why not."""
        if not self._usable():
            return None
        path = self._path(key)
        try:
            with _opened(path) as f:
                entry = read(f, key.kind, key.digest)
        except FileNotFoundError:
            return None
        except (Damaged, OSError) as e:
            self._damaged[key.digest] = str(e)
            return None
        with suppress(OSError):  # else it is used, though nobody will know when
            os.utime(path)
        return entry

    def why(self, key: Key) -> str:
        """Why ``read`` gave nothing for a key."""
        if self._off:
            return "the directory cannot be used"
        damage = self._damaged.get(key.digest)
        return f"the entry is damaged: {damage}" if damage else "there is no such entry"

    def reject(self, key: Key, why: str) -> None:
        """Say of an entry that was read that what it holds is no good."""
        self._damaged[key.digest] = why

    def write(self, *entries: tuple[Key, Entry]) -> None:
        """Keep entries, each by its key."""
        if not entries or not self._usable() or self._read_only:
            return
        files = [(self._path(key), pieces(key, entry)) for key, entry in entries]
        size = sum(len(piece) for _, data in files for piece in data)
        noted = self._usage.add(size)
        for path, data in files:
            if self._usable() and not self._read_only:
                self._publish(path, data)
        total = self._usage.written(size, noted)
        if total is None or total > self.limit:
            self.trim()

    def miss(self, key: Key) -> None:
        """Remember a key as the last that was not there."""
        if self._usable() and not self._read_only:
            self._publish(os.path.join(self._folder, _LAST_MISS), pieces(key, Entry.of(key, b"")))

    # -- the directory as a whole ----------------------------------------------------------

    def entries(self) -> list[Found]:
        """Every entry, the one used last first."""
        kept = [f for f in self._files() if f.kind not in ("", _STAGING)]
        return sorted(kept, key=lambda f: -f.used)

    def last_miss(self) -> Entry | None:
        """The key that was not there, as an entry without contents."""
        try:
            return load(self.folder / _LAST_MISS)
        except Damaged:
            return None

    def clear(self) -> int:
        """Remove every entry; returns how many went."""
        self._usage.forget()
        return sum(_unlink(f.path) for f in self._files() if f.kind != _STAGING or _is_stale(f))

    def trim(self) -> int:
        """Remove what writers left behind, then, if the rest is beyond the limit, what was used
        longest ago; returns how many went."""
        self._usage.forget()
        files = sorted(self._files(), key=lambda f: f.used)
        total = sum(f.size for f in files)
        allowed = self.limit if total <= self.limit else self.limit - self.limit // 8
        gone = 0
        for f in files:
            if total > allowed or (f.kind == _STAGING and _is_stale(f)):
                gone += _unlink(f.path)
                total -= f.size
        if total:
            self._usage.counted(total)
        return gone

    def _files(self) -> Iterator[Found]:
        """Every file, in whatever order; what vanishes meanwhile is left out."""
        from pathlib import Path

        folders = [(self.folder, "")]
        while folders:
            folder, kind = folders.pop()
            try:
                with os.scandir(folder) as listed:
                    for entry in listed:
                        if not kind and entry.is_dir(follow_symlinks=False):
                            folders.append((Path(entry.path), entry.name))
                            continue
                        try:
                            s = entry.stat(follow_symlinks=False)
                        except OSError:
                            continue
                        yield Found(Path(entry.path), kind, s.st_size, s.st_mtime)
            except OSError:
                continue

    # -- files -----------------------------------------------------------------------------

    def _path(self, key: Key) -> str:
        return os.path.join(self._folder, key.kind, key.digest)

    def _publish(self, path: str, data: list[bytes]) -> None:
        """Put a whole file, given in pieces, in the place of whatever is there."""
        name = f"{os.getpid()}-{os.urandom(8).hex()}"
        staged = os.path.join(self._folder, _STAGING, name)
        try:
            try:
                _create(staged, data)
            except FileNotFoundError:
                if not self.make():
                    return
                _create(staged, data)
            try:
                os.replace(staged, path)
            except FileNotFoundError:
                with suppress(FileExistsError):
                    os.mkdir(os.path.dirname(path), 0o700)
                os.replace(staged, path)
        except FileNotFoundError:
            pass  # another process has cleared the directory: it wants nothing to be there
        except OSError as e:
            _unlink(staged)
            self._read_only = True
            self._warn(f"keeps nothing new: cannot write to {self.root}: {e.strerror or e}")

    def make(self) -> bool:
        """Make the directory, and those above it as private as it; whether it can be used."""
        for folder in (*reversed(self.folder.parents), self.folder):
            if not folder.exists():
                folder.mkdir(mode=0o700, exist_ok=True)
        (self.folder / _STAGING).mkdir(mode=0o700, exist_ok=True)
        self._trusted = False  # somebody else may have made it meanwhile
        return self._usable()

    def _usable(self) -> bool:
        """Whether nothing has failed, and only this user, or root, can have written what the
        directory has."""
        if not self._off and not self._trusted:
            self._trusted = all([self._is_ours(folder) for folder in (self.root, self._folder)])
        return not self._off

    def _is_ours(self, folder: str) -> bool:
        try:
            s = os.stat(folder)
        except FileNotFoundError:
            return False
        except OSError as e:
            self._stop(f"cannot use {folder}: {e.strerror or e}")
            return False
        if not stat.S_ISDIR(s.st_mode):
            self._stop(f"{folder} is no directory")
        elif hasattr(os, "geteuid") and s.st_uid not in (os.geteuid(), 0):
            self._stop(f"{folder} belongs to another user, and code in it would be run")
        elif s.st_mode & 0o022:
            self._stop(f"others can write to {folder}, and code in it would be run; chmod 700 it")
        return not self._off

    def _stop(self, why: str) -> None:
        """Keep and read nothing from now on."""
        if not self._off:
            self._off = True
            self._warn(f"is not used: {why}")

    def _warn(self, what: str) -> None:
        warnings.warn(
            f"the compile cache {what} (RLX_CACHE_DIR names another directory, RLX_CACHE=off turns"
            " it off)",
            RuntimeWarning,
            stacklevel=2,
        )


def load(path: Path) -> Entry:
    """The entry in a file, whatever its key; Damaged if it is none, or has another's name."""
    try:
        data = _contents(path)
    except OSError as e:
        raise Damaged(e.strerror or str(e)) from None
    kind, digest, *_ = head(data)
    if path.name != _LAST_MISS:
        kind, digest = path.parent.name, path.name
    entry = unpack(data, kind, digest)
    if key_of(entry.manifest).digest != digest:
        raise Damaged("its manifest is that of another key")
    return entry


def manifest_of(path: Path) -> dict[str, Any]:
    """The manifest of an entry alone, whose digest is not checked; Damaged if it is none."""
    try:
        with _opened(path) as f:
            _, _, begin, end = head(f.read(HEAD_BYTES))
            size = os.fstat(f.fileno()).st_size
            if end > size:
                raise Damaged(f"its first line does not fit its {size} bytes")
            f.seek(begin)
            return read_manifest(f.read(end - begin))
    except OSError as e:
        raise Damaged(e.strerror or str(e)) from None


def _contents(path: str | Path) -> bytes:
    """The bytes of a file; raises what ``_opened`` raises."""
    with _opened(path) as f:
        return f.read()


def _opened(path: str | Path) -> BinaryIO:
    """A file to read, which must be a plain one; a pipe is not waited for."""
    flags = os.O_RDONLY
    for name in ("O_NOFOLLOW", "O_CLOEXEC", "O_NONBLOCK"):  # not every system has them
        flags |= getattr(os, name, 0)
    fd = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise Damaged("it is no plain file")
    return open(fd, "rb")


def _create(path: str, data: list[bytes]) -> None:
    """Write a new file, given in pieces, that only this user can read."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
    with open(fd, "wb") as f:
        f.writelines(data)


def _is_stale(f: Found) -> bool:
    return time.time() - f.used > STALE_SECONDS


def _unlink(path: str | Path) -> bool:
    try:
        os.unlink(path)
    except OSError:
        return False
    return True
