"""The compiled graphs of a training step, run on the state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rlx.runtime.session import Session
from rlx.training.diagnosis import Culprit, culprit
from rlx.training.graphs import Half, Plan, gradient_half, mean_half, part_half, sum_half
from rlx.training.parts import cut, sum_of_tree

__all__ = ["AtOnce", "InParts", "Run", "gradients_of"]

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]


def gradients_of(plan: Plan, session: Session, frozen: Arrays) -> AtOnce | InParts:
    """The gradients of a plan; ``frozen`` has the params that are not trained."""
    if plan.ranks is not None and plan.ranks.parts:
        return InParts(plan, session, frozen)
    return AtOnce(plan, session, frozen)


class Run:
    """A half, compiled, with what it reads and writes of the state."""

    def __init__(self, half: Half, session: Session, frozen: Arrays | None = None) -> None:
        self.half = half
        self.compiled = session.compile(half.graph, donate=half.donate)
        for name, value in (frozen or {}).items():
            self.compiled.set_param(name, value)

    @property
    def writes(self) -> tuple[str, ...]:
        """The state that it writes."""
        return self.half.writes

    def arena(self) -> int:
        """The bytes that it keeps between kernels in a call, of the sizes that there were."""
        return self.compiled.arena_bytes

    def run(self, batch: Mapping[str, Any], state: Arrays) -> list[Array]:
        """Run on other inputs and the state, in place; the outputs that are no state."""
        half = self.half
        feeds = {**batch, **{n: state[n] for n in half.reads if n not in half.writes}}
        if not half.writes:
            return self.compiled.run(feeds)
        return self.compiled.run_in_place(feeds, {n: state[n] for n in half.writes})


class AtOnce(Run):
    """The gradients of a batch."""

    def __init__(self, plan: Plan, session: Session, frozen: Arrays) -> None:
        super().__init__(gradient_half(plan), session, frozen)
        self.plan, self.frozen = plan, frozen

    def culprit(self, batch: Mapping[str, Any], state: Arrays) -> Culprit:
        """Where nan or infinity comes from."""
        return _culprit(self.plan, [batch], state, self.frozen)


class InParts:
    """The gradients of a batch in parts, whose sum does not depend on which rank has them."""

    def __init__(self, plan: Plan, session: Session, frozen: Arrays) -> None:
        assert plan.ranks is not None
        self.plan, self.frozen, self.parts = plan, frozen, plan.ranks.each
        part = part_half(plan)
        types = {f"sum/{n}": v.type for n, v in enumerate(part.graph.outputs)}
        self._sums = list(types)
        self._part = Run(part, session, frozen)
        self._add = Run(sum_half(plan, types), session)
        self._mean = Run(mean_half(plan, types), session)
        self.writes = self._mean.writes

    def _cut(self, batch: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        inputs = [v for v in self.plan.graph.inputs if str(v.name) != self.plan.key]
        return cut(batch, inputs, self.parts)

    def arena(self) -> int:
        """The most bytes that its graphs keep between kernels in a call."""
        return max(run.arena() for run in (self._part, self._add, self._mean))

    def run(self, batch: Mapping[str, Any], state: Arrays) -> list[Array]:
        """The means over the parts of all ranks."""
        total = sum_of_tree(self._each(batch, state), self._added)
        return self._mean.run({}, {**state, **dict(zip(self._sums, total, strict=True))})

    def _each(self, batch: Mapping[str, Any], state: Arrays) -> Iterator[list[Array]]:
        first = int(state["run/part"])
        for n, part in enumerate(self._cut(batch)):
            yield self._part.run(part, {**state, "run/part": np.asarray(first + n)})

    def _added(self, total: list[Array], more: list[Array]) -> None:
        named = dict(zip(self._sums, total, strict=True))
        named |= {f"more/{n}": a for n, a in zip(self._sums, more, strict=True)}
        self._add.run({}, named)

    def culprit(self, batch: Mapping[str, Any], state: Arrays) -> Culprit:
        """Where nan or infinity comes from."""
        return _culprit(self.plan, list(self._cut(batch)), state, self.frozen)


def _culprit(plan: Plan, parts: list[Any], state: Arrays, frozen: Arrays) -> Culprit:
    """The op that gave nan or infinity in a part of this rank's batch."""
    graph = (half := part_half(plan)).graph
    if any(op.meets for op in graph.nodes()):
        return Culprit("nan or infinity, in a graph of collectives, which no rank searches alone")
    for n, part in enumerate(parts):
        own = {name: state[name] for name in half.reads}
        if "run/part" in own:
            own["run/part"] = np.asarray(own["run/part"] + n)
        if found := culprit(graph, {**part, **own}, frozen):
            return found
    if plan.ranks is not None and plan.ranks.axis.ranks > 1:
        return Culprit("nan or infinity in the batch of another rank, whose error names it")
    return Culprit(
        "nan or infinity, which the reference interpreter does not get: the sums of the compiled"
        " code have another order; scale the loss or the inputs down"
    )
