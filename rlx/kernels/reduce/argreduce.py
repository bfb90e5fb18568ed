"""Argmax and argmin: the place of the extremum along the middle of [outer, reduced, inner].

The operand has contiguous inner elements, the result is dense. Of columns, every lane is one:

    task (outer, block of inner):
        for each group of vectors in the block:
            for r of reduced: each lane keeps its best element and r         in registers
            store the places

Of rows (inner is 1, and reduced contiguous), every lane keeps the best of each ``lanes``-th
element; then lanes are compared, and of equal ones the place decides, so that it does not matter
how a row is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from rlx.base.dims import maximum, minimum
from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.family import Launch
from rlx.codegen.lanes import halves
from rlx.codegen.reg import Reg
from rlx.codegen.strides import Strides, ceil_div
from rlx.kernels.reduce.emit import accumulate_type
from rlx.types import DType, i32, i64

__all__ = ["ArgReduceConfig", "emit", "launch"]

name = "argreduce"

COLUMNS = 256
"""Columns of a task."""

SHARE = 1 << 15
"""Elements that are worth a thread of their own."""

VECTORS = 4
"""Vectors of a round: so many chains of comparisons hide the latency of one."""


@frozen
class ArgReduceConfig:
    """The place of the greatest (``verb`` is "gt") or the least ("lt") element of ``dtype``; of
    equal ones the first or the ``last``. ``rows``: there is one inner element, and those of
    reduced are contiguous."""

    verb: Literal["gt", "lt"]
    dtype: DType
    last: bool
    rows: bool


def launch(shape: Sequence[int], strides: Strides) -> Launch:
    """The launch for an operand of [outer, reduced, inner]; its buffers are that and the result.

    ``strides`` are those of outer and reduced, in elements. ``reduced`` is 1 to 2**31 - 1.
    """
    outer, reduced, inner = shape
    tasks = outer * ceil_div(inner, COLUMNS)
    work = reduced * minimum(COLUMNS, inner)
    return Launch(tasks, maximum(1, SHARE // maximum(1, work)), (reduced, inner, *strides[:2]))


class _Best(NamedTuple):
    """An element and its place, or a vector of such."""

    value: Reg
    place: Reg


class _Emitter:
    """Emits the search: a method a loop level."""

    def __init__(self, name: str, config: ArgReduceConfig, target: KernelTarget) -> None:
        self.k = k = Kernel(name, target)
        self.config = config
        self.x, self.out = k.buffer("x", config.dtype), k.buffer("out", i64)
        self.reduced, self.inner = k.size("reduced"), k.size("inner")
        self.outer_stride, self.row_stride = k.size("outer_stride"), k.size("row_stride")
        self.lanes = min(target.lanes(accumulate_type(config.dtype)), target.lanes(i32))

    def emit(self) -> KernelText:
        self.k.parallel(self.row if self.config.rows else self.block)
        return self.k.text()

    # -- what is better ---------------------------------------------------------------------

    def better(self, a: Reg, than: Reg) -> Reg:
        """Whether ``a`` comes before ``than``: the first nan counts as the extremum."""
        k, found = self.k, self.k.compare(self.config.verb, a, than)
        if not a.dtype.is_float:
            return found
        return found | (k.compare("ne", a, a) & k.compare("eq", than, than))

    def later(self, best: _Best, value: Reg, place: Reg) -> _Best:
        """The better one of ``best`` and an element at a later place."""
        k = self.k
        if self.config.last:
            take = k.logical_not(self.better(best.value, value))
        else:
            take = self.better(value, best.value)
        return _Best(k.select(take, value, best.value), k.select(take, place, best.place))

    def merged(self, a: _Best, b: _Best) -> _Best:
        """The better one of two at any places."""
        k, better = self.k, self.better(b.value, a.value)
        nearer = k.compare("gt" if self.config.last else "lt", b.place, a.place)
        take = better | (k.logical_not(self.better(a.value, b.value)) & nearer)
        return _Best(k.select(take, b.value, a.value), k.select(take, b.place, a.place))

    # -- columns ----------------------------------------------------------------------------

    def block(self, t: Reg) -> None:
        """The columns of a block, by groups of vectors, then by vectors, then one by one."""
        k, blocks = self.k, (self.inner + (COLUMNS - 1)) // COLUMNS
        outer, first = t // blocks, t % blocks * COLUMNS
        count = k.minimum(self.inner - first, COLUMNS)
        source, to = outer * self.outer_stride + first, outer * self.inner + first
        group = self.lanes * VECTORS
        whole = count - count % group
        k.loop(0, whole, group, lambda j: self.columns(source + j, to + j, VECTORS, self.lanes))
        k.halving_loop(
            count - whole,
            self.lanes,
            lambda j, n: self.columns(source + whole + j, to + whole + j, 1, n),
        )

    def columns(self, source: Reg, to: Reg, vectors: int, lanes: int) -> None:
        """``vectors`` of neighbouring columns."""
        k, width = self.k, max(1, lanes)
        zero = k.const(0, i32, lanes)
        first = [_Best(k.load(self.x, source + v * width, lanes), zero) for v in range(vectors)]

        def step(r: Reg, *carried: Reg) -> list[Reg]:
            at, place = source + r * self.row_stride, k.cast(r, i32)
            place = k.splat(place, lanes) if lanes else place
            found = [
                self.later(best, k.load(self.x, at + v * width, lanes), place)
                for v, best in enumerate(_pairs(carried))
            ]
            return [reg for best in found for reg in best]

        ends = k.loop(1, self.reduced, 1, step, [reg for best in first for reg in best])
        for v, best in enumerate(_pairs(ends)):
            k.store(k.cast(best.place, i64), self.out, to + v * width)

    # -- rows -------------------------------------------------------------------------------

    def row(self, t: Reg) -> None:
        """One row: groups of vectors, the rest by vectors, then one by one."""
        k, lanes = self.k, self.lanes
        source = t * self.outer_stride
        first = _Best(k.load(self.x, source), k.const(0, i32))
        start = _Best(*(k.splat(r, lanes) if lanes > 1 else r for r in first))
        done, best = k.index(0), start
        for vectors in (VECTORS, 1) if lanes > 1 else ():
            whole = self.reduced - self.reduced % (lanes * vectors)
            best = self.vectors(source, done, whole, vectors, best)
            done = whole
        while best.value.lanes > 1:
            low, high = (
                _Best(*pair)
                for pair in zip(halves(k, best.value), halves(k, best.place), strict=True)
            )
            best = self.merged(low, high)
        if best.value.lanes:
            best = _Best(*(k.extract(r, 0) for r in best))

        def step(i: Reg, *carried: Reg) -> _Best:
            return self.later(_Best(*carried), k.load(self.x, source + i), k.cast(i, i32))

        end = _Best(*k.loop(done, self.reduced, 1, step, best))
        k.store(k.cast(end.place, i64), self.out, t)

    def vectors(self, source: Reg, lo: Reg, hi: Reg, vectors: int, start: _Best) -> _Best:
        """The elements from ``lo`` to ``hi`` of a row by groups of ``vectors``, each beginning with
        ``start``: what each lane found."""
        k, lanes = self.k, self.lanes
        numbers = k.lane_numbers(i32, lanes)

        def step(i: Reg, *carried: Reg) -> list[Reg]:
            found = [
                self.later(
                    best,
                    k.load(self.x, source + i + v * lanes, lanes),
                    numbers + k.splat(k.cast(i + v * lanes, i32), lanes),
                )
                for v, best in enumerate(_pairs(carried))
            ]
            return [reg for best in found for reg in best]

        ends = _pairs(k.loop(lo, hi, lanes * vectors, step, [*start] * vectors))
        best = ends[0]
        for other in ends[1:]:
            best = self.merged(best, other)
        return best


def _pairs(regs: Sequence[Reg]) -> list[_Best]:
    return [_Best(*regs[i : i + 2]) for i in range(0, len(regs), 2)]


def emit(name: str, config: ArgReduceConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config; ``launch`` gives its sizes."""
    return _Emitter(name, config, target).emit()
