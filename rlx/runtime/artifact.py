"""Artifacts: a signature, and for every kind of CPU a schedule and its kernels.

An artifact is one file of named parts (``rlx/runtime/container.py``, docs/artifact.md). Reading and
running one needs numpy and the native runtime, and no compiler.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from rlx.base.cached import cached_property
from rlx.base.frozen import frozen
from rlx.errors import ArtifactError, shown
from rlx.ir.builders import public
from rlx.runtime import _native, container
from rlx.runtime.encoding import (
    Array,
    places_of,
)
from rlx.types import TensorType, dtype

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
    those that it makes the words of a call of. ``packed`` is what the prologue made of the
    artifact's values, if it is there: its memory, and room behind it.
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
    packed: Array | None = field(default=None, repr=False)

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
    the params that it carries, and of those named by ``packed_params`` it has what they were packed
    into (``Variant.packed``); the others must be set before a run. ``extras`` are parts that the
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
    packed_params: frozenset[str] = frozenset()

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @cached_property
    def without_value(self) -> list[str]:
        """The params that must be set before a run."""
        has = {*self.values, *self.packed_params}
        return [name for name, _, _ in self.params if name not in has]

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

    def __repr__(self) -> str:
        taken, given = (
            ", ".join(f"{name}: {TensorType(shape, dtype(dt))}" for name, dt, shape in side)
            for side in (self.inputs, self.outputs)
        )
        return f"Artifact for {self.target}: ({taken}) -> {given}"

    def _repr_html_(self) -> str:
        from rlx.view.notebook import artifact_html

        return artifact_html(self)

    # -- files -----------------------------------------------------------------------------

    @property
    def files(self) -> dict[str, Any]:
        """The parts by name, as the container holds them: buffers of bytes."""
        from rlx.runtime.artifact_parts import Packer

        return Packer(self).parts

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
        from rlx.runtime.artifact_parts import unpacked

        return unpacked(container.parts_of(data))

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
