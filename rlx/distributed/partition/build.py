"""The graph of a rank: every op on the parts that its labels say, and what moves values between
their states."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rlx.base.mesh import Axis
from rlx.distributed.partition.moves import Mover, State
from rlx.distributed.partition.problem import (
    FOLDED,
    PARTIAL,
    WHOLE,
    Linear,
    Node,
    Problem,
    spec_state,
)
from rlx.distributed.report import Exchange, Placed
from rlx.distributed.spec import P
from rlx.ir.factors import Factor, Factors, Parts
from rlx.ir.location import Location
from rlx.ir.op import Op, located
from rlx.ir.value import Value

__all__ = ["Builder"]


class Reason(NamedTuple):
    """Why a value is moved; whether that was asked for, and makes a result whole for the caller."""

    text: str
    asked: bool = True
    joins: bool = False


Why = Callable[[Axis], Reason]
"""Why a value is moved along an axis."""


class Builder:
    """Builds the values of a rank from those of a labelled problem. ``states`` are those in which
    values are made, and ``have`` what a rank has of each, by state."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.axes = problem, problem.mesh.axes
        self.mover = Mover()
        self.states: dict[Value, State] = {}
        self.have: dict[Value, dict[State, Value]] = defaultdict(dict)
        self.wanted: dict[Value, set[State]] = defaultdict(set)
        outputs = [problem.states(v) for v in problem.graph.outputs]
        # Sums over several axes end with that of most outputs, with which they are combined.
        self._sums = [sum(s[i] == PARTIAL for s in outputs) for i in range(len(self.axes))]
        for node in self.problem.nodes:
            for v, state in zip(node.op.operands, self._needs(node), strict=True):
                if v is not None:
                    self.wanted[v].add(state)
        for v, specs in self.problem.asked.items():
            self.wanted[v].update(self.spec_states(p) for p in specs)

    def _needs(self, node: Node) -> list[State]:
        each = [node.needs(node.labels[a.name]) for a in self.axes]
        return list(zip(*each, strict=True))

    def spec_states(self, spec: P) -> State:
        """The states of a tensor of a spec."""
        return tuple([spec_state(spec, a.name) for a in self.axes])

    def leaf_state(self, v: Value) -> State:
        """The state of a leaf: of one without a spec what all its users need, where they agree,
        else whole."""
        if v in self.problem.pinned:
            return self.spec_states(self.problem.pinned[v])
        state: list[int] = []
        for i in range(len(self.axes)):
            found = {s[i] for s in self.wanted[v]}
            state.append(found.pop() if len(found) == 1 else WHOLE)
        cut = [s for s in state if s >= 0]
        return tuple(state) if len(set(cut)) == len(cut) else (WHOLE,) * len(state)

    # -- ops -------------------------------------------------------------------------------

    def run(self, env: Mapping[Value, Value]) -> list[Value]:
        """The outputs of a rank, each in the state that its spec says. ``env`` has for each leaf
        that of a rank."""
        for v, local in env.items():
            self.states[v] = self.leaf_state(v)
            self.have[v][self.states[v]] = local
        for node in self.problem.nodes:
            with located(node.op.location):
                self._place(node)
        outputs = zip(self.problem.graph.outputs, self.problem.out, strict=True)
        return [self._output(i, v, spec) for i, (v, spec) in enumerate(outputs)]

    def _place(self, node: Node) -> None:
        op = node.op
        operands = [
            None if v is None else self.given(v, state, node, i)
            for i, (v, state) in enumerate(zip(op.operands, self._needs(node), strict=True))
        ]
        along: dict[Factor, Axis] = {}
        for axis in self.axes:
            label = node.labels[axis.name]
            if label is not None and not isinstance(label, Linear):
                along[label] = axis
        parts = _Placed(op, node.factors, along, self.mover)
        results = op.on_parts(operands, parts) if along else op.with_operands(operands).results
        gives = zip(*[node.gives(node.labels[a.name]) for a in self.axes], strict=True)
        for r, local, states in zip(op.results, results, gives, strict=True):
            state = tuple([WHOLE if s == FOLDED else s for s in states])
            self.states[r] = state
            self.have[r][state] = self._folded(node, local, states)

    def _folded(self, node: Node, local: Value, states: Sequence[int]) -> Value:
        """A result once the ranks have combined what each of them folded."""
        for axis, state in zip(self.axes, states, strict=True):
            label = node.labels[axis.name]
            if state == FOLDED and label is not None and not isinstance(label, Linear):
                said = self._said(node.op.out, axis, f"{node.op.short} over a dim that is cut")
                local = self.mover.combined(local, axis, node.factors.folds[label], said)
        return local

    # -- moving ----------------------------------------------------------------------------

    def given(self, v: Value, state: State, node: Node, number: int) -> Value:
        """A value in the state that an op needs."""

        def why(axis: Axis) -> Reason:
            label = node.labels[axis.name]
            name = _operand_name(node.op, number)
            if label is not None:
                return Reason(f"{node.op.short} is cut along another dim than its {name}")
            if not hasattr(node.op, "factors"):
                return Reason(f"{node.op.short} has no rule: it takes its {name} whole", False)
            return Reason(f"{node.op.short} takes its {name} whole", False)

        return self._moved(v, state, why)

    def _output(self, number: int, v: Value, spec: P) -> Value:
        name, named = self._output_name(number), number < self.problem.named

        def why(axis: Axis) -> Reason:
            return Reason(
                f"{name} is {spec!r}" if named else f"{name} is given whole", True, not named
            )

        with located(self._place_of(v)):
            return self._moved(v, self.spec_states(spec), why)

    def joined(self, number: int, local: Value) -> Value:
        """The whole of an output from what a rank has of it."""
        v, spec = self.problem.graph.outputs[number], self.problem.out[number]
        reason = f"{self._output_name(number)} is given whole"
        with located(self._place_of(v)):
            for dim, name, _ in spec.cuts(self.problem.mesh, v.rank, "an output"):
                axis = self.problem.mesh[name]
                said = self._said(v, axis, reason)._replace(joins=True)
                local = self.mover.moved(local, axis, dim, WHOLE, said)
        return local

    def _output_name(self, number: int) -> str:
        names = self.problem.graph.output_names
        return f"output {names[number]!r}" if names else f"output {number}"

    def _place_of(self, v: Value) -> Location:
        return self.problem.graph.leaf_location(str(v.name)) if v.op is None else v.op.location

    # -- what is said ----------------------------------------------------------------------

    def spec(self, state: State) -> P:
        """The spec of a tensor that is cut as a state says."""
        dims: list[str | None] = [None] * (max(state, default=-1) + 1)
        for axis, at in zip(self.axes, state, strict=True):
            if at >= 0:
                dims[at] = axis.name
        return P(*dims)

    def placed(self) -> list[Placed]:
        """How every value lies where it is made."""
        found: list[Placed] = []
        for v, state in self.states.items():
            over = tuple([a.name for a, s in zip(self.axes, state, strict=True) if s == PARTIAL])
            found.append(Placed(_name(v), str(v.type), self.spec(state), over, self._place_of(v)))
        return found

    def _moved(self, v: Value, to: State, why: Why) -> Value:
        have = self.have[v]
        at = self.states[v]
        while at != to:
            i = self._next(at, to)
            step = to[i]
            taken = step >= 0 and step in (*at[:i], *at[i + 1 :])
            through = at[i] == PARTIAL if step >= 0 else step == PARTIAL and at[i] != WHOLE
            if taken or (through and (step == PARTIAL or self._whole_too(v, i))):
                step = WHOLE
            after = (*at[:i], step, *at[i + 1 :])
            if after not in have:
                have[after] = self._step(v, at, after, i, why)
            at = after
        return have[to]

    def _whole_too(self, v: Value, i: int) -> bool:
        """Whether some user of a value needs it whole along an axis."""
        return any(s[i] == WHOLE for s in self.wanted[v])

    def _next(self, at: State, to: State) -> int:
        """The axis along which a value is moved next: what makes it smaller first."""

        def order(i: int) -> tuple[bool, int, int]:
            busy = to[i] >= 0 and to[i] in (*at[:i], *at[i + 1 :])
            if at[i] == WHOLE:
                return busy, 0, 0
            if at[i] == PARTIAL:
                return busy, 1 if to[i] >= 0 else 2, self._sums[i]
            return busy, 3 if to[i] >= 0 else 4, 0

        return min([i for i in range(len(at)) if at[i] != to[i]], key=order)

    def _step(self, v: Value, at: State, after: State, i: int, why: Why) -> Value:
        axis = self.axes[i]
        if at[i] == PARTIAL and v.op is not None:
            node = self.problem.node_of[v.op]
            said = self._said(v, axis, _sum_reason(node, axis))
            with located(v.op.location):
                return self.mover.moved(self.have[v][at], axis, at[i], after[i], said)
        reason = why(axis)
        said = self._said(v, axis, reason.text, reason.asked or after[i] != WHOLE)
        said = said._replace(joins=reason.joins)
        return self.mover.moved(self.have[v][at], axis, at[i], after[i], said)

    def _said(self, v: Value, axis: Axis, reason: str, asked: bool = True) -> Exchange:
        return Exchange("", axis.name, axis.ranks, (_name(v),), 0, reason, ("", 0), asked)


class _Placed(Parts):
    """Parts on a mesh, whose starts are the ranks'."""

    def __init__(
        self, op: Op, factors: Factors, along: Mapping[Factor, Axis], mover: Mover
    ) -> None:
        super().__init__(op, factors, {f: a.ranks for f, a in along.items()})
        self.along, self.mover = along, mover

    def start(self, factor: Factor) -> Value:
        return self.mover.start(self.along[factor], self.length(factor))


def _name(v: Value) -> str:
    return repr(v.name) if v.op is None else v.op.short


def _operand_name(op: Op, number: int) -> str:
    fields = op.operand_fields
    field = fields[min(number, len(fields) - 1)]
    return f"{field.name}[{number - field.index}]" if field.variadic else field.name


def _sum_reason(node: Node, axis: Axis) -> str:
    if isinstance(node.labels[axis.name], Linear):
        return f"{node.op.short} of parts of sums"
    return f"{node.op.short} sums over a dim that is cut"
