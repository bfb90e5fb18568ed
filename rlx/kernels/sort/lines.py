"""Lines of a tensor put in order: what ``sort`` and ``topk`` of CPUs are written in.

A line is read once, into work memory, as keys or words (``rlx.kernels.sort.network``). The sorted
ones say what the elements are, but for nan and negative zeros: a line that has any is looked at
again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rlx.codegen.builder import Kernel
from rlx.codegen.matrix import LINE_BYTES
from rlx.codegen.reg import Buffer, Reg
from rlx.kernels.sort.network import (
    greatest,
    index_of,
    key_of,
    key_type,
    pad,
    reserve,
    sort_room,
    sorted_at,
    value_of,
)
from rlx.types import DType, bool_, i32, i64

if TYPE_CHECKING:
    from rlx.kernels.fallback.emit import LoopBuilder

__all__ = ["Coder", "Index", "Line"]

Index = Reg | int

LEAST_HELD = 128
"""Candidates that a selection sorts at once, at least: fewer are not worth it."""


class Coder(NamedTuple):
    """How elements of a type are told as numbers: as words with their indices, or as keys."""

    k: Kernel
    dtype: DType
    descending: bool
    words: bool

    @property
    def type(self) -> DType:
        """The type of the numbers."""
        return i64 if self.words else key_type(self.dtype)

    @property
    def together(self) -> int:
        """How many lines side by side are sorted together, on every target: a cache line's."""
        return LINE_BYTES // self.type.bytes

    def number(self, x: Reg, index: Reg) -> tuple[Reg, Reg | None]:
        """The number(s) of element(s), and of floats the bits that those do not tell. ``index`` is
        of i64, and may have lanes."""
        k, lost = self.k, None
        key = key_of(k, x, self.dtype, self.descending)
        if self.dtype.is_float:
            value = value_of(k, key, self.dtype, self.descending)
            lost = k.bitcast(x, key.dtype) ^ k.bitcast(value, key.dtype)
        return ((k.cast(key, i64) << 32) | index if self.words else key), lost

    def value(self, number: Reg) -> Reg:
        """The element(s) of number(s), as far as those tell."""
        key = self.k.cast(number >> 32, key_type(self.dtype)) if self.words else number
        return value_of(self.k, key, self.dtype, self.descending)


