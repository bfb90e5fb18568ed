"""Results written over what they replace: carried values of loops, and donated inputs."""

from __future__ import annotations

from collections.abc import Sequence

from rlx._mlir import ir
from rlx.dialects.control import is_barrier
from rlx.lowering.families import select
from rlx.lowering.lowering import Lowering
from rlx.lowering.region import Region, producer, reads
from rlx.lowering.views import View

__all__ = ["Overwrites", "write"]


class Overwrites:
    """Which results of a block's ops may be written over an older value at once."""

    def __init__(self, block: ir.Block, lowering: Lowering) -> None:
        self.lowering = lowering
        self.ops = [item.operation for item in block.operations]
        self.at = {op: n for n, op in enumerate(self.ops)}
        self.readers: dict[ir.Value, list[int]] = {}
        for n, op in enumerate(self.ops):
            for v in dict.fromkeys(reads(op)):
                self.readers.setdefault(v, []).append(n)

    def allowed(self, old: ir.Value, new: ir.Value) -> bool:
        """Whether the op that makes ``new`` may write it over ``old``.

        Nothing reads the old value, or a view of it, behind that op; and the op itself only element
        by element: that is done in place.
        """
        maker = producer(new)
        if maker is None or maker not in self.at or self._is_view(maker):
            return False
        made = self.at[maker]
        todo = [old]
        while todo:
            v = todo.pop()
            for n in self.readers.get(v, ()):
                if n > made or (n == made and (v != old or not self._by_elements(maker, old))):
                    return False
                if self._is_view(self.ops[n]):
                    todo += self.ops[n].results
        return True

    def _is_view(self, op: ir.Operation) -> bool:
        """Whether the results of an op may lie where its operands do."""
        lowering = self.lowering
        return op.name in lowering.view_ops or is_barrier(op, lowering.functions)

    def _by_elements(self, op: ir.Operation, old: ir.Value) -> bool:
        """Whether an op's kernel reads a value element by element, each before it is written."""
        lowering = self.lowering
        if op.name == "func.call" or not lowering.compilation.options.native(op.name):
            return False
        if lowering.target.kernels.frame == "gpu":
            return False  # many devices let no kernel write what it has bound for reading too
        region = lowering.compilation.regions.of(op)
        family = select(region, lowering.target.families)[0]
        if family == "elementwise":
            return True
        return family in ("contraction", "conv") and _in_epilogue(region, old)


def _in_epilogue(region: Region, old: ir.Value) -> bool:
    """Whether only pointwise ops of a region read a value, and none broadcasts it."""
    leaves = {leaf for leaf, v in region.leaves.items() if v == old}
    readers = [n for n in region.nodes if not leaves.isdisjoint(n.present)]
    return all(n.pointwise for n in readers)


def write(values: Sequence[ir.Value], places: Sequence[View], lowering: Lowering) -> None:
    """Copy values to where they are wanted, unless they lie there already.

    A value may lie where another one is wanted: such are set aside before the first is written.
    """
    found = [lowering.view(v) for v in values]
    taken = {id(p.memory) for p in places}
    for i, (view, place) in enumerate(zip(found, places, strict=True)):
        if view != place and id(view.memory) in taken:
            found[i] = lowering.copied(view)
    for view, place in zip(found, places, strict=True):
        if view != place:
            lowering.copy(view, place)
