"""The steps of a schedule: launches, branches and loops over numbered memories.

There is one set of classes from the lowering to the runtimes. While values are being placed, a step
names its memory by views (``rlx.lowering.select.views``), afterwards by a ``Place``: ``map`` is the
way from one to the other, and ``children`` the way into a step. What walks over steps uses these
two and ``launches``, so that it need not know which kinds there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace
from typing import Any, Generic, TypeAlias, TypeVar

from rlx.base.frozen import frozen

__all__ = [
    "For", "Grid", "If", "Launch", "Layout", "Origin", "Place", "Size", "Step", "While", "launches",
    "map_each",
]  # fmt: skip

P = TypeVar("P")
Q = TypeVar("Q")

Size: TypeAlias = int
"""A number that follows from the shapes of a graph: an extent, a stride, an offset, a count. While
dims have no sizes it may be an expression (``rlx.base.dims.SymDim``), computed with like an int."""

Grid: TypeAlias = tuple[Size, Size, Size]
"""How a kernel is launched: on a CPU its parallel range, its grain and the bytes of scratch that a
worker needs; on a GPU the work groups in x, y and z."""


@frozen
class Origin:
    """What a step is for: the user's file and line, and ``trail``, the locations of all the ops
    that it came from as MLIR text. Of a launch also the ops, their flops, and the bytes moved."""

    place: tuple[str, int] = ("<unknown>", 0)
    trail: str = "unknown"
    ops: str = ""
    flops: Size = 0
    bytes: Size = 0


@frozen
class Layout:
    """What lies at a place: a strided tensor, whose strides count elements of ``dtype`` (by name);
    ``trail`` has the locations of the ops that moved nothing and became a view."""

    dtype: str
    shape: tuple[Size, ...]
    strides: tuple[Size, ...]
    trail: tuple[str, ...] = ()


@frozen
class Place:
    """A byte of a memory, by the number of the memory.

    ``moves`` are (depth of a ``For``, the outermost 0; bytes): the place lies so much further on in
    each round of the loops around it. ``layout`` is known to lir text alone.
    """

    base: int
    offset: Size
    moves: tuple[tuple[int, Size], ...] = ()
    layout: Layout | None = field(default=None, compare=False, repr=False)

    def at(self, rounds: Sequence[int]) -> int:
        """The offset in the given rounds of the loops around, the outermost first."""
        return self.offset + sum(rounds[depth] * step for depth, step in self.moves)


@frozen
class Launch(Generic[P]):
    """A kernel, by its number, on a grid. ``places`` are those of its buffers, and ``sizes`` its
    numbers, in the kernel's order."""

    kernel: int
    grid: Grid
    places: tuple[P, ...]
    sizes: tuple[Size, ...]
    origin: Origin = field(default=Origin(), compare=False, repr=False)

    def children(self) -> tuple[Step[P], ...]:
        """None."""
        return ()

    def map(self, launch: Callable[[Launch[P]], Launch[Q]], place: Callable[[P], Q]) -> Launch[Q]:
        """What ``launch`` makes of it."""
        return launch(self)

    def placed(self, place: Callable[[P], Q]) -> Launch[Q]:
        """The launch on other places."""
        moved: Any = replace(self, places=tuple([place(p) for p in self.places]))  # pyright: ignore
        return moved


@frozen
class If(Generic[P]):
    """Steps of which the bool at ``flag`` chooses the first or the second."""

    flag: P
    then: tuple[Step[P], ...]
    otherwise: tuple[Step[P], ...]
    origin: Origin = field(default=Origin(), compare=False, repr=False)

    def children(self) -> tuple[Step[P], ...]:
        """The steps of both branches."""
        return self.then + self.otherwise

    def map(self, launch: Callable[[Launch[P]], Launch[Q]], place: Callable[[P], Q]) -> If[Q]:
        """The same branch, with other launches and places."""
        then, otherwise = (map_each(s, launch, place) for s in (self.then, self.otherwise))
        return If(place(self.flag), then, otherwise, self.origin)


@frozen
class While(Generic[P]):
    """Steps that run as long as the bool at ``flag`` is true after those of ``test``. One round
    more than ``limit`` (-1: no limit) is the fault of ``site``."""

    test: tuple[Step[P], ...]
    flag: P
    body: tuple[Step[P], ...]
    limit: Size
    site: int
    origin: Origin = field(default=Origin(), compare=False, repr=False)

    def children(self) -> tuple[Step[P], ...]:
        """The steps of the test, then those of the body."""
        return self.test + self.body

    def map(self, launch: Callable[[Launch[P]], Launch[Q]], place: Callable[[P], Q]) -> While[Q]:
        """The same loop, with other launches and places."""
        test, body = (map_each(s, launch, place) for s in (self.test, self.body))
        return While(test, place(self.flag), body, self.limit, self.site, self.origin)


@frozen
class For(Generic[P]):
    """Steps that run ``rounds`` times, the last round first if ``reverse``; before each the number
    of the round is written to ``counter``, as 8 bytes."""

    rounds: Size
    body: tuple[Step[P], ...]
    counter: P | None
    reverse: bool
    origin: Origin = field(default=Origin(), compare=False, repr=False)

    def children(self) -> tuple[Step[P], ...]:
        """The steps of a round."""
        return self.body

    def map(self, launch: Callable[[Launch[P]], Launch[Q]], place: Callable[[P], Q]) -> For[Q]:
        """The same loop, with other launches and places."""
        counter = None if self.counter is None else place(self.counter)
        body = map_each(self.body, launch, place)
        return For(self.rounds, body, counter, self.reverse, self.origin)


Step: TypeAlias = Launch[P] | If[P] | While[P] | For[P]


def map_each(
    steps: Iterable[Step[P]], launch: Callable[[Launch[P]], Launch[Q]], place: Callable[[P], Q]
) -> tuple[Step[Q], ...]:
    """``map`` of each step, in order."""
    return tuple([step.map(launch, place) for step in steps])


def launches(steps: Iterable[Step[P]]) -> Iterator[Launch[P]]:
    """The launches among steps and inside them, in the order in which a reader meets them."""
    for step in steps:
        if isinstance(step, Launch):
            yield step
        else:
            yield from launches(step.children())
