"""Batches of arrays, by number: any batch can be had at any time, and so a run can go on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlx.base.mesh import Mesh
from rlx.distributed.connections import current_rank
from rlx.errors import GraphError, ShapeError, shown
from rlx.ir.builders import located, public

__all__ = ["Batches"]

Array = np.ndarray[Any, Any]


@public
class Batches:
    """Arrays by name, cut along their first axis into batches of ``size``.

    With ``shuffle`` each epoch has an order of its own, drawn from ``seed`` and its number. What is
    left at the end of an epoch, less than a batch, is left out. With ``mesh``, ``size`` is that of
    the batch of all ranks along its ``axis``, of which this rank is given its part, rows that
    follow each other: any number of ranks has the same batches. ShapeError for arrays of unequal
    lengths and for a batch that the ranks cannot share evenly.
    """

    def __init__(
        self,
        arrays: Mapping[str, Array],
        size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        mesh: Mesh | None = None,
        axis: str = "data",
    ) -> None:
        located(self._check)(arrays, size)
        self._first, self._rows_each = located(_part_of)(size, mesh, axis)
        self.arrays, self.size = dict(arrays), size
        self.shuffle, self.seed = shuffle, seed
        self.rows = len(next(iter(self.arrays.values())))
        self._order: tuple[int, Array] = (-1, np.arange(self.rows))

    def _check(self, arrays: Mapping[str, Array], size: int) -> None:
        rows = {name: len(a) for name, a in arrays.items()}
        if len(set(rows.values())) != 1:
            raise ShapeError(f"arrays of one length are cut into batches, found {rows or 'none'}")
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise GraphError(f"size is a number of rows from 1 on, found {size!r}")
        if size > (n := next(iter(rows.values()))):
            raise ShapeError(f"a batch has {size} rows, and the arrays have {n}")

    def __repr__(self) -> str:
        return f"Batches of {self.size} of {self.rows} rows: {', '.join(self.arrays)}"

    def __len__(self) -> int:
        """Batches of an epoch."""
        return self.rows // self.size

    def __getitem__(self, n: int) -> dict[str, Array]:
        """Batch ``n``, counted from 0 through all epochs."""
        if n < 0:
            raise GraphError(f"batches are counted from 0 on, found {n}")
        epoch, at = divmod(n, len(self))
        first = at * self.size + self._first
        rows = self._rows(epoch)[first : first + self._rows_each]
        return {name: a[rows] for name, a in self.arrays.items()}

    def _rows(self, epoch: int) -> Array:
        if not self.shuffle:
            return self._order[1]
        if self._order[0] != epoch:
            drawn = np.random.default_rng([self.seed, epoch]).permutation(self.rows)
            self._order = (epoch, drawn)
        return self._order[1]


def _part_of(size: int, mesh: Mesh | None, axis: str) -> tuple[int, int]:
    """Where in a batch the rows of this rank are, and how many."""
    if mesh is None:
        return 0, size
    if not isinstance(mesh, Mesh):
        raise GraphError(f"Batches: mesh is {shown(mesh)}, expected a Mesh")
    ranks = mesh[axis].ranks
    if size % ranks:
        raise ShapeError(f"a batch of {size} rows is not shared by {ranks} ranks along {axis!r}")
    each = size // ranks
    return (mesh.coordinates(current_rank(mesh))[axis] * each if mesh.size > 1 else 0), each
