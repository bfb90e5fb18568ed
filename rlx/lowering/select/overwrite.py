"""Results written over what they replace: carried values of loops, donated inputs, and large values
that the kernel of the result reads as the last."""

from __future__ import annotations

from collections.abc import Sequence

from rlx._mlir import ir
from rlx.base.guards import prefers
from rlx.dialects.bridge import is_mir
from rlx.dialects.control import is_barrier
from rlx.ir.op import op_class
from rlx.kernels.registry import FAMILIES
from rlx.lowering.region import Region, producer, reads
from rlx.lowering.select.builder import Lowering
from rlx.lowering.select.table import select
from rlx.lowering.select.views import View
from rlx.ops.indexing.gather import Gather
from rlx.ops.indexing.scatter import Scatter
from rlx.ops.movement.dynamic import DynamicUpdateSlice
from rlx.ops.nn.state_rows import StateRows

__all__ = ["Lives", "Overwrites", "write"]

LARGE = 1 << 18
"""Bytes from which a value is worth writing over: a kernel in place does its last elements one by
one."""


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
        by element, or not at all because it writes a part of it: that is done in place.
        """
        maker = producer(new)
        if maker is None or maker not in self.at or self._is_view(maker):
            return False
        read = old in reads(maker)
        if read and not self._replaces(new, maker):
            return False
        return self._read_last(old, maker) and (not read or self._by_elements(maker, old))

    def over(self, old: ir.Value, new: ir.Value) -> list[ir.Value]:
        """The values that may be written over ``old``, ``new`` first: behind it what it is but for
        the elements that its op writes, so that of many updates in a row none copies the rest."""
        found: list[ir.Value] = []
        while self.allowed(old, new):
            found.append(new)
            maker = producer(new)
            assert maker is not None
            before = [v for v in self._updated_by(maker) if self._read_last(v, maker)]
            if not before:
                break
            new = before[0]
        return found

    def _replaces(self, new: ir.Value, maker: ir.Operation) -> bool:
        """Whether a result may be what its op changes a part of: of several the last one is."""
        return not _has_states(maker) or new == maker.results[len(maker.results) - 1]

    def _updated_by(self, op: ir.Operation) -> list[ir.Value]:
        """The value that the result of an op is but for what its kernel writes, if there is one."""
        lowering = self.lowering
        if op.name == "func.call" or not lowering.compilation.options.native(op.name):
            return []
        region = lowering.compilation.regions.of(op)
        return _updated(region) if _overwrites(region, lowering) == "parts" else []

    def _read_last(self, v: ir.Value, by: ir.Operation) -> bool:
        """Whether nothing reads a value, or a view of it, behind an op, nor the op a view."""
        made, todo = self.at[by], [v]
        while todo:
            u = todo.pop()
            for n in self.readers.get(u, ()):
                if n > made or (n == made and u != v):
                    return False
                if self._is_view(self.ops[n]):
                    todo += self.ops[n].results
        return True

    def _is_view(self, op: ir.Operation) -> bool:
        return _is_view(op, self.lowering)

    def _by_elements(self, op: ir.Operation, old: ir.Value) -> bool:
        """Whether an op's kernel reads a value element by element, each before it is written."""
        lowering = self.lowering
        if op.name == "func.call" or not lowering.compilation.options.native(op.name):
            return False
        region = lowering.compilation.regions.of(op)
        way = _overwrites(region, lowering)
        if way == "parts":
            return old in _updated(region)
        if not lowering.target.kernels.rebinds:
            return False
        if way == "elements":
            return not _by_index(region, old)
        return way == "epilogue" and _in_epilogue(region, old)


class Lives:
    """Which op of a block reads what a value shows last: the value, or another view of it."""

    def __init__(self, block: ir.Block, lowering: Lowering) -> None:
        self.at: dict[ir.Operation, int] = {}
        self.roots: dict[ir.Value, ir.Value] = {}
        self.last: dict[ir.Value, int] = {}
        for n, item in enumerate(block.operations):
            op = item.operation
            self.at[op] = n
            for v in reads(op):
                self.last[self._root(v)] = n
            if _is_view(op, lowering):
                # A barrier has a result for every operand, and a view has one.
                for result, v in zip(op.results, op.operands, strict=False):
                    self.roots[result] = self._root(v)

    def _root(self, v: ir.Value) -> ir.Value:
        return self.roots.get(v, v)

    def over(self, op: ir.Operation, v: ir.Value, view: View) -> bool:
        """Whether the result of ``op`` may lie in the memory of ``v``, all of which ``view`` shows:
        ``op`` is the last that reads it, and a kernel of the block has made it."""
        root = self._root(v)
        maker, size = producer(root), view.memory.size
        return (
            maker is not None
            and maker in self.at
            and maker.name != "func.call"
            and self.last[root] == self.at[op]
            and view.memory.role == "arena"
            and view.is_dense
            and prefers(lambda: size >= LARGE and view.bytes == size, otherwise=False)
        )


def _is_view(op: ir.Operation, lowering: Lowering) -> bool:
    """Whether the results of an op may lie where its operands do."""
    return op.name in lowering.view_ops or is_barrier(op, lowering.functions)


def _overwrites(region: Region, lowering: Lowering) -> str:
    """Which operand the family of a region may write over (``FamilyRow.overwrites``)."""
    family = select(region, lowering.target.families)[0]
    if isinstance(region.nodes[0], StateRows):
        # The kernel is bound to the state twice.
        return "parts" if lowering.target.kernels.rebinds else ""
    return "" if family is None else FAMILIES[family].overwrites


def _updated(region: Region) -> list[ir.Value]:
    """The value that the result is but for a part that the kernel writes, unless it is read in
    another way too."""
    node = region.nodes[0]
    if not isinstance(node, DynamicUpdateSlice | Scatter | StateRows):
        return []
    old = region.leaves[node.state_operand if isinstance(node, StateRows) else node.x]
    return [old] if list(region.op.operands).count(old) == 1 else []


def _has_states(op: ir.Operation) -> bool:
    """Whether an op changes slots of a memory of states."""
    if not is_mir(op) or op.name == "mir.fused":  # which has several results too, and no states
        return False
    return issubclass(op_class(op.name), StateRows)


def _by_index(region: Region, old: ir.Value) -> bool:
    """Whether a gather of a region reads a value, in whatever order."""
    read = [region.leaves.get(v) for n in region.nodes if isinstance(n, Gather) for v in n.present]
    return any(v == old for v in read if v is not None)


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
