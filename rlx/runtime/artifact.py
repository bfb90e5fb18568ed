"""Artifacts: a signature, and for every kind of CPU a schedule and its kernels.

An artifact is one file of named parts (``rlx/runtime/container.py``, docs/artifact.md). Reading and
running one needs numpy and the native runtime, and no compiler.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from rlx.base.cached import cached_property
from rlx.base.frozen import frozen
from rlx.base.stored import elements_of
from rlx.errors import ArtifactError, shown
from rlx.ir.builders import public
from rlx.runtime import _native, container
from rlx.runtime.encoding import (
    Array,
    Parts,
    array_of,
    places_of,
    read_constants,
    read_dims,
    read_facts,
    read_signature,
    read_sizes,
    write_constants,
    write_dims,
    write_facts,
    write_signature,
    write_sizes,
)
from rlx.schedule.words import Reader, Writer

if TYPE_CHECKING:
    from pathlib import Path

    from rlx.base.dim_atoms import Symbol
    from rlx.runtime.devices.gpu_program import DeviceVariant
    from rlx.schedule.plan import LaunchInfo, PrologueStep, Signature, Site
    from rlx.schedule.sizes import SizeProgram
    from rlx.schedule.steps import Place, Size, Step

__all__ = ["Artifact", "KernelCode", "Variant"]

MAPPED_BYTES = 1 << 20
"""A file of so many bytes is mapped into memory; a smaller one is read."""


@frozen
class KernelCode:
    """The code of a kernel: a symbol of an object, by its key; a function of this process has
    neither."""

    name: str
    object: str
    symbol: str


@frozen
class Variant:
    """A schedule and its kernels, for machines that have what ``requires`` names.

    ``prologue_words`` and ``main_words`` are the steps as the runtime takes them
    (``rlx.schedule.codec``), which launch ``kernels`` by number; the first ``prologue_kernels``
    and ``prologue_constants`` are those of the prologue. ``objects`` are keyed by a digest of what
    their code depends on, so that equal kernels of several artifacts are one object. ``launches``
    says what each launch is for, for traces and profiles: those of the prologue, then those of
    main, in the order in which a reader meets them. ``sites`` are the messages of faults.
    ``functions`` are the kernels, by name, that are functions of this process
    (``rlx.runtime.host``). With ``sizes``, which are for sizes of symbols, the words of main are
    those that it makes the words of a call of.
    """

    features: str
    machine: str
    requires: tuple[str, ...]
    arena_bytes: Size
    packed_bytes: Size
    constants: list[Array]
    prologue_constants: int
    prologue_kernels: int
    prologue_words: bytes = field(repr=False)
    main_words: bytes = field(repr=False)
    launches: list[LaunchInfo]
    sites: list[Site]
    kernels: tuple[KernelCode, ...]
    objects: dict[str, bytes] = field(repr=False)
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict[str, Any], repr=False)
    sizes: SizeProgram | None = field(default=None, repr=False)

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def prologue(self) -> tuple[PrologueStep, ...]:
        """The steps that params decide, for those who look at them."""
        from rlx.schedule.codec import read_prologue

        return read_prologue(self.prologue_words)

    @property
    def main(self) -> tuple[Step[Place], ...]:
        """The steps of a call, for those who look at them."""
        from rlx.schedule.codec import read_main

        return read_main(self.main_words)

    def with_facts(self, launches: list[LaunchInfo], sites: list[Site]) -> Variant:
        """The same with other places."""
        return replace(self, launches=launches, sites=sites)


@public
@frozen
class Artifact:
    """A compiled graph for one target, and for one binding of its dims or for many.

    ``variants`` are alternatives for several kinds of machine, the best first: schedules for CPUs,
    or programs for devices. Where dims of inputs are symbols, they are alternatives for sizes too:
    a call takes the first one for the machine at hand whose guards its sizes meet. ``values`` are
    the params that it carries; the others must be set before a run. ``extras`` are parts that the
    runtime carries along and does not read. ``file`` is the map of the file that it was read from.
    """

    target: str
    params: list[Signature]
    inputs: list[Signature]
    outputs: list[Signature]
    variants: tuple[Variant, ...] | tuple[DeviceVariant, ...]
    values: Mapping[str, Array] = field(default_factory=dict[str, Array], repr=False)
    extras: Mapping[str, bytes] = field(default_factory=dict[str, bytes], repr=False)
    file: mmap.mmap | None = field(default=None, repr=False)

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        """The symbols in the dims of the inputs, by name: none where it is for one size."""
        return tuple(places_of(self.inputs))

    @cached_property
    def variant(self) -> Variant:
        """The first variant that runs on this machine; ArtifactError says what they all lack."""
        found = self.all_of_this_machine()[0]
        assert isinstance(found, Variant), "a CPU has no devices' machine"
        return found

    def all_of_this_machine(self) -> list[Variant | DeviceVariant]:
        """The variants that run on this machine's CPU, as ``all_fitting``."""
        here = _native.machine()
        return self.all_fitting(here, _native.cpu_features(), f"this machine ({here})")

    def all_fitting(
        self, machine: str, has: Collection[str], where: str
    ) -> list[Variant | DeviceVariant]:
        """All variants of which ``fitting`` gives the first; raises as it does."""
        first = self.fitting(machine, has, where)
        others = [v for v in self.variants if v is not first and not _lacks(v, machine, has)]
        return [first, *others]

    def fitting(self, machine: str, has: Collection[str], where: str) -> Variant | DeviceVariant:
        """The first variant for a kind of machine that needs no more than it ``has``; ArtifactError
        says what they all need and ``where`` lacks."""
        lacks: list[str] = []
        for v in self.variants:
            missing = _lacks(v, machine, has)
            if not missing:
                return v
            lacks.append(f"{v.features} needs {', '.join(missing)}")
        raise ArtifactError(
            f"the artifact does not run on {where}, which lacks what its code needs:"
            f" {'; '.join(lacks)}; compile it for that too"
        )

    def _repr_html_(self) -> str:
        from rlx.view.notebook import artifact_html

        return artifact_html(self)

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
        """Write the artifact as one file. It appears whole, under its name, or not at all.

        Raises ArtifactError if it cannot be written.
        """
        from pathlib import Path

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
        except (TypeError, ValueError):
            raise ArtifactError(f"an artifact is a buffer of bytes, found {shown(data)}") from None
        return _unpacked(container.parts_of(data))

    @classmethod
    def load(cls, path: str | Path) -> Artifact:
        """Read a file. Large ones are mapped: the params that one carries are read in place, and
        the file must not be written to while it is in use (``save`` puts a new one in its place).

        Raises ArtifactError if it cannot be read, is damaged or malformed, or is of another format.
        """
        try:
            with open(os.fspath(path), "rb") as f:
                size = os.fstat(f.fileno()).st_size
                mapped = size >= MAPPED_BYTES
                data = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) if mapped else f.read()
        except OSError as e:
            raise ArtifactError(f"cannot read {path}: {e.strerror or e}") from None
        try:
            found = cls.from_bytes(data)
        except ArtifactError as e:
            from rlx.text.files import other_kind

            other = other_kind(data, str(path))
            raise ArtifactError(f"{path}: {e.message}{'; ' * bool(other)}{other}") from None
        return replace(found, file=data) if isinstance(data, mmap.mmap) else found


