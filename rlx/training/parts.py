"""Gradients that are the same to the bit on any number of ranks: a batch in parts, their sums by a
binary tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rlx.errors import ShapeError
from rlx.ir.location import caller
from rlx.ir.value import Value

__all__ = ["cut", "sum_of_tree"]

Array = np.ndarray[Any, Any]


def cut(batch: Mapping[str, Any], inputs: Sequence[Value], parts: int) -> Iterator[dict[str, Any]]:
    """The parts of a rank's batch, which has them one after the other along the first axes of its
    arrays; scalars belong to all parts. ShapeError for an array that is not so many parts."""
    if parts == 1:
        yield dict(batch)
        return
    found = {name: np.asarray(a) for name, a in batch.items()}
    for v in inputs:
        a = found.get(str(v.name))
        if a is None or not v.rank:
            continue  # what is missing is refused as in every other run
        rows = v.shape[0]
        fits = a.ndim and (a.shape[0] == rows * parts if isinstance(rows, int)
                           else a.shape[0] % parts == 0)  # fmt: skip
        if not fits:
            of = f"{rows} rows" if isinstance(rows, int) else "as many rows"
            raise ShapeError(
                f"reproducible: the batch of this rank has {parts} parts, each of {of} of"
                f" {v.name!r}, found an array of {list(a.shape)}",
                caller(),
            )
    shared = {str(v.name) for v in inputs if not v.rank}
    pieces = {n: [a] * parts if n in shared else np.split(a, parts) for n, a in found.items()}
    for n in range(parts):
        yield {name: each[n] for name, each in pieces.items()}


def sum_of_tree(
    parts: Iterator[list[Array]], add: Callable[[list[Array], list[Array]], object]
) -> list[Array]:
    """The sum of a power of two of lists of arrays: neighbours are added, and these sums, until one
    is left. ``add`` adds the second list to the first one. As few lists are kept as can be."""
    waiting: list[tuple[int, list[Array]]] = []
    for part in parts:
        waiting.append((0, part))
        while len(waiting) > 1 and waiting[-1][0] == waiting[-2][0]:
            height, right = waiting.pop()
            add(waiting[-1][1], right)
            waiting[-1] = height + 1, waiting[-1][1]
    ((_, total),) = waiting
    return total
