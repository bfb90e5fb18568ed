"""The ranks that train together: what each of them holds of the state, and how gradients meet.

Tensors are cut flat, in blocks of one length, of which each rank holds as many as every other: the
last ones end in zeros. Small tensors of one type are exchanged together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlx.base.frozen import frozen
from rlx.base.mesh import Axis, Mesh
from rlx.errors import GraphError, UnsupportedError, shown
from rlx.ir.value import Value
from rlx.ops.collective.all_reduce import AllReduce, ReduceScatter
from rlx.ops.collective.exchange import AllGather, AllToAll, AxisIndex
from rlx.ops.indexing.gather import Gather
from rlx.ops.indexing.scatter import ScatterAdd
from rlx.ops.sugar import concat
from rlx.optim import ClipNorm, ClipValue, Optimizer
from rlx.optim.gradients import sum_of_squares
from rlx.types import TensorType

__all__ = ["BUCKET", "PARTS", "Ranks", "ranks_of"]

Array = np.ndarray[Any, Any]

PARTS = 8
"""Parts of a batch of all ranks, where losses are to be the same on 1, 2, 4 and 8 ranks."""

BUCKET = 1 << 16
"""Elements that are exchanged together: fewer take as long as a meeting. What has as many is
exchanged alone, and needs no copy that lays it beside others."""


@frozen
class Ranks:
    """The ranks along an axis of a mesh, which is None if there is one rank alone.

    With ``parts`` a batch of all of them is cut in so many, whose gradients are added in one binary
    tree, whatever ranks have them; 0: as it is fastest. ``zero`` says what each rank holds a slice
    of: 1: gradients and the optimiser's state, 3: params too.
    """

    axis: Axis
    parts: int = 0
    zero: int = 0
    mesh: Mesh | None = None

    def check(self, optimizer: Optimizer, clip: Any, params: Mapping[str, TensorType]) -> None:
        """GraphError unless the ranks have subtrees of the parts, UnsupportedError for an update
        that needs more than a slice of each param."""
        if self.parts and self.parts % self.axis.ranks:
            raise GraphError(
                f"reproducible: a batch has {self.parts} parts, which {self.axis.ranks} ranks"
                " cannot share evenly; train on 1, 2, 4 or 8 ranks"
            )
        if not self.zero:
            return
        for name, t in params.items():
            if why := optimizer.mixing(name, t):
                raise UnsupportedError(
                    f"zero={self.zero} gives each rank a slice of {name!r}, and"
                    f" {type(optimizer).__name__} updates it as a whole ({why}); take an optimiser"
                    " that updates each element by itself, such as AdamW, or zero=0"
                )
        if not (clip is None or isinstance(clip, ClipNorm | ClipValue)):
            raise UnsupportedError(
                f"zero={self.zero} gives each rank a slice of each gradient, and clip is"
                f" {shown(clip)}; take rlx.optim.ClipNorm, rlx.optim.ClipValue or zero=0"
            )

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes of the mesh."""
        return (self.axis,) if self.mesh is None else self.mesh.axes

    @property
    def each(self) -> int:
        """The parts of a rank's batch."""
        return self.parts // self.axis.ranks if self.parts else 1

    def slice_of(self, t: TensorType) -> TensorType:
        """The type of the slice of a tensor that a rank holds, zeros at the end included."""
        return TensorType((self._block(t) * self.each,), t.dtype)

    def _block(self, t: TensorType) -> int:
        """The elements of a block, of which all ranks have as many."""
        return max(1, -(-_size(t) // (self.parts or self.axis.ranks)))

    def part(self, a: Array, t: TensorType, rank: int) -> Array:
        """The slice of an array that a rank holds; the array, if it holds all of it."""
        if a.shape == t.static_shape:
            return a
        length = _size(t)
        found = np.zeros(length, a.dtype)
        mine = a.reshape(-1)[rank * length : (rank + 1) * length]
        found[: mine.size] = mine
        return found

    # -- in graphs -------------------------------------------------------------------------

    def means(self, values: Sequence[Value], cut: bool = False) -> list[Value]:
        """The means over the ranks; over the parts, of sums over those of each rank. With ``cut``
        of each the slice of this rank."""
        if self.parts or cut:
            mean = self._own_mean if cut else self._tree_mean
            return _in_buckets(values, self._rows, mean, self._slice if cut else self._whole)
        rows = {v: self._mean_of_rows(v) for v in values if self._has_few_rows(v)}
        dense = [v for v in values if v not in rows]
        means = _in_buckets(dense, self._share, self._sum, _cut)
        found = rows | dict(zip(dense, means, strict=True))
        return [found[v] for v in values]

    def _has_few_rows(self, v: Value) -> bool:
        """Whether a gradient is one of a table of which a batch takes so few rows that those of all
        ranks are less than the table."""
        op = v.op
        if not isinstance(op, ScatterAdd) or op.axis or op.batch_dims or not v.type.is_static:
            return False
        parts = (op.updates.type, op.indices.type)
        if not all(t.is_static for t in parts):
            return False
        return self.axis.ranks * sum(t.nbytes for t in parts) < v.type.nbytes

    def _mean_of_rows(self, v: Value) -> Value:
        """The mean of gradients that have few rows: these are exchanged, and the zeros are not."""
        op = v.op
        assert isinstance(op, ScatterAdd)
        rows = (op.updates / float(self.axis.ranks)).reshape((-1, *v.shape[1:]))
        gathered = self._gathered(rows), self._gathered(op.indices.flatten())
        return ScatterAdd(*gathered, op.size, 0, op.mode, 0).out

    def whole(self, slices: Sequence[Value], types: Sequence[TensorType]) -> list[Value]:
        """Tensors of so many types, from the slices that the ranks have."""
        rows = [v.reshape((1, -1)) for v in slices]
        of = dict(zip(rows, types, strict=True))
        gather = self._gathered
        return _in_buckets(rows, lambda v: v, gather, self._whole, lambda v: of[v])

    def own(self, v: Value) -> Value:
        """The slice of this rank of a tensor that all of them have."""
        return Gather.build(self._rows(v), AxisIndex.build(self.axis), 0)

    def all(self, v: Value) -> Value:
        """Whether a bool is true on all ranks."""
        return AllReduce.build(v, self.axis, "min")

    def clipped(self, clip: ClipNorm | ClipValue, grads: Mapping[str, Value]) -> dict[str, Value]:
        """What ``clip`` makes of gradients, or of the slices that the ranks have of them."""
        if isinstance(clip, ClipValue):
            return clip(grads)
        if not self.parts:
            total = AllReduce.build(sum_of_squares(list(grads.values())), self.axis)
            return clip.scaled(grads, total.sqrt())
        return clip.scaled(grads, self._norm_of_blocks(list(grads.values())).sqrt())

    def _norm_of_blocks(self, grads: Sequence[Value]) -> Value:
        """The sum of squares, added block by block: so it does not depend on who has which."""
        cut = bool(self.zero)
        rows = [(g if cut else self._rows(g)).reshape((self.each if cut else self.parts, -1))
                for g in grads]  # fmt: skip
        blocks = [
            sum_of_squares([r.narrow(0, n, 1).flatten() for r in rows]).reshape((1,))
            for n in range(rows[0].type.static_shape[0])
        ]
        own = concat(blocks)
        return _sum_of_tree(AllGather.build(own, self.axis) if cut else own).squeeze(0)

    def _rows(self, v: Value) -> Value:
        """A tensor flat, a row for each rank."""
        flat, length = v.flatten(), self.axis.ranks * _size(self.slice_of(v.type))
        missing = length - _size(v.type)
        padded = flat.pad([0], [missing]) if missing else flat
        return padded.reshape((self.axis.ranks, -1))

    def _share(self, v: Value) -> Value:
        # Divided before the sum: what makes a value does it as it writes.
        return (v / float(self.axis.ranks)).flatten()

    def _sum(self, flat: Value) -> Value:
        return AllReduce.build(flat, self.axis)

    def _own_mean(self, rows: Value) -> Value:
        """The mean of a row over the ranks, each of which gets its own."""
        if not self.parts:
            return ReduceScatter.build(rows, self.axis) / float(self.axis.ranks)
        return _sum_of_tree(AllToAll.build(rows, self.axis)) / float(self.parts)

    def _tree_mean(self, rows: Value) -> Value:
        """Of each rank's rows the mean, on all of them."""
        return self._gathered(self._own_mean(rows))

    def _gathered(self, row: Value) -> Value:
        return AllGather.build(row, self.axis)

    def _whole(self, rows: Value, at: int, t: TensorType) -> tuple[Value, int]:
        length = _size(self.slice_of(t))
        flat = rows.narrow(1, at, length).flatten()
        return flat.narrow(0, 0, _size(t)).reshape(t.shape), at + length

    def _slice(self, row: Value, at: int, t: TensorType) -> tuple[Value, int]:
        length = _size(self.slice_of(t))
        return row.narrow(1, at, length).flatten(), at + length


def ranks_of(mesh: Mesh | None, axis: str, reproducible: bool, zero: int) -> Ranks | None:
    """The ranks that train together, None for one alone. GraphError and NameError for what is no
    mesh, has no such axis, or is no stage."""
    if not (mesh is None or isinstance(mesh, Mesh)):
        raise GraphError(f"compile_training: mesh is {shown(mesh)}, expected a Mesh")
    if isinstance(zero, bool) or zero not in (0, 1, 3):
        raise GraphError(
            f"zero is {shown(zero)}, expected 0 (every rank holds all), 1 (slices of gradients and"
            " of the optimiser's state, which is what is called stage 2 too) or 3 (of params too)"
        )
    if zero and mesh is None:
        raise GraphError(f"zero={zero} gives slices to the ranks of a mesh, and there is none")
    along = None if mesh is None else mesh[axis]
    if reproducible:
        return Ranks(along or Axis(axis, 1), PARTS, zero, mesh)
    return None if along is None else Ranks(along, 0, zero, mesh)


def _sum_of_tree(rows: Value) -> Value:
    """The rows added in pairs, and these in pairs, until one is left."""
    while (count := rows.type.static_shape[0]) > 1:
        pairs = rows.reshape((count // 2, 2, *rows.shape[1:]))
        rows = pairs.narrow(1, 0, 1).squeeze(1) + pairs.narrow(1, 1, 1).squeeze(1)
    return rows


def _in_buckets(
    values: Sequence[Value],
    flat: Callable[[Value], Value],
    exchange: Callable[[Value], Value],
    cut: Callable[[Value, int, TensorType], tuple[Value, int]],
    type_of: Callable[[Value], TensorType] = lambda v: v.type,
) -> list[Value]:
    """What ``exchange`` makes of values that are laid side by side, those of small tensors of one
    type together, and what ``cut`` takes of that at a place for a tensor of a type."""
    found: dict[Value, Value] = {}
    buckets: dict[str, list[Value]] = {}

    def close(bucket: list[Value]) -> None:
        laid = [flat(v) for v in bucket]
        exchanged, at = exchange(concat(laid, -1) if len(laid) > 1 else laid[0]), 0
        for v in bucket:
            found[v], at = cut(exchanged, at, type_of(v))
        bucket.clear()

    for v in values:
        if _size(type_of(v)) >= BUCKET:
            close([v])
            continue
        bucket = buckets.setdefault(v.dtype.name, [])
        if bucket and sum(_size(type_of(w)) for w in bucket) + _size(type_of(v)) > BUCKET:
            close(bucket)
        bucket.append(v)
    for bucket in buckets.values():
        if bucket:
            close(bucket)
    return [found[v] for v in values]


def _cut(flat: Value, at: int, t: TensorType) -> tuple[Value, int]:
    size = _size(t)
    return flat.narrow(0, at, size).reshape(t.shape), at + size


def _size(t: TensorType) -> int:
    return math.prod(t.static_shape)
