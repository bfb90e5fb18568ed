"""GPU programs: kernels, memories, and the steps that launch kernels on them.

It is plain data of numbers and names: a driver and a small loop run it, and neither MLIR nor a
compiler is needed. Every memory is a buffer of its own, and buffers of the arena that are in use at
once share none: a kernel never writes a buffer that it also has bound for reading, which WebGPU
forbids whatever the ranges.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from rlx.base.dims import ceil_div, maximum, minimum
from rlx.base.frozen import frozen
from rlx.codegen.control import ROW
from rlx.schedule.codec import read_main
from rlx.schedule.plan import LaunchInfo, PrologueStep, Role, Signature, Site
from rlx.schedule.steps import Launch, Place, Size, Step
from rlx.targets.gpu.work import Kernel, Triple
from rlx.types import DTYPES

__all__ = ["GpuProgram", "Memory", "bind", "groups"]

WORD = 16
"""Bytes: what a view in a binding is counted from starts at a multiple of this, whatever a device
allows. No element is longer."""


@frozen
class Memory:
    """A buffer to allocate: what it is for, which of those it is, and its bytes."""

    role: Role
    index: int
    nbytes: Size


def bind(
    launch: Launch[Place], kernel: Kernel, alignment: int, rounds: Sequence[int] = ()
) -> tuple[list[int], bytes]:
    """The first byte of each binding of a launch in the given rounds of the loops around it, a
    multiple of ``alignment``, and all params: its sizes, then the starts of the views."""
    step = max(alignment, WORD)
    offsets, starts = [], []
    for place, binding in zip(launch.places, kernel.bindings, strict=True):
        at = place.at(rounds)
        offsets.append(at // step * step)
        starts.append(at % step // DTYPES[binding.dtype].part.bytes)
    numbers = (*launch.sizes, *starts)
    return offsets, struct.pack(f"<{len(numbers)}i", *numbers)


@frozen
class GpuProgram:
    """A compiled graph for one target and one binding of its dims, or, with 0 in the place of each
    number that they decide, for many.

    Steps launch ``kernels`` by number, each on a grid of work groups, and their places name
    ``memories``. ``launches`` says what each launch is for, those of the prologue first. ``sites``
    are the messages of faults with the user's line: an error record, two words of 32 bits, holds a
    code and the number of a site. ``rounds`` is for each launch the most rounds that an invocation
    makes in its loops, None if that depends on data; a kernel that tells of loops that are cut has
    0.
    """

    target: str
    kernels: tuple[Kernel, ...]
    memories: tuple[Memory, ...]
    params: list[Signature]
    inputs: list[Signature]
    outputs: list[Signature]
    constants: list[np.ndarray[Any, Any]] = field(repr=False)
    prologue: tuple[PrologueStep, ...]
    main: tuple[Step[Place], ...]
    launches: list[LaunchInfo]
    sites: list[Site]
    rounds: tuple[int | None, ...] = ()

    def at(self, words: bytes, numbers: Sequence[int]) -> GpuProgram:
        """The program for sizes that a ``SizeProgram`` has made words and results for."""
        left = iter(numbers)
        memories = [replace(m, nbytes=next(left)) for m in self.memories]
        inputs, outputs = (
            [(name, dt, tuple([next(left) for _ in shape])) for name, dt, shape in signatures]
            for signatures in (self.inputs, self.outputs)
        )
        main = read_main(words)
        return replace(self, memories=tuple(memories), inputs=inputs, outputs=outputs, main=main)


def groups(count: int, points: int) -> Triple:
    """The work groups, of which each takes so many points, for ``count`` of them: in rows, since a
    device takes few groups in any one direction."""
    needed = ceil_div(count, points)
    return minimum(needed, ROW), maximum(1, ceil_div(needed, ROW)), 1
