"""What a compile gives for a GPU: kernels, memories, and the steps that launch kernels on them.

It is plain data of numbers and names: a driver and a small loop run it, and neither MLIR nor a
compiler is needed. Every memory is a buffer of its own, and buffers of the arena that are in use at
once share none: a kernel never writes a buffer that it also has bound for reading, which WebGPU
forbids whatever the ranges.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import field
from typing import Any, Literal, TypeAlias

import numpy as np

from rlx.kernels.control import ROW
from rlx.records import frozen
from rlx.targets.gpu.work import Kernel, Triple
from rlx.types import DTYPES

__all__ = [
    "Branch", "Dispatch", "For", "GpuProgram", "Memory", "Place", "Repeat", "Role", "Step",
    "groups",
]  # fmt: skip

Signature = tuple[str, str, tuple[int, ...]]

WORD = 16
"""Bytes: what a view in a binding is counted from starts at a multiple of this, whatever a device
allows. No element is longer."""

Role = Literal["arena", "packed", "error", "param", "constant", "input", "output"]


@frozen
class Memory:
    """A buffer to allocate: what it is for, which of those it is, and its bytes."""

    role: Role
    index: int
    nbytes: int


@frozen
class Place:
    """A byte of a memory, by its number in the program. ``moves`` are (depth of a loop, bytes): it
    lies so much further on in each round of the loops around it."""

    memory: int
    offset: int
    moves: tuple[tuple[int, int], ...] = ()

    def at(self, rounds: Sequence[int]) -> int:
        """The offset in the given rounds of the loops around, the outermost first."""
        return self.offset + sum(rounds[depth] * step for depth, step in self.moves)


@frozen
class Dispatch:
    """A kernel, by its number, on so many groups. ``places`` are those of its bindings, and
    ``params`` its numbers without the starts of the views."""

    kernel: int
    groups: Triple
    places: tuple[Place, ...]
    params: tuple[int, ...]

    @property
    def moves(self) -> bool:
        """Whether it differs from round to round."""
        return any(p.moves for p in self.places)

    def bind(
        self, kernel: Kernel, alignment: int, rounds: Sequence[int] = ()
    ) -> tuple[list[int], bytes]:
        """The first byte of each binding, a multiple of ``alignment``, and all params."""
        step = max(alignment, WORD)
        offsets, starts = [], []
        for place, binding in zip(self.places, kernel.bindings, strict=True):
            at = place.at(rounds)
            offsets.append(at // step * step)
            starts.append(at % step // DTYPES[binding.dtype].part.bytes)
        numbers = (*self.params, *starts)
        return offsets, struct.pack(f"<{len(numbers)}i", *numbers)


@frozen
class Branch:
    """Steps of which the bool at ``flag`` chooses the first or the second."""

    flag: Place
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...]


@frozen
class Repeat:
    """Steps that run as long as the bool at ``flag`` is true after those of ``test``. One round
    more than ``limit`` (-1: no limit) is the fault of ``site``."""

    test: tuple[Step, ...]
    flag: Place
    body: tuple[Step, ...]
    limit: int
    site: int


@frozen
class For:
    """Steps that run ``rounds`` times, the last round first if ``reverse``; before each the number
    of the round is written to ``counter``, as 8 bytes."""

    rounds: int
    body: tuple[Step, ...]
    counter: Place | None
    reverse: bool


Step: TypeAlias = "Dispatch | Branch | Repeat | For"


@frozen
class GpuProgram:
    """A compiled graph for one target and one binding of its dims.

    ``prologue`` are steps with the params, by number, that they follow: they run when one of those
    was set, and once if there are none. ``launches`` says what each dispatch is for, those of the
    prologue first: its ops, the user's file and line; its flops, and the bytes it moves. ``sites``
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
    prologue: tuple[tuple[Step, tuple[int, ...]], ...]
    main: tuple[Step, ...]
    launches: list[tuple[str, str, int, int, int]]
    sites: list[tuple[str, str, int]]
    rounds: tuple[int | None, ...] = ()


def groups(count: int, points: int) -> Triple:
    """The work groups, of which each takes so many points, for ``count`` of them: in rows, since a
    device takes few groups in any one direction."""
    needed = -(-count // points)
    return (min(needed, ROW), -(-needed // ROW), 1)
