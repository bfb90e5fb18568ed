"""Definitions and uses of the values of a block, read from MLIR once and kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rlx._mlir import ir
from rlx.lowering.region import Look, look

__all__ = ["Dataflow"]


class Dataflow:
    """The ops of a block with at most one result each, and regions that take their places.

    Values are numbered by the op that makes them, and ``makers`` has it. What is known holds until
    ``forget`` says which ops and values have changed.
    """

    def __init__(self, ops: Sequence[ir.Operation]) -> None:
        self.end = len(ops)
        self._at = {v: i for i, o in enumerate(ops) for v in o.results}
        self.makers = {v: o for o in ops for v in o.results}
        self._looks: dict[ir.Value, Look] = {}
        self._readers: dict[ir.Value, list[ir.Operation]] = {}
        self._read_by: dict[ir.Value, list[ir.Value | None]] = {}

    def __contains__(self, v: ir.Value) -> bool:
        return v in self._at

    def at(self, v: ir.Value) -> int:
        """The place of a value; -1 for an argument of the block."""
        return self._at.get(v, -1)

    def of(self, op: ir.Operation) -> int:
        """The place of an op that has a result."""
        return self._at[op.results[0]]

    def look(self, op: ir.Operation) -> Look:
        """What an op that has a result is in a body."""
        v = op.results[0]
        found = self._looks.get(v)
        if found is None:
            found = self._looks[v] = look(op)
        return found

    def operands(self, op: ir.Operation) -> list[ir.Value]:
        """What an op that has a result reads."""
        return self.look(op).operands

    def readers(self, v: ir.Value) -> list[ir.Operation]:
        """The ops that read a value, once for each use."""
        found = self._readers.get(v)
        if found is None:
            found = self._readers[v] = [use.owner.operation for use in v.uses]
        return found

    def read_by(self, v: ir.Value) -> list[ir.Value | None]:
        """``readers``, by their first results; None for one that has none."""
        found = self._read_by.get(v)
        if found is None:
            ops = self.readers(v)
            found = self._read_by[v] = [o.results[0] if len(o.results) else None for o in ops]
        return found

    def put(self, region: ir.Operation, place: int) -> None:
        """Note a region that stands in the place of one of its ops."""
        for v in region.results:
            self._at[v], self.makers[v] = place, region

    def forget(self, ops: Iterable[ir.Operation], values: Iterable[ir.Value]) -> None:
        """Ops read something else from here on, and something else reads the values."""
        for op in ops:
            if len(op.results):
                self._looks.pop(op.results[0], None)
        for v in values:
            self._readers.pop(v, None)
            self._read_by.pop(v, None)
