"""Meshes: ranks in rows and columns, whose axes have names."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from math import prod

from rlx.base.frozen import frozen
from rlx.base.world import started_rank, world_size
from rlx.errors import GraphError, NameError, did_you_mean, shown

__all__ = ["Axis", "Mesh", "bind_rank", "bound_rank", "check_axis"]

MOST_RANKS = 1 << 20
"""An axis has no more ranks than this."""


def check_axis(name: str, ranks: int) -> None:
    """GraphError unless an axis may be called ``name`` and have so many ranks."""
    if not name.isidentifier() or not name.isascii():
        raise GraphError(
            f"the axis of a mesh is called {shown(name)}, expected letters, digits and underscores"
        )
    if not 1 <= ranks <= MOST_RANKS:
        raise GraphError(
            f"the axis {name!r} of a mesh has {ranks} ranks, expected from 1 to {MOST_RANKS}"
        )


@frozen
class Axis:
    """A named axis of a mesh, along which there are so many ``ranks``."""

    name: str
    ranks: int


class Mesh:
    """Ranks in an array of named axes: ``Mesh(data=4, model=2)`` are 8 ranks, which are numbered in
    row-major order, so that the last axis has neighbours.

    ``mesh["data"]`` is the axis that collectives take. GraphError for no axes, and for one of fewer
    ranks than 1.
    """

    __slots__ = ("shape",)

    def __init__(self, /, **axes: int) -> None:
        if not axes:
            raise GraphError("a mesh has one axis or more: Mesh(data=4)")
        for name, ranks in axes.items():
            if not isinstance(ranks, int) or isinstance(ranks, bool):
                raise GraphError(f"the axis {name!r} of a mesh has {shown(ranks)} ranks")
            check_axis(name, ranks)
        self.shape: dict[str, int] = dict(axes)

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return prod(self.shape.values())

    @property
    def rank(self) -> int:
        """The number of the rank that this thread is, or else this process.

        GraphError where it is none of this mesh: neither a thread of ``run_threads``, nor a process
        that was started with as many others as the mesh has ranks.
        """
        bound = bound_rank()
        if bound is not None and bound[0] == self:
            return bound[1]
        if bound is None and world_size() == self.size:
            return started_rank()
        if bound is not None:
            raise GraphError(
                f"this is a rank of {bound[0]}, expected one of {self}; connect it by"
                " rlx.distributed.connect, or use one mesh for all that it runs"
            )
        if world_size() > 1:
            what = f"this process was started as one of {world_size()} ranks"
        else:
            what = "this process is no rank"
        raise GraphError(
            f"{what}, expected one of {self}; start the script by `rlx launch -n {self.size}` or"
            f" `mpiexec -n {self.size} python`, or use rlx.distributed.run_threads"
        )

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes in order."""
        return tuple([Axis(name, ranks) for name, ranks in self.shape.items()])

    def __getitem__(self, name: str) -> Axis:
        if name not in self.shape:
            listed = ", ".join(map(repr, self.shape))
            hint = did_you_mean(str(name), self.shape)
            raise NameError(f"the mesh has no axis {shown(name)}{hint}; it has {listed}")
        return Axis(name, self.shape[name])

    def coordinates(self, rank: int) -> dict[str, int]:
        """Where a rank is along each axis."""
        if not 0 <= rank < self.size:
            raise GraphError(f"rank {rank} of a mesh of {self.size} ranks")
        found: dict[str, int] = {}
        for name, ranks in reversed(self.shape.items()):
            rank, found[name] = divmod(rank, ranks)
        return {name: found[name] for name in self.shape}

    def group(self, rank: int, axis: str) -> tuple[int, ...]:
        """The ranks that differ from ``rank`` along ``axis`` alone, itself among them, in order."""
        at, stride = self.coordinates(rank)[self[axis].name], self._stride(axis)
        first = rank - at * stride
        return tuple([first + n * stride for n in range(self.shape[axis])])

    def _stride(self, axis: str) -> int:
        names: Sequence[str] = list(self.shape)
        return prod([self.shape[n] for n in names[names.index(axis) + 1 :]])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mesh) and list(self.axes) == list(other.axes)

    def __hash__(self) -> int:
        return hash(self.axes)

    def __repr__(self) -> str:
        return f"Mesh({', '.join(f'{name}={n}' for name, n in self.shape.items())})"


class _Bound(threading.local):
    rank: tuple[Mesh, int] | None = None


_thread, _process = _Bound(), list[tuple[Mesh, int]]()
"""The rank that a thread is, and that of the process; with their meshes."""


def bind_rank(bound: tuple[Mesh, int] | None, process: bool) -> None:
    """Make this thread, or the whole process, a rank of a mesh; None: none any more."""
    if process:
        _process[:] = [] if bound is None else [bound]
    else:
        _thread.rank = bound


def bound_rank() -> tuple[Mesh, int] | None:
    """The mesh that this thread or else this process is connected to, and its rank there."""
    return _thread.rank or (_process[0] if _process else None)
