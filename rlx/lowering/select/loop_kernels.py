"""Loops that become one kernel: all values scalars or small tensors, all ops of one element each.

``loop_program`` reads the bodies of a call and either gives the program of the kernel family
``loop`` or says why there is none; then the loop becomes steps of the schedule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlx._mlir import ir
from rlx.base.dims import SymDim, is_known
from rlx.codegen.combine import REDUCTIONS
from rlx.codegen.probe import step_cost
from rlx.codegen.program import Step
from rlx.dialects.control import control_of
from rlx.dialects.convert import from_type
from rlx.ir.graph import topological
from rlx.ir.interpreter import evaluate
from rlx.ir.op import Op
from rlx.ir.value import Value
from rlx.kernels.loop.emit import Apply, For, If, Literal, LoopConfig, Move, Part, Row, Rows, While
from rlx.lowering.region import Region
from rlx.lowering.rules import constant_of
from rlx.ops.control.checkpoint import Barrier
from rlx.ops.control.control import Cond, Control, Scan, WhileLoop
from rlx.ops.movement.movement import Expand, Reshape, Transpose
from rlx.ops.movement.slicing import Concat, Slice
from rlx.ops.pointwise.binary import Add, Maximum, Minimum, Mul
from rlx.ops.reduction.reduce import Reduce
from rlx.schedule.steps import Size
from rlx.types import TensorType, bf16, bool_, f16

__all__ = ["LoopCall", "NoLoop", "TooLarge", "loop_program"]

ELEMENTS = 16
"""The most elements of a value: each takes a register."""
INSTRUCTIONS = 4096
"""About the most instructions of a program, so that a kernel is compiled in little time."""

MOVES = (Reshape, Transpose, Expand, Slice, Concat)
FOLDS: dict[str | None, type[Op]] = {"sum": Add, "prod": Mul, "max": Maximum, "min": Minimum}


class NoLoop(Exception):
    """Why a call does not become a kernel."""


class TooLarge(NoLoop):
    """It works on tensors: steps of the schedule are the right form."""


@dataclass
class LoopCall:
    """A loop as a kernel: its config, the operands that it reads, where it may fault, and the
    numbers of rounds that are arguments."""

    config: LoopConfig
    operands: list[ir.Value]
    sites: list[str]
    rounds: list[Size]


def loop_program(
    call: ir.Operation,
    node: Control,
    bodies: Mapping[str, ir.Operation],
    functions: Mapping[str, ir.Operation],
    region: Callable[[ir.Operation], Region],
) -> LoopCall | NoLoop:
    """The program of a call of a loop; else the reason why there is none."""
    if isinstance(node, Cond):
        return TooLarge("it is no loop")
    reader = _Reader(functions, region)
    try:
        return reader.loop(call, node, bodies)
    except NoLoop as reason:
        return reason


def _row(t: TensorType) -> Row:
    size = t.size
    assert is_known(size)
    if t.dtype.is_complex:
        raise NoLoop(f"a value of {t} takes two registers an element")
    if size > ELEMENTS:
        raise TooLarge(f"a value of {t} has more than {ELEMENTS} elements")
    return Row(t.dtype, size)


@dataclass
class _Block:
    """A block in the making. Values are known by what stands for them: in MLIR, or in a node."""

    inputs: list[Row] = field(default_factory=list[Row])
    steps: list[Part] = field(default_factory=list["Part"])
    count: int = 0

    def take(self, t: TensorType) -> int:
        assert not self.steps
        self.inputs.append(_row(t))
        self.count += 1
        return self.count - 1

    def add(self, step: Part, results: int = 1) -> int:
        """Append a step; the number of the first value that it gives."""
        self.steps.append(step)
        self.count += results
        return self.count - results

    def done(self, outputs: Sequence[int]) -> Rows:
        return Rows(tuple(self.inputs), tuple(self.steps), tuple(outputs))


class _Reader:
    def __init__(
        self, functions: Mapping[str, ir.Operation], region: Callable[[ir.Operation], Region]
    ) -> None:
        self.functions, self.region = functions, region
        self.sites: list[str] = []
        self.rounds: list[Size] = []
        self.active: list[ir.Operation] = []
        self.instructions = 0

    def loop(
        self, call: ir.Operation, node: Control, bodies: Mapping[str, ir.Operation]
    ) -> LoopCall:
        operands = list(call.operands)
        scanned = node.scanned if isinstance(node, Scan) else 0
        fixed = operands[: len(operands) - scanned]
        read = [v for v in fixed if constant_of(v) is None]
        block, env = _Block(), dict[ir.Value, int]()
        for v in read:
            if v not in env:
                env[v] = block.take(from_type(v.type))
        taken = list(env)
        for v in fixed:
            array = constant_of(v)
            if array is not None and v not in env:
                env[v] = self.literal(array, from_type(v.type), block)
        xs = operands[len(operands) - scanned :]
        args = [env[v] for v in fixed]
        if isinstance(node, Scan):
            reads = range(len(taken), len(taken) + scanned)
            writes = range(node.carries, len(node.results))
            first = self.count(node, bodies, args, block, tuple(reads), tuple(writes))
            ends = range(first, first + node.carries)
        else:
            assert isinstance(node, WhileLoop)
            first = self.repeat(node, bodies, args, block)
            ends = range(first, first + node.carries)
        config = LoopConfig(
            block.done(list(ends)),
            tuple(range(len(taken))),
            tuple(from_type(v.type).dtype for v in [*taken, *xs]),
            tuple(v.dtype for v in node.results),
        )
        return LoopCall(config, [*taken, *xs], self.sites, self.rounds)

    # -- control ---------------------------------------------------------------------------

    def control(self, op: ir.Operation, env: dict[ir.Value, int], block: _Block) -> None:
        node, bodies = control_of(op, self.functions)
        args = [env[v] for v in op.operands]
        if isinstance(node, Barrier):
            env.update(zip(op.results, args, strict=True))
            return
        if isinstance(node, Cond):
            first = self.branch(node, bodies, args, block)
        elif isinstance(node, WhileLoop):
            first = self.repeat(node, bodies, args, block)
        else:
            assert isinstance(node, Scan)
            if node.scanned or len(node.results) > node.carries:
                raise NoLoop("a scan inside reads or stacks elements")
            first = self.count(node, bodies, args, block)
        env.update((r, first + n) for n, r in enumerate(op.results))

    def branch(
        self, node: Cond, bodies: Mapping[str, ir.Operation], args: list[int], block: _Block
    ) -> int:
        then, otherwise = (self.body(bodies[key]) for key in ("then", "otherwise"))
        results = tuple(_row(v.type) for v in node.results)
        return block.add(If(results, then, otherwise, tuple(args)), len(results))

    def repeat(
        self, node: WhileLoop, bodies: Mapping[str, ir.Operation], args: list[int], block: _Block
    ) -> int:
        if node.limit >= 0:
            self.sites.append(node.fault)
        test, body = self.body(bodies["test"]), self.body(bodies["body"])
        return block.add(While(test, body, tuple(args), node.carries, node.limit), node.carries)

    def count(
        self, node: Scan, bodies: Mapping[str, ir.Operation], args: list[int], block: _Block,
        reads: tuple[int, ...] = (), writes: tuple[int, ...] = (),
    ) -> int:  # fmt: skip
        rounds: Any = node.rounds
        assert is_known(rounds)
        if isinstance(rounds, SymDim):  # for any size of it
            self.rounds.append(rounds)
            rounds = -len(self.rounds)
        step = For(
            self.body(bodies["body"]), tuple(args), node.carries, rounds, node.reverse,
            reads, writes,
        )  # fmt: skip
        return block.add(step, node.carries)

    def body(self, function: ir.Operation) -> Rows:
        if function in self.active:
            raise TooLarge("it runs itself")  # which the steps of the schedule refuse
        self.active.append(function)
        block, env = _Block(), dict[ir.Value, int]()
        inner = function.regions[0].blocks[0]
        for arg in inner.arguments:
            env[arg] = block.take(from_type(arg.type))
        *work, end = [view.operation for view in inner.operations]
        for op in work:
            if op.name == "func.call":
                self.control(op, env, block)
                continue
            region = self.region(op)
            known = {leaf: env[outer] for leaf, outer in region.leaves.items()}
            for node in region.nodes:
                self.node(node, known, block)
            env.update((r, known[v]) for r, v in zip(op.results, region.outs, strict=True))
        self.active.pop()
        return block.done([env[v] for v in end.operands])

    # -- ops -------------------------------------------------------------------------------

    def node(self, node: Op, env: dict[Value, int], block: _Block) -> None:
        """Append what a node is."""
        if node.meets:
            raise NoLoop(f"ranks meet in {node.short}")
        for v in node.results:
            _row(v.type)
        args = [env[v] for v in node.present]
        if not args:
            (array,) = evaluate(node, [])
            env[node.out] = self.literal(array, node.out.type, block)
        elif isinstance(node, MOVES):
            env[node.out] = self.move(node, args, block)
        elif node.pointwise:
            env[node.out] = self.apply(node, args, block)
        elif isinstance(node, Reduce) and REDUCTIONS.get(node.name) in FOLDS:
            env[node.out] = self.fold(node, args[0], block)
        elif node.composite():
            outs = node.expansion()
            for inner in topological(outs, stop=set(env)):
                self.node(inner, env, block)
            env.update((r, env[v]) for r, v in zip(node.results, outs, strict=True))
        else:
            raise NoLoop(f"{node.short} has no meaning for one element")

    def literal(self, array: Any, t: TensorType, block: _Block) -> int:
        _row(t)
        return block.add(Literal(tuple(Step.literal(x.item(), t.dtype) for x in array.reshape(-1))))

    def move(self, node: Op, args: list[int], block: _Block) -> int:
        """Where the elements come from, as the op itself says of their numbers."""
        numbers, at = list[Any](), 0
        for v in node.present:
            size = _row(v.type).size
            numbers.append(np.arange(at, at + size).reshape(v.type.static_shape))
            at += size
        (found,) = (node.reference(*numbers),)
        return self.moved(args, found, block)

    def moved(self, args: Sequence[int], sources: Any, block: _Block) -> int:
        return block.add(Move(tuple(args), tuple(int(s) for s in np.reshape(sources, -1))))

    def apply(self, node: Op, args: list[int], block: _Block) -> int:
        shape = node.out.type.static_shape
        ready: list[int] = []
        for n, v in zip(args, node.present, strict=True):
            numbers = np.arange(_row(v.type).size).reshape(v.type.static_shape)
            spread = np.broadcast_to(numbers, shape)
            ready.append(n if v.shape == shape else self.moved([n], spread, block))
        dtypes = tuple(v.dtype for v in node.present)
        step = Step(node.name, (), dtypes, node.out.dtype, tuple(node.attrs.items()))
        return self.applied(step, ready, math.prod(shape), block)

    def applied(self, step: Step, args: Sequence[int], size: int, block: _Block) -> int:
        self.instructions += step_cost(step) * size
        if self.instructions > INSTRUCTIONS:
            raise NoLoop(f"it has more than about {INSTRUCTIONS} instructions")
        return block.add(Apply(step, tuple(args)))

    def fold(self, node: Reduce, arg: int, block: _Block) -> int:
        """A reduction as a chain over its elements, in order."""
        dt, t = node.x.dtype, node.x.type
        if dt in (f16, bf16, bool_):
            raise NoLoop(f"{node.short} of {dt}")
        if 0 in t.shape:
            raise NoLoop(f"{node.short} over nothing")
        numbers = np.arange(_row(t).size).reshape(t.static_shape)
        kept = [d for d in range(t.rank) if d not in node.axes]
        columns = numbers.transpose([*node.axes, *kept]).reshape(-1, _row(node.out.type).size)
        total = self.moved([arg], columns[0], block)
        step = Step(FOLDS[REDUCTIONS[node.name]].name, (), (dt, dt), dt)
        for column in columns[1:]:
            more = self.moved([arg], column, block)
            total = self.applied(step, (total, more), len(column), block)
        return total
