"""Which labels ops get along an axis: those that need the fewest bytes of collectives.

What a choice costs is known from the ends of every edge, as in a labelling of a graph. The first
labels come from a pass forward, which adds up the least costs of operands, and one back, which
chooses; then labels change one by one, two by two, and by regions, as long as that saves bytes
(iterated conditional modes, Besag, "On the Statistical Analysis of Dirty Pictures", 1986).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from rlx.base.mesh import Axis
from rlx.distributed.partition.problem import (
    FOLDED,
    PARTIAL,
    WHOLE,
    Label,
    Linear,
    Node,
    Place,
    Problem,
    count,
    spec_state,
)
from rlx.ir.value import Value

__all__ = ["choose", "sent"]

ALIKE = -4
"""The state WHOLE, needed by an op that all ranks compute alike."""

START, LATE = 1024.0, 1024.0
"""Bytes that the start of a collective counts as, and an op on parts of sums: sums that are taken
early are more often combined."""
SPARED, ZEROED = 1e-3, 1e-2
"""Bytes that a byte counts as which every rank has where it could be cut, and one of a value that
becomes zeros on all ranks but the first, to be a part of a sum."""
SWEEPS, REGION = 12, 64
"""How often labels are gone through at most, and how many are changed together."""
ALONE = 1e9
"""Bytes that a product counts as which all ranks compute, and could share."""
REFUSED = 1e15
"""Bytes that a gather counts as which ``strict`` refuses: it is put in where nothing else does."""

SHARES = {"all_reduce": 2.0, "reduce_scatter": 1.0, "all_gather": 1.0, "all_to_all": 1.0}
"""What each rank sends in a ring, of the bytes of the tensor that is whole along the axis, but for
the share of one rank."""


def sent(kind: str, whole: float, ranks: int) -> float:
    """The bytes that a rank sends in a collective by a ring. ``whole`` are those of the tensor that
    is reduced, gathered, scattered, or of what a rank exchanges."""
    return SHARES[kind] * whole * (ranks - 1) / ranks


def choose(problem: Problem) -> None:
    """Label every op along every axis. Two rounds: the first axes know what the last are."""
    for _ in range(1 if len(problem.mesh.axes) == 1 else 2):
        for axis in problem.mesh.axes:
            _Along(problem, axis).run()


Kind = str | Place


class _Along:
    """The labels along one axis."""

    def __init__(self, problem: Problem, axis: Axis) -> None:
        self.problem, self.axis, self.n = problem, axis, axis.ranks
        self.labels: dict[Node, list[Label]] = {}
        self.kinds: dict[Node, dict[Kind, Label]] = {}
        self._candidates()
        self.of: dict[Node, Label] = {}
        self._local: dict[tuple[Node, Label], float] = {}
        self.bytes: dict[Value, float] = {}
        values = {v for n in problem.nodes for v in (*n.op.present, *n.op.results)}
        for v in values:
            self.bytes[v] = problem.elements(v, axis.name) * v.dtype.bytes

    def run(self) -> None:
        self._first()
        for _ in range(SWEEPS):
            if not self._improve() and not self._pairs() and not self._regions():
                break
        for node, label in self.of.items():
            node.labels[self.axis.name] = label

    def _candidates(self) -> None:
        """The labels that are tried: parts of sums only where one can come in."""
        seeds = self.problem.seeds(self.axis.name)
        partial: set[Value] = set()
        for node in self.problem.nodes:
            found = [
                label
                for label in self.problem.candidates(node, self.axis, seeds)
                if not isinstance(label, Linear)
                or any(node.op.operands[i] in partial for i in label.group)
            ]
            self.labels[node] = found
            gives = zip(*map(node.gives, found), strict=True)
            pairs = zip(node.op.results, gives, strict=True)
            partial |= {r for r, states in pairs if PARTIAL in states}
            self.kinds[node] = {self._kind_of(node, label): label for label in reversed(found)}

    # -- costs -----------------------------------------------------------------------------

    def moved(self, v: Value, state: int | None, to: int) -> float:
        """The bytes that take a value from one state to another."""
        if to == PARTIAL and state is not None and state >= 0:
            return inf
        if to == PARTIAL and state != PARTIAL:
            return ZEROED * self.bytes[v] + 1.0
        if state in (None, WHOLE, to):
            return 0.0
        whole = self.bytes[v]
        if state == PARTIAL:
            return sent("all_reduce" if to == WHOLE else "reduce_scatter", whole, self.n) + START
        if to == WHOLE:
            return sent("all_gather", whole, self.n) + START
        return sent("all_to_all", whole / self.n, self.n) + START

    def value(self, v: Value, state: int | None, wanted: Iterable[int]) -> float:
        """The bytes that give all users of a value what they need: once for each state, and from
        the whole of it nothing more."""
        wanted = list(wanted)
        alike = ALIKE in wanted and state is not None and state >= 0
        alike = self.refused(self.moved(v, state, WHOLE)) if alike else 0.0
        states = {WHOLE if s == ALIKE else s for s in wanted} - {state}
        gather = self.moved(v, state, WHOLE) if states else 0.0
        parts = self.moved(v, state, PARTIAL) if PARTIAL in states else 0.0
        if WHOLE in states:
            return gather + alike + parts
        return min(gather + parts, sum(self.moved(v, state, s) for s in states))

    def need(self, node: Node, label: Label) -> tuple[int, ...]:
        """The state that each operand must have, where it matters if all ranks compute alike."""
        needs = node.needs(label)
        return (ALIKE,) * len(needs) if label is None else needs

    def refused(self, gather: float) -> float:
        """What a gather counts as beside its bytes where all ranks compute alike after it."""
        return REFUSED if self.problem.strict else gather

    def local(self, node: Node, label: Label) -> float:
        """What a label costs by itself: a product that all ranks compute alike counts as its
        operations, a fold as its collective."""
        if (node, label) not in self._local:
            self._local[node, label] = self._by_itself(node, label)
        return self._local[node, label]

    def _by_itself(self, node: Node, label: Label) -> float:
        cost = 0.0
        gives = node.gives(label)
        cut = _cuts(label)
        for r, state in zip(node.op.results, gives, strict=True):
            cost += LATE * isinstance(label, Linear)
            if state == FOLDED:
                cost += sent("all_reduce", self.bytes[r], self.n) + START
        if cut or not any(map(_cuts, self.labels[node])):
            return cost
        if node.multiplies:
            cost += ALONE + _operations(node)
        cost += SPARED * sum(self.bytes[r] for r in node.op.results)
        return cost

    def state(self, v: Value) -> int | None:
        """The state of a value where it is made, by the labels so far."""
        if v.op is None:
            spec = self.problem.pinned.get(v)
            return None if spec is None else spec_state(spec, self.axis.name)
        node = self.problem.node_of[v.op]
        found = node.gives(self.of[node])[v.index]
        return WHOLE if found == FOLDED else found

    def wanted(self, v: Value) -> list[int]:
        """The states that the users of a value need, by the labels so far."""
        found = [self.need(n, self.of[n])[i] for n, i in self.problem.users[v] if n in self.of]
        return found + [spec_state(p, self.axis.name) for p in self.problem.asked.get(v, ())]

    def around(self, nodes: Iterable[Node]) -> float:
        """All that the labels of some nodes decide."""
        many = list(nodes)
        values = {v for n in many for v in (*n.op.present, *n.op.results)}
        total = sum(self.local(n, self.of[n]) for n in many)
        return total + sum(self.value(v, self.state(v), self.wanted(v)) for v in values)

    # -- the first labels ------------------------------------------------------------------

    def _first(self) -> None:
        best: dict[Node, dict[Label, float]] = {}
        for node in self.problem.nodes:
            best[node] = {label: self._upto(node, label, best) for label in self.labels[node]}
        for node in reversed(self.problem.nodes):

            def cost(label: Label, node: Node = node) -> float:
                total = best[node][label]
                for r, state in zip(node.op.results, node.gives(label), strict=True):
                    total += self.value(r, WHOLE if state == FOLDED else state, self.wanted(r))
                return total

            self.of[node] = min(self.labels[node], key=cost)

    def _upto(self, node: Node, label: Label, best: dict[Node, dict[Label, float]]) -> float:
        """The least cost of an op with a label, with its share of what it is computed from."""
        total = self.local(node, label)
        for v, need in zip(node.op.operands, self.need(node, label), strict=True):
            if v is None:
                continue
            if v.op is None:
                total += self.value(v, self.state(v), [need])
                continue
            made, uses = self.problem.node_of[v.op], len(self.problem.users[v])
            total += min(
                cost / uses + self.value(v, WHOLE if s == FOLDED else s, [need])
                for before, cost in best[made].items()
                for s in [made.gives(before)[v.index]]
            )
        return total

    # -- better ones -----------------------------------------------------------------------

    def _improve(self) -> bool:
        """Change labels one by one; whether any changed."""
        changed = False
        nodes = [n for n in self.problem.nodes if len(self.labels[n]) > 1]
        for node in (*nodes, *reversed(nodes)):
            changed |= self._best([node], [(label,) for label in self.labels[node]])
        return changed

    def _pairs(self) -> bool:
        """Change the labels of two neighbours between which something is moved."""
        changed = False
        for node in self.problem.nodes:
            for v in node.op.present:
                made = None if v.op is None else self.problem.node_of[v.op]
                if made is None or not self.value(v, self.state(v), self.wanted(v)):
                    continue
                both = [(a, b) for a in self.labels[made] for b in self.labels[node]]
                changed |= self._best([made, node], both)
        return changed

    def _regions(self) -> bool:
        """Change the labels of neighbours that are cut alike, from both ends of what is moved."""
        changed = False
        for v in self.bytes:
            if not self.value(v, self.state(v), self.wanted(v)):
                continue
            ends = {n for n, _ in self.problem.users[v]}
            ends |= set() if v.op is None else {self.problem.node_of[v.op]}
            for node in sorted(ends, key=lambda n: n.op.serial):
                kinds = [k for k in self.kinds[node] if k != self._kind(node)]
                changed |= any(self._grow(node, kind) for kind in kinds)
        return changed

    def _grow(self, node: Node, kind: Kind) -> bool:
        """Cut a node in another way, then its neighbours that are cut as it was, and so on, until
        that saves bytes."""
        before = self._kind(node)
        region, edge = {node: None}, [node]
        while edge and len(region) <= REGION:
            nodes = list(region)
            if self._best(nodes, [tuple([self.kinds[n][kind] for n in nodes])]):
                return True
            edge = [
                n
                for last in edge
                for n in self._neighbours(last)
                if n not in region and self._kind(n) == before and kind in self.kinds[n]
            ]
            region.update(dict.fromkeys(edge))
        return False

    def _neighbours(self, node: Node) -> Iterable[Node]:
        made = [self.problem.node_of[v.op] for v in node.op.present if v.op is not None]
        values = (*node.op.results, *node.op.present)
        return made + [n for v in values for n, _ in self.problem.users[v]]

    def _kind(self, node: Node) -> Kind:
        return self._kind_of(node, self.of[node])

    def _kind_of(self, node: Node, label: Label) -> Kind:
        """What labels of neighbours have in common: a group of dims, parts of sums, or nothing."""
        if label is None:
            return "whole"
        if isinstance(label, Linear):
            return "parts"
        return self.problem.root(self.problem.place(node, label))

    def _best(self, nodes: list[Node], choices: list[tuple[Label, ...]]) -> bool:
        before = tuple([self.of[n] for n in nodes])
        least, found = self.around(nodes), before
        for choice in choices:
            self.of.update(zip(nodes, choice, strict=True))
            cost = self.around(nodes)
            if cost < least - 1e-6:
                least, found = cost, choice
        self.of.update(zip(nodes, found, strict=True))
        return found != before


def _cuts(label: Label) -> bool:
    return label is not None and not isinstance(label, Linear)


def _operations(node: Node) -> float:
    """The operations of a product, of which its class may not know those of symbolic sizes."""
    flops = node.op.cost().flops
    return flops or max(count(v.type.size) for v in node.op.results)
