"""Running folds along an axis: element by element on GPUs, and by vectors on CPUs.

Across: the lanes of a vector are columns that are neighbours in memory, each of which is folded as
it would be alone. Rows are read in their order, and what is carried is read and written with each:
memory gives whole rows sooner than pieces of them.

Along: where lines are contiguous and the fold may be grouped in any way, a vector is folded within
itself, in log2(lanes) rounds. What is carried waits for one operation a vector, and not for one an
element.

Beside: where it may not, the lanes are lines, and squares of elements are transposed.

How elements are grouped follows from the shape and the width of vectors, and not from tasks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rlx.base.dims import maximum, minimum
from rlx.base.guards import prefers
from rlx.codegen.combine import LEVELS, PART
from rlx.codegen.lanes import transposed
from rlx.codegen.matrix import LINE_BYTES
from rlx.codegen.reg import Buffer, Reg
from rlx.ops.reduction.recurrence import Running

if TYPE_CHECKING:
    from rlx.kernels.fallback.emit import LoopBuilder

__all__ = ["emit"]

NARROW = 64
"""The columns of a task: as many as the most lanes of a target, and whole lines of a cache."""

WIDE_BYTES = 16384
"""What is read of a row at once: long enough for a stream, and what is carried fits the first
cache."""

LINES = 16
"""Contiguous lines of a task whose lanes are lines: as many as the most lanes of floats."""

SHORT_BYTES = 16
"""A vector along a line of elements below 32 bits: one that an instruction shifts."""


def emit(b: LoopBuilder, op: Running, operands: Sequence[Buffer], out: Buffer) -> None:
    """The loops of the op. The points of the domain are its lines, and on a CPU blocks of those
    that are neighbours."""
    if not b.serial:
        _line_by_line(b, op)
        return
    columns = math.prod(op.out.type.static_shape[op.way[0] + 1 :])
    kind = _Across if columns > 1 else _Along if op.groups else _Beside
    kind(b, op, operands, out).emit()


def _line_by_line(b: LoopBuilder, op: Running) -> None:
    shape, (axis, reverse, excludes) = op.out.type.static_shape, op.way

    def line(*at: Reg) -> None:
        def step(i: Reg, *carried: Reg) -> list[Reg]:
            place = [*at[:axis], (shape[axis] - 1) - i if reverse else i, *at[axis:]]
            then = op.step(b.k, carried, lambda n: b.load(n, place))
            b.store(0, place, op.element(b.k, carried if excludes else then))
            return then

        b.loop(shape[axis], step, op.start(b))

    b.parallel((*shape[:axis], *shape[axis + 1 :]), line)


def _lanes(most: int, count: int) -> int:
    """The lanes of a vector of which each does one of ``count``: a power of two, at most ``most``;
    0 for scalars."""
    if most > 1 and count >= most:
        return most
    return prefers(lambda: 1 << (count.bit_length() - 1) if count > 1 else 0, otherwise=0)


class _Lines:
    """Dense operands as ``outer`` matrices of ``length`` rows, down whose ``columns`` it runs."""

    def __init__(
        self, b: LoopBuilder, op: Running, operands: Sequence[Buffer], out: Buffer
    ) -> None:
        self.b, self.k, self.op = b, b.k, op
        self.operands, self.out = operands, out
        shape, (axis, self.reverse, self.excludes) = op.out.type.static_shape, op.way
        self.outer, self.length = math.prod(shape[:axis]), shape[axis]
        self.columns = math.prod(shape[axis + 1 :])
        self.dtype = op.out.type.dtype

    def place(self, first: Reg, i: Reg, count: int = 1) -> Reg:
        """Where ``count`` neighbours lie, of which the i-th in the order of the fold is the first,
        of the column whose first element is at ``first``."""
        at = (self.length - count) - i if self.reverse else i
        return first + (at * self.columns if self.columns != 1 else at)

    def folded(self, carried: Sequence[Reg], read: Callable[[int], Reg]) -> tuple[list[Reg], Reg]:
        """What is carried on from elements that are read by the operand's number, and the result's
        element."""
        then = self.op.step(self.k, carried, read)
        return then, self.op.element(self.k, carried if self.excludes else then)

    def step(self, first: Reg, i: Reg, carried: Sequence[Reg], lanes: int) -> list[Reg]:
        """Row i of a column, or of ``lanes`` of them; what is carried on."""
        at = self.place(first, i)
        then, x = self.folded(carried, lambda n: self.k.load(self.operands[n], at, lanes))
        self.k.store(x, self.out, at)
        return then


class _Across(_Lines):
    """Columns as lanes. What a vector carries has a place of its own in scratch, so the last one of
    a block may do columns twice."""

    @property
    def lanes(self) -> int:
        """Of a vector: a power of two, no more than there are columns; 0 for scalars."""
        return _lanes(self.k.target.lanes(self.dtype), self.columns)

    def emit(self) -> None:
        """A task some columns; a call does all those that it was given of a matrix together."""
        k, count = self.k, maximum(1, self.columns // NARROW)  # the last one has the rest
        wide = max(NARROW, WIDE_BYTES // self.dtype.bytes)

        def span(o: Reg, low: Reg, high: Reg) -> None:
            base, begin, end = o * (self.length * self.columns), k.index(0), k.index(self.columns)
            if not isinstance(count, int) or count > 1:
                begin, end = low * NARROW, k.select(high < count, high * NARROW, end)
            short = prefers(lambda: self.columns * self.dtype.bytes <= LINE_BYTES, otherwise=False)
            if short:
                self.vector_by_vector(base, begin, end)
                return
            room = minimum(wide, -(-self.columns // NARROW) * NARROW)
            rooms = [self.b.work(1, room, x.dtype).buffer for x in self.op.start(self.b)]
            k.loop(begin, end, wide, lambda j: self.row_by_row(base, j, end, wide, rooms))

        self.b.spans(self.outer, count, span)

    @property
    def start(self) -> list[Reg]:
        """What is carried into the first row."""
        return [self.k.splat(x, self.lanes) for x in self.op.start(self.b)]

    def each(self, begin: Reg, end: Reg, body: Callable[[Reg, Reg], None]) -> None:
        """``body(j, at)`` for the vectors of some columns; that of j has those from ``at`` on."""
        last = end - max(self.lanes, 1)
        self.k.loop(begin, end, max(self.lanes, 1), lambda j: body(j, self.k.minimum(j, last)))

    def vector_by_vector(self, base: Reg, begin: Reg, end: Reg) -> None:
        """Each down all rows, where a row is a line of the cache or less."""

        def down(_: Reg, at: Reg) -> None:
            first = base + at
            self.k.loop(
                0, self.length, 1, lambda i, *c: self.step(first, i, c, self.lanes), self.start
            )

        self.each(begin, end, down)

    def row_by_row(
        self, base: Reg, begin: Reg, end: Reg, wide: int, rooms: Sequence[Buffer]
    ) -> None:
        """At most ``wide`` columns, from ``begin`` on; what they carry is in scratch."""
        k, end = self.k, self.k.minimum(begin + wide, end)

        def keep(j: Reg, carried: Sequence[Reg]) -> None:
            for room, x in zip(rooms, carried, strict=True):
                k.store(x, room, j - begin)

        def row(i: Reg) -> None:
            def vector(j: Reg, at: Reg) -> None:
                carried = [k.load(room, j - begin, self.lanes) for room in rooms]
                keep(j, self.step(base + at, i, carried, self.lanes))

            self.each(begin, end, vector)

        start = self.start
        self.each(begin, end, lambda j, _: keep(j, start))
        k.loop(0, self.length, 1, row)


class _Beside(_Lines):
    """Contiguous lines as lanes: squares of elements are transposed in registers. The last lines
    may be done twice."""

    @property
    def lanes(self) -> int:
        """Of a vector: a power of two, no more than there are lines; 0 for scalars."""
        return _lanes(min(self.k.target.lanes(self.dtype), LINES), self.outer)

    def emit(self) -> None:
        """A task ``LINES`` lines."""
        k, step = self.k, max(self.lanes, 1)

        def lines(number: Reg) -> None:
            begin, last = number * LINES, self.outer - step
            end = k.minimum(begin + LINES, self.outer)
            k.loop(begin, end, step, lambda j: self.group(k.minimum(j, last) * self.length))

        self.b.parallel((-(-self.outer // LINES),), lines)

    def group(self, first: Reg) -> None:
        """As many lines as lanes; the first begins at ``first``."""
        k, lanes = self.k, self.lanes
        carried = [k.splat(x, lanes) for x in self.op.start(self.b)]
        if not lanes:
            k.loop(0, self.length, 1, lambda i, *c: self.step(first, i, c, 0), carried)
            return
        whole = self.length - self.length % lanes
        if not isinstance(whole, int) or whole:
            carried = k.loop(0, whole, lanes, lambda i, *c: self.square(first, i, c), carried)

        def one(i: Reg, *carried: Reg) -> list[Reg]:
            at = self.place(first, i)
            reads = self.operands
            then, x = self.folded(carried, lambda n: k.gather(reads[n], at, self.length, lanes))
            for n in range(lanes):
                k.store(k.extract(x, n), self.out, at + n * self.length)
            return then

        k.loop(whole, self.length, 1, one, carried)

    def square(self, first: Reg, i: Reg, carried: Sequence[Reg]) -> list[Reg]:
        """As many elements of each line as lanes, from the i-th on."""
        k, lanes = self.k, self.lanes
        at = self.place(first, i, lanes)
        rows = [at + n * self.length for n in range(lanes)]
        rooms: list[Buffer] = []
        for x in self.operands:
            columns = transposed(k, [k.load(x, row, lanes) for row in rows])
            rooms.append(k.stack(columns[0].dtype, lanes * lanes))
            for n, column in enumerate(columns):
                k.store(column, rooms[-1], n * lanes)

        def one(n: Reg, *carried: Reg) -> list[Reg]:
            at = ((lanes - 1) - n if self.reverse else n) * lanes
            then, x = self.folded(carried, lambda m: k.load(rooms[m], at, lanes))
            k.store(x, rooms[0], at)
            return then

        carried = k.loop(0, lanes, 1, one, carried)
        columns = [k.load(rooms[0], n * lanes, lanes) for n in range(lanes)]
        for row, x in zip(rows, transposed(k, columns), strict=True):
            k.store(x, self.out, row)
        return carried


class _Along(_Lines):
    """Contiguous lines: whole vectors if the fold may be grouped, then the rest."""

    @property
    def lanes(self) -> int:
        """Of a vector; 0 where there are none."""
        dt, lanes = self.dtype, self.k.target.lanes(self.dtype)
        if dt.is_int and dt.bits < 32:
            lanes = min(lanes, SHORT_BYTES // dt.bytes)
        return lanes if 1 < lanes <= self.length // 2 else 0

    def emit(self) -> None:
        """A task a line."""
        self.b.parallel((self.outer * self.columns,), self.line)

    def line(self, number: Reg) -> None:
        k, lanes = self.k, self.lanes
        first, carried, done = number * self.length, self.op.start(self.b), 0
        if lanes:
            done = self.length - self.length % lanes
            total = self.part(first, k.index(0), k.index(done), None, self.levels)
            carried = [k.extract(total, 0)]
        k.loop(done, self.length, 1, lambda i, *c: self.step(first, i, c, 0), carried)

    @property
    def levels(self) -> int:
        """How often parts of a long line are folded by themselves: a sum of floats rounds off less
        in short chains (``rlx.codegen.combine``)."""
        if not (self.dtype.is_float or self.dtype.is_complex):
            return 0
        return sum(self.length > self.lanes * PART**n for n in range(1, LEVELS + 1))

    def part(self, first: Reg, begin: Reg, end: Reg, before: Reg | None, levels: int) -> Reg:
        """Fold the vectors of a part of a line, ``before`` which so much was folded; what the part
        makes, in each lane."""
        k, nothing = self.k, self.start

        def vector(i: Reg, carried: Reg) -> Reg:
            at = self.place(first, i, self.lanes)
            found = self.within(k.load(self.operands[0], at, self.lanes))
            own = self.taken(found, range(-1, self.lanes - 1)) if self.excludes else found
            own = self.joined(carried, own)
            k.store(own if before is None else self.joined(before, own), self.out, at)
            return self.joined(carried, self.taken(found, [self.lanes - 1] * self.lanes))

        def shorter(i: Reg, carried: Reg) -> Reg:
            so_far = carried if before is None else self.joined(before, carried)
            last = k.minimum(i + span, end)
            return self.joined(carried, self.part(first, i, last, so_far, levels - 1))

        span = self.lanes * PART**levels
        body = shorter if levels else vector
        return k.loop(begin, end, span, body, [nothing])[0]

    @property
    def start(self) -> Reg:
        """The fold of nothing in each lane."""
        return self.k.splat(self.op.start(self.b)[0], self.lanes)

    def joined(self, a: Reg, b: Reg) -> Reg:
        """The folds of neighbours as one."""
        return self.op.fold(self.k, [a], b)[0]

    def within(self, x: Reg) -> Reg:
        """Each lane with those before it: the second half of every 2, 4, 8, ... lanes with the last
        of their first half (J. Sklansky, "Conditional-sum addition logic", 1960)."""
        half = 1
        while half < self.lanes:
            last = [lane // half * half - 1 if lane & half else -1 for lane in range(self.lanes)]
            x, half = self.joined(self.taken(x, last), x), 2 * half
        return x

    def taken(self, x: Reg, lanes: Sequence[int]) -> Reg:
        """These lanes in the order of the fold; nothing where it is -1."""
        n = self.lanes
        if self.reverse:
            lanes = [n - 1 - lane if lane >= 0 else -1 for lane in reversed(lanes)]
        return self.k.shuffle(self.start, x, [n + v if v >= 0 else i for i, v in enumerate(lanes)])
