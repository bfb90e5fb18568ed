"""Collectives that move what the ranks have: gathers, exchanges, permutations, broadcasts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from rlx.base import meeting
from rlx.base.dims import Dim, surely_differ
from rlx.base.mesh import Axis
from rlx.errors import GraphError, ShapeError
from rlx.ir.op import Array, attr, bad, sample
from rlx.ir.value import Value
from rlx.ops.collective.base import Collective, Moving, axis_given
from rlx.ops.indexing.gather import Gather
from rlx.ops.movement.constant import Constant, Iota
from rlx.ops.movement.fill import zeros
from rlx.ops.movement.movement import axis_of
from rlx.ops.pointwise.base import ANY
from rlx.ops.sugar import concat
from rlx.types import TensorType, i64

__all__ = [
    "AllGather", "AllToAll", "AxisIndex", "Broadcast", "Permute", "block_length",
    "in_blocks", "in_one",
]  # fmt: skip


def in_blocks(x: Value, dim: int, count: int) -> Value:
    """``x`` with an axis cut in blocks, which become a new first axis."""
    shape = (*x.shape[:dim], count, x.shape[dim] // count, *x.shape[dim + 1 :])
    return x.reshape(shape).moveaxis(dim, 0)


def in_one(blocks: Value, dim: int) -> Value:
    """The inverse of ``in_blocks``."""
    moved = blocks.moveaxis(0, dim)
    shape = moved.shape
    return moved.reshape((*shape[:dim], shape[dim] * shape[dim + 1], *shape[dim + 2 :]))


def block_length(op: Moving, dim: int) -> Dim:
    """The length of a block of an axis; ShapeError unless it can be cut in one for each rank."""
    at = axis_of(dim, op.x.rank, op.short)
    length = op.x.shape[at]
    if surely_differ(length % op.ranks, 0):
        raise ShapeError(
            f"{op.short}: axis {at} of {op.x.type} is no multiple of {op.ranks}, the ranks along"
            f" {op.axis!r}"
        )
    return length // op.ranks


class AllGather(Moving, name="mir.all_gather"):
    """What all ranks have, joined along ``dim`` in the order of the ranks, on every rank."""

    dim: int = attr(0, "the axis along which they are joined")

    kind = "all_gather"
    dtypes = ANY
    samples = (
        sample("2x3xT", axis="data", ranks=1),
        sample("2x3xT", axis="data", ranks=1, dim=1),
        sample("0x3xT", axis="data", ranks=1),
    )
    bads = (
        bad("2xf32", match="out of range", error=ShapeError, axis="a", ranks=2, dim=1),
        bad("f32", match="out of range", error=ShapeError, axis="a", ranks=2),
    )

    @classmethod
    def build(cls, x: Value, axis: Axis, dim: int = 0) -> Value:
        """A negative ``dim`` counts from the end."""
        along = axis_given(axis, "all_gather")
        return cls(x, along.name, along.ranks, axis_of(dim, x.rank, "all_gather")).out

    def result_type(self) -> TensorType:
        at = axis_of(self.dim, self.x.rank, self.short)
        shape = list(self.x.shape)
        shape[at] = shape[at] * self.ranks
        return self.x.type.with_shape(tuple(shape))

    def across(self, given: Sequence[Array]) -> Sequence[Array]:
        return [np.concatenate(given, self.dim)] * len(given)

    def flat(self) -> bool:
        return self.dim == 0

    def by_blocks(self) -> Value:
        x = self.x
        return in_one(self.over(x.reshape((1, *x.shape)), AllGather, 0), self.dim)

    def named(self, x: Value, size: int) -> tuple[Value, bool]:
        wide = self.wide(x, size)
        return in_one(wide, self.dim), False

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        return self.with_operands(operands, dim=self.dim + 1).out

    def vjp(self, g: Value) -> tuple[Value]:
        from rlx.ops.collective.all_reduce import ReduceScatter

        return (self.over(g, ReduceScatter, self.dim),)

    def jvp(self, t: Value) -> Value:
        return self.over(t, AllGather, self.dim)


class AllToAll(Moving, name="mir.all_to_all"):
    """An exchange: the operand is cut along ``split`` in a block for each rank.

    What a rank gets is joined along ``concat``, in the order of the ranks.
    """

    split: int = attr(0, "the axis that is cut in blocks")
    concat: int = attr(0, "the axis along which blocks are joined")

    kind = "all_to_all"
    dtypes = ANY
    samples = (
        sample("2x3xT", axis="data", ranks=1),
        sample("2x3xT", axis="data", ranks=1, split=0, concat=1),
    )
    bads = (
        bad("3x2xf32", match="no multiple of 2", error=ShapeError, axis="a", ranks=2),
        bad("2x2xf32", match="out of range", error=ShapeError, axis="a", ranks=2, concat=2),
    )

    @classmethod
    def build(cls, x: Value, axis: Axis, split: int = 0, concat: int = 0) -> Value:
        """Negative axes count from the end."""
        along = axis_given(axis, "all_to_all")
        dims = [axis_of(d, x.rank, "all_to_all") for d in (split, concat)]
        return cls(x, along.name, along.ranks, dims[0], dims[1]).out

    def result_type(self) -> TensorType:
        shape = list(self.x.shape)
        shape[axis_of(self.split, self.x.rank, self.short)] = block_length(self, self.split)
        at = axis_of(self.concat, self.x.rank, self.short)
        shape[at] = shape[at] * self.ranks
        return self.x.type.with_shape(tuple(shape))

    def across(self, given: Sequence[Array]) -> Sequence[Array]:
        parts = [np.split(x, len(given), self.split) for x in given]
        return [np.concatenate(blocks, self.concat) for blocks in zip(*parts, strict=True)]

    def block(self) -> Dim:
        return self.x.type.size // self.ranks

    def flat(self) -> bool:
        return self.split == self.concat == 0

    def by_blocks(self) -> Value:
        blocks = in_blocks(self.x, self.split, self.ranks)
        return in_one(self.over(blocks, AllToAll, 0, 0), self.concat)

    def named(self, x: Value, size: int) -> tuple[Value, bool]:
        wide = self.wide(x, size)
        blocks = in_blocks(wide, self.split + 1, self.ranks)  # to, from, ...
        moved = blocks.moveaxis(1, self.concat + 1)
        shape, at = moved.shape, self.concat + 1
        return moved.reshape((*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])), True

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        return self.with_operands(operands, split=self.split + 1, concat=self.concat + 1).out

    def vjp(self, g: Value) -> tuple[Value]:
        return (self.over(g, AllToAll, self.concat, self.split),)

    def jvp(self, t: Value) -> Value:
        return self.over(t, AllToAll, self.split, self.concat)


class Permute(Moving, name="mir.collective_permute"):
    """What one rank has goes to another, by ``pairs``: source and target, one after the other.

    No rank is a source twice, or a target twice. A rank that is no target has zeros.
    """

    pairs: tuple[int, ...] = attr(doc="source, target, source, target, ...")

    kind = "permute"
    dtypes = ANY
    samples = (
        sample("2x3xT", axis="data", ranks=1, pairs=(0, 0)),
        sample("2xT", axis="data", ranks=1, pairs=()),
    )
    bads = (
        bad("2xf32", match="in pairs", error=GraphError, axis="a", ranks=2, pairs=(0,)),
        bad("2xf32", match="rank 2 of 2", error=GraphError, axis="a", ranks=2, pairs=(0, 2)),
        bad("2xf32", match="twice", error=GraphError, axis="a", ranks=2, pairs=(0, 1, 1, 1)),
    )

    @classmethod
    def build(cls, x: Value, axis: Axis, pairs: Iterable[tuple[int, int]]) -> Value:
        """``pairs`` are (source, target)."""
        along = axis_given(axis, "collective_permute")
        return cls(x, along.name, along.ranks, tuple([n for pair in pairs for n in pair])).out

    def result_type(self) -> TensorType:
        if len(self.pairs) % 2:
            raise GraphError(
                f"collective_permute: sources and targets come in pairs, found {self.pairs}"
            )
        for side, what in ((self.pairs[::2], "source"), (self.pairs[1::2], "target")):
            for n in side:
                if not 0 <= n < self.ranks:
                    raise GraphError(f"collective_permute: {what} is rank {n} of {self.ranks}")
            if len(set(side)) < len(side):
                raise GraphError(f"collective_permute: a rank is a {what} twice in {self.pairs}")
        return self.x.type

    def across(self, given: Sequence[Array]) -> Sequence[Array]:
        found = [np.zeros_like(x) for x in given]
        for source, target in zip(self.pairs[::2], self.pairs[1::2], strict=True):
            found[target] = given[source].copy()
        return found

    def peers(self) -> tuple[int, ...]:
        return self.pairs

    def one(self) -> Value:
        return self.x if self.pairs else zeros(self.x.shape, self.x.dtype)

    def named(self, x: Value, size: int) -> tuple[Value, bool]:
        wide = self.wide(x, size)
        blank = zeros((1, *self.x.shape), x.dtype)
        source = np.full(size, size, np.int64)
        source[list(self.pairs[1::2])] = self.pairs[::2]
        return Gather.build(concat([wide, blank], 0), source, 0), True

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        return self.with_operands(operands).out

    def vjp(self, g: Value) -> tuple[Value]:
        back = [n for s, t in zip(self.pairs[::2], self.pairs[1::2], strict=True) for n in (t, s)]
        return (self.over(g, Permute, tuple(back)),)

    def jvp(self, t: Value) -> Value:
        return self.over(t, Permute, self.pairs)


class Broadcast(Moving, name="mir.collective_broadcast"):
    """What the rank ``root`` has, on every rank."""

    root: int = attr(0, "the rank whose operand it is")

    kind = "broadcast"
    dtypes = ANY
    samples = (sample("2x3xT", axis="data", ranks=1), sample("T", axis="data", ranks=1))
    bads = (bad("2xf32", match="rank 2 of 2", error=GraphError, axis="a", ranks=2, root=2),)

    @classmethod
    def build(cls, x: Value, axis: Axis, root: int = 0) -> Value:
        along = axis_given(axis, "collective_broadcast")
        return cls(x, along.name, along.ranks, root).out

    def result_type(self) -> TensorType:
        if not 0 <= self.root < self.ranks:
            raise GraphError(f"collective_broadcast: its root is rank {self.root} of {self.ranks}")
        return self.x.type

    def peers(self) -> tuple[int, ...]:
        return (self.root,)

    def across(self, given: Sequence[Array]) -> Sequence[Array]:
        return [given[self.root].copy() for _ in given]

    def named(self, x: Value, size: int) -> tuple[Value, bool]:
        return (x[self.root] if x.rank > self.x.rank else x), False

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        return self.with_operands(operands).out

    def vjp(self, g: Value) -> tuple[Value]:
        from rlx.ops.collective.all_reduce import AllReduce

        root = AxisIndex(self.axis, self.ranks).out.eq(
            Constant(np.asarray(self.root, np.int64)).out
        )
        total = self.over(g, AllReduce)
        return (root.where(total, zeros(g.shape, g.dtype)),)

    def jvp(self, t: Value) -> Value:
        return self.over(t, Broadcast, self.root)


class AxisIndex(Collective, name="mir.axis_index"):
    """The number of this rank along the axis, from 0: an i64."""

    axis: str = attr(doc="the name of the mesh's axis")
    ranks: int = attr(doc="how many ranks there are along it")

    kind = "axis_index"
    differentiable = False
    samples = (sample(axis="data", ranks=1),)
    bads = (bad(match="from 1 to", error=GraphError, axis="a", ranks=0),)

    @classmethod
    def build(cls, axis: Axis) -> Value:
        along = axis_given(axis, "axis_index")
        return cls(along.name, along.ranks).out

    def result_type(self) -> TensorType:
        return TensorType((), i64)

    def reference(self) -> Array:
        at = 0
        if self.ranks > 1:
            place = meeting.here(self.short, self.axis, self.ranks)
            at = place.along(self.axis, self.ranks, self.short)[0]
        return np.asarray(at, np.int64)

    def one(self) -> Value:
        return Constant(np.zeros((), np.int64)).out

    def simulated(self, operands: Sequence[Value], size: int) -> tuple[Value, bool]:
        return Iota((size,), 0, i64).out, True

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        return self.out
