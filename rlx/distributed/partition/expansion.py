"""Composites are taken apart where a spec reaches a dim that they need whole.

Attention over a sequence that is cut is one of products, sums and exponentials. What turns out to
be whole there after all stays one op, which a kernel runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx.base.mesh import Mesh
from rlx.distributed.partition.choose import choose
from rlx.distributed.partition.problem import Linear, Node, Place, Problem
from rlx.distributed.spec import P
from rlx.ir.graph import Graph, topological
from rlx.ir.op import Op
from rlx.ir.replay import cloned
from rlx.ir.value import Value

__all__ = ["decided"]

Key = tuple[int, ...]
"""An op: its number in the graph, then in the expansions that it is of."""


def decided(
    graph: Graph, mesh: Mesh, pinned: dict[Value, P], out: Sequence[P], strict: bool
) -> Problem:
    """The problem of a graph of which every op is labelled."""
    kept: set[Key] = set()
    first = _Expanding(Problem(graph, mesh, pinned, out, strict), kept)
    choose(first.problem)
    kept = {key for key, op in first.opened.items() if first.needless(key, op)}
    if not kept:
        return first.problem
    second = _Expanding(Problem(graph, mesh, pinned, out, strict), kept)
    choose(second.problem)
    return second.problem


class _Expanding:
    """A graph that is expanded as far as specs ask for it, but for what is ``kept``."""

    def __init__(self, given: Problem, kept: set[Key]) -> None:
        self.problem, self.kept = given, kept
        self.graph = graph = given.graph.snapshot()
        self.keys: dict[Op, Key] = {op: (i,) for i, op in enumerate(graph.nodes())}
        self.opened: dict[Key, Op] = {}
        self.now: dict[Value, Value] = {}
        """What stands for the values of graphs before."""
        while self._replace(lambda op: not _is_kernel(op)):
            pass
        self.problem = given.again(self.graph)
        while self._replace(self._asked()):
            self.problem = given.again(self.graph)

    def _asked(self) -> Callable[[Op], bool]:
        seeds = [self.problem.seeds(a.name) for a in self.problem.mesh.axes]
        every = set().union(*seeds)

        def asked(op: Op) -> bool:
            if not op.composite() or self.keys[op] in self.kept:
                return False
            if not hasattr(op, "factors"):
                places = [self.problem.at(v, d) for v in op.present for d in range(v.rank)]
                return any(self.problem.root(p) in every for p in places)
            node = self.problem.node_of[op]
            return any(f in node.factors.whole for f in self.problem.reached(node, every))

        return asked

    def _replace(self, wanted: Callable[[Op], bool]) -> bool:
        """Expand what is wanted, and whether there was any."""
        env: dict[Value, Value] = {}
        keys: dict[Op, Key] = {}
        found = False

        def place(op: Op) -> None:
            nonlocal found
            operands = [None if v is None else env.get(v, v) for v in op.operands]
            same = all(a is b for a, b in zip(operands, op.operands, strict=True))
            here = op if same else _like(op, operands)
            if not wanted(op):
                keys[here] = self.keys[op]
                env.update(zip(op.results, here.results, strict=True))
                return
            found = True
            key = self.keys[op]
            if _is_kernel(op):
                self.opened[key] = op
            results = here.expansion()
            stop = {*here.present}
            for i, inner in enumerate(topological(results, stop)):
                keys.setdefault(inner, (*key, i))
            env.update(zip(op.results, results, strict=True))

        for op in topological(self.graph.outputs):
            place(op)
        if not found:
            return False
        self.graph.outputs = [env.get(v, v) for v in self.graph.outputs]
        self.keys = keys
        self.now = {v: env.get(w, w) for v, w in self.now.items()} | env
        return True

    # -- what stays one op -----------------------------------------------------------------

    def needless(self, key: Key, op: Op) -> bool:
        """Whether the inside of a composite is cut only as it can be as one op."""
        whole = _like(op, [None if v is None else self.now.get(v, v) for v in op.operands])
        node = Node(whole)
        values = [*whole.operands, *[self.now.get(r, r) for r in op.results]]
        labels = (*node.factors.operands, *node.factors.results)
        free: set[Place] = set()
        for v, dims in zip(values, labels, strict=True):
            for dim, names in enumerate(dims or ()):
                if v is not None and node.factors.major(names) in node.factors.free:
                    free.add(self.problem.at(v, dim))
        roots, taken = {self.problem.root(p) for p in free}, {*whole.present}
        inside = [n for n in self.problem.nodes if self.keys[n.op][: len(key)] == key]
        return all(self._expressible(n, taken, free, roots) for n in inside)

    def _expressible(
        self, node: Node, taken: set[Value], free: set[Place], roots: set[Place]
    ) -> bool:
        """Whether a node of a composite is cut along what the composite can be cut along."""
        for label in node.labels.values():
            if label is None or isinstance(label, Linear):
                continue
            if self.problem.root(self.problem.place(node, label)) not in roots:
                return False
            for v, dim in zip(node.op.operands, node.needs(label), strict=True):
                if (
                    v is not None
                    and v in taken
                    and dim >= 0
                    and self.problem.at(v, dim) not in free
                ):
                    return False
        return True


def _is_kernel(op: Op) -> bool:
    """Whether an op is no block or function of a user's, which is always its body."""
    return op.dialect == "mir" or not op.composite()


def _like(op: Op, operands: Sequence[Value | None]) -> Op:
    made = cloned(op, operands)[0].op
    assert made is not None
    return made
