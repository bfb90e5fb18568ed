"""Loop kernels: a loop of a schedule as one kernel, its values in registers.

A loop over scalars or small tensors, whose ops all have a meaning for one element, costs a few
instructions a round; as steps of the schedule each round would be several launches. The config is
the program: a tree of blocks. A value is a row of elements, a register each, numbered within its
block: first the block's inputs, then what its steps give.

One worker runs the loop. Arguments: buffers of the inputs and the outputs; if a loop has a limit,
or may run for long, the record ``error``; a size ``site`` for each loop that has a limit, in the
order of the program; and a size for each number of rounds that is no constant. A loop that may run
for long asks the runtime now and then whether it is to end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.family import Launch
from rlx.codegen.program import Step
from rlx.codegen.reg import Buffer, Reg
from rlx.types import DType, bf16, f16, f32, i64

__all__ = [
    "Apply",
    "For",
    "If",
    "Literal",
    "LoopConfig",
    "Move",
    "Row",
    "Rows",
    "While",
    "emit",
    "launch",
    "runs_long",
]

name = "loop"

OVER_LIMIT = 1
"""The code of the fault that a loop has met its limit."""

ASKS_SINCE = 2
"""The kernel ABI of the first runtime that a loop can ask whether it is to end."""

LONG, SHORT = 1 << 20, 1 << 10
"""A kernel of more rounds in all than the first may run for long; in it a loop of more than the
second asks whether it is to end. Both take some milliseconds or less."""


@frozen
class Row:
    """What a value is: so many elements of a type."""

    dtype: DType
    size: int


@frozen
class Literal:
    """Numbers of a type, as text (``Step.literal``)."""

    steps: tuple[Step, ...]


@frozen
class Move:
    """Elements of the arguments, laid end to end, in another order."""

    args: tuple[int, ...]
    sources: tuple[int, ...]


@frozen
class Apply:
    """A pointwise op on every element of arguments of equal sizes."""

    step: Step
    args: tuple[int, ...]


@frozen
class If:
    """One of two blocks, by the bool that is the first of the arguments; what they give."""

    results: tuple[Row, ...]
    then: Rows
    otherwise: Rows
    args: tuple[int, ...]


@frozen
class While:
    """A body that replaces the first ``carries`` arguments while a test of all is true; more than
    ``limit`` rounds, if it is not -1, are a fault."""

    test: Rows
    body: Rows
    args: tuple[int, ...]
    carries: int
    limit: int


@frozen
class For:
    """A body that is run for each round: it takes the round and the arguments, and replaces the
    first ``carries`` of them. ``rounds`` below 0 are the argument -1 - ``rounds``.

    In each round the body takes, behind the arguments, a row of each buffer in ``reads`` (numbers
    of the kernel's inputs), and what it gives behind the carried values goes to a row of each
    buffer in ``writes`` (numbers of its outputs).
    """

    body: Rows
    args: tuple[int, ...]
    carries: int
    rounds: int
    reverse: bool
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()


Part: TypeAlias = "Literal | Move | Apply | If | While | For"


@frozen
class Rows:
    """A block: what it takes, its steps, and the numbers of the values that it gives."""

    inputs: tuple[Row, ...]
    steps: tuple[Part, ...]
    outputs: tuple[int, ...]


@frozen
class LoopConfig:
    """A block on the kernel's inputs, whose loop is a step of it.

    ``buffers`` are the element types of what the kernel reads; ``inputs`` numbers those that the
    block takes, the others are for rounds alone. ``outputs`` are the element types of what it
    writes: first what the block gives.
    """

    block: Rows
    inputs: tuple[int, ...]
    buffers: tuple[DType, ...]
    outputs: tuple[DType, ...]


def launch(sites: Sequence[int], rounds: Sequence[int] = ()) -> Launch:
    """The kernel's arguments: the fault site of each loop that has a limit, and the rounds of loops
    that have no constant number."""
    return Launch(1, 1, (*sites, *rounds))


def emit(name: str, config: LoopConfig, target: KernelTarget) -> KernelText:
    """The text of the kernel."""
    return _Emitter(name, config, target).emit()


def limits(block: Rows) -> int:
    """How many loops of a block, and of those inside, have a limit."""
    count = 0
    for step in block.steps:
        if isinstance(step, While):
            count += (step.limit >= 0) + limits(step.test) + limits(step.body)
        elif isinstance(step, For):
            count += limits(step.body)
        elif isinstance(step, If):
            count += limits(step.then) + limits(step.otherwise)
    return count


def _arguments(block: Rows) -> int:
    """How many numbers of rounds are arguments."""
    found = 0
    for step in block.steps:
        match step:
            case For():
                found = max(found, -step.rounds, _arguments(step.body))
            case While():
                found = max(found, _arguments(step.test), _arguments(step.body))
            case If():
                found = max(found, _arguments(step.then), _arguments(step.otherwise))
            case _:
                pass
    return found


def runs_long(block: Rows) -> bool:
    """Whether the loops of a block may take so long that somebody would want to end them."""
    return _rounds(block) > LONG


def _rounds(block: Rows) -> float:
    """The most rounds that the loops of a block make in all."""
    return sum(map(_rounds_of, block.steps))


def _rounds_of(step: Part) -> float:
    match step:
        case While():
            rounds = step.limit if step.limit >= 0 else math.inf
            return rounds * (1 + _rounds(step.test) + _rounds(step.body))
        case For():
            rounds = math.inf if step.rounds < 0 else step.rounds
            return rounds * (1 + _rounds(step.body))
        case If():
            return max(_rounds(step.then), _rounds(step.otherwise))
        case _:
            return 0


Value: TypeAlias = list[Reg]


class _Emitter:
    def __init__(self, name: str, config: LoopConfig, target: KernelTarget) -> None:
        self.config, self.k = config, Kernel(name, target)
        k = self.k
        self.buffers = [k.buffer(f"in{n}", dt) for n, dt in enumerate(config.buffers)]
        self.results = [k.buffer(f"out{n}", dt) for n, dt in enumerate(config.outputs)]
        self.sites: list[Reg] = []
        self.error: Buffer | None = None
        long, count = runs_long(config.block), limits(config.block)
        self.long = long and k.target.interrupts
        if count or long:
            self.error = k.error_record()
            self.sites = [k.size(f"site{n}") for n in range(count)]
        self.rounds = [k.size(f"rounds{n}") for n in range(_arguments(config.block))]
        self.met = 0
        # Rounds until the runtime is asked again; 0: the loops are to end.
        self.left: Reg = k.const(1, i64)

    def emit(self) -> KernelText:
        self.k.parallel(lambda _: self.run())
        return self.k.text()

    def run(self) -> None:
        config, k = self.config, self.k
        values = [
            [k.load(self.buffers[n], e) for e in range(row.size)]
            for n, row in zip(config.inputs, config.block.inputs, strict=True)
        ]
        for value, buffer in zip(self.block(config.block, values), self.results, strict=False):
            for e, reg in enumerate(value):
                k.store(reg, buffer, e)

    def block(self, block: Rows, inputs: Sequence[Value]) -> list[Value]:
        """The values that a block gives."""
        values = list(inputs)
        for step in block.steps:
            match step:
                case Literal():
                    values.append([s.emit(self.k) for s in step.steps])
                case Move():
                    elements = [reg for n in step.args for reg in values[n]]
                    values.append([elements[s] for s in step.sources])
                case Apply():
                    columns = zip(*(values[n] for n in step.args), strict=True)
                    values.append([step.step.emit(self.k, *regs) for regs in columns])
                case If():
                    values += self.branch(step, [values[n] for n in step.args])
                case While():
                    values += self.repeat(step, [values[n] for n in step.args])
                case For():
                    values += self.count(step, [values[n] for n in step.args])
        return [values[n] for n in block.outputs]

    def branch(self, step: If, args: list[Value]) -> list[Value]:
        like = [[self.k.reg("%like", _wide(row.dtype))] * row.size for row in step.results]
        asks, before = self.long and _rounds_of(step) > SHORT, self.left

        def side(block: Rows) -> list[Reg]:
            self.left = before
            return [*_flat(self.block(block, args[1:])), *([self.left] if asks else ())]

        out = self.k.when(
            args[0][0],
            lambda: side(step.then),
            lambda: side(step.otherwise),
            results=[*_flat(like), *([before] if asks else ())],
        )
        self.left = out.pop() if asks else before
        return _cut(out, like)

    def repeat(self, step: While, args: list[Value]) -> list[Value]:
        carried, fixed = args[: step.carries], args[step.carries :]
        k, limited = self.k, step.limit >= 0
        watched = self.error is not None and (limited or limits(step.body) > 0)
        asks = self.long and _rounds_of(step) > SHORT
        site = self.sites[self.met] if limited else None
        self.met += limited

        def test(*regs: Reg) -> Reg:
            regs, left = self.asking(regs, asks)
            round_, *rest = regs if limited else (None, *regs)
            ((more,),) = self.block(step.test, [*_cut(rest, carried), *fixed])
            if site is not None and round_ is not None:
                assert self.error is not None
                over = more & (round_ >= step.limit)
                k.record_fault(over, self.error, site, OVER_LIMIT)
            if watched:
                assert self.error is not None
                more = more & k.compare("eq", k.load(self.error, 0), 0)
            return more & (left > 0) if asks else more

        def body(*regs: Reg) -> list[Reg]:
            regs, _ = self.asking(regs, asks)
            round_, *rest = regs if limited else (None, *regs)
            new = _flat(self.block(step.body, [*_cut(rest, carried), *fixed]))
            asked = [self.ask()] if asks else []
            return [*new, *asked] if round_ is None else [round_ + 1, *new, *asked]

        start = [*([k.const(0, i64)] if limited else ()), *_flat(carried)]
        out = k.repeat(test, body, [*start, self.left] if asks else start)
        if asks:
            self.left = out.pop()
        return _cut(out[limited:], carried)

    def asking(self, regs: tuple[Reg, ...], asks: bool) -> tuple[tuple[Reg, ...], Reg]:
        """What a loop carries, and how many rounds are left, which is the last of it if it asks."""
        if asks:
            regs, self.left = regs[:-1], regs[-1]
        return regs, self.left

    def ask(self) -> Reg:
        """At the end of a round: how many are left, of which the runtime says anew when there are
        none."""
        k, error, left = self.k, self.error, self.left - 1
        assert error is not None
        (left,) = k.when(left <= 0, lambda: k.rounds(error), lambda: left, results=[left])
        return left

    def count(self, step: For, args: list[Value]) -> list[Value]:
        carried, fixed = args[: step.carries], args[step.carries :]
        k = self.k
        rows = step.body.inputs[1 + len(args) :]
        rounds: Any = step.rounds if step.rounds >= 0 else self.rounds[-1 - step.rounds]

        def round_(i: Reg, *regs: Reg) -> list[Reg]:
            at = (rounds - 1) - i if step.reverse else i
            elements = [
                [k.load(self.buffers[n], at * row.size + e) for e in range(row.size)]
                for n, row in zip(step.reads, rows, strict=True)
            ]
            inputs = [[k.cast(at, i64)], *_cut(regs, carried), *fixed, *elements]
            new = self.block(step.body, inputs)
            for n, value in zip(step.writes, new[step.carries :], strict=True):
                for e, reg in enumerate(value):
                    k.store(reg, self.results[n], at * len(value) + e)
            return _flat(new[: step.carries])

        start = _flat(carried)
        if not self.long or _rounds_of(step) <= SHORT:
            return _cut(k.loop(0, rounds, 1, round_, start), carried)

        def body(i: Reg, *regs: Reg) -> list[Reg]:
            regs, _ = self.asking(regs, True)
            return [i + 1, *round_(i, *regs), self.ask()]

        def test(i: Reg, *regs: Reg) -> Reg:
            return (i < rounds) & (regs[-1] > 0)

        _, *out, self.left = k.repeat(test, body, [k.index(0), *start, self.left])
        return _cut(out, carried)


def _wide(dt: DType) -> DType:
    """What elements are in registers."""
    return f32 if dt in (f16, bf16) else dt


def _flat(values: Sequence[Value]) -> list[Reg]:
    return [reg for value in values for reg in value]


def _cut(regs: Sequence[Reg], like: Sequence[Value]) -> list[Value]:
    """Registers as values of the same sizes as others."""
    rest = iter(regs)
    return [[next(rest) for _ in value] for value in like]
