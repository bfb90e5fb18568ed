"""Ranks that run compiled graphs: processes and threads, with a communicator for each axis."""

from __future__ import annotations

import atexit
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from rlx import knobs
from rlx.base.mesh import Mesh, bind_rank, bound_rank
from rlx.base.world import started_by_mpi
from rlx.distributed.status import begin
from rlx.errors import FaultError, GraphError, shown
from rlx.ir.builders import located
from rlx.runtime import _native

__all__ = ["connect", "current_rank", "disconnect", "run_threads"]

T = TypeVar("T")


def current_rank(mesh: Mesh) -> int:
    """The number of the rank of ``mesh`` that this thread is, or else this process, which is
    connected if it was not yet. GraphError if it is none."""
    _check(mesh, "current_rank")
    number = mesh.rank
    return number if bound_rank() else connect(mesh)


def _set_beside(groups: Iterable[_native.Communicator]) -> None:
    """Let collectives run beside launches, or not, if the user has said."""
    beside = knobs.comm_beside.get()
    if beside is not None:
        for group in groups:
            group.beside = beside


def _is_process(mesh: Mesh, rank: int, groups: list[_native.Communicator]) -> int:
    _set_beside(groups)
    _native.bind_communicators(list(mesh.shape), groups, True)
    bind_rank((mesh, rank), True)
    return rank


@located
def connect(mesh: Mesh) -> int:
    """Make this process a rank of ``mesh``, for all that it runs; the number of the rank.

    ``rlx launch`` says to each process which one it is, and so does MPI, where ``mpiexec`` or the
    like has started it. A mesh of one rank needs neither. GraphError if the process was started
    otherwise, with another number of ranks than the mesh has, or by MPI where there is no
    library of it with the standard ABI.
    """
    _check(mesh, "connect")
    begin()
    if mesh.size > 1 and started_by_mpi():
        return _connect_mpi(mesh)
    if mesh.size == 1:
        teams = [_native.team_of_threads(1)[0] for _ in mesh.axes]
        return _is_process(mesh, 0, teams)
    rank, ranks, folder = knobs.rank.get(), knobs.ranks.get(), knobs.rendezvous.get()
    if rank < 0 or not ranks or not folder:
        raise GraphError(
            f"connect: this process is no rank of {mesh}; start it by `rlx launch -n {mesh.size}`"
            f" and the name of the script, or by `mpiexec -n {mesh.size} python`"
        )
    if ranks != mesh.size:
        raise GraphError(f"connect: {mesh} has {mesh.size} ranks, and `rlx launch` started {ranks}")
    groups: list[_native.Communicator] = []
    for axis in mesh.axes:
        along = mesh.group(rank, axis.name)
        path = str(Path(folder) / f"{axis.name}.{along[0]}")
        try:
            groups.append(_native.team_of_processes(path, axis.ranks, along.index(rank)))
        except _native.Error as error:
            raise GraphError(f"connect: {error}") from None
    return _is_process(mesh, rank, groups)


def _libraries() -> list[str]:
    """Where the library of MPI may be, the likeliest first."""
    if knobs.mpi.get():
        return [knobs.mpi.get()]
    name = "libmpi_abi.so.1"
    beside = Path(sys.prefix) / "lib" / name
    return [*([str(beside)] if beside.exists() else []), name, "libmpi_abi.so"]


def _connect_mpi(mesh: Mesh) -> int:
    try:
        world = _native.mpi_world(_libraries())
        if world.ranks != mesh.size:
            raise GraphError(
                f"connect: {mesh} has {mesh.size} ranks, and MPI started {world.ranks}"
            )
        coordinates = mesh.coordinates(world.rank)
        groups: list[_native.Communicator] = []
        for axis in mesh.axes:  # all ranks split in this order
            first = mesh.group(world.rank, axis.name)[0]
            groups.append(world.split(first, coordinates[axis.name]))
        atexit.register(_native.mpi_end)
        return _is_process(mesh, world.rank, groups)
    except _native.Error as error:
        raise GraphError(f"connect: {error}") from None


def disconnect() -> None:
    """Let this process be no rank any more."""
    _native.bind_communicators([], [], True)
    bind_rank(None, True)


@located
def run_threads(mesh: Mesh, function: Callable[[int], T]) -> list[T]:
    """What ``function`` gives for each rank of ``mesh``, in their order.

    It is called with the number of the rank, on a thread that is that rank for all that it runs.

    The first error ends the others where they wait for that rank, and is raised.
    """
    _check(mesh, "run_threads")
    if not callable(function):
        raise GraphError(f"run_threads: function is {shown(function)}, expected a function")
    teams: dict[tuple[int, ...], list[_native.Communicator]] = {}
    results: dict[int, T] = {}
    errors: list[BaseException] = []

    def communicator(rank: int, axis: str) -> _native.Communicator:
        along = mesh.group(rank, axis)
        if along not in teams:
            teams[along] = _native.team_of_threads(len(along))
            _set_beside(teams[along])
        return teams[along][along.index(rank)]

    bound = [[communicator(rank, axis) for axis in mesh.shape] for rank in range(mesh.size)]

    def run(rank: int) -> None:
        _native.bind_communicators(list(mesh.shape), bound[rank], False)
        bind_rank((mesh, rank), False)
        try:
            results[rank] = function(rank)
        except BaseException as error:
            errors.append(error)
            for one in bound[rank]:
                one.leave()
        finally:
            _native.bind_communicators([], [], False)

    threads = [
        threading.Thread(target=run, args=(rank,), name=f"rlx-rank-{rank}")
        for rank in range(mesh.size)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        # Those that waited for the rank that failed come after it, or say that it has left.
        told = [e for e in errors if not (isinstance(e, FaultError) and "has left" in str(e))]
        raise (told or errors)[0]
    return [results[rank] for rank in range(mesh.size)]


def _check(mesh: Mesh, what: str) -> None:
    if not isinstance(mesh, Mesh):
        raise GraphError(f"{what}: mesh is {shown(mesh)}, expected a Mesh")
