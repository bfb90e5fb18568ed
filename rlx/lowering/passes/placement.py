"""What a region to be gives to the ops outside, and where in its block it can stand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rlx._mlir import ir
from rlx.lowering.passes.patterns import Pattern
from rlx.lowering.region import iter_users

__all__ = ["Places", "results_of", "shared_values"]

EARLIER = 32
"""Ops in front of which a region may be moved so that the readers of its results stand behind it:
what is computed far too early is held for long."""


def results_of(pattern: Pattern, ops: Sequence[ir.Operation]) -> list[ir.Value]:
    """The values of a region that something outside it reads, and that of its last op. If one is of
    another type than all others it comes first, as ``mir.fused`` wants it."""
    moved = _moved(pattern, ops)
    last = ops[-1].results[0]
    found = [
        v for v in (o.results[0] for o in ops) if v in moved and (v == last or _read(v, moved))
    ]
    kinds = Counter(v.type for v in found)
    return sorted(found, key=lambda v: kinds[v.type] > 1) if len(kinds) == 2 else found


def shared_values(pattern: Pattern, ops: Sequence[ir.Operation]) -> set[ir.Value]:
    """The results of cheap ops that something outside ``ops`` reads, or that one of these reads:
    what stays where it is needs its operands there."""
    moved = {o.results[0] for o in ops}
    for op in reversed(ops):
        if pattern.cheap(op) and _read(op.results[0], moved):
            moved.discard(op.results[0])
    return {o.results[0] for o in ops} - moved


class Places:
    """The values of a block by the number of the op that makes them; regions take their places."""

    def __init__(self, ops: Sequence[ir.Operation]) -> None:
        self._at = {v: i for i, o in enumerate(ops) for v in o.results}
        self._end = len(ops)

    def __contains__(self, v: ir.Value) -> bool:
        return v in self._at

    def at(self, v: ir.Value) -> int:
        """The place of a value; -1 for an argument of the block."""
        return self._at.get(v, -1)

    def of(self, op: ir.Operation) -> int:
        """The place of an op that has a result."""
        return self._at[op.results[0]]

    def put(self, region: ir.Operation, place: int) -> None:
        """Note a region that stands in the place of one of its ops."""
        self._at.update((v, place) for v in region.results)

    def seat(
        self, pattern: Pattern, ops: Sequence[ir.Operation], outs: Sequence[ir.Value]
    ) -> ir.Operation | None:
        """The op of a region in whose place all of it can stand: behind what the region reads, and
        in front of what reads its results. None if there is none, or only one far in front."""
        moved, inside = _moved(pattern, ops), {o.results[0] for o in ops}
        read = [self.at(v) for o in ops for v in o.operands if v not in inside]
        first = max([*read, self.of(ops[-1]) - EARLIER])
        readers = (u for v in outs for u in iter_users(v) if not _within(u, moved))
        end = min(map(self._of_reader, readers), default=self._end)
        seats = (o for o in reversed(ops) if o.results[0] in moved and first < self.of(o) < end)
        return next(seats, None)

    def _of_reader(self, op: ir.Operation) -> int:
        """The place of an op, or of the region that it is in; what ends the block has the last."""
        if op.parent is not None and op.parent.name == "mir.fused":
            op = op.parent.operation
        return self.of(op) if len(op.results) else self._end


def _moved(pattern: Pattern, ops: Sequence[ir.Operation]) -> set[ir.Value]:
    """What the ops of a region make that are not copied into it."""
    return {o.results[0] for o in ops} - shared_values(pattern, ops)


def _read(v: ir.Value, moved: set[ir.Value]) -> bool:
    """Whether an op that is not one of a region's own reads a value."""
    return any(not _within(u, moved) for u in iter_users(v))


def _within(op: ir.Operation, values: set[ir.Value]) -> bool:
    return len(op.results) > 0 and op.results[0] in values
