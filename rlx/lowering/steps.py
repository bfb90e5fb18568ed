"""The steps of a schedule as mir-to-lir plans them: launches, branches and loops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rlx.kernels.family import Launch
from rlx.lowering.views import Rounds, View
from rlx.ops.base import Location
from rlx.records import frozen

__all__ = ["Branch", "For", "Launched", "Repeat", "Site", "Step", "launches"]


@frozen
class Site:
    """A place where a run may fault: what is wrong then, and the user's line."""

    message: str
    location: Location


@dataclass
class Launched:
    """A launch: the kernel's name, its views, its sizes; what it is for: the ops, and ``trail``,
    the location of all of them as MLIR text; its arithmetic, and the bytes that it moves;
    ``params`` are those it follows, and ``clock`` is when main runs it."""

    kernel: str
    views: list[View]
    launch: Launch
    ops: str
    trail: str
    flops: int
    bytes: int
    params: frozenset[int] = frozenset()
    clock: int = 0


@dataclass
class Branch:
    """Steps of which the bool at ``flag`` chooses the first or the second list."""

    flag: View
    then: list[Step]
    otherwise: list[Step]
    trail: str


@dataclass
class Repeat:
    """Steps that run as long as the bool at ``flag`` is true after the steps of ``test``.

    ``limit`` is the most rounds, -1 for any number; ``site`` is the fault site of one more.
    """

    test: list[Step]
    flag: View
    body: list[Step]
    limit: int
    site: int
    trail: str


@dataclass
class For:
    """Steps that run for each of ``rounds``, the last first if ``reverse``; ``counter`` is where
    the number of the round is kept."""

    rounds: Rounds
    body: list[Step]
    counter: View | None
    reverse: bool
    trail: str


Step: TypeAlias = "Launched | Branch | Repeat | For"


def launches(steps: Sequence[Step]) -> Iterator[Launched]:
    """The launches among steps, and among those inside them."""
    for step in steps:
        match step:
            case Launched():
                yield step
            case Branch():
                yield from launches([*step.then, *step.otherwise])
            case Repeat():
                yield from launches([*step.test, *step.body])
            case For():
                yield from launches(step.body)
