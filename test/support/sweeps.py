"""Sweeps: tests of which there are more cases than every session can run.

A session takes a part of each, the same one every time, in which everything comes up that is known
to matter: ``covering`` every fact of the cases, ``pairs`` every two values of two parameters
together, ``turn`` one case in so many, ``seeds`` the first of random cases, which are alike.
``make sweep`` takes all, as ``RLX_TEST_CASES=covering`` and ``full`` do. A session says at its end
how many of how many cases it took.
"""

from __future__ import annotations

import heapq
import itertools
import os
import sys
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import pytest

__all__ = ["WHOLE", "covering", "pairs", "pairwise", "parts", "seeds", "turn"]

T = TypeVar("T")

WHOLE = os.environ.get("RLX_TEST_CASES", "turning") != "turning"
"""Whether sweeps are taken as a whole."""

parts: dict[str, tuple[int, int]] = {}
"""How many cases a session takes of how many, by the place that chooses them."""


def covering(cases: Iterable[T], facts: Callable[[T], Iterable[Hashable]]) -> list[T]:
    """Cases in their order in which every fact comes up that comes up in all of them. ``facts``
    gives those of a case, such as its element type and the form of kernel that it needs."""
    every = list(cases)
    return _taken(every, _cover([set(facts(case)) for case in every]))


def pairs(*axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Of the product of axes cases in which every two values of two axes meet: few faults need
    three (`Kuhn, Wallace and Gallo 2004 <https://doi.org/10.1109/TSE.2004.24>`_)."""
    lines = [list(values) for values in axes]
    numbers = itertools.product(*(range(len(line)) for line in lines))
    facts = [{*itertools.combinations(enumerate(case), 2)} for case in numbers]
    return _taken(list(itertools.product(*lines)), _cover(facts))


def pairwise(**axes: Iterable[Any]) -> pytest.MarkDecorator:
    """A ``parametrize`` of several arguments by their ``pairs``."""
    return pytest.mark.parametrize(tuple(axes), pairs(*axes.values()), ids=_words)


def turn(cases: Sequence[T], number: int, turns: int) -> list[T]:
    """Of cases those whose turn it is: with the numbers from 0 to ``turns`` all come up."""
    return _taken(cases, range(number % turns, len(cases), turns))


def seeds(usual: int, most: int) -> range:
    """The seeds of random cases: so many, and so many of a whole sweep."""
    return range(len(_taken(range(most), range(usual))))


def _words(value: Any) -> str | None:
    """Types and the like by their names, what pytest has a word for by that."""
    return None if isinstance(value, str | int | float | bool | tuple | list) else str(value)


def _cover(facts: Sequence[set[Hashable]]) -> list[int]:
    """Which sets have all facts together: again and again the one that adds most, of equals the
    first."""
    missing, taken = set[Hashable]().union(*facts), list[int]()
    waiting = [(-len(some), n) for n, some in enumerate(facts)]  # what each added when it was asked
    heapq.heapify(waiting)
    while missing:
        _, n = heapq.heappop(waiting)
        adds = (-len(facts[n] & missing), n)
        if waiting and adds > waiting[0]:  # others add more, or as much and come first
            heapq.heappush(waiting, adds)
            continue
        taken.append(n)
        missing -= facts[n]
    return sorted(taken)


def _taken(every: Sequence[T], part: Iterable[int]) -> list[T]:
    taken = list(every) if WHOLE else [every[n] for n in part]
    frame = sys._getframe(2)
    while frame.f_globals["__name__"] == __name__ and frame.f_back is not None:
        frame = frame.f_back
    place = f"{frame.f_globals['__name__']}:{frame.f_lineno}"
    some, all_of_them = parts.get(place, (0, 0))
    parts[place] = (some + len(taken), all_of_them + len(every))
    return taken
