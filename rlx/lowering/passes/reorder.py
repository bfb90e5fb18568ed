"""reorder: ops that end the life of values come before those that begin new ones.

The order of a graph is that of its outputs. In a training step that is the loss, then one weight's
gradient with all that it needs, then the next: what the gradients of the later layers read would
live until the end. Here an op moves up, to the place where its operands are there, if its result
takes no more memory than what dies with it; an output takes none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from rlx._mlir import ir
from rlx.base.dims import is_known
from rlx.base.guards import at_hand
from rlx.dialects.convert import from_type
from rlx.lowering.compilation import Compilation
from rlx.lowering.functions import functions
from rlx.lowering.pass_base import Pass
from rlx.lowering.region import producer, reads
from rlx.ops.movement.constant import Constant
from rlx.ops.movement.movement import Expand, Reshape, Transpose
from rlx.ops.movement.slicing import Slice

__all__ = ["Reorder"]

VIEWS = {Reshape.name, Transpose.name, Expand.name, Slice.name}


class Reorder(Pass):
    """Move ops up that free memory, so that fewer values live at once."""

    name = "reorder"

    def run(self, module: ir.Module, compilation: Compilation) -> ir.Module:
        if compilation.options.dispatch == "common":
            return module
        for name, f in functions(module).items():
            if name == "prologue":  # its work is planned where main asks for it
                continue
            for block in f.regions[0].blocks:
                moved = _Order(block).apply()
                for _ in range(moved):
                    compilation.hit(self.name, "move up")
        return module


@dataclass(eq=False)
class _Node:
    """An op that is launched: what it reads and makes, views seen through."""

    op: ir.Operation
    at: int
    sources: set[ir.Value]
    made: int = 0
    returned: bool = False
    needs: set[_Node] = field(default_factory=set["_Node"])
    done: bool = False


class _Order:
    def __init__(self, block: ir.Block) -> None:
        *ops, self.end = [view.operation for view in block.operations]
        self.ops = ops
        self.inside = {r for op in ops for r in op.results}
        self.roots: dict[ir.Value, ir.Value | None] = {}
        self.nodes: list[_Node] = []
        self.makers: dict[ir.Value, _Node] = {}
        self.readers: dict[ir.Value, list[_Node]] = {}
        returned = set(self.end.operands)
        for op in ops:
            if op.name in VIEWS:
                self.roots[op.results[0]] = self._root(op.operands[0])
            elif op.name == Constant.name:
                self.roots[op.results[0]] = None
            else:
                self._add(op, returned)
        kept = {self._root(v) for v in returned}
        self.left = {v: len(readers) + (v in kept) for v, readers in self.readers.items()}
        self.sizes = {
            v: 0 if v in returned else _bytes(v) for n in self.nodes for v in n.op.results
        }
        for n in self.nodes:
            n.made = sum(self.sizes[v] for v in n.op.results)

    def _add(self, op: ir.Operation, returned: set[ir.Value]) -> None:
        read = [v for v in reads(op) if v in self.inside or isinstance(v.owner, ir.Block)]
        sources = {root for v in read if (root := self._root(v)) is not None}
        node = _Node(op, len(self.nodes), sources)
        node.returned = any(r in returned for r in op.results)
        node.needs = {self.makers[v] for v in sources if v in self.makers}
        self.nodes.append(node)
        self.makers.update((r, node) for r in op.results)
        for v in sources:
            self.readers.setdefault(v, []).append(node)

    def _root(self, v: ir.Value) -> ir.Value | None:
        """What a view shows; None for a constant."""
        return self.roots.get(v, v)

    def apply(self) -> int:
        """Put the ops into the new order; how many moved up."""
        order: list[_Node] = []
        for node in self.nodes:
            if not node.done:
                self._take(node, order)
        moved = sum(later.at < node.at for node, later in pairwise(order))
        if not moved:
            return 0
        placed: set[ir.Operation] = set()
        for node in order:
            self._place(node.op, placed)
        for op in self.ops:
            self._place(op, placed)
        return moved

    def _take(self, first: _Node, order: list[_Node]) -> None:
        """Take an op, and then those that may follow at once."""
        todo = [first]
        while todo:
            node = min(todo, key=lambda n: n.at)
            todo.remove(node)
            if node.done or (node is not first and not self._frees(node)):
                continue
            node.done = True
            order.append(node)
            next_ones = [r for v in node.op.results for r in self.readers.get(v, ())]
            for v in node.sources:
                self.left[v] -= 1
                next_ones += self.readers[v] if self.left[v] == 1 else ()
            todo += [n for n in dict.fromkeys(next_ones) if not n.done and n not in todo]

    def _frees(self, node: _Node) -> bool:
        """Whether an op can come now and takes no more memory than dies with it."""
        if not all(n.done for n in node.needs):
            return False
        dies = sum(self.sizes.get(v, 0) for v in node.sources if self.left[v] == 1)
        # An output may be wanted in the place of an argument, which others have to read before.
        waits = node.returned and any(
            self.left[v] > 1 and v not in self.sizes and self._alike(v, node) for v in node.sources
        )
        return node.made <= dies and not waits

    def _alike(self, v: ir.Value, node: _Node) -> bool:
        return any(r.type == v.type for r in node.op.results)

    def _place(self, op: ir.Operation, placed: set[ir.Operation]) -> None:
        """Move an op to the end, behind the views and constants that it reads."""
        if op in placed:
            return
        todo = [op]
        while todo:
            last = todo[-1]
            waiting = [
                o
                for v in reads(last)
                if v in self.inside and (o := producer(v)) is not None and o not in placed
            ]
            if waiting:
                todo += waiting
                continue
            todo.pop()
            if last not in placed:
                placed.add(last)
                last.move_before(self.end)


def _bytes(v: ir.Value) -> int:
    """Bytes of a value. Ops in another order compute the same: what is least at the sizes at hand
    is done for all."""
    t = from_type(v.type)
    return at_hand(t.dtype.bytes * t.size) if is_known(t.size) else 0
