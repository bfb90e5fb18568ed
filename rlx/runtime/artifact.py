"""What a compile gives: a signature, and for every kind of CPU a schedule and its kernels.

An artifact is one file of named parts (``rlx/runtime/container.py``, docs/artifact.md). Reading and
running one needs numpy and the native runtime, and no compiler.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rlx.errors import ArtifactError
from rlx.runtime import _native, container
from rlx.runtime.encoding import Reader, Writer, read_step, write_step
from rlx.types import DTYPES

__all__ = ["Artifact", "Signature", "Variant"]

Array = np.ndarray[Any, Any]

Signature = tuple[str, str, tuple[int, ...]]
"""Name, element type and shape of a param, input or output."""

RANK = 64
"""No array of numpy's has more dims."""

MAPPED_BYTES = 1 << 20
"""A file of so many bytes is mapped into memory; a smaller one is read."""


@dataclass(frozen=True)
class Variant:
    """A schedule and its kernels, for machines that have what ``requires`` names.

    Steps are those of ``rlx.runtime._native`` with the kernel's name in place of its address.
    ``kernels`` maps that name to a symbol of an object; ``objects`` are keyed by a digest of what
    their code depends on, so that equal kernels of several artifacts are one object. ``places`` are
    the user's lines of the main steps, ``sites`` the messages of faults.
    """

    features: str
    machine: str
    requires: tuple[str, ...]
    arena_bytes: int
    packed_bytes: int
    constants: list[Array]
    prologue: list[tuple[tuple[Any, ...], tuple[int, ...]]]
    main: list[tuple[Any, ...]]
    places: list[tuple[str, int]]
    sites: list[tuple[str, str, int]]
    kernels: dict[str, tuple[str, str]]
    objects: dict[str, bytes] = field(repr=False)

    def lacking(self) -> list[str]:
        """What it needs and this machine does not have."""
        if self.machine != _native.machine():
            return [self.machine]
        return sorted(set(self.requires) - _native.cpu_features())


@dataclass(frozen=True)
class Artifact:
    """A compiled graph for one target and one binding of its dims.

    ``variants`` are alternatives for several kinds of CPU, the best first. ``values`` are the
    params that it carries; the others must be set before a run. ``extras`` are parts that the
    runtime carries along and does not read.
    """

    target: str
    params: list[Signature]
    inputs: list[Signature]
    outputs: list[Signature]
    variants: tuple[Variant, ...]
    values: Mapping[str, Array] = field(default_factory=dict[str, Array], repr=False)
    extras: Mapping[str, bytes] = field(default_factory=dict[str, bytes], repr=False)

    @cached_property
    def variant(self) -> Variant:
        """The first variant that runs on this machine; ArtifactError says what they all lack."""
        for v in self.variants:
            if not v.lacking():
                return v
        lacks = "; ".join(f"{v.features} needs {', '.join(v.lacking())}" for v in self.variants)
        raise ArtifactError(
            f"the artifact does not run on this machine ({_native.machine()}), which lacks what"
            f" its code needs: {lacks}; compile it for this machine too"
        )

    def with_values(self, values: Mapping[str, Array]) -> Artifact:
        """The artifact with params that it carries: arrays of the declared types and shapes."""
        return replace(self, values=dict(values))

    # -- files -----------------------------------------------------------------------------

    @property
    def files(self) -> dict[str, Any]:
        """The parts by name, as the container holds them: buffers of bytes."""
        return _Packer(self).parts

    def __bytes__(self) -> bytes:
        return b"".join(self._chunks())

    def _chunks(self) -> Iterator[Any]:
        return container.chunks(self.files, _native.ABI_VERSION)

    def save(self, path: str | Path) -> None:
        """Write the artifact as one file. It appears whole, under its name, or not at all."""
        path = Path(path)
        staged = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
        try:
            with staged.open("xb") as f:
                for chunk in self._chunks():
                    f.write(chunk)
                f.flush()
                os.fsync(f.fileno())
            staged.replace(path)
        except OSError as e:
            raise ArtifactError(f"cannot write {path}: {e.strerror or e}") from None
        finally:
            staged.unlink(missing_ok=True)

    @classmethod
    def from_bytes(cls, data: Any) -> Artifact:
        """The artifact in a buffer of bytes, which its arrays then share.

        ArtifactError says which part is damaged or malformed, or why this version cannot read it.
        """
        return _unpacked(container.unpack(data, _native.ABI_VERSION))

    @classmethod
    def load(cls, path: str | Path) -> Artifact:
        """Read a file. Large ones are mapped: the params that one carries are read in place, and
        the file must not be written to while it is in use (``save`` puts a new one in its place).
        """
        try:
            with Path(path).open("rb") as f:
                size = os.fstat(f.fileno()).st_size
                mapped = size >= MAPPED_BYTES
                data = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) if mapped else f.read()
        except OSError as e:
            raise ArtifactError(f"cannot read {path}: {e.strerror or e}") from None
        try:
            return cls.from_bytes(data)
        except ArtifactError as e:
            raise ArtifactError(f"{path}: {e.message}") from None


