"""Batches of arrays, by number: any batch can be had at any time, and so a run can go on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlx.errors import GraphError, ShapeError
from rlx.ir.builders import located, public

__all__ = ["Batches"]

Array = np.ndarray[Any, Any]


@public
class Batches:
    """Arrays by name, cut along their first axis into batches of ``size``.

    With ``shuffle`` each epoch has an order of its own, drawn from ``seed`` and its number. What is
    left at the end of an epoch, less than a batch, is left out. ShapeError for arrays of unequal
    lengths.
    """

    def __init__(
        self, arrays: Mapping[str, Array], size: int, *, shuffle: bool = True, seed: int = 0
    ) -> None:
        located(self._check)(arrays, size)
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

    def __len__(self) -> int:
        """Batches of an epoch."""
        return self.rows // self.size

    def __getitem__(self, n: int) -> dict[str, Array]:
        """Batch ``n``, counted from 0 through all epochs."""
        if n < 0:
            raise GraphError(f"batches are counted from 0 on, found {n}")
        epoch, at = divmod(n, len(self))
        rows = self._rows(epoch)[at * self.size : (at + 1) * self.size]
        return {name: a[rows] for name, a in self.arrays.items()}

    def _rows(self, epoch: int) -> Array:
        if not self.shuffle:
            return self._order[1]
        if self._order[0] != epoch:
            drawn = np.random.default_rng([self.seed, epoch]).permutation(self.rows)
            self._order = (epoch, drawn)
        return self._order[1]
