"""Between which numbers a dim lies, by the ranges of its symbols.

Bounds are sound, not always the best: ``least`` may be below the least value that there is. They
are ints, or an infinity.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from rlx.base.dim_atoms import Atom, Call, Symbol
from rlx.base.remembered import Remembered

if TYPE_CHECKING:
    from rlx.base.dims import Dim, SymDim, Terms

__all__ = ["Interval", "Known", "bounds", "least"]

Bound = int | float
Interval = tuple[Bound, Bound]
Known = Callable[[Atom], Interval]
"""What else is known of an atom: an interval in which it lies."""

FUEL = 6
"""So many quotients, minima and maxima are looked into to find a bound."""
_by_ranges: Remembered[tuple[Terms, int], Bound] = Remembered()


def bounds(d: Dim, known: Known | None = None) -> Interval:
    """The least and the greatest value of a dim, each as far as it is known."""
    return (d, d) if isinstance(d, int) else (least(d, known), -least(-d, known))


def least(d: Dim, known: Known | None = None, fuel: int = FUEL) -> Bound:
    """What a dim is at least, whatever the sizes are."""
    if isinstance(d, int):
        return d
    if known is not None:
        return _least(d, known, fuel)
    key = d.terms, fuel
    if (found := _by_ranges.get(key)) is None:
        found = _by_ranges[key] = _least(d, None, fuel)
    return found


def _least(d: SymDim, known: Known | None, fuel: int) -> Bound:
    best = max(_interval(d, known)[0], _from_corner(d, known))
    if fuel:
        for mono, c in d.terms:
            if len(mono) == 1 and isinstance(mono[0], Call):
                best = max(best, _related(d, mono[0], c, known, fuel))
    return best


def _from_corner(d: SymDim, known: Known | None) -> Bound:
    """By what every symbol is above its least size: where no factor of that is below 0, as in
    a*b - a with an a and a b of 1 or more, a dim is least where the symbols are."""
    lows: dict[Symbol, int] = {}
    if all(c > 0 for m, c in d.terms if m) or not all(c > 0 for m, c in d.terms if len(m) > 1):
        return -math.inf
    for mono, _ in d.terms:
        for atom in mono:
            if not isinstance(atom, Symbol):
                return -math.inf
            lows[atom] = int(_of_atom(atom, known)[0])
    moved = d.bind({s.name: _alone(d, s) + low for s, low in lows.items()})
    if isinstance(moved, int):
        return moved
    fixed = dict(moved.terms).get((), 0)
    return fixed if all(c > 0 for m, c in moved.terms if m) else -math.inf


def _related(d: SymDim, atom: Call, c: int, known: Known | None, fuel: int) -> Bound:
    """The same, by how ``c`` times an atom is related to what the atom is made of."""
    fuel -= 1
    without = d - _alone(d, atom) * c
    if atom.kind == "//":
        whole, part = atom.args
        if not isinstance(part, int):
            return -math.inf
        best: Bound = -math.inf
        # part * (whole // part) is at most whole, and at least whole - part + 1. A quotient by a
        # factor of part stands for whole, as in (n // 2) - 2 * (n // 4).
        for by in (1, *_divisors(d, part)):
            if c % (left := part // by) == 0:
                inner = whole // by
                nearest = inner if c < 0 else inner - (left - 1)
                best = max(best, least(without + nearest * (c // left), known, fuel))
        return best
    ways = [least(without + a * c, known, fuel) for a in atom.args]
    # A minimum is at most each of its arguments; and it is one of them.
    return max(ways) if (atom.kind == "min") == (c < 0) else min(ways)


def _divisors(d: SymDim, part: int) -> set[int]:
    """The numbers that quotients of a dim are by, of which ``part`` is a multiple."""
    quotients = [a for m, _ in d.terms for a in m if isinstance(a, Call) and a.kind == "//"]
    found = {q.args[1] for q in quotients}
    return {n for n in found if isinstance(n, int) and 1 < n < part and part % n == 0}


def _alone(d: SymDim, atom: Atom) -> SymDim:
    return type(d)({(atom,): 1})


def _interval(d: Dim, known: Known | None) -> Interval:
    """By interval arithmetic, which takes every atom for one of its own."""
    if isinstance(d, int):
        return d, d
    low: Bound = 0
    high: Bound = 0
    for mono, c in d.terms:
        part: Interval = (c, c)
        for atom in mono:
            part = _times(part, _of_atom(atom, known))
        low, high = low + part[0], high + part[1]
    return low, high


def _of_atom(atom: Atom, known: Known | None) -> Interval:
    low, high = _by_itself(atom, known)
    if known is None:
        return low, high
    more = known(atom)
    return max(low, more[0]), min(high, more[1])


def _by_itself(atom: Atom, known: Known | None) -> Interval:
    if isinstance(atom, Symbol):
        return atom.least, math.inf if atom.most is None else atom.most
    assert isinstance(atom, Call)
    args = [_interval(a, known) for a in atom.args]
    if atom.kind == "//":
        return _over(args[0], args[1])
    pick = min if atom.kind == "min" else max
    return pick(a[0] for a in args), pick(a[1] for a in args)


def _times(a: Interval, b: Interval) -> Interval:
    ends = [_product(x, y) for x in a for y in b]
    return min(ends), max(ends)


def _product(x: Bound, y: Bound) -> Bound:
    if not x or not y:
        return 0
    if math.isinf(x) or math.isinf(y):
        return math.inf if (x > 0) == (y > 0) else -math.inf
    return x * y


def _over(a: Interval, b: Interval) -> Interval:
    """Rounded down; only a divisor above 0 tells anything, and what it may be at 0 is an error."""
    if b[1] < 1 or b[0] < 0:
        return -math.inf, math.inf
    low, high = max(b[0], 1), b[1]
    ends = [_quotient(x, y) for x in a for y in (low, high)]
    return min(ends), max(ends)


def _quotient(x: Bound, y: Bound) -> Bound:
    if math.isinf(y):
        return 0 if x >= 0 else -1
    return x if math.isinf(x) else x // y
