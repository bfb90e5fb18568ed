"""The ranks that train together: what each of them holds of the state, and how gradients meet.

Tensors are cut flat, in blocks of one length, of which each rank holds as many as every other: the
last ones end in zeros. Small tensors of one type are exchanged together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.base.frozen import frozen
from rlx.base.mesh import Axis, Mesh
from rlx.errors import GraphError, shown
from rlx.ir.value import Value
from rlx.ops.collective.all_reduce import AllReduce
from rlx.ops.collective.exchange import AllGather, AllToAll
from rlx.ops.rules import carries_derivative
from rlx.ops.sugar import concat
from rlx.types import TensorType

__all__ = ["BUCKET", "PARTS", "Ranks", "mean_of_tree", "ranks_of"]

Array = np.ndarray[Any, Any]

PARTS = 8
"""Parts of a batch of all ranks, where losses are to be the same on 1, 2, 4 and 8 ranks."""

BUCKET = 1 << 20
"""Elements that are exchanged together: what is small takes as long as a meeting."""


@frozen
class Ranks:
    """The ranks along an axis. With ``parts`` a batch of all of them is cut in so many, whose
    gradients are added in one binary tree, whatever ranks have them; 0: as it is fastest."""

    axis: Axis
    parts: int = 0

    def check(self) -> None:
        """GraphError unless the ranks have subtrees of the parts."""
        if self.parts and self.parts % self.axis.ranks:
            raise GraphError(
                f"reproducible: a batch has {self.parts} parts, which {self.axis.ranks} ranks"
                " cannot share evenly; train on 1, 2, 4 or 8 ranks"
            )

    @property
    def each(self) -> int:
        """The parts of a rank's batch."""
        return self.parts // self.axis.ranks if self.parts else 1

    def length(self, t: TensorType) -> int:
        """The elements of a tensor that a rank holds where it is cut, zeros at the end included."""
        return max(1, -(-_size(t) // self.axis.ranks))

    # -- in graphs -------------------------------------------------------------------------

    def mean(self, v: Value) -> Value:
        """The mean over the ranks of what has one; the rest stays that of the rank."""
        return AllReduce.build(v, self.axis, "mean") if carries_derivative(v) else v

    def means(self, values: Sequence[Value]) -> list[Value]:
        """The means over the ranks; over the parts, of sums over those of each rank."""
        if self.parts:
            return _in_buckets(values, self._rows, self._tree_mean, self._whole)
        return _in_buckets(values, lambda v: v.flatten(), self.mean, _cut)

    def _rows(self, v: Value) -> Value:
        """A tensor flat, a row for each rank."""
        flat, ranks = v.flatten(), self.axis.ranks
        missing = ranks * self.length(v.type) - _size(v.type)
        return (flat.pad([0], [missing]) if missing else flat).reshape((ranks, -1))

    def _tree_mean(self, rows: Value) -> Value:
        """Of each rank's rows the mean, on all of them: each rank adds what all have of a row."""
        mine = AllToAll.build(rows, self.axis)
        return AllGather.build(mean_of_tree(mine, self.parts), self.axis)

    def _whole(self, rows: Value, at: int, t: TensorType) -> tuple[Value, int]:
        length = self.length(t)
        flat = rows.narrow(1, at, length).flatten()
        return flat.narrow(0, 0, _size(t)).reshape(t.shape), at + length


def ranks_of(mesh: Mesh | None, axis: str, reproducible: bool) -> Ranks | None:
    """The ranks that train together, None for one alone. GraphError and NameError for what is no
    mesh, or has no such axis."""
    if not (mesh is None or isinstance(mesh, Mesh)):
        raise GraphError(f"compile_training: mesh is {shown(mesh)}, expected a Mesh")
    along = None if mesh is None else mesh[axis]
    if reproducible:
        return Ranks(along or Axis(axis, 1), PARTS)
    return None if along is None else Ranks(along)


def mean_of_tree(rows: Value, parts: int) -> Value:
    """The rows added in pairs, and these in pairs, until one is left; over the number of parts."""
    while rows.shape[0] > 1:
        pairs = rows.reshape((rows.shape[0] // 2, 2, *rows.shape[1:]))
        rows = pairs.narrow(1, 0, 1).squeeze(1) + pairs.narrow(1, 1, 1).squeeze(1)
    return rows / float(parts)


def _in_buckets(
    values: Sequence[Value],
    flat: Callable[[Value], Value],
    exchange: Callable[[Value], Value],
    cut: Callable[[Value, int, TensorType], tuple[Value, int]],
) -> list[Value]:
    """What ``exchange`` makes of values that are laid side by side, those of small tensors of one
    type together, and what ``cut`` takes of that at a place for a tensor of a type."""
    found: dict[Value, Value] = {}
    buckets: dict[str, list[Value]] = {}

    def close(bucket: list[Value]) -> None:
        laid = [flat(v) for v in bucket]
        exchanged, at = exchange(concat(laid, -1) if len(laid) > 1 else laid[0]), 0
        for v in bucket:
            found[v], at = cut(exchanged, at, v.type)
        bucket.clear()

    for v in values:
        bucket = buckets.setdefault(v.dtype.name, [])
        if bucket and sum(_size(w.type) for w in bucket) + _size(v.type) > BUCKET:
            close(bucket)
        bucket.append(v)
    for bucket in buckets.values():
        close(bucket)
    return [found[v] for v in values]


def _cut(flat: Value, at: int, t: TensorType) -> tuple[Value, int]:
    size = _size(t)
    return flat.narrow(0, at, size).reshape(t.shape), at + size


def _size(t: TensorType) -> int:
    return math.prod(t.static_shape)
