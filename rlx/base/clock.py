"""The clock that RLX measures with."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from rlx.errors import GraphError, shown

if TYPE_CHECKING:
    from datetime import timedelta

__all__ = ["Tick", "time_ns"]

R = TypeVar("R")


class Tick(NamedTuple):
    """A moment on the process's monotonic clock; ``ns`` counts from a start that means nothing."""

    ns: int

    @staticmethod
    def now() -> Tick:
        """This moment."""
        return Tick(time.perf_counter_ns())

    def elapsed_ns(self, earlier: Tick) -> int:
        """Nanoseconds from ``earlier`` to this moment."""
        if not isinstance(earlier, Tick):
            raise GraphError(f"earlier is a Tick, found {shown(earlier)}; Tick.now() gives one")
        return self.ns - earlier.ns

    def __sub__(self, earlier: Tick) -> timedelta:
        """The time from ``earlier`` to this moment, to the microsecond that a timedelta has."""
        from datetime import timedelta

        return timedelta(microseconds=self.elapsed_ns(earlier) / 1000)

    def seconds_since(self, earlier: Tick) -> float:
        """Seconds from ``earlier`` to this moment."""
        return 1e-9 * self.elapsed_ns(earlier)


def time_ns(call: Callable[[], R]) -> tuple[R, int]:
    """What ``call`` returns, and the nanoseconds that it took."""
    if not callable(call):
        raise GraphError(f"time_ns takes a function without arguments, found {shown(call)}")
    start = Tick.now()
    result = call()
    return result, Tick.now().elapsed_ns(start)
