"""The parts of an artifact, written and read (docs/artifact.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlx.base.stored import elements_digest, elements_of
from rlx.errors import ArtifactError
from rlx.runtime.artifact import Artifact, KernelCode, Variant
from rlx.runtime.encoding import (
    Array,
    Parts,
    array_of,
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
    from rlx.runtime.devices.gpu_program import DeviceVariant
    from rlx.schedule.plan import Signature

__all__ = ["Packer", "unpacked"]

# -- writing -------------------------------------------------------------------------------


class Packer:
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
            w.words(2 if name in artifact.packed_params else name in artifact.values)
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
        w.words(v.arena_bytes, v.packed_bytes, v.packed is not None)
        if v.packed is not None:
            w.words(self._part(f"packed/{elements_digest(v.packed)}", elements_of(v.packed)))
        w.words(v.prologue_constants, v.prologue_kernels)
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


def unpacked(parts: Mapping[str, memoryview]) -> Artifact:
    """The artifact of parts by name, which its arrays share; they have been checked."""
    numbered = list(parts.items())
    r = Reader(parts["manifest"])
    target = r.text()
    dims = read_dims(r)
    params, inputs, outputs = (r.each(lambda r: read_signature(r, dims)) for _ in range(3))
    values: dict[str, Array] = {}
    packed: set[str] = set()
    for s in params:
        if (how := r.word()) == 1:
            values[s[0]] = array_of(s, numbered[r.word()][1])
        elif how:
            packed.add(s[0])
    if target == "cpu":
        variants = tuple(r.each(lambda r: _read_variant(r, numbered, bool(dims))))
    else:
        signatures = (params, inputs, outputs)
        variants = tuple(
            r.each(lambda r: _read_device_variant(r, numbered, target, signatures, bool(dims)))
        )
    extras = {n.removeprefix("extras/"): bytes(d) for n, d in numbered if n.startswith("extras/")}
    return Artifact(
        target, params, inputs, outputs, variants, values, extras, packed_params=frozenset(packed)
    )


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
    packed = _bytes_of(parts[s.word()][1]) if s.word() else None
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
        launches, sites, kernels, loaded, sizes=sizes, packed=packed,
    )  # fmt: skip


def _bytes_of(part: memoryview) -> Array:
    return array_of(("packed", "u8", (len(part),)), part)


def _read_kernel(r: Reader, objects: Parts) -> KernelCode:
    name, at, symbol = r.text(), r.word(), r.text()
    return KernelCode(name, objects[at][0], symbol)
