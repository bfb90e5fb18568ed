"""How this process was started: as which rank of how many, by whom."""

from __future__ import annotations

import os

from rlx import knobs

__all__ = ["local_rank", "started_by_mpi", "started_rank", "world_size"]

_OF_MPI = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID")
"""What starters of MPI tell a process, its number first."""

_LOCAL = ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
"""What they tell it of those that run on its machine."""

_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")


def started_by_mpi() -> bool:
    """Whether a starter of MPI has started this process, and not ``rlx launch`` itself."""
    return not knobs.rendezvous.get() and any(n in os.environ for n in _OF_MPI)


def _first(names: tuple[str, ...], otherwise: int) -> int:
    return next((int(os.environ[n]) for n in names if os.environ.get(n, "").isdigit()), otherwise)


def started_rank() -> int:
    """The number of this process among those that were started together."""
    if knobs.rendezvous.get():
        return max(knobs.rank.get(), 0)
    return _first((*_OF_MPI, "SLURM_PROCID"), 0) if started_by_mpi() else 0


def local_rank() -> int:
    """The number of this process among those that were started together on this machine."""
    return _first(_LOCAL, started_rank()) if started_by_mpi() else started_rank()


def world_size() -> int:
    """How many ranks were started together: by ``rlx launch``, or by a starter of MPI; 1 for a
    process that was started by itself.

    With it a script makes a mesh of all of them: ``rlx.Mesh(data=rlx.distributed.world_size())``.
    """
    if knobs.rendezvous.get():
        return max(knobs.ranks.get(), 1)
    return _first(_SIZES, 1) if started_by_mpi() else 1
