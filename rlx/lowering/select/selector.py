"""The protocol of selectors, and the translation of pointwise nodes to a Program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from rlx.codegen.program import Program, Step
from rlx.codegen.reg import Number
from rlx.ir.op import Op
from rlx.ir.value import Value
from rlx.lowering.region import Region
from rlx.lowering.select.builder import Lowering
from rlx.ops.movement.constant import literal
from rlx.ops.movement.movement import Expand

__all__ = ["ProgramBuilder", "Selector", "Several", "spread_source"]


class Several(str):
    """Why a region is refused for its several results, where its family would run it with one."""

    __slots__ = ()


class Selector(Protocol):
    """Says which regions a family runs, and lowers them to launches."""

    def claim(self, region: Region) -> str | None:
        """None if the family can run the region, else the reason why not: a fact of its body."""
        ...

    def lower(self, region: Region, lowering: Lowering) -> None:
        """Append the launches that compute the region's results."""
        ...


def spread_source(v: Value) -> Value:
    """What an expand broadcasts; the value itself if nothing broadcasts it."""
    while v.op is not None and isinstance(v.op, Expand):
        v = v.op.x
    return v


class ProgramBuilder:
    """Collects pointwise nodes into a Program. Inputs are numbered as they are first met.

    ``numbers`` are values that are read as a number, though nothing that is added says so.
    """

    def __init__(
        self, first: Sequence[Value] = (), numbers: Mapping[Value, Number] | None = None
    ) -> None:
        self._inputs = dict.fromkeys(first)
        self._literals = {v: Step.literal(x, v.dtype) for v, x in (numbers or {}).items()}
        self._steps: dict[Value, tuple[Step, tuple[Value, ...]]] = {}

    @property
    def inputs(self) -> list[Value]:
        """The values that the program reads, in their order."""
        return list(self._inputs)

    def add(self, node: Op) -> None:
        """Add a pointwise node; its operands are earlier nodes, literals, or become inputs."""
        for v in node.present:
            self._need(v)
        dtypes = tuple(v.dtype for v in node.present)
        step = Step(node.name, (), dtypes, node.out.dtype, tuple(node.attrs.items()))
        self._steps[node.out] = step, node.present

    def _need(self, v: Value) -> None:
        source = spread_source(v)
        if v in self._steps or source in self._literals or v in self._inputs:
            return
        number = literal(source.op) if source.op is not None else None
        if number is not None:
            self._literals[source] = Step.literal(number, source.dtype)
        else:
            self._inputs[v] = None

    def build(self, *outs: Value) -> Program:
        """The finished program with these outputs."""
        number = {v: i for i, v in enumerate(self._inputs)}
        steps: list[Step] = []
        for v, step in self._literals.items():
            number[v] = len(number)
            steps.append(step)
        for v, (step, operands) in self._steps.items():
            args = tuple(number[x] if x in number else number[spread_source(x)] for x in operands)
            if v.op is not None and v.op.commutes and step.dtypes[0] is step.dtypes[-1]:
                args = tuple(sorted(args))  # so that x + y and y + x are one kernel
            number[v] = len(number)
            steps.append(Step(step.op, args, step.dtypes, step.dtype, step.attrs))
        ends = tuple(number[v] if v in number else number[spread_source(v)] for v in outs)
        return Program(tuple(v.dtype for v in self._inputs), tuple(steps), ends)
