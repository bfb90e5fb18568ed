"""Placement of a fusion region: its results for the ops outside, and its position in the block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from rlx._mlir import ir
from rlx.lowering.passes.dataflow import Dataflow

__all__ = ["Extent"]

EARLIER = 32
"""How many ops a region may move up to stand before the readers of its results: what is computed
far too early takes memory for long."""


class Extent:
    """A region to be of ops by their results, of which ``cheap`` ones may be copied into it.

    ``ops`` has them in program order. ``moved`` are the results of the ops that are not copied.
    ``outs`` are the values of the region that something outside it reads, and that of its last op.
    If one is of another type than all others it comes first, as ``mir.fused`` wants it.
    """

    def __init__(
        self,
        made: Mapping[ir.Value, ir.Operation],
        flow: Dataflow,
        cheap: Callable[[ir.Operation], bool],
    ) -> None:
        values = sorted(made, key=flow.at)
        self.ops, self.flow = [made[v] for v in values], flow
        self.inside, self.moved = set(values), set(values)
        for v in reversed(values):
            # What something else reads stays where it is, and needs its operands there.
            if self._is_read(v) and cheap(made[v]):
                self.moved.discard(v)
        found = [v for v in values[:-1] if v in self.moved and self._is_read(v)]
        found += [values[-1]] if values[-1] in self.moved else []
        kinds = Counter([v.type for v in found]) if len(found) > 2 else ()
        self.outs = sorted(found, key=lambda v: kinds[v.type] > 1) if len(kinds) == 2 else found

    def _is_read(self, v: ir.Value) -> bool:
        """Whether an op that is not one of the region's own reads a value."""
        return not self.moved.issuperset(self.flow.read_by(v))

    def seat(self) -> ir.Operation | None:
        """The op in whose place all of the region can stand: behind what it reads, and in front of
        what reads its results. None if there is none, or only one far in front."""
        if len(self.outs) == 1:
            return self.ops[-1]
        flow = self.flow
        read = [flow.at(v) for o in self.ops for v in flow.operands(o) if v not in self.inside]
        first = max([*read, flow.of(self.ops[-1]) - EARLIER])
        end = flow.end
        for v in self.outs:
            for u, made in zip(flow.readers(v), flow.read_by(v), strict=True):
                if made not in self.moved:
                    end = min(end, self._place_of(u))
        seats = (
            o for o in reversed(self.ops) if o.results[0] in self.moved and first < flow.of(o) < end
        )
        return next(seats, None)

    def _place_of(self, op: ir.Operation) -> int:
        """The place of an op, or of the region that it is in; what ends the block has the last."""
        if op.parent is not None and op.parent.name == "mir.fused":
            op = op.parent.operation
        return self.flow.of(op) if len(op.results) else self.flow.end