# -- writing -------------------------------------------------------------------------------


class _Packer:
    """Makes the parts of an artifact. Other parts are named by their number."""

    def __init__(self, artifact: Artifact) -> None:
        self.parts: dict[str, Any] = {"manifest": b""}
        self.numbers: dict[str, int] = {}
        schedules = [self._schedule(i, v) for i, v in enumerate(artifact.variants)]
        names = [name for name, _, _ in artifact.params]
        values = {
            name: self._part(f"params/{names.index(name)}", _bytes_of(value))
            for name, value in sorted(artifact.values.items(), key=lambda i: names.index(i[0]))
        }
        w = Writer()
        w.text(artifact.target)
        for signatures in (artifact.params, artifact.inputs, artifact.outputs):
            w.each(signatures, _write_signature)
        w.words(*(values.get(name, -1) for name in names))
        w.words(len(artifact.variants))
        for v, schedule in zip(artifact.variants, schedules, strict=True):
            w.text(v.features)
            w.text(v.machine)
            w.each(v.requires, Writer.text)
            w.words(schedule)
        self.parts["manifest"] = w.data
        for name, data in sorted(artifact.extras.items()):
            self._part(f"extras/{name}", data)

    def _part(self, name: str, data: Any) -> int:
        """The number of a part, which is added if it is not there."""
        if name not in self.parts:
            self.numbers[name] = len(self.parts)
            self.parts[name] = data
        return self.numbers[name]

    def _schedule(self, number: int, v: Variant) -> int:
        w = Writer()
        w.words(v.arena_bytes, v.packed_bytes)
        w.words(len(v.constants))
        for c in v.constants:
            data = _bytes_of(c)
            digest = hashlib.blake2b(data, digest_size=16).hexdigest()
            _write_signature(w, (digest, _dtype_of(c), c.shape))
            w.words(self._part(f"constants/{digest}", data))
        keys = list(v.objects)
        w.words(len(keys), *(self._part(f"objects/{k}", v.objects[k]) for k in keys))
        w.words(len(v.kernels))
        for name, (key, symbol) in v.kernels.items():
            w.text(name)
            w.words(keys.index(key))
            w.text(symbol)
        kernels = {name: i for i, name in enumerate(v.kernels)}
        w.words(len(v.prologue))
        for step, follows in v.prologue:
            w.each(follows, lambda w, n: w.words(n))
            write_step(w, step, kernels)
        w.each(v.main, lambda w, s: write_step(w, s, kernels))
        files = list(dict.fromkeys([*(f for f, _ in v.places), *(f for _, f, _ in v.sites)]))
        w.each(files, Writer.text)
        w.each(v.places, lambda w, place: w.words(files.index(place[0]), place[1]))
        w.words(len(v.sites))
        for message, file, line in v.sites:
            w.text(message)
            w.words(files.index(file), line)
        return self._part(f"variants/{number}", w.data)


def _write_signature(w: Writer, signature: Signature) -> None:
    name, dt, shape = signature
    w.text(name)
    w.text(dt)
    w.each(shape, lambda w, n: w.words(n))


def _dtype_of(a: Array) -> str:
    return next(name for name, dt in DTYPES.items() if dt.numpy == a.dtype)


def _bytes_of(a: Array) -> memoryview:
    # numpy exports no buffer for bfloat16.
    return np.ascontiguousarray(a).reshape(-1).view(np.uint8).data


