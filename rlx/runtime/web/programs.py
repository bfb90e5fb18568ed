"""What ``program.json`` says of one target: its variants, and what they have in common once."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from rlx.base.dim_text import without_ranges
from rlx.runtime.devices.gpu_program import DeviceVariant
from rlx.schedule.codec import main_words
from rlx.schedule.plan import Role
from rlx.schedule.sizes import SizeProgram
from rlx.schedule.steps import Launch, Place, Step, map_each
from rlx.targets.gpu.program import GpuProgram, Memory
from rlx.targets.gpu.work import Kernel
from rlx.types import DTYPES

__all__ = ["Programs"]

_SHARED: tuple[Role, ...] = ("packed", "error", "param", "constant")
"""The memories that are there once: calls do not change them, but for the error record."""

Put = Callable[[Any], int]
"""Adds an array to the weights, and says where it lies there."""


class Programs:
    """The variants of an artifact as they are written; ``params`` say where each param lies among
    the weights, to which ``put`` adds constants.

    Kernels are numbered over all variants, and so are the memories that they share: the error
    record, params, constants, and what a prologue makes. The other memories of each variant follow
    these. Variants with equal prologues have one.
    """

    def __init__(self, variants: Sequence[DeviceVariant], params: Sequence[int], put: Put) -> None:
        self._params, self._put = params, put
        self._kernels: dict[str, tuple[int, Kernel]] = {}
        self._memories: dict[tuple[Any, ...], tuple[int, dict[str, Any]]] = {}
        self._prologues: dict[tuple[Any, ...], tuple[int, dict[str, Any]]] = {}
        self.codes = list(dict.fromkeys(k.code for v in variants for k in v.program.kernels))
        numbered = [self._numbered(v.program) for v in variants]
        self._variants = [
            self._variant(v, *found, len(self._memories))
            for v, found in zip(variants, numbered, strict=True)
        ]

    @property
    def described(self) -> dict[str, Any]:
        """What is written of them, but for signatures."""
        return {
            "kernels": [_kernel(k) for _, k in self._kernels.values()],
            "memories": [m for _, m in self._memories.values()],
            "prologues": [p for _, p in self._prologues.values()],
            "variants": self._variants,
        }

    def _numbered(self, program: GpuProgram) -> tuple[list[int], dict[int, int], int]:
        """The numbers of the program's kernels, those of the memories that are shared, and that of
        its prologue."""
        kernels = [self._kernel(k) for k in program.kernels]
        shared: dict[int, int] = {}
        packed: list[tuple[int, Memory]] = []
        for n, m in enumerate(program.memories):
            if m.role == "packed":
                shared[n] = -1 - len(packed)  # for now: equal prologues make it once
                packed.append((n, m))
            elif m.role in _SHARED:
                shared[n] = self._memory(m, program)
        steps = tuple(_moved([s for s, _ in program.prologue], kernels, shared))
        key = steps, tuple(m.nbytes for _, m in packed)
        number, _ = self._prologues.get(key, (len(self._prologues), {}))
        for n, m in packed:
            shared[n] = self._kept(("packed", number, m.index), m, None)
        if key not in self._prologues:
            steps = _moved([s for s, _ in program.prologue], kernels, shared)
            made = {
                "steps": _words(main_words(steps)),
                "memories": [shared[n] for n, _ in packed],
                "sites": _sites(program),
            }
            self._prologues[key] = number, made
        return kernels, shared, number

    def _kernel(self, kernel: Kernel) -> int:
        number, known = self._kernels.setdefault(kernel.name, (len(self._kernels), kernel))
        alike = known.bindings == kernel.bindings and known.params == kernel.params
        assert alike, "a name says what a kernel is"
        return number

    def _memory(self, m: Memory, program: GpuProgram) -> int:
        if m.role == "constant":
            at = self._put(program.constants[m.index])
            return self._kept(("constant", at, m.nbytes), m, at)
        at = self._params[m.index] if m.role == "param" else None
        return self._kept((m.role, m.index), m, at)

    def _kept(self, key: tuple[Any, ...], m: Memory, at: int | None) -> int:
        described = {"role": m.role, "index": m.index, "bytes": m.nbytes, "at": at}
        return self._memories.setdefault(key, (len(self._memories), described))[0]

    def _variant(
        self, v: DeviceVariant, kernels: list[int], shared: dict[int, int], prologue: int, own: int
    ) -> dict[str, Any]:
        program = v.program
        others = [n for n in range(len(program.memories)) if n not in shared]
        numbers = shared | {n: own + i for i, n in enumerate(others)}
        memories = [program.memories[n] for n in others]
        main = _moved(program.main, kernels, numbers)
        code = program.kernels[0].code if program.kernels else None
        return {
            "prologue": prologue,
            "kernels": sorted(kernels),
            "code": self.codes.index(code) if code is not None else None,
            "memories": [{"role": m.role, "index": m.index, "bytes": m.nbytes} for m in memories],
            "main": _words(main_words(main)),
            "sites": _sites(program),
            "sizes": v.sizes and _sizes(v.sizes, len(program.memories), others),
        }


def _moved(
    steps: Sequence[Step[Place]], kernels: Sequence[int], memories: dict[int, int]
) -> tuple[Step[Place], ...]:
    """Steps with other numbers of kernels and memories."""

    def place(p: Place) -> Place:
        return replace(p, base=memories[p.base])

    def launch(step: Launch[Place]) -> Launch[Place]:
        moved = step.placed(place)
        return Launch(kernels[step.kernel], moved.grid, moved.places, moved.sizes)

    return map_each(steps, launch, place)


def _kernel(k: Kernel) -> dict[str, Any]:
    return {
        "name": k.name,
        "bindings": [b.access for b in k.bindings],
        "elements": [DTYPES[b.dtype].part.bytes for b in k.bindings],
        "params": k.params,
    }


def _sites(program: GpuProgram) -> list[str]:
    return [f"{file}:{line}: {message}" for message, file, line in program.sites]


def _sizes(sizes: SizeProgram, memories: int, own: Sequence[int]) -> dict[str, Any]:
    """What binds a variant to sizes (``sizes.js``): of its results the bytes of its ``own``
    memories, then the dims."""
    rows = {name: _words(getattr(sizes, name)) for name in ("instructions", "guards", "patches")}
    results = _words(sizes.results)
    kept = [results[n] for n in own] + results[memories:]
    conditions = without_ranges(", ".join(sizes.conditions)) or "all sizes"
    return {"conditions": conditions, **rows, "results": kept}


def _words(words: bytes) -> list[int]:
    return list(struct.unpack(f"<{len(words) // 8}q", words))
