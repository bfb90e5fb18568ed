"""Plans of row-wise kernels: the formulas of a region, and the passes over a row.

A value *moves* if it changes along the row; the others are one scalar a row. A reduction is ready
one pass after its argument: a value's *depth* is the number of reductions that must be finished
before it, and pass d computes every reduction whose argument has depth d.

    softmax:  pass 0: m = max x      pass 1: e = exp(x - m), s = sum e      pass 2: e / s

A moving value that several passes need is computed again in each, unless that costs more than
going through memory: then the first of them keeps it, in the row of an output that is written
later, or in scratch.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Literal

from rlx.base.frozen import frozen
from rlx.codegen.combine import ReduceKind
from rlx.codegen.probe import step_cost
from rlx.codegen.program import Step
from rlx.codegen.strides import Access
from rlx.types import DType, bf16, f16

__all__ = ["Pass", "Plan", "Reduce", "RowProgram", "RowwiseConfig", "Slot", "plan"]

KEEP_COST = 3
"""Instructions from which a value is kept: fewer are no dearer than a store and a load."""

GATHER_COST = 8


@frozen
class Reduce:
    """A reduction along the row of the value ``arg``, done in ``accumulate``, giving ``dtype``."""

    kind: ReduceKind
    arg: int
    accumulate: DType
    dtype: DType


@frozen
class RowProgram:
    """Pointwise steps and reductions in order over ``inputs``; ``outputs`` are value numbers, which
    count the inputs first."""

    inputs: tuple[DType, ...]
    steps: tuple[Step | Reduce, ...]
    outputs: tuple[int, ...]

    @property
    def dtypes(self) -> tuple[DType, ...]:
        """The element type of every value."""
        return (*self.inputs, *(s.dtype for s in self.steps))

    def args(self, v: int) -> tuple[int, ...]:
        """The values that the value ``v`` is computed from."""
        if v < len(self.inputs):
            return ()
        s = self.steps[v - len(self.inputs)]
        return (s.arg,) if isinstance(s, Reduce) else s.args

    def step(self, v: int) -> Step | Reduce | None:
        """What computes the value ``v``; None for an input."""
        return self.steps[v - len(self.inputs)] if v >= len(self.inputs) else None


@frozen
class RowwiseConfig:
    """A region, and how its operands move: along each leading dim, and last along the row.

    An input is "zero" along the row if it has one value a row; an output that is gets one.
    ``threads`` of a GPU's block share a row; 0: one does it alone. ``far`` operands are mostly in
    no cache of a CPU's own. ``long`` rows are summed by parts (``folding.by_parts``).
    """

    program: RowProgram
    inputs: tuple[Access, ...]
    outputs: tuple[Access, ...]
    threads: int = 0
    far: bool = False
    long: bool = False


@frozen
class Slot:
    """Where a kept value lies: in the row of an output, or in a row of scratch."""

    place: Literal["output", "scratch"]
    index: int


@frozen
class Pass:
    """One walk along the row.

    ``values`` are the moving values that it needs, in order; of them ``reload`` come from their
    slot, and ``keep`` go to it. ``outputs`` are positions in the program's outputs.
    """

    values: tuple[int, ...]
    reload: frozenset[int]
    keep: tuple[int, ...]
    reductions: tuple[int, ...]
    outputs: tuple[int, ...]
    cost: int


@frozen
class Plan:
    """How a region runs: the passes in order, and where values wait between them.

    ``numbers`` are the maxima and minima that may leave out nans, see ``nans_arrive_without``.
    """

    moving: tuple[bool, ...]
    passes: tuple[Pass, ...]
    slots: dict[int, Slot]
    numbers: frozenset[int] = frozenset()

    @property
    def scratch_rows(self) -> int:
        """Rows of scratch that the passes keep values in."""
        return sum(s.place == "scratch" for s in self.slots.values())


@cache
def plan(config: RowwiseConfig, keep: bool = True) -> Plan:
    """Cut a region into passes. Without ``keep`` every pass computes what it needs afresh."""
    return _Planner(config).plan(keep)


_CARRIES_NAN = frozenset(
    f"mir.{name}" for name in ("add", "sub", "mul", "div", "neg", "exp", "log", "sqrt", "rsqrt")
)
"""Pointwise ops whose result is nan where an operand is."""


def nans_arrive_without(program: RowProgram) -> frozenset[int]:
    """The maxima and minima of floats that need not take up the nans of their row, since all that
    depends on them is nan by another way: in softmax by way of the sum."""
    found: list[int] = []
    for m in range(len(program.dtypes)):
        step = program.step(m)
        if isinstance(step, Reduce) and step.kind in ("max", "min") and step.dtype.is_float:
            depends, spoilt = _after_nan(program, step.arg, m)
            if all(v in spoilt for v in program.outputs if v in depends):
                found.append(m)
    return frozenset(found)


def _after_nan(program: RowProgram, source: int, extreme: int) -> tuple[set[int], set[int]]:
    """The values that depend on ``extreme``; and those that are nan all over a row in which one
    element of ``source`` is, whatever the maxima and minima are."""
    depends, there, all_over = {extreme}, {source}, set[int]()
    for v in range(len(program.dtypes)):
        step, args = program.step(v), program.args(v)
        if any(a in depends for a in args):
            depends.add(v)
        if isinstance(step, Reduce):
            if step.kind in ("sum", "mean") and step.dtype.is_float and step.arg in there:
                all_over.add(v)
        elif step is not None and step.op in _CARRIES_NAN and step.dtype.is_float:
            if any(a in all_over for a in args):
                all_over.add(v)
            elif any(a in there for a in args):
                there.add(v)
    return depends, all_over


class _Planner:
    def __init__(self, config: RowwiseConfig) -> None:
        self.config, self.program = config, config.program
        count = len(self.program.dtypes)
        moving: list[bool] = []
        depth: list[int] = []
        for v in range(count):
            args, step = self.program.args(v), self.program.step(v)
            below = max((depth[a] for a in args), default=0)
            if step is None:
                moving.append(config.inputs[v][-1] != "zero")
            else:
                moving.append(not isinstance(step, Reduce) and any(moving[a] for a in args))
            depth.append(below + isinstance(step, Reduce))
        self.moving, self.depth = tuple(moving), depth
        self.reductions: dict[int, list[int]] = {}
        self.outputs: dict[int, list[int]] = {}
        needed = self._reachable()
        for v in sorted(needed):
            if isinstance(self.program.step(v), Reduce):
                self.reductions.setdefault(depth[v] - 1, []).append(v)
        for n, v in enumerate(self.program.outputs):
            if moving[v] and config.outputs[n][-1] == "zero":
                raise ValueError(f"output {n} has one value a row, but value {v} has many")
            if config.outputs[n][-1] != "zero":
                self.outputs.setdefault(depth[v], []).append(n)
        self.count = 1 + max([*self.reductions, *self.outputs], default=-1)

    def _reachable(self) -> set[int]:
        seen: set[int] = set()
        todo = list(self.program.outputs)
        while todo:
            v = todo.pop()
            if v not in seen:
                seen.add(v)
                todo += self.program.args(v)
        return seen

    def plan(self, keep: bool) -> Plan:
        kept = self._worth_keeping() if keep else set()
        needs = self._needs(kept)
        again = {v for v in kept if sum(v in n for n in needs) > 1}
        needs = self._needs(again)
        first = {v: min(d for d, n in enumerate(needs) if v in n) for v in again}
        passes = tuple(self._pass(d, needs[d], first) for d in range(self.count))
        return Plan(self.moving, passes, self._slots(passes), nans_arrive_without(self.program))

    def _pass(self, d: int, needed: set[int], first: dict[int, int]) -> Pass:
        reload = frozenset(v for v in needed if first.get(v, d) < d)
        return Pass(
            tuple(sorted(needed)),
            reload,
            tuple(sorted(v for v in needed if first.get(v) == d)),
            tuple(self.reductions.get(d, ())),
            tuple(self.outputs.get(d, ())),
            sum(1 if v in reload else self._own_cost(v) for v in needed),
        )

    def _roots(self, d: int) -> list[int]:
        args = [self.program.args(v)[0] for v in self.reductions.get(d, ())]
        return args + [self.program.outputs[n] for n in self.outputs.get(d, ())]

    def _cone(self, roots: Iterable[int], known: set[int]) -> set[int]:
        """The moving values that the roots need, not looking behind known ones."""
        seen: set[int] = set()
        todo = list(roots)
        while todo:
            v = todo.pop()
            if self.moving[v] and v not in seen:
                seen.add(v)
                if v not in known:
                    todo += self.program.args(v)
        return seen

    def _needs(self, kept: set[int]) -> list[set[int]]:
        """For every pass the moving values that it needs, if it reads back what is kept."""
        out: list[set[int]] = []
        known: set[int] = set()
        for d in range(self.count):
            out.append(self._cone(self._roots(d), known))
            known |= out[-1] & kept
        return out

    def _worth_keeping(self) -> set[int]:
        needs = self._needs(set())
        shared = {v for n in needs for v in n if sum(v in m for m in needs) > 1}
        return {v for v in shared if self._cone_cost(v) >= KEEP_COST}

    def _cone_cost(self, v: int) -> int:
        return sum(self._own_cost(u) for u in self._cone([v], set()))

    def _own_cost(self, v: int) -> int:
        step = self.program.step(v)
        if step is None:
            if self.config.inputs[v][-1] == "any":
                return GATHER_COST
            return 2 if self.program.inputs[v] in (f16, bf16) else 1
        assert isinstance(step, Step)
        return step_cost(step)

    def _slots(self, passes: tuple[Pass, ...]) -> dict[int, Slot]:
        """A place for every kept value; the row of an output of its type serves until the pass
        that writes the output, which reads each element before it writes it."""
        written = {n: d for d, p in enumerate(passes) for n in p.outputs}
        last = {v: d for d, p in enumerate(passes) for v in p.reload}
        slots: dict[int, Slot] = {}
        taken: set[int] = set()
        rows = 0
        # A value that is an output itself lies there anyway.
        for v in sorted(last, key=lambda v: (v not in self.program.outputs, v)):
            free = [
                n
                for n, d in written.items()
                if n not in taken
                and self.program.dtypes[self.program.outputs[n]] is self.program.dtypes[v]
                and self.config.outputs[n][-1] == "one"
                and (self.program.outputs[n] == v or d >= last[v])
            ]
            free.sort(key=lambda n: self.program.outputs[n] != v)
            if free:
                taken.add(free[0])
                slots[v] = Slot("output", free[0])
            else:
                slots[v] = Slot("scratch", rows)
                rows += 1
        return slots
