"""Ranks that are threads of the interpreter: how the reference of a collective gets the arrays of
the others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from rlx.base.mesh import Mesh
from rlx.errors import GraphError

__all__ = ["Meeting", "Place", "here", "take"]

Across = Callable[[Sequence[Any]], Sequence[Any]]

LIMIT = 60.0
"""Seconds that a rank waits for the others."""


class Meeting:
    """The ranks of a mesh, which meet in groups along its axes."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self._groups: dict[tuple[int, ...], _Group] = {}
        self._lock = threading.Lock()

    def group(self, ranks: tuple[int, ...]) -> _Group:
        """The meeting point of some ranks."""
        with self._lock:
            if ranks not in self._groups:
                self._groups[ranks] = _Group(len(ranks))
            return self._groups[ranks]

    def end(self) -> None:
        """Nobody waits any more, since a rank has failed."""
        with self._lock:
            for group in self._groups.values():
                group.barrier.abort()


class _Group:
    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size)
        self.given: list[Any] = [None] * size
        self.results: Sequence[Any] = ()

    def exchange(self, at: int, given: Any, across: Across) -> Any:
        """What ``across`` makes of what all give, for the rank at ``at``."""
        self.given[at] = given
        if self.barrier.wait(LIMIT) == 0:
            self.results = across(self.given)
        self.barrier.wait(LIMIT)
        found = self.results[at]
        self.barrier.wait(LIMIT)
        return found


class Place:
    """A rank of a meeting."""

    def __init__(self, meeting: Meeting, rank: int) -> None:
        self.meeting, self.rank = meeting, rank

    def along(self, axis: str, ranks: int, what: str) -> tuple[int, tuple[int, ...]]:
        """The number of this rank along an axis, and the ranks there; GraphError for a mesh that
        has no such axis, or one of another size."""
        shape = self.meeting.mesh.shape
        if shape.get(axis) != ranks:
            raise GraphError(
                f"{what}: it is over {ranks} ranks along {axis!r}, and runs on {self.meeting.mesh}"
            )
        group = self.meeting.mesh.group(self.rank, axis)
        return group.index(self.rank), group

    def exchange(self, axis: str, ranks: int, what: str, given: Any, across: Across) -> Any:
        """As ``_Group.exchange``, along an axis."""
        at, group = self.along(axis, ranks, what)
        return self.meeting.group(group).exchange(at, given, across)


class _Here(threading.local):
    place: Place | None = None


_here = _Here()


def here(what: str, axis: str, ranks: int) -> Place:
    """The rank that this thread is; GraphError if it is none."""
    if _here.place is None:
        raise GraphError(
            f"{what} is over the {ranks} ranks along {axis!r}, and the interpreter runs one;"
            " rlx.distributed.interpret runs all of them"
        )
    return _here.place


def take(place: Place) -> None:
    """Make this thread a rank, for good."""
    _here.place = place
