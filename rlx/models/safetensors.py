"""Safetensors files: named tensors, read as views of the mapped file, and written.

The format is an 8-byte little-endian header length, a JSON header that gives every tensor's
dtype, shape and ``[begin, end)`` bytes, and the bytes themselves, without gaps. The header comes
from outside, so all of it is checked before any view is made.
"""

from __future__ import annotations

import json
import math
import mmap
import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from rlx.base.file_maps import mapped_file
from rlx.errors import ModelError, ShapeError, did_you_mean
from rlx.ir.builders import public
from rlx.types import DTYPES, DType, TensorType

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["SafeTensors", "mapped", "replaced", "sync_folder", "write_safetensors"]

Array = np.ndarray[Any, Any]

_NAMES = {"f8e4m3fn": "F8_E4M3", "f8e5m2": "F8_E5M2"}
_DTYPES = {_NAMES.get(name, name.upper()): dt for name, dt in DTYPES.items() if name != "c128"}
"""Our element types by the format's names."""

_HEADER_LIMIT = 100_000_000
"""Bytes; the limit that the format's own reader has."""


@public
class SafeTensors(Mapping[str, Array]):
    """The tensors of a file by name, as read-only arrays that share the mapped file's memory.

    The map lives as long as the object or any array taken from it. ModelError says what is wrong
    with a file that is missing, cut short or malformed.
    """

    def __init__(self, path: str | Path) -> None:
        self._file = os.fspath(path)
        self._bytes = mapped(self._file)
        header, self._start = self._header()
        metadata = header.pop("__metadata__", {})
        if not isinstance(metadata, dict):
            raise self._fail(f"its __metadata__ is {metadata!r}")
        self.metadata: dict[str, str] = metadata
        self._entries = {name: self._entry(name, raw) for name, raw in header.items()}
        self._check_cover()

    @property
    def path(self) -> Path:
        """The file."""
        from pathlib import Path

        return Path(self._file)

    def __getitem__(self, name: str) -> Array:
        if name not in self._entries:
            hint = did_you_mean(name, self._entries)
            raise ModelError(f"{self._file} has no tensor {name!r}{hint}")
        dt, shape, begin, _ = self._entries[name]
        view = np.frombuffer(self._bytes, dt.numpy, math.prod(shape), self._start + begin)
        return view.reshape(shape)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def _fail(self, problem: str) -> ModelError:
        return ModelError(f"{self._file} is no valid safetensors file: {problem}")

    def _header(self) -> tuple[dict[str, Any], int]:
        size = len(self._bytes)
        if size < 8:
            raise self._fail(f"it has {size} bytes, and the header's length alone takes 8")
        length = int.from_bytes(self._bytes[:8], "little")
        if length > min(size - 8, _HEADER_LIMIT):
            raise self._fail(f"its header should have {length} bytes, the file has {size}")
        try:
            header = json.loads(self._bytes[8 : 8 + length].decode(), object_pairs_hook=_once)
        except (RecursionError, ValueError) as e:
            raise self._fail(f"its header is not JSON ({e})") from None
        if not isinstance(header, dict):
            raise self._fail("its header is not a JSON object")
        return header, 8 + length

    def _entry(self, name: str, raw: Any) -> tuple[DType, tuple[int, ...], int, int]:
        if not isinstance(raw, dict) or not {"dtype", "shape", "data_offsets"} <= raw.keys():
            raise self._fail(f"the entry of {name!r} lacks dtype, shape or data_offsets")
        if not isinstance(raw["dtype"], str) or raw["dtype"] not in _DTYPES:
            raise self._fail(f"{name!r} has dtype {raw['dtype']!r}; known are {', '.join(_DTYPES)}")
        dt, shape, offsets = _DTYPES[raw["dtype"]], raw["shape"], raw["data_offsets"]
        if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:
            raise self._fail(f"{name!r} has shape {shape!r} and data_offsets {offsets!r}")
        try:
            TensorType(tuple(shape), dt).addressable()
        except ShapeError as e:
            raise self._fail(f"{name!r}: {e.message}") from None
        begin, end = offsets
        want, room = math.prod(shape) * dt.bytes, len(self._bytes) - self._start
        if end - begin != want or end > room:
            raise self._fail(
                f"{name!r} needs {want} bytes for {raw['dtype']} {shape}, its data_offsets are"
                f" {offsets} of {room} bytes of data"
            )
        return dt, tuple(shape), begin, end

    def _check_cover(self) -> None:
        """The tensors lie one after the other and fill the file: nothing overlaps or is left."""
        at = 0
        for name, (_, _, begin, end) in sorted(self._entries.items(), key=lambda e: e[1][2:]):
            if begin != at:
                what = "overlaps the tensor before it" if begin < at else "leaves a gap before it"
                raise self._fail(f"{name!r} {what} (it begins at {begin}, expected {at})")
            at = end
        if at != len(self._bytes) - self._start:
            raise self._fail(f"{len(self._bytes) - self._start - at} bytes follow the last tensor")


def mapped(path: str) -> mmap.mmap:
    """A file, mapped to be read. ModelError if it cannot be."""
    try:
        return mapped_file(path)
    except OSError as e:
        raise ModelError(f"cannot read {path}: {e.strerror or e}") from None
    except ValueError as e:  # "cannot mmap an empty file", or a path that is none
        raise ModelError(f"cannot read {path}: {e}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a name is there twice")
    return out


def _are_sizes(v: Any) -> bool:
    return isinstance(v, list) and all(type(n) is int and n >= 0 for n in v)


def write_safetensors(
    path: str | Path, tensors: Mapping[str, Array], metadata: Mapping[str, str] | None = None
) -> None:
    """Write a file, which appears whole, under its name, or not at all: whenever the process or
    the machine stops, there is the file before or this one. ModelError if it cannot be written."""
    names = {ours.numpy: theirs for theirs, ours in _DTYPES.items()}
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    # The widest elements first: so all of them are aligned.
    tensors = dict(sorted(tensors.items(), key=lambda item: -item[1].dtype.itemsize))
    for name, a in tensors.items():
        if a.dtype not in names:
            raise ModelError(f"tensor {name!r} is {a.dtype}, for which safetensors has no name")
        header[name] = {
            "dtype": names[a.dtype], "shape": list(a.shape), "data_offsets": [end, end + a.nbytes],
        }  # fmt: skip
        end += a.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that the data are aligned
    with replaced(path) as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for a in tensors.values():
            f.write(np.ascontiguousarray(a).reshape(-1).view(np.uint8).data)


@contextmanager
def replaced(path: str | Path) -> Generator[BinaryIO]:
    """A file to write, which takes the place of the one of that name once it is whole and on the
    disk, or not at all. ModelError if it cannot be written."""
    # Here: who reads a file has no use for them, and importing them takes longer.
    import glob
    from pathlib import Path

    path = Path(path)
    staged = path.parent / f".{path.name}.{os.urandom(6).hex()}"
    try:
        with staged.open("xb") as f:
            yield f
            f.flush()
            os.fsync(f.fileno())
        staged.replace(path)
        for left in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 12}"):
            left.unlink()  # of a process that was stopped as it wrote
        sync_folder(path.parent)
    except OSError as e:
        raise ModelError(f"cannot write {path}: {e.strerror or e}") from None
    finally:
        with suppress(OSError):
            staged.unlink()


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk, where folders can be opened."""
    if os.name != "posix":
        return
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
