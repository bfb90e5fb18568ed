"""A schedule: what the lowering of a graph gives, with neither MLIR nor code in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from rlx.base.frozen import frozen
from rlx.schedule.steps import Launch, Place, Size, Step, launches, map_each

__all__ = [
    "FIRST_PARAM", "ROLES", "Buffer", "KernelRef", "LaunchInfo", "PrologueStep", "Role", "Schedule",
    "Signature", "Site", "prologue_first",
]  # fmt: skip

Role = Literal["arena", "packed", "error", "param", "constant", "input", "output"]
ROLES: tuple[Role, ...] = get_args(Role)
"""The memories, in the order in which they are numbered: of the first three there is one each."""

FIRST_PARAM = ROLES.index("param")

Signature: TypeAlias = tuple[str, str, tuple[int, ...]]
"""Name, element type and shape of a param, input or output."""

LaunchInfo: TypeAlias = tuple[str, str, int, int, int]
"""What a launch is for: its ops, the user's file and line; its flops, and the bytes it moves."""

Site: TypeAlias = tuple[str, str, int]
"""What a fault means, and the user's file and line."""

PrologueStep: TypeAlias = tuple[Step[Place], tuple[int, ...]]
"""A step, and the params, by number, that it follows: it runs when one of those was set, and once
if there are none."""


@frozen
class KernelRef:
    """A kernel that a schedule launches: its name there, its family, and its config."""

    name: str
    family: str
    config: Any


@frozen
class Buffer:
    """A buffer of the arena whose place is planned when the sizes of dims are known: how many bytes
    it has, and the first and the last step that touches it."""

    size: Size
    first: int
    last: int


@dataclass(frozen=True, eq=False)
class Schedule:
    """The steps of a graph for one target, and what they are on.

    ``memories`` says which memory has which number.
    ``slots`` says of the arena and the packed memory of a GPU where the buffers in them begin;
    ``trails`` are the locations of params, inputs and outputs as MLIR text. ``buffers`` are those
    of the arena while dims have no sizes yet; else every place has its offset.
    """

    target: str
    kernels: tuple[KernelRef, ...]
    arena_bytes: Size
    packed_bytes: Size
    params: list[Signature]
    constants: list[np.ndarray[Any, Any]]
    inputs: list[Signature]
    outputs: list[Signature]
    prologue: tuple[PrologueStep, ...]
    main: tuple[Step[Place], ...]
    sites: list[Site]
    slots: Mapping[Role, list[Size]] = field(default_factory=dict["Role", "list[Size]"])
    trails: Mapping[Role, list[str]] = field(default_factory=dict["Role", "list[str]"])
    buffers: tuple[Buffer, ...] = ()

    @property
    def memories(self) -> list[tuple[Role, int]]:
        """The role of each memory, in the order of their numbers, and which of its role it is."""
        several = {
            "param": self.params, "constant": self.constants, "input": self.inputs,
            "output": self.outputs,
        }  # fmt: skip
        return [(role, n) for role in ROLES for n in range(len(several.get(role, (role,))))]

    @property
    def launches(self) -> list[LaunchInfo]:
        """What each launch is for: those of the prologue, then those of main."""
        steps = (*(step for step, _ in self.prologue), *self.main)
        origins = (step.origin for step in launches(steps))
        return [(o.ops, *o.place, o.flops, o.bytes) for o in origins]


def prologue_first(schedule: Schedule) -> tuple[Schedule, int, int]:
    """The schedule with the constants and the kernels of its prologue before the others, and how
    many of each there are: so that the steps of equal prologues are equal words, whatever main is.
    """
    first, count = FIRST_PARAM + len(schedule.params), len(schedule.constants)
    constants: dict[int, int] = {}
    kernels: dict[int, int] = {}

    def place(p: Place) -> Place:
        at = p.base - first
        if not 0 <= at < count:
            return p
        return replace(p, base=first + constants.setdefault(at, len(constants)))

    def launch(step: Launch[Place]) -> Launch[Place]:
        number = kernels.setdefault(step.kernel, len(kernels))
        places = tuple([place(p) for p in step.places])
        return Launch(number, step.grid, places, step.sizes, step.origin)

    steps = tuple([(step.map(launch, place), follows) for step, follows in schedule.prologue])
    counts = len(constants), len(kernels)
    for n in range(count):
        constants.setdefault(n, len(constants))
    main = map_each(schedule.main, launch, place)
    for n in range(len(schedule.kernels)):
        kernels.setdefault(n, len(kernels))
    return (
        replace(
            schedule,
            kernels=tuple([schedule.kernels[n] for n in kernels]),
            constants=[schedule.constants[n] for n in constants],
            prologue=steps,
            main=main,
        ),
        *counts,
    )
