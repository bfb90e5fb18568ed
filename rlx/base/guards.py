"""Decisions about dims: by ranges where these tell, else by the sizes at hand, with a guard.

    with Deciding({"batch": 8}) as d:
        fits = batch * 4 <= 64
    print(*d.guards)    # batch <= 16

In such a block a comparison of dims answers for the sizes at hand, and what it said becomes a
condition: whatever was decided there is right for all sizes that meet the guards.

Where either answer gives the same results, and one of them is faster, ``prefers`` asks: for a
``general`` schedule, which is to serve as many sizes as it can, it takes the answer that is right
for all. A call waits for a ``hasty`` one: it does without kernels whose code takes long to make
(``hurries``), and notes in ``left_out`` that another would have them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Literal, TypeVar

from rlx.base.dim_atoms import Atom, Call, operand
from rlx.base.dim_bounds import Bound, Interval, bounds
from rlx.base.frozen import frozen
from rlx.errors import ShapeError

if TYPE_CHECKING:
    from rlx.base.dims import Dim, SymDim, Terms

__all__ = [
    "Deciding", "Guard", "at_hand", "at_least_zero", "bit_length", "deciding", "hurries", "is_one",
    "is_zero", "prefers", "size_of", "within",
]  # fmt: skip

T = TypeVar("T")
Relation = Literal["==", "!=", ">=", "<="]
_EVERYTHING: Interval = (-math.inf, math.inf)
_NEGATED: dict[Relation, Relation] = {"==": "==", "!=": "!=", ">=": "<=", "<=": ">="}
_OF_REMAINDERS: dict[tuple[Relation, int], tuple[Relation, int]] = {
    ("<=", 0): ("==", 0), (">=", 1): ("!=", 0)
}  # fmt: skip
"""Comparisons of what is 0 or more, as a question of multiples."""


@frozen
class Guard:
    """A condition on sizes: a dim without a number of its own, compared with a number."""

    dim: SymDim
    relation: Relation
    number: int

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether sizes meet it."""
        found = self.dim.bind(sizes)
        assert isinstance(found, int), f"{self} needs more than {sorted(sizes)}"
        return {
            "==": found == self.number,
            "!=": found != self.number,
            ">=": found >= self.number,
            "<=": found <= self.number,
        }[self.relation]

    def ask(self, dims: Mapping[str, Dim]) -> bool:
        """Ask whether it holds, of other dims for its symbols (see ``Deciding``)."""
        d = self.dim.bind(dims)
        if self.relation in ("==", "!="):
            return (d == self.number) == (self.relation == "==")
        return d >= self.number if self.relation == ">=" else d <= self.number

    def __str__(self) -> str:
        text = self._of_remainder() or f"{self.dim} {self.relation} {self.number}"
        return text.replace("-1*", "-")

    def _of_remainder(self) -> str:
        """``n % 4 == 0`` of a guard on ``n - 4*(n//4)`` or on ``4*(n//4) - n``; none of others."""
        for monomial, by in self.dim.terms:
            match monomial:
                case [Call(kind="//", args=(whole, int(part)))] if part == abs(by):
                    sign = 1 if by < 0 else -1
                    rest = self.dim + sign * (whole // part * part - whole)
                    asked = self.relation if sign == 1 else _NEGATED[self.relation]
                    asked, number = _OF_REMAINDERS.get((asked, c := sign * self.number), (asked, c))
                    if isinstance(rest, int) and rest == 0:
                        return f"{operand(whole)} % {part} {asked} {number}"
                case _:
                    pass
        return ""


class Deciding:
    """The sizes for which is decided, and what the decisions say of sizes (see the module)."""

    def __init__(
        self, sizes: Mapping[str, int], general: bool = False, hasty: bool = False
    ) -> None:
        self.sizes, self.general, self.hasty = dict(sizes), general, hasty
        self.left_out = False
        self._told_alone = False
        # By the terms of dims: to compare dims here would be a decision.
        self._within: dict[Terms, Interval] = {}
        self._not: dict[Terms, set[int]] = {}
        self._equal: dict[tuple[Terms, Terms | int], bool] = {}
        self._known: dict[Terms, Interval] = {}
        self._token: Token[Deciding | None] | None = None

    def __enter__(self) -> Deciding:
        self._token = _current.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._token is not None
        _current.reset(self._token)

    @property
    def guards(self) -> tuple[Guard, ...]:
        """The conditions under which all decisions are right, in the order of the first ones."""
        found: list[Guard] = []
        for terms, (low, high) in self._within.items():
            d = _dim_of(terms)
            if low == high:
                found.append(Guard(d, "==", int(low)))
                continue
            if not math.isinf(low):
                found.append(Guard(d, ">=", int(low)))
            if not math.isinf(high):
                found.append(Guard(d, "<=", int(high)))
        for terms, numbers in self._not.items():
            d = _dim_of(terms)
            found += [Guard(d, "!=", n) for n in sorted(numbers)]
        return tuple(found)

    def assume(self, guards: Iterable[Guard]) -> Deciding:
        """Take conditions for given: questions that they answer are no decisions."""
        for g in guards:
            key = g.dim.terms
            if g.relation == "!=":
                self._not.setdefault(key, set()).add(g.number)
                continue
            low, high = self._within.get(key, _EVERYTHING)
            low = low if g.relation == "<=" else max(low, g.number)
            high = high if g.relation == ">=" else min(high, g.number)
            self._within[key] = low, high
        return self

    def told(self, question: Callable[[], T], otherwise: T) -> T:
        """The answer to a question about dims, if ranges and guards alone give it."""
        before, self._told_alone = self._told_alone, True
        try:
            return question()
        except _UntoldError:
            return otherwise
        finally:
            self._told_alone = before

    def equal(self, a: SymDim, b: Dim) -> bool:
        """Whether two dims are the same size. What was answered once is not worked out again."""
        key = a.terms, (b if isinstance(b, int) else b.terms)
        found = self._equal.get(key)
        if found is None:
            found = self._equal[key] = is_zero(a - b, a)
        return found

    def at_least_zero(self, d: SymDim) -> bool:
        """Whether a dim is 0 or more."""
        part, by, number = _normal(d)
        if by < 0:
            return self._at_most(part, number // -by)
        return not self._at_most(part, -(number // by) - 1)

    def is_zero(self, d: SymDim) -> bool:
        """Whether a dim is 0."""
        part, by, number = _normal(d)
        if number % by:
            return False
        wanted = -number // by
        low, high = self._interval(part)
        if not low <= wanted <= high or wanted in self._not.get(part.terms, ()):
            return False
        if low == high:
            return True
        self._decide()
        if self._size(part) == wanted:
            self._narrow(part, wanted, wanted)
            return True
        if wanted in (low, high):
            self._narrow(part, low + (wanted == low), high - (wanted == high))
        else:
            self._not.setdefault(part.terms, set()).add(wanted)
        return False

    def size_of(self, d: SymDim) -> int:
        """The size of a dim, which is then the only one."""
        part, by, number = _normal(d)
        low, high = self._interval(part)
        if low == high:
            return int(low) * by + number
        self._decide()
        size = self._size(part)
        self._narrow(part, size, size)
        return size * by + number

    def peek(self, d: SymDim) -> int:
        """The size of a dim, of which no guard tells: what is done by it must be right for any."""
        return self._size(d)

    def within(self, d: SymDim) -> Interval:
        """Between which numbers a dim is known to lie."""
        part, by, number = _normal(d)
        ends = [n * by + number for n in self._interval(part)]
        return min(ends), max(ends)

    def bit_length(self, d: SymDim) -> int:
        """How many bits the size of a dim that is not below 0 has."""
        self._decide()
        bits = self._size(d).bit_length()
        within = d >= (1 << bits >> 1) and d < 1 << bits
        assert within, f"{d} is below 0"
        return bits

    def _at_most(self, part: SymDim, number: int) -> bool:
        low, high = self._interval(part)
        if high <= number:
            return True
        if low > number:
            return False
        self._decide()
        if self._size(part) <= number:
            self._narrow(part, low, number)
            return True
        self._narrow(part, number + 1, high)
        return False

    def _decide(self) -> None:
        """What follows is decided by the sizes at hand."""
        if self._told_alone:
            raise _UntoldError

    def _narrow(self, part: SymDim, low: Bound, high: Bound) -> None:
        """Note what was decided: of the interval's ends those that follow from nothing else."""
        key = part.terms
        before = self._within.get(key, _EVERYTHING)
        known = bounds(part, self._atom)
        kept = (
            before[0] if low <= known[0] else low,
            before[1] if high >= known[1] else high,
        )
        self._within[key] = kept
        self._known.clear()
        if (numbers := self._not.get(key)) is not None:
            self._not[key] = {n for n in numbers if kept[0] <= n <= kept[1]}

    def _interval(self, part: SymDim) -> Interval:
        key = part.terms
        if (found := self._known.get(key)) is None:
            low, high = bounds(part, self._atom)
            more = self._within.get(key, _EVERYTHING)
            found = self._known[key] = max(low, more[0]), min(high, more[1])
        return found

    def _atom(self, atom: Atom) -> Interval:
        if not self._within:
            return _EVERYTHING
        return self._within.get((((atom,), 1),), _EVERYTHING)

    def _size(self, part: SymDim) -> int:
        found = part.bind(self.sizes)
        if not isinstance(found, int):
            names = ", ".join(sorted(found.symbols))
            raise ShapeError(f"the dim {part} has no size yet: there is none for {names}")
        return found


class _UntoldError(Exception):
    """Neither ranges nor guards tell the answer."""


_current: ContextVar[Deciding | None] = ContextVar("deciding", default=None)


def deciding() -> Deciding | None:
    """What decides at the moment, if anything does."""
    return _current.get()


def prefers(question: Callable[[], T], otherwise: T) -> T:
    """The answer to a question about dims of which any answer gives results of the same bits.
    ``otherwise`` is one that is right for all sizes: a general schedule takes it where ranges do
    not tell."""
    now = _current.get()
    return question() if now is None or not now.general else now.told(question, otherwise)


def hurries() -> bool:
    """Whether a general schedule is to do without a kernel whose code takes long to make; it then
    counts as one that left it out."""
    now = _current.get()
    if now is None or not now.hasty:
        return False
    now.left_out = True
    return True


def is_one(d: Dim) -> bool:
    """Whether a dim is of one element, whose axis may be dropped and whose stride counts for
    nothing; for a general schedule, whether it surely is."""
    return prefers(lambda: d == 1, otherwise=False)


def at_least_zero(d: Dim, asked: SymDim) -> bool:
    """Whether a dim is 0 or more; ``asked`` is what the question was about."""
    if isinstance(d, int | float):
        return d >= 0
    low, high = bounds(d)
    if low >= 0 or high < 0:
        return low >= 0
    return _decider(asked).at_least_zero(d)


def is_zero(d: Dim, asked: SymDim) -> bool:
    """Whether a dim is 0."""
    if isinstance(d, int):
        return d == 0
    low, high = bounds(d)
    if low > 0 or high < 0:
        return False
    return _decider(asked).is_zero(d)


def size_of(d: SymDim) -> int:
    """The size of a dim, as a number for good: what it is used for holds for that size alone."""
    return _decider(d).size_of(d)


def at_hand(d: Dim) -> int:
    """The size of a dim for now, of which no guard tells: for what is right by any size, and better
    by the right one."""
    return d if isinstance(d, int) else _decider(d).peek(d)


def within(d: Dim) -> Interval:
    """Between which numbers a dim is known to lie."""
    if isinstance(d, int):
        return d, d
    return bounds(d) if (now := _current.get()) is None else now.within(d)


def bit_length(d: SymDim) -> int:
    """How many bits the size of a dim that is not below 0 has."""
    decider = _decider(d)
    low, high = decider.within(d)
    if 0 <= low <= high < math.inf and int(low).bit_length() == int(high).bit_length():
        return int(low).bit_length()
    return decider.bit_length(d)


def _decider(d: SymDim) -> Deciding:
    found = _current.get()
    if found is None:
        first = min(d.symbols)
        raise ShapeError(
            f"the dim {d} has no size yet; bind it with dims={{{first!r}: 8}} or"
            f" graph.bind, or compute on the values by ops of the graph"
        )
    return found


def _dim_of(terms: Terms) -> SymDim:
    from rlx.base.dims import SymDim

    return SymDim(dict(terms))


def _normal(d: SymDim) -> tuple[SymDim, int, int]:
    """(part, by, number) of a dim that is ``part * by + number``: ``part`` has no number, no common
    factor, and a first term that is above 0."""
    number = dict(d.terms).get((), 0)
    rest = {m: c for m, c in d.terms if m}
    by = math.gcd(*rest.values())
    if d.terms[-1][1] < 0:
        by = -by
    return type(d)({m: c // by for m, c in rest.items()}), by, number
