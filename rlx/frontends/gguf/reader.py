"""GGUF files, mapped: versions 1 to 3, of either byte order, whole or split."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.errors import ModelError, did_you_mean
from rlx.frontends.gguf.tensor import Tensor, row_bytes, type_named
from rlx.frontends.gguf.values import Cursor
from rlx.ir.builders import located, public
from rlx.models.safetensors import mapped

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["GGUF", "read"]

MAGIC = b"GGUF"
ALIGNMENT = 32
"""Of tensors, where the metadata say no other."""

_DIMS = 4
_VERSIONS = (1, 2, 3)
_SPLIT = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)


@public
class GGUF(Mapping[str, Tensor]):
    """The tensors of a file by name, as views of the mapped file, and its ``metadata``.

    ``metadata`` holds numbers, bools, strings, lists of strings and arrays by key; ``kinds`` has
    the kind that each is stored as, such as ``"u32"`` or ``"str[]"``. ``version``, ``alignment``
    and ``byteorder`` are those of the file, the first one of a split model.
    """

    def __init__(self, path: str | Path) -> None:
        self.file = os.fspath(path)
        self._parts = [_File(self.file)]
        first = self._parts[0]
        self.version, self.alignment, self.byteorder = (
            first.version, first.alignment, first.byteorder,
        )  # fmt: skip
        self.metadata, self.kinds = first.metadata, first.kinds
        self._tensors = dict(first.tensors)
        if "split.count" in self.metadata and self.metadata["split.count"] != 1:
            self._read_parts()

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._tensors:
            hint = did_you_mean(name, self._tensors)
            raise ModelError(f"{self.file} has no tensor {name!r}{hint}")
        return self._tensors[name]

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __repr__(self) -> str:
        return f"<GGUF {self.file}: {len(self)} tensors>"

    def _read_parts(self) -> None:
        """All parts of a split model, of which this is the first."""
        count = self.metadata["split.count"]
        name = _SPLIT.fullmatch(self.file)
        if type(count) is not int or not 0 < count < 1 << 16:
            raise ModelError(f"{self.file}: split.count is {count!r}, expected a number of parts")
        if name is None or int(name[2]) != 1 or int(name[3]) != count:
            raise ModelError(
                f"{self.file} is one of {count} parts: give the first, named"
                f" NAME-00001-of-{count:05}.gguf"
            )
        for n in range(1, count + 1):
            path = f"{name[1]}-{n:05}-of-{count:05}.gguf"
            part = self._parts[0] if n == 1 else _File(path)
            found = [part.metadata.get(f"split.{key}") for key in ("no", "count")]
            if found != [n - 1, count]:
                raise ModelError(
                    f"{path}: split.no and split.count are {found}, expected {[n - 1, count]}"
                )
            if n > 1:
                both = self._tensors.keys() & part.tensors.keys()
                if both:
                    raise ModelError(f"{path}: the tensor {min(both)!r} is in a part before it too")
                self._parts.append(part)
                self._tensors.update(part.tensors)
        total = self.metadata.get("split.tensors.count", len(self))
        if total != len(self):
            raise ModelError(
                f"{self.file}: the parts have {len(self)} tensors, and split.tensors.count is"
                f" {total}"
            )


@located
def read(path: str | Path) -> GGUF:
    """A GGUF file, or the first part of a split one with all others. Nothing is copied: pages are
    read as tensors are. ModelError names the offset, the key or the tensor that is wrong."""
    return GGUF(path)


class _File:
    """One file, all of whose header is checked before any view is made."""

    def __init__(self, path: str) -> None:
        self.data = mapped(path)
        c = self._cursor = Cursor(self.data, path)
        self.version = self._version()
        self.byteorder = "little" if c.order == "<" else "big"
        word = 8 if c.wide else 4
        count = c.listed("the number of tensors", word + 4 + 4 + 8)
        keys = c.listed("the number of metadata", word + 4 + 1)
        self.metadata: dict[str, Any] = {}
        self.kinds: dict[str, str] = {}
        for n in range(keys):
            self._read_key(n)
        self.alignment = self._alignment()
        infos = [self._info(n) for n in range(count)]
        self.start = -(-c.at // self.alignment) * self.alignment
        self.tensors = {info[0]: self._tensor(*info) for info in infos}
        self._check_apart(infos)

    def _version(self) -> int:
        c = self._cursor
        at = c.need(4, "the magic number")
        magic = bytes(self.data[at : at + 4])
        if magic != MAGIC:
            raise c.fail(f"the magic number is {magic!r}, expected {MAGIC!r}", at)
        place = c.at
        found = c.number("u4", "the version")
        if found & 0xFFFF == 0 and found:
            c.order, c.at = ">", place
            found = c.number("u4", "the version")
        if found not in _VERSIONS:
            raise c.fail(f"the version is {found}; RLX reads 1, 2 and 3", place)
        c.wide = found > 1
        return found

    def _read_key(self, n: int) -> None:
        c, at = self._cursor, self._cursor.at
        key = c.text(f"the name of metadata {n}")
        if key in self.metadata:
            raise c.fail(f"the metadata have {key!r} twice", at)
        what = f"metadata {key!r}"
        self.metadata[key], self.kinds[key] = c.value(c.kind(what), what)

    def _alignment(self) -> int:
        found = self.metadata.get("general.alignment", ALIGNMENT)
        if self.kinds.get("general.alignment", "u32") != "u32" or found & (found - 1) or not found:
            raise self._cursor.fail(
                f"general.alignment is {found!r}, expected a power of two as u32"
            )
        return found

    def _info(self, n: int) -> tuple[str, str, tuple[int, ...], int, int, int]:
        """A tensor's name, type, shape, offset and bytes, and where the file says so."""
        c, at = self._cursor, self._cursor.at
        name = c.text(f"the name of tensor {n}")
        what = f"tensor {name!r}"
        rank = c.number("u4", f"the number of dims of {what}")
        if rank > _DIMS:
            raise c.fail(f"{what} has {rank} dims, expected at most {_DIMS}", at)
        sizes = [c.count(f"the dims of {what}") for _ in range(rank)]
        number = c.number("u4", f"the type of {what}")
        offset = c.number("u8", f"the offset of {what}")
        shape = tuple(reversed(sizes))
        try:
            kind = type_named(number)
            row = row_bytes(kind, shape[-1] if shape else 1)
        except ModelError as e:
            raise c.fail(f"{what}: {e.message}", at) from None
        return name, kind, shape, offset, row * math.prod(shape[:-1]), at

    def _tensor(
        self, name: str, kind: str, shape: tuple[int, ...], offset: int, size: int, at: int
    ) -> Tensor:
        c, what = self._cursor, f"tensor {name!r}"
        if offset % self.alignment:
            raise c.fail(f"{what} begins at {offset}, no multiple of {self.alignment}", at)
        room = c.size - self.start
        if size and offset + size > room:
            raise c.fail(
                f"{what} takes the bytes {offset} to {offset + size} of the data, which have"
                f" {max(room, 0)}", at,
            )  # fmt: skip
        begin = self.start + offset if size else 0
        if math.prod(max(d, 1) for d in shape) >= 1 << 60:  # of no elements, as it fits in the file
            raise c.fail(f"{what} has the shape {list(shape)}", at)
        raw = np.frombuffer(self.data, np.uint8, size, begin)
        rows = math.prod(shape[:-1])
        width = size // rows if rows else 0
        return Tensor(kind, shape, raw.reshape(*shape[:-1], width), self.byteorder)

    def _check_apart(self, infos: list[tuple[str, str, tuple[int, ...], int, int, int]]) -> None:
        c = self._cursor
        names: set[str] = set()
        end, before = 0, ""
        for name, _, _, _, _, at in infos:
            if name in names:
                raise c.fail(f"the tensor {name!r} is there twice", at)
            names.add(name)
        for name, _, _, offset, size, at in sorted(infos, key=lambda i: i[3:5]):
            if size and offset < end:
                raise c.fail(f"the tensor {name!r} overlaps {before!r}", at)
            if size:
                end, before = offset + size, name
