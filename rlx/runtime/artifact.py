"""What a compile gives: a signature, and for every kind of CPU a schedule and its kernels.

An artifact is one file of named parts (``rlx/runtime/container.py``, docs/artifact.md). Reading and
running one needs numpy and the native runtime, and no compiler.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rlx.digest import digest
from rlx.errors import ArtifactError
from rlx.runtime import _native, container
from rlx.runtime.encoding import Reader, Writer, read_step, write_step
from rlx.types import DTYPES

__all__ = ["Artifact", "Signature", "Variant"]

Array = np.ndarray[Any, Any]

Signature = tuple[str, str, tuple[int, ...]]
"""Name, element type and shape of a param, input or output."""

LaunchInfo = tuple[str, str, int, int, int]
"""What a launch is for: its ops, the user's file and line; its flops, and the bytes it moves."""

MAPPED_BYTES = 1 << 20
"""A file of so many bytes is mapped into memory; a smaller one is read."""


@dataclass(frozen=True, eq=False)
class Variant:
    """A schedule and its kernels, for machines that have what ``requires`` names.

    Steps are those of ``rlx.runtime._native`` with the kernel's name in place of its address.
    ``kernels`` maps that name to a symbol of an object; ``objects`` are keyed by a digest of what
    their code depends on, so that equal kernels of several artifacts are one object. ``launches``
    says what each launch is for, for traces and profiles: those of the prologue, then those of
    main, in the order in which a reader meets them. ``sites`` are the messages of faults.
    ``functions`` are the kernels that are functions of this process (``rlx.runtime.host``).
    """

    features: str
    machine: str
    requires: tuple[str, ...]
    arena_bytes: int
    packed_bytes: int
    constants: list[Array]
    prologue: list[tuple[tuple[Any, ...], tuple[int, ...]]]
    main: list[tuple[Any, ...]]
    launches: list[LaunchInfo]
    sites: list[tuple[str, str, int]]
    kernels: dict[str, tuple[str, str]]
    objects: dict[str, bytes] = field(repr=False)
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict[str, Any], repr=False)

    def lacking(self) -> list[str]:
        """What it needs and this machine does not have."""
        if self.machine != _native.machine():
            return [self.machine]
        return sorted(set(self.requires) - _native.cpu_features())


@dataclass(frozen=True, eq=False)
class Artifact:
    """A compiled graph for one target and one binding of its dims.

    ``variants`` are alternatives for several kinds of CPU, the best first. ``values`` are the
    params that it carries; the others must be set before a run. ``extras`` are parts that the
    runtime carries along and does not read. ``file`` is the map of the file that it was read from.
    """

    target: str
    params: list[Signature]
    inputs: list[Signature]
    outputs: list[Signature]
    variants: tuple[Variant, ...]
    values: Mapping[str, Array] = field(default_factory=dict[str, Array], repr=False)
    extras: Mapping[str, bytes] = field(default_factory=dict[str, bytes], repr=False)
    file: mmap.mmap | None = field(default=None, repr=False)

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

    # -- files -----------------------------------------------------------------------------

    @property
    def files(self) -> dict[str, Any]:
        """The parts by name, as the container holds them: buffers of bytes."""
        return _Packer(self).parts

    def __bytes__(self) -> bytes:
        return b"".join(self._chunks())

    def _chunks(self) -> Iterator[Any]:
        return container.chunks(self.files)

    def save(self, path: str | Path) -> None:
        """Write the artifact as one file. It appears whole, under its name, or not at all."""
        path = Path(path)
        staged = path.parent / f".{path.name}.{os.urandom(6).hex()}"
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
            with suppress(OSError):
                staged.unlink()

    @classmethod
    def from_bytes(cls, data: Any) -> Artifact:
        """The artifact in a buffer of bytes, which its arrays then share.

        ArtifactError says which part is damaged or malformed, or why this version cannot read it.
        """
        try:
            _native.check_artifact(data)
        except _native.Error as e:
            raise ArtifactError(str(e)) from None
        return _unpacked(container.parts_of(data))

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
            found = cls.from_bytes(data)
        except ArtifactError as e:
            raise ArtifactError(f"{path}: {e.message}") from None
        return replace(found, file=data) if isinstance(data, mmap.mmap) else found


