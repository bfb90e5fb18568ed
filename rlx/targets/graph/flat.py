"""Gathers and scatters of systems whose own are along the first axis alone, without batches."""

from __future__ import annotations

from math import prod

from rlx.targets.graph.tensor import Tensor
from rlx.targets.graph.whole import Whole

__all__ = ["gathered", "in_rows", "rows_back", "rows_of", "update_rows"]


def _order(rank: int, axis: int, lead: int) -> list[int]:
    """Batch axes, the indexed one, the others."""
    return [*range(lead), axis, *(i for i in range(lead, rank) if i != axis)]


def rows_of(k: Whole, t: Tensor, axis: int, lead: int) -> Tensor:
    """A tensor with the indexed axis of all batches as its first: [batches * n, rest]."""
    moved = k.transpose(t, _order(t.rank, axis, lead))
    return k.reshape(moved, (prod(moved.shape[: lead + 1]), prod(moved.shape[lead + 1 :])))


def rows_back(k: Whole, rows: Tensor, like: Tensor, axis: int, lead: int) -> Tensor:
    """What ``rows_of`` made, back in the shape of the tensor that it was made of."""
    order = _order(like.rank, axis, lead)
    apart = k.reshape(rows, tuple(like.shape[i] for i in order))
    return k.transpose(apart, [order.index(i) for i in range(like.rank)])


def in_rows(k: Whole, indices: Tensor, count: int, lead: int) -> Tensor:
    """Indices within an axis of ``count`` elements, as numbers of rows of all batches: a vector."""
    if lead:
        batches = prod(indices.shape[:lead])
        own = k.reshape(k.iota((batches,), 0, indices.dtype) * count, indices.shape[:lead])
        own = k.reshape(own, (*indices.shape[:lead], *[1] * (indices.rank - lead)))
        indices = indices + own
    return k.reshape(indices, (prod(indices.shape),))


def update_rows(k: Whole, updates: Tensor, axis: int, lead: int, middle: int) -> Tensor:
    """The updates of a scatter as rows, in the order of ``in_rows``; ``middle`` of their axes are
    those of the indices behind the batch."""
    order = [
        *range(lead), *range(axis, axis + middle), *range(lead, axis),
        *range(axis + middle, updates.rank),
    ]  # fmt: skip
    moved = k.transpose(updates, order)
    at = lead + middle
    return k.reshape(moved, (prod(moved.shape[:at]), prod(moved.shape[at:])))


def gathered(k: Whole, rows: Tensor, t: Tensor, indices: Tensor, axis: int, lead: int) -> Tensor:
    """Rows that were taken of ``rows_of(t)``, as ``Whole.taken`` gives them."""
    before, behind = t.shape[lead:axis], t.shape[axis + 1 :]
    middle = indices.shape[lead:]
    apart = k.reshape(rows, (*t.shape[:lead], *middle, *before, *behind))
    m, b = len(middle), len(before)
    order = [
        *range(lead), *range(lead + m, lead + m + b), *range(lead, lead + m),
        *range(lead + m + b, apart.rank),
    ]  # fmt: skip
    return k.transpose(apart, order)