# -- reading -------------------------------------------------------------------------------


def _unpacked(parts: Mapping[str, memoryview]) -> Artifact:
    numbered = list(parts.items())
    if not numbered or numbered[0][0] != "manifest":
        raise ArtifactError("the artifact has no manifest as its first part")
    r = Reader(*numbered[0])
    target = r.text()
    params, inputs, outputs = (r.each(_read_signature, 3) for _ in range(3))
    for what, signatures in (("param", params), ("input", inputs)):
        names = [name for name, _, _ in signatures]
        if len(set(names)) != len(names):
            raise r.fail(f"two of its {what}s have one name")
    values: dict[str, Array] = {}
    for signature in params:
        number = r.word()
        if number != -1:
            values[signature[0]] = _array(r, signature, number, numbered)
    variants = tuple(_read_variant(r, numbered) for _ in range(r.count(4)))
    if not variants:
        raise r.fail("it has no variant")
    r.end()
    extras = {n.removeprefix("extras/"): bytes(d) for n, d in numbered if n.startswith("extras/")}
    return Artifact(target, params, inputs, outputs, variants, values, extras)


Parts = Sequence[tuple[str, memoryview]]


def _part(r: Reader, number: int, parts: Parts, folder: str) -> tuple[str, memoryview]:
    """The name, without its folder, and the bytes of a part by its number."""
    if not 0 < number < len(parts) or not parts[number][0].startswith(f"{folder}/"):
        raise r.fail(f"it names part {number} as one of {folder}/")
    name, data = parts[number]
    return name.removeprefix(f"{folder}/"), data


def _read_signature(r: Reader) -> Signature:
    name, dt = r.text(), r.text()
    shape = r.words(r.count())
    if dt not in DTYPES:
        raise r.fail(f"{name!r} has the unknown element type {dt!r}")
    if (
        len(shape) > RANK
        or any(n < 0 for n in shape)
        or math.prod(n for n in shape if n) >= 1 << 56
    ):
        raise r.fail(f"{name!r} has the impossible shape {list(shape)}")
    return name, dt, shape


def _array(
    r: Reader, signature: Signature, number: int, parts: Parts, folder: str = "params"
) -> Array:
    """The array that a part holds; it shares the part's memory."""
    name, dt, shape = signature
    _, data = _part(r, number, parts, folder)
    size = math.prod(shape) * DTYPES[dt].bytes
    if len(data) != size:
        raise r.fail(f"{name!r} is {dt}{list(shape)}, {size} bytes; its part has {len(data)}")
    kind = DTYPES[dt].numpy
    return np.frombuffer(data, kind).reshape(shape) if size else np.empty(shape, kind)


def _read_variant(r: Reader, parts: Parts) -> Variant:
    features, machine = r.text(), r.text()
    requires = tuple(r.each(Reader.text))
    number = r.word()
    _, data = _part(r, number, parts, "variants")
    s = Reader(parts[number][0], data)
    arena, packed = s.words(2)
    constants = [
        _array(s, _read_signature(s), s.word(), parts, "constants") for _ in range(s.count(4))
    ]
    objects = [_part(s, n, parts, "objects") for n in s.words(s.count())]
    kernels: dict[str, tuple[str, str]] = {}
    names: list[str] = []
    for _ in range(s.count(3)):
        name, at, symbol = s.text(), s.below(len(objects), "object"), s.text()
        kernels[name] = (objects[at][0], symbol)
        names.append(name)
    if len(kernels) != len(names):
        raise s.fail("two of its kernels have one name")
    prologue: list[tuple[tuple[Any, ...], tuple[int, ...]]] = []
    for _ in range(s.count(5)):
        follows = s.words(s.count())
        prologue.append((read_step(s, names), follows))
    main = s.each(lambda s: read_step(s, names), 4)
    files = s.each(Reader.text)
    places = [(files[s.below(len(files), "file")], s.word()) for _ in range(s.count(2))]
    sites = [(s.text(), files[s.below(len(files), "file")], s.word()) for _ in range(s.count(3))]
    s.end()
    loaded = {key: bytes(data) for key, data in objects}
    return Variant(
        features, machine, requires, arena, packed, constants, prologue, main, places, sites,
        kernels, loaded,
    )  # fmt: skip
