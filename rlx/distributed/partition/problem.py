"""What is to be decided: for every op and every axis of the mesh, along which factor it is cut.

A spec reaches those dims that factors connect with the dim it cuts. Along an axis, a value is whole
on every rank, cut along a dim, or a part of a sum, which is called its state.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rlx.base.dims import SymDim, is_known
from rlx.base.mesh import Axis, Mesh
from rlx.distributed.spec import P
from rlx.ir.factors import Factor, Factors
from rlx.ir.graph import Graph
from rlx.ir.op import Op
from rlx.ir.value import Value
from rlx.types import Dim

__all__ = [
    "FOLDED", "PARTIAL", "WHOLE", "Label", "Linear", "Node", "Place", "Problem", "count",
    "spec_state",
]  # fmt: skip

WHOLE, PARTIAL, FOLDED = -1, -2, -3
"""States beside the number of a dim: the same on all ranks; a part of a sum; a part of another
reduction, which is combined where it arises."""

TYPICAL = 256
"""What a symbolic size counts as where costs are compared."""


class Linear(NamedTuple):
    """The label of an op that is given parts of sums in the place of some operands."""

    group: tuple[int, ...]


Label = Factor | Linear | None
"""How an op is cut along an axis of the mesh; None where all ranks compute the same."""

Place = tuple[int, int]
"""A dim of a value, which has a number: Values are not compared with each other."""


def rule_of(op: Op) -> Factors:
    """The factors of an op; of one without a rule no dim has any."""
    if hasattr(op, "factors"):
        return op.factors()
    none = [None if v is None else [None] * v.rank for v in op.operands]
    return Factors(op, none, [[None] * v.rank for v in op.results])


class Node:
    """An op with its factors, and its label along each axis that is decided."""

    def __init__(self, op: Op) -> None:
        self.op, self.factors = op, rule_of(op)
        self.labels: dict[str, Label] = {}
        self.multiplies = self.factors.multiplies
        self._needs: dict[Label, tuple[int, ...]] = {}
        self._gives: dict[Label, tuple[int, ...]] = {}

    def needs(self, label: Label) -> tuple[int, ...]:
        """The state that each operand must have."""
        if label not in self._needs:
            self._needs[label] = tuple([self._need(label, i) for i in range(len(self.op.operands))])
        return self._needs[label]

    def _need(self, label: Label, number: int) -> int:
        if label is None:
            return WHOLE
        if isinstance(label, Linear):
            return PARTIAL if number in label.group else WHOLE
        dim = self.factors.dim_of(label, self.factors.operands[number])
        return WHOLE if dim is None else dim

    def gives(self, label: Label) -> tuple[int, ...]:
        """The state that each result has."""
        if label not in self._gives:
            self._gives[label] = tuple([self._give(label, i) for i in range(len(self.op.results))])
        return self._gives[label]

    def _give(self, label: Label, number: int) -> int:
        if label is None:
            return WHOLE
        if isinstance(label, Linear):
            return PARTIAL
        dim = self.factors.dim_of(label, self.factors.results[number])
        if dim is not None:
            return dim
        if label in self.factors.sums:
            return PARTIAL
        return FOLDED if label in self.factors.folds else WHOLE


class Problem:
    """A graph on a mesh, with the specs of some leaves and of the first outputs; others are
    whole."""

    def __init__(
        self,
        graph: Graph,
        mesh: Mesh,
        pinned: Mapping[Value, P],
        out: Sequence[P],
        strict: bool = False,
    ) -> None:
        self.strict = strict
        self.graph, self.mesh, self.pinned, self.named = graph, mesh, dict(pinned), len(out)
        self.out = [*out, *[P()] * (len(graph.outputs) - len(out))]
        self.nodes = [Node(op) for op in graph.nodes()]
        self.node_of = {n.op: n for n in self.nodes}
        self.users: dict[Value, list[tuple[Node, int]]] = defaultdict(list)
        self.asked: dict[Value, list[P]] = defaultdict(list)
        self._parent: dict[Place, Place] = {}
        self._numbers: dict[Value, int] = {}
        self._places: dict[Node, dict[Factor, Place]] = {}
        for v, spec in zip(graph.outputs, self.out, strict=True):
            self.asked[v].append(spec)
        for node in self.nodes:
            for i, v in enumerate(node.op.operands):
                if v is not None:
                    self.users[v].append((node, i))
            self._connect(node)

    def again(self, graph: Graph) -> Problem:
        """The same of another graph of the same leaves and outputs."""
        out = self.out[: self.named]
        return Problem(graph, self.mesh, self.pinned, out, self.strict)

    # -- which dims belong together --------------------------------------------------------

    def _connect(self, node: Node) -> None:
        first: dict[Factor, Place] = {}
        values = zip(
            (*node.op.operands, *node.op.results),
            (*node.factors.operands, *node.factors.results),
            strict=True,
        )
        for v, labels in values:
            for dim, names in enumerate(labels or ()):
                major = node.factors.major(names)
                if v is not None and major is not None:
                    here = self.at(v, dim)
                    self._parent[self.root(here)] = self.root(first.setdefault(major, here))
        self._places[node] = first

    def place(self, node: Node, factor: Factor) -> Place:
        """A dim of which a factor of an op is the major one."""
        return self._places[node][factor]

    def at(self, v: Value, dim: int) -> Place:
        """A dim of a value."""
        return self._numbers.setdefault(v, len(self._numbers)), dim

    def root(self, place: Place) -> Place:
        """What stands for all dims that are connected with one."""
        parent = self._parent
        while (up := parent.get(place, place)) != place:
            parent[place] = parent.get(up, up)
            place = up
        return place

    def seeds(self, axis: str) -> set[Place]:
        """The groups of dims that a spec of the user's cuts along an axis."""
        found: set[Place] = set()
        for v, spec in self.pinned.items():
            found |= {self.root(self.at(v, d)) for d, a in enumerate(spec) if a == axis}
        for v, spec in zip(self.graph.outputs, self.out, strict=True):
            found |= {self.root(self.at(v, d)) for d, a in enumerate(spec) if a == axis}
        return found

    def reached(self, node: Node, seeds: set[Place]) -> list[Factor]:
        """The factors of an op that specs reach, those that it needs whole among them."""
        return [f for f, place in self._places[node].items() if self.root(place) in seeds]

    def candidates(self, node: Node, axis: Axis, seeds: set[Place]) -> list[Label]:
        """The labels that an op may have along an axis, beside those it has along others."""
        taken = {label for a, label in node.labels.items() if a != axis.name}
        factors = [
            f
            for f in self.reached(node, seeds)
            if f in node.factors.free and f not in taken and node.factors.divides(f, axis.ranks)
        ]
        return [None, *factors, *map(Linear, node.op.linear)]

    # -- states ----------------------------------------------------------------------------

    def state(self, v: Value, axis: str) -> int | None:
        """The state that a value has where it is made; None for a leaf that has every state which
        is asked for."""
        if v.op is not None:
            node = self.node_of[v.op]
            found = node.gives(node.labels.get(axis))[v.index]
            return WHOLE if found == FOLDED else found
        if v not in self.pinned:
            return None
        return spec_state(self.pinned[v], axis)

    def states(self, v: Value) -> tuple[int | None, ...]:
        """The same along every axis."""
        return tuple([self.state(v, a.name) for a in self.mesh.axes])

    def elements(self, v: Value, but: str) -> float:
        """The elements of a value on a rank, as if it were whole along the axis ``but``."""
        cut = 1
        for axis in self.mesh.axes:
            state = WHOLE if axis.name == but else self.state(v, axis.name)
            if state is not None and state >= 0:
                cut *= axis.ranks
        return count(v.type.size) / cut


def spec_state(spec: P, axis: str) -> int:
    """The state of a tensor of a spec."""
    return next((d for d, a in enumerate(spec) if a == axis), WHOLE)


def count(size: Dim) -> int:
    """A number of elements, where symbols count as ``TYPICAL``."""
    if not isinstance(size, SymDim):
        return size
    found = size.bind(dict.fromkeys(size.symbols, TYPICAL))
    return found if is_known(found) else TYPICAL
