"""The most rounds that an invocation of a kernel makes, in all of its loops.

Read off the kernel's text for the numbers of a launch. It is an upper bound: of each loop the most
rounds that its bounds allow, of loops in loops the product, and of a branch both sides, which
devices with vectors of invocations take in turn. The round in which a loop finds itself at its end
counts too. Where the bounds of a loop depend on data there is no bound of its rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple

from rlx import _mlir
from rlx._mlir import ir
from rlx.base.cached import cached_property
from rlx.base.dim_bounds import bounds
from rlx.base.dims import Dim
from rlx.base.frozen import frozen
from rlx.codegen.builder import KernelText
from rlx.targets.gpu.intervals import Sum, Unknown, between, higher, lower, unknown
from rlx.targets.gpu.work import Triple

__all__ = ["Most", "Rounds"]


class Most(NamedTuple):
    """The most rounds, None if that is not known; ``sure`` says that no data decides whether loops
    run at all, so that some invocation makes about as many."""

    rounds: int | None
    sure: bool = True


class Rounds:
    """The rounds of one kernel, by the numbers of its launches."""

    def __init__(self, kernel: KernelText) -> None:
        self.kernel = kernel
        self._found: dict[Any, Most] = {}

    def of(self, groups: Triple, params: Sequence[int]) -> Most:
        """The most rounds of an invocation, of a launch on ``groups`` with such ``params``."""
        kernel, text = self.kernel, self.kernel.text
        if kernel.frame == "triton" or "scf.while" in text:
            return Most(None, sure=False)
        if "scf.for" not in text:
            return Most(0)
        key = (groups, tuple(params))
        if key not in self._found:
            reader = _Reader(kernel, self._function, groups, params)
            rounds = reader.rounds(self._loops)
            self._found[key] = Most(rounds, rounds is not None and reader.sure)
        return self._found[key]

    @cached_property
    def _module(self) -> ir.Module:
        head = "module attributes {gpu.container_module} {\ngpu.module @kernels {\n"
        return _mlir.parse_module(f"{head}{self.kernel.text}\n}}\n}}", _mlir.context())

    @cached_property
    def _function(self) -> ir.Block:
        (outer,) = self._module.body.operations
        (func,) = outer.operation.regions[0].blocks[0].operations
        return func.operation.regions[0].blocks[0]

    @cached_property
    def _loops(self) -> list[_Part]:
        return _parts(self._function)


@frozen
class _Part:
    """A loop or a branch, and for each of its regions what is inside."""

    op: ir.Operation
    inside: list[list[_Part]]


def _parts(block: ir.Block) -> list[_Part]:
    """The loops of a block, and the branches that hold loops."""
    found: list[_Part] = []
    for view in block.operations:
        op = view.operation
        if op.name in ("scf.for", "scf.if"):
            inside = [_parts(r.blocks[0]) if len(r.blocks) else [] for r in op.regions]
            if op.name == "scf.for" or any(inside):
                found.append(_Part(op, inside))
    return found


class _Reader:
    """What is known of the integers of a kernel in a launch, and so of its loops. Of numbers that
    are dims their ranges are known.

    A value is looked at when it is asked for, with what the branches around say of others.
    """

    def __init__(
        self, kernel: KernelText, function: ir.Block, groups: Triple, params: Sequence[int]
    ) -> None:
        self.kernel, self.groups, self.params = kernel, groups, params
        self.sizes = list(function.arguments)[len(kernel.buffers)]
        self.known: dict[ir.Value, Sum] = {}
        self.sure = True

    # -- loops -----------------------------------------------------------------------------

    def rounds(self, parts: Sequence[_Part]) -> int | None:
        """The rounds of loops one after the other."""
        total = 0
        for part in parts:
            count = self.loop if part.op.name == "scf.for" else self.branch
            found = count(part)
            if found is None:
                return None
            total += found
        return total

    def loop(self, part: _Part) -> int | None:
        low, high, step = (self.value(v) for v in list(part.op.operands)[:3])
        distance, by = high.plus(low, -1).high, step.low
        if distance is None or by is None or by < 1:
            return None
        count = max(0, -(-distance // by))
        if count == 0:
            return 1
        last = high.plus(Sum(1), -1)
        i = Unknown(low.low, last.high, below=(last,), above=(low,))
        self.known[part.op.regions[0].blocks[0].arguments[0]] = unknown(i)
        inside = self.rounds(part.inside[0])
        return None if inside is None else count * (1 + inside) + 1

    def branch(self, part: _Part) -> int | None:
        kept, total = self.known, 0
        for inside, holds in zip(part.inside, (True, False), strict=True):
            self.known = dict(kept)
            if not self.suppose(part.op.operands[0], holds) and inside:
                self.sure = False
            found = self.rounds(inside)
            self.known = kept
            if found is None:
                return None
            total += found
        return total

    def suppose(self, condition: ir.Value, holds: bool) -> bool:
        """Keep what a condition says of the integers that it compares; whether those are of the
        launch, and not of data."""
        if isinstance(condition.owner, ir.Block):
            return False
        op = condition.owner.operation
        if op.name == "arith.andi" and holds:
            return all([self.suppose(v, holds) for v in op.operands])
        if op.name != "arith.cmpi":
            return False
        a, b = op.operands
        of_launch = all(s.low is not None and s.high is not None for s in self.values(op))
        kind = ir.IntegerAttr(op.attributes["predicate"]).value
        kind = kind if holds else _OPPOSITE.get(kind)
        if kind in _LESS:
            self.keep_less(a, b, _LESS[kind])
        elif kind in _MORE:
            self.keep_less(b, a, _MORE[kind])
        return of_launch

    def keep_less(self, a: ir.Value, b: ir.Value, by: int) -> None:
        x, y = self.value(a), self.value(b)
        if x.constant is None:
            self.known[a] = lower(x, y.plus(Sum(by), -1))
        if y.constant is None:
            self.known[b] = higher(y, x.plus(Sum(by)))

    # -- integers --------------------------------------------------------------------------

    def value(self, v: ir.Value) -> Sum:
        """What is known of an integer."""
        if v not in self.known:
            found = None
            maker = None if isinstance(v.owner, ir.Block) else v.owner.operation
            if maker is not None and maker.name in _VALUES:
                found = _VALUES[maker.name](self, maker)
            self.known[v] = found or between(None, None)
        return self.known[v]

    def values(self, op: ir.Operation) -> list[Sum]:
        """What is known of the operands of an op."""
        return [self.value(v) for v in op.operands]

    def load(self, op: ir.Operation) -> Sum | None:
        memory, at = op.operands
        n = self.value(at).constant if memory == self.sizes else None
        # Behind the sizes are the first elements of views.
        return _of_dim(self.params[n]) if n is not None and n < len(self.params) else None

    def thread(self, op: ir.Operation) -> Sum:
        return between(0, self.kernel.block - 1 if _axis(op) == 0 else 0)

    def group(self, op: ir.Operation) -> Sum:
        most = _of_dim(self.groups[_axis(op)]).high
        return between(0, most and max(0, most - 1))

    def product(self, op: ir.Operation) -> Sum | None:
        a, b = self.values(op)
        for x, y in ((a, b), (b, a)):
            if x.constant is not None:
                return y.times(x.constant)
        return _corners(a, b, lambda x, y: x * y)

    def quotient(self, op: ir.Operation) -> Sum | None:
        a, b = self.values(op)
        if a.low is None or a.low < 0 or b.low is None or b.low < 1:
            return None
        return _corners(a, b, lambda x, y: x // y) or between(0, a.high)

    def remainder(self, op: ir.Operation) -> Sum | None:
        a, b = self.values(op)
        if b.low is None or b.low < 1 or b.high is None:
            return None
        if a.low is None or a.low < 0:
            return between(1 - b.high if op.name == "arith.remsi" else 0, b.high - 1)
        if a.high is not None and a.high < b.low:
            return a
        return between(0, b.high - 1 if a.high is None else min(a.high, b.high - 1))

    def chosen(self, op: ir.Operation) -> Sum | None:
        condition, *sides = op.operands
        a, b = (self.value(v) for v in sides)
        test = None if isinstance(condition.owner, ir.Block) else condition.owner.operation
        if test is not None and test.name == "arith.cmpi":
            kind = ir.IntegerAttr(test.attributes["predicate"]).value
            kind = kind if list(test.operands) == sides else _SWAPPED.get(kind)
            if set(test.operands) == set(sides) and kind in (*_LESS, *_MORE):
                return lower(a, b) if kind in _LESS else higher(a, b)
        low = None if a.low is None or b.low is None else min(a.low, b.low)
        high = None if a.high is None or b.high is None else max(a.high, b.high)
        return between(low, high)

    def converted(self, op: ir.Operation) -> Sum | None:
        """The same number, if it surely fits."""
        found, kind = self.value(op.operands[0]), op.results[0].type
        bits = kind.width if isinstance(kind, ir.IntegerType) else 32
        low, high = found.low, found.high
        if low is None or high is None or (op.name == "arith.extui" and low < 0):
            return None
        return found if -1 << (bits - 1) <= low and high < 1 << (bits - 1) else None


def _of_dim(d: Dim) -> Sum:
    if isinstance(d, int):
        return Sum(d)
    low, high = (None if math.isinf(end) else int(end) for end in bounds(d))
    return between(low, high)


def _constant(_: _Reader, op: ir.Operation) -> Sum:
    return Sum(ir.IntegerAttr(op.attributes["value"]).value)


def _axis(op: ir.Operation) -> int:
    return "xyz".index(str(op.attributes["dimension"]).split()[-1].rstrip(">"))


def _corners(a: Sum, b: Sum, f: Callable[[int, int], int]) -> Sum | None:
    """What ``f`` gives, if it rises or falls with each operand."""
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return None
    found = [f(x, y) for x, y in product((a.low, a.high), (b.low, b.high))]
    return between(min(found), max(found))


# arith.cmpi's predicates: by how much a is less than b at least, or more.
_LESS, _MORE = {2: 1, 3: 0}, {4: 1, 5: 0}
_OPPOSITE = {2: 5, 3: 4, 4: 3, 5: 2}
_SWAPPED = {2: 4, 3: 5, 4: 2, 5: 3}

_VALUES: dict[str, Callable[[_Reader, ir.Operation], Sum | None]] = {
    "arith.constant": _constant,
    "arith.addi": lambda r, op: r.value(op.operands[0]).plus(r.value(op.operands[1])),
    "arith.subi": lambda r, op: r.value(op.operands[0]).plus(r.value(op.operands[1]), -1),
    "arith.minsi": lambda r, op: lower(*r.values(op)),
    "arith.maxsi": lambda r, op: higher(*r.values(op)),
    "arith.muli": _Reader.product,
    "arith.divsi": _Reader.quotient,
    "arith.divui": _Reader.quotient,
    "arith.remsi": _Reader.remainder,
    "arith.remui": _Reader.remainder,
    "arith.select": _Reader.chosen,
    "arith.index_cast": _Reader.converted,
    "arith.extsi": _Reader.converted,
    "arith.extui": _Reader.converted,
    "arith.trunci": _Reader.converted,
    "memref.load": _Reader.load,
    "gpu.thread_id": _Reader.thread,
    "gpu.block_id": _Reader.group,
}