# -- writing -------------------------------------------------------------------------------


class _Packer:
    """Makes the parts of an artifact. Other parts are named by their number."""

    def __init__(self, artifact: Artifact) -> None:
        self.parts: dict[str, Any] = {"manifest": b""}
        self.numbers: dict[str, int] = {}
        schedules = [self._schedule(i, v) for i, v in enumerate(artifact.variants)]
        w = Writer()
        w.text(artifact.target)
        for signatures in (artifact.params, artifact.inputs, artifact.outputs):
            w.each(signatures, _write_signature)
        for i, (name, _, _) in enumerate(artifact.params):
            w.words(name in artifact.values)
            if name in artifact.values:
                w.words(self._part(f"params/{i}", _bytes_of(artifact.values[name])))
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
        if v.functions:
            raise ArtifactError(
                f"an artifact cannot hold the Python kernels {', '.join(v.functions)}; give their"
                " ops kernels in C or MLIR"
            )
        w = Writer()
        w.words(v.arena_bytes, v.packed_bytes)
        w.words(len(v.constants))
        for c in v.constants:
            data = _bytes_of(c)
            name = digest(data)
            _write_signature(w, (name, _dtype_of(c), c.shape))
            w.words(self._part(f"constants/{name}", data))
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
        texts = [t for ops, file, *_ in v.launches for t in (ops, file)]
        texts += [file for _, file, _ in v.sites]
        number_of = {text: i for i, text in enumerate(dict.fromkeys(texts))}
        w.each(list(number_of), Writer.text)
        w.words(len(v.launches))
        for ops, file, line, flops, moved in v.launches:
            w.words(number_of[ops], number_of[file], line, flops, moved)
        w.words(len(v.sites))
        for message, file, line in v.sites:
            w.text(message)
            w.words(number_of[file], line)
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


Parts = list[tuple[str, memoryview]]


def _unpacked(parts: Mapping[str, memoryview]) -> Artifact:
    numbered = list(parts.items())
    r = Reader(parts["manifest"])
    target = r.text()
    params, inputs, outputs = (r.each(_read_signature) for _ in range(3))
    values = {s[0]: _array(s, numbered[r.word()][1]) for s in params if r.word()}
    variants = tuple(r.each(lambda r: _read_variant(r, numbered)))
    extras = {n.removeprefix("extras/"): bytes(d) for n, d in numbered if n.startswith("extras/")}
    return Artifact(target, params, inputs, outputs, variants, values, extras)


def _read_signature(r: Reader) -> Signature:
    return r.text(), r.text(), r.list()


def _array(signature: Signature, data: memoryview) -> Array:
    """The array that a part holds; it shares the part's memory."""
    _, dt, shape = signature
    kind = DTYPES[dt].numpy
    return np.frombuffer(data, kind).reshape(shape) if len(data) else np.empty(shape, kind)


def _read_variant(r: Reader, parts: Parts) -> Variant:
    features, machine, requires = r.text(), r.text(), tuple(r.each(Reader.text))
    s = Reader(parts[r.word()][1])
    arena, packed = s.words(2)
    constants = s.each(lambda s: _array(_read_signature(s), parts[s.word()][1]))
    objects = [(parts[n][0].removeprefix("objects/"), parts[n][1]) for n in s.list()]
    kernels = {name: (objects[at][0], symbol) for name, at, symbol in s.each(_read_kernel)}
    names = list(kernels)
    follows = s.each(lambda s: (s.list(), read_step(s, names)))
    main = s.each(lambda s: read_step(s, names))
    texts = s.each(Reader.text)
    launches = s.each(lambda s: (texts[s.word()], texts[s.word()], s.word(), s.word(), s.word()))
    sites = s.each(lambda s: (s.text(), texts[s.word()], s.word()))
    loaded = {key: bytes(data) for key, data in objects}
    prologue = [(step, params) for params, step in follows]
    return Variant(
        features, machine, requires, arena, packed, constants, prologue, main, launches, sites,
        kernels, loaded,
    )  # fmt: skip


def _read_kernel(r: Reader) -> tuple[str, int, str]:
    return r.text(), r.word(), r.text()
