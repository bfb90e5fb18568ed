"""Interval analysis of a kernel's integers: sums of unknowns that lie between bounds.

A ``Sum`` is a number and multiples of ``Unknown``\\ s; of their differences what they share falls
out, as the start of a block does of its end less its start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from rlx.base.frozen import frozen

__all__ = ["Sum", "Unknown", "between", "higher", "lower", "unknown"]

_DEPTH: Final = 3
"""How many bounds by other sums are put in for each other."""


@dataclass(frozen=True, eq=False)
class Unknown:
    """An integer from ``low`` to ``high`` (None: any), at most each of ``below``, and at least each
    of ``above``."""

    low: int | None = None
    high: int | None = None
    below: tuple[Sum, ...] = ()
    above: tuple[Sum, ...] = ()


@frozen
class Sum:
    """``number`` and ``terms``, a factor of each unknown."""

    number: int
    terms: Mapping[Unknown, int] = field(default_factory=dict[Unknown, int])

    def plus(self, other: Sum, factor: int = 1) -> Sum:
        """The sum with ``factor`` times another."""
        terms = dict(self.terms)
        for u, n in other.terms.items():
            terms[u] = terms.get(u, 0) + factor * n
        number = self.number + factor * other.number
        return Sum(number, {u: n for u, n in terms.items() if n})

    def times(self, factor: int) -> Sum:
        """A multiple."""
        return Sum(0).plus(self, factor)

    @property
    def constant(self) -> int | None:
        """The number that it is, if it has no unknowns."""
        return None if self.terms else self.number

    @property
    def low(self) -> int | None:
        """What it is at least, None if that is not known."""
        most = self.times(-1).high
        return None if most is None else -most

    @property
    def high(self) -> int | None:
        """What it is at most, None if that is not known."""
        return _high(self, _DEPTH)


def _high(s: Sum, depth: int) -> int | None:
    found = s.number
    known = True
    for u, n in s.terms.items():
        end = u.high if n > 0 else u.low
        known = known and end is not None
        found += n * (end or 0)
    ends = [found] if known else []
    if depth:
        for u, n in s.terms.items():
            for bound in u.below if n > 0 else u.above:
                other = _high(s.plus(Sum(0, {u: n}), -1).plus(bound, n), depth - 1)
                ends += [] if other is None else [other]
    return min(ends, default=None)


def unknown(u: Unknown) -> Sum:
    """An unknown as a sum."""
    return Sum(0, {u: 1})


def between(low: int | None, high: int | None) -> Sum:
    """An integer between bounds of which nothing else is known."""
    if low is not None and low == high:
        return Sum(low)
    return unknown(Unknown(low, high))


def lower(a: Sum, b: Sum) -> Sum:
    """The lesser of two."""
    ends = _both(min, a.low, b.low), _either(min, a.high, b.high)
    return unknown(Unknown(*ends, below=(a, b)))


def higher(a: Sum, b: Sum) -> Sum:
    """The greater of two."""
    ends = _either(max, a.low, b.low), _both(max, a.high, b.high)
    return unknown(Unknown(*ends, above=(a, b)))


Choice = Callable[[int, int], int]


def _both(choose: Choice, a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else choose(a, b)


def _either(choose: Choice, a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else choose(a, b)