def _lacks(v: Variant | DeviceVariant, machine: str, has: Collection[str]) -> list[str]:
    """What a variant needs that a machine has not."""
    return sorted({*v.requires} - {*has}) if v.machine == machine else [v.machine]


# -- writing -------------------------------------------------------------------------------


class _Packer:
    """Makes the parts of an artifact. Other parts are named by their number."""

    def __init__(self, artifact: Artifact) -> None:
        self.parts: dict[str, Any] = {"manifest": b""}
        self.numbers: dict[str, int] = {}
        schedules = [
            self._schedule(i, v) if isinstance(v, Variant) else self._program(i, v)
            for i, v in enumerate(artifact.variants)
        ]
        w = Writer()
        w.text(artifact.target)
        dims = write_dims(w, artifact.inputs, artifact.outputs)
        for signatures in (artifact.params, artifact.inputs, artifact.outputs):
            w.each(signatures, lambda w, s: write_signature(w, s, dims))
        for i, (name, _, _) in enumerate(artifact.params):
            w.words(name in artifact.values)
            if name in artifact.values:
                w.words(self._part(f"params/{i}", elements_of(artifact.values[name])))
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

    def _program(self, number: int, v: DeviceVariant) -> int:
        from rlx.runtime.devices.gpu_program import write_program

        w = Writer()
        write_program(w, v, self._part)
        return self._part(f"variants/{number}", w.data)

    def _schedule(self, number: int, v: Variant) -> int:
        if v.functions:
            raise ArtifactError(
                f"an artifact cannot hold the Python kernels {', '.join(v.functions)}; give their"
                " ops kernels in C or MLIR"
            )
        w = Writer()
        w.words(v.arena_bytes, v.packed_bytes, v.prologue_constants, v.prologue_kernels)
        write_constants(w, v.constants, self._part)
        keys = list(v.objects)
        w.words(len(keys), *(self._part(f"objects/{k}", v.objects[k]) for k in keys))
        w.words(len(v.kernels))
        for kernel in v.kernels:
            w.text(kernel.name)
            w.words(keys.index(kernel.object))
            w.text(kernel.symbol)
        w.block(v.prologue_words)
        w.block(v.main_words)
        write_facts(w, v.launches, v.sites)
        if v.sizes is not None:
            write_sizes(w, v.sizes)
        return self._part(f"variants/{number}", w.data)