class Line:
    """The n elements of operand 0 at the places ``at(i)``, and as many places of the results, of
    which 0 takes elements and 1 indices. ``dense``: they lie one after the other."""

    def __init__(
        self, b: LoopBuilder, at: Callable[[Index], Sequence[Index]], n: int, dense: bool,
        coder: Coder,
    ) -> None:  # fmt: skip
        self.b, self.k, self.at, self.n, self.coder = b, b.k, at, n, coder
        lanes = b.k.target.lanes(coder.type)
        self.lanes = lanes if dense and lanes > 1 else 0

    # -- sorting ---------------------------------------------------------------------------

    def sort(self) -> None:
        """The elements in order, and their indices if they are sorted as words."""
        room = self.room(self.n)
        lost = self.fill(room, self.n)
        sort_room(self.k, room, self.n)
        self.unpack(room, sorted_at(self.k, room.dtype, self.n), self.n)
        if lost is not None:
            self.b.when(lost, self.mend)

    def mend(self) -> None:
        """Write the elements that their numbers do not tell."""
        if self.coder.words:
            self.look_up(self.n)
        else:
            self.put_back()

    def room(self, n: int) -> Buffer:
        """Work memory in which n numbers are sorted."""
        return self.b.work(1, 2 * reserve(n), self.coder.type).buffer

    def number(self, i: Reg, lanes: int) -> tuple[Reg, Reg | None]:
        """The number(s) from an element on, and of floats the bits that those do not tell."""
        k, index = self.k, self.k.cast(i, i64)
        if lanes:
            index = k.splat(index, lanes) + k.lane_numbers(i64, lanes)
        return self.coder.number(self.b.load(0, self.at(i), lanes), index)

    def each(self, n: int, body: Callable[..., Any], init: Sequence[Reg] = ()) -> list[Reg]:
        """Cover n elements by vectors, the rest one by one: ``body(i, lanes, *carried)``. What is
        carried by the ones and what by the others, both from ``init``."""
        k, lanes = self.k, self.lanes
        whole = n - n % max(lanes, 1)
        first = [k.splat(x, lanes) if lanes else x for x in init]
        many = k.loop(0, whole, max(lanes, 1), lambda i, *x: body(i, lanes, *x), first)
        return [*many, *k.loop(whole, n, 1, lambda i, *x: body(i, 0, *x), init)]

    def fill(self, room: Buffer, n: int) -> Reg | None:
        """Make numbers of the first elements. Whether any lacks something; None: none can."""
        k = self.k

        def body(i: Reg, lanes: int, *found: Reg) -> Sequence[Reg]:
            number, lost = self.number(i, lanes)
            k.store(number, room, i)
            return () if lost is None else (found[0] | lost,)

        pad(k, room, n)
        kind = self.coder.dtype
        found = self.each(n, body, [k.const(0, key_type(kind))] if kind.is_float else ())
        if not found:
            return None
        some, single = (k.any(k.compare("ne", x, 0)) for x in found)
        return some | single

    def unpack(self, room: Buffer, start: Index, n: int) -> None:
        """Make results of the n sorted numbers from a place on."""

        def body(i: Reg, lanes: int) -> None:
            number = self.k.load(room, i + start if start else i, lanes)
            if self.coder.words:
                self.b.store(1, self.at(i), index_of(number))
            self.b.store(0, self.at(i), self.coder.value(number))

        self.each(n, body)

    def look_up(self, n: int) -> None:
        """Take the elements that the first indices name."""
        b = self.b

        def one(i: Reg) -> None:
            index = b.index(b.read(b.result(1), self.at(i)))
            b.store(0, self.at(i), b.load(0, self.at(index)))

        b.loop(n, one)

    def put_back(self) -> None:
        """Write the zeros and the nans of a sorted line again, in the order of the operand."""
        b, k, zero = self.b, self.k, self.k.index(0)

        def count(i: Reg, before: Reg, nans: Reg) -> tuple[Reg, Reg]:
            x = b.load(0, self.at(i))
            nan = k.compare("ne", x, x)
            sooner = (x > 0.0) | nan if self.coder.descending else x < 0.0
            return k.select(sooner, before + 1, before), k.select(nan, nans + 1, nans)

        def put(i: Reg, zeros: Reg, nans: Reg) -> tuple[Reg, Reg]:
            x = b.load(0, self.at(i))
            nan, null = k.compare("ne", x, x), k.compare("eq", x, 0.0)
            place = k.select(nan, nans, zeros)
            b.when(nan | null, lambda: b.store(0, self.at(place), x))
            return k.select(null, zeros + 1, zeros), k.select(nan, nans + 1, nans)

        before, nans = b.loop(self.n, count, [zero, zero])
        first = zero if self.coder.descending else k.index(self.n) - nans
        b.loop(self.n, put, [before, first])

    # -- selection -------------------------------------------------------------------------

    def select(self, many: int, precedes: Callable[..., Reg]) -> None:
        """The first ``many`` in order; ``precedes(k, a, b)``: whether the element a comes strictly
        before b, whatever their indices. Candidates are gathered until their room is full; then the
        first of them are kept, and what comes after the last of those is no candidate any more."""
        held = LEAST_HELD
        while held < 4 * many:
            held *= 2
        some = held < self.n
        held = held if some else self.n
        room = self.room(held)
        lost = self.fill(room, held)
        at: Index = 0
        if some:
            self.keep(room, held, many)
            self.search(room, held, many, precedes)
            # Of the later elements nobody has noted whether their keys lack something.
            lost = None if lost is None else self.k.const(True, bool_)
        else:
            sort_room(self.k, room, held)
            at = sorted_at(self.k, room.dtype, held)
        self.unpack(room, at, many)
        if lost is not None:
            self.b.when(lost, lambda: self.look_up(many))

    def keep(self, room: Buffer, held: int, many: int) -> None:
        """Leave of the candidates the first, in order and at the start of the room."""
        k, lanes, top = self.k, self.k.target.lanes(i64), greatest(i64)

        def body() -> None:
            sort_room(k, room, held)
            at = sorted_at(k, room.dtype, held)
            if at:
                k.loop(0, many, 1, lambda i: k.store(k.load(room, i + at), room, i))
            vectors = -(-many // lanes) * lanes
            k.loop(many, vectors, 1, lambda i: k.store(top, room, i))
            some = lanes if lanes > 1 else 0
            k.loop(vectors, held, lanes, lambda i: k.store(top, room, i, some))

        k.outline("keep", [room], [], body)

    def search(self, room: Buffer, held: int, many: int, precedes: Callable[..., Reg]) -> None:
        """Offer the elements from ``held`` on, two vectors at a time."""
        k, b = self.k, self.b
        lanes = k.target.lanes(i32) if self.lanes else 1
        group = 2 * lanes

        def last() -> tuple[Reg, Reg]:
            """The last one kept: its word and its value."""
            word = k.load(room, many - 1)
            return word, b.load(0, self.at(b.index(index_of(word))))

        def shortened() -> Sequence[Reg]:
            self.keep(room, held, many)
            return k.index(many), *last()

        def offer(i: Reg, some: int, parts: int, *state: Reg) -> Sequence[Reg]:
            count, word, value = state
            better: Any = False
            for p in range(parts):
                x = b.load(0, self.at(i + p * some if p else i), some)
                better = precedes(k, x, value) | better

            def take() -> Sequence[Reg]:
                total, step = count, max(self.lanes, 1) if some else 1
                for at in range(0, max(some, 1) * parts, step):
                    total = self.append(room, i + at, step if some else 0, word, total)
                return b.when(total > held - group, shortened, lambda: [total, word, value], state)

            return b.when(k.any(better), take, lambda: state, state)

        state = [k.index(many), *last()]
        whole = held
        if lanes > 1:
            whole = self.n - (self.n - held) % group
            state = k.loop(held, whole, group, lambda i, *s: offer(i, lanes, 2, *s), state)
        k.loop(whole, self.n, 1, lambda i, *s: offer(i, 0, 1, *s), state)
        self.keep(room, held, many)

    def append(self, room: Buffer, i: Reg, lanes: int, last: Reg, count: Reg) -> Reg:
        """Put the words from an element on that come before ``last`` at the end of the candidates,
        and return how many there are now."""
        k = self.k
        word, _ = self.number(i, lanes)

        def put() -> Sequence[Reg]:
            total = count
            for lane in range(max(lanes, 1)):
                one = k.extract(word, lane) if lanes else word
                k.store(one, room, total)
                total = k.select(one < last, total + 1, total)
            k.store(greatest(i64), room, total)  # over what was written last, if it is none
            return [total]

        return k.when(k.any(word < last), put, lambda: [count], [count])[0]
