"""Moving a value from one state to another on the graph of a rank, and what is said of it."""

from __future__ import annotations

from rlx.base.mesh import Axis
from rlx.distributed.partition.choose import sent
from rlx.distributed.partition.problem import PARTIAL, WHOLE, count
from rlx.distributed.report import Exchange
from rlx.ir.op import Op
from rlx.ir.value import Value
from rlx.ops.collective.all_reduce import AllReduce, ReduceScatter
from rlx.ops.collective.exchange import AllGather, AllToAll, AxisIndex
from rlx.ops.movement.dynamic import DynamicSlice
from rlx.ops.reduction.reduce import as_value
from rlx.types import Dim

__all__ = ["Mover", "State"]

State = tuple[int, ...]
"""The state of a value along every axis of a mesh, in order."""


class Mover:
    """Makes the collectives of a graph of a rank, and keeps what is said of each."""

    def __init__(self) -> None:
        self.made: dict[Op, Exchange] = {}
        self._index: dict[str, Value] = {}
        self._starts: dict[tuple[str, Dim], Value] = {}

    def index(self, axis: Axis) -> Value:
        """The number of this rank along an axis."""
        if axis.name not in self._index:
            self._index[axis.name] = AxisIndex(axis.name, axis.ranks).out
        return self._index[axis.name]

    def start(self, axis: Axis, length: Dim) -> Value:
        """Where the block of this rank begins, of blocks of a length."""
        key = axis.name, length
        if key not in self._starts:
            self._starts[key] = self.index(axis) * as_value(length)
        return self._starts[key]

    def combined(self, v: Value, axis: Axis, how: str, said: Exchange) -> Value:
        """What all ranks have, in one; None of them keeps its own."""
        return self._made(AllReduce(v, axis.name, axis.ranks, how, False), said)

    def moved(self, v: Value, axis: Axis, state: int, to: int, said: Exchange) -> Value:
        """A value in another state along an axis."""
        name, n = axis.name, axis.ranks
        if state == WHOLE and to == PARTIAL:
            return self.index(axis).eq(0).where(v, 0)
        if state == WHOLE:
            return self._own(v, axis, to)
        if state == PARTIAL and to == WHOLE:
            return self._made(AllReduce(v, name, n, "sum", False), said)
        if state == PARTIAL:
            return self._made(ReduceScatter(v, name, n, to), said)
        if to == WHOLE:
            return self._made(AllGather(v, name, n, state), said)
        return self._made(AllToAll(v, name, n, to, state), said)

    def _own(self, v: Value, axis: Axis, dim: int) -> Value:
        """The block of this rank: nothing is exchanged."""
        shape = list(v.shape)
        shape[dim] = shape[dim] // axis.ranks
        starts: list[Value | int] = [0] * v.rank
        starts[dim] = self.start(axis, shape[dim])
        return DynamicSlice.build(v, starts, shape)

    def _made(self, op: Op, said: Exchange) -> Value:
        v = op.operands[0]
        assert v is not None
        whole = count(op.out.type.size if op.short == "all_gather" else v.type.size)
        size = round(sent(op.short, whole * v.dtype.bytes, said.ranks))
        self.made[op] = said._replace(op=op.short, bytes=size, location=op.location)
        return op.out