# -- reading -------------------------------------------------------------------------------


def _unpacked(parts: Mapping[str, memoryview]) -> Artifact:
    numbered = list(parts.items())
    r = Reader(parts["manifest"])
    target = r.text()
    dims = read_dims(r)
    params, inputs, outputs = (r.each(lambda r: read_signature(r, dims)) for _ in range(3))
    values = {s[0]: array_of(s, numbered[r.word()][1]) for s in params if r.word()}
    if target == "cpu":
        variants = tuple(r.each(lambda r: _read_variant(r, numbered, bool(dims))))
    else:
        signatures = (params, inputs, outputs)
        variants = tuple(
            r.each(lambda r: _read_device_variant(r, numbered, target, signatures, bool(dims)))
        )
    extras = {n.removeprefix("extras/"): bytes(d) for n, d in numbered if n.startswith("extras/")}
    return Artifact(target, params, inputs, outputs, variants, values, extras)


def _read_head(r: Reader) -> tuple[str, str, tuple[str, ...]]:
    return r.text(), r.text(), tuple(r.each(Reader.text))


def _read_device_variant(
    r: Reader, parts: Parts, target: str, signatures: Sequence[list[Signature]], sized: bool
) -> DeviceVariant:
    # Imported here: what runs on a CPU needs nothing of devices.
    from rlx.runtime.devices.gpu_program import DeviceVariant, read_program

    head = _read_head(r)
    part = Reader(parts[r.word()][1])
    return DeviceVariant(*head, *read_program(part, parts, target, signatures, sized))


def _read_variant(r: Reader, parts: Parts, sized: bool) -> Variant:
    features, machine, requires = _read_head(r)
    s = Reader(parts[r.word()][1])
    arena_bytes, packed_bytes = s.words(2)
    prologue_constants, prologue_kernels = s.words(2)
    constants = read_constants(s, parts)
    objects = [(parts[n][0].removeprefix("objects/"), parts[n][1]) for n in s.list()]
    kernels = tuple(s.each(lambda s: _read_kernel(s, objects)))
    prologue, main = s.block(), s.block()
    launches, sites = read_facts(s)
    sizes = read_sizes(s, main) if sized else None
    loaded = {key: bytes(data) for key, data in objects}
    return Variant(
        features, machine, requires, arena_bytes, packed_bytes,
        constants, prologue_constants, prologue_kernels, prologue, main,
        launches, sites, kernels, loaded, sizes=sizes,
    )  # fmt: skip


def _read_kernel(r: Reader, objects: Parts) -> KernelCode:
    name, at, symbol = r.text(), r.word(), r.text()
    return KernelCode(name, objects[at][0], symbol)
