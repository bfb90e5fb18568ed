"""Missing ops of a model: all that RLX lacks, in one error."""

from __future__ import annotations

from collections import Counter

from rlx.errors import UnsupportedError

__all__ = ["MissingOps"]

PLACES = 3
"""The most places that are named for an op."""


class MissingOps:
    """The ops without a row, how often each is used, and where in the user's code."""

    def __init__(self, what: str, advice: str) -> None:
        self._what, self._advice = what, advice
        self.counts: Counter[str] = Counter()
        self._places: dict[str, dict[str, None]] = {}

    def add(self, name: str, place: str = "", times: int = 1) -> None:
        """Note uses of an op, at a place of the user's if it is known."""
        self.counts[name] += times
        if place:
            self._places.setdefault(name, {})[place] = None

    def refuse(self) -> None:
        """UnsupportedError that lists every op that was noted, the most used first; nothing if
        there is none."""
        if self.counts:
            listed = ", ".join(self._entry(name, n) for name, n in self.counts.most_common())
            raise UnsupportedError(
                f"these {self._what} are not there yet: {listed}; {self._advice}"
            )

    def _entry(self, name: str, count: int) -> str:
        places = list(self._places.get(name, ()))
        more = [f"{len(places) - PLACES} more places"] if len(places) > PLACES else []
        where = ", ".join(places[:PLACES] + more)
        return f"{name} x {count} ({where})" if where else f"{name} x {count}"
