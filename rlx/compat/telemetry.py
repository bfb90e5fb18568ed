"""Counters and histograms by name, for a program that serves: what was counted is read at once.

metrics = rlx.MetricsRegistry()
metrics.counter("requests").add()
with metrics.histogram("latency us").timed():
    f.run(inputs)
print(metrics.snapshot())
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock

from rlx.base.clock import Tick
from rlx.base.frozen import frozen
from rlx.errors import GraphError, shown
from rlx.ir.builders import public

__all__ = ["Counter", "Histogram", "HistogramSnapshot", "MetricsRegistry"]

BUCKETS = 16


@public
class Counter:
    """A number that only rises. Safe to use from many threads."""

    def __init__(self) -> None:
        self._value, self._lock = 0, Lock()

    def add(self, n: int = 1) -> None:
        """Count ``n`` more; GraphError for a number below 0."""
        if n < 0:
            raise GraphError(f"a counter rises, found {n}")
        with self._lock:
            self._value += n

    @property
    def value(self) -> int:
        """What was counted."""
        return self._value


@public
@frozen
class HistogramSnapshot:
    """How many observations fell into each bucket, how many there were, and their sum. Bucket 0 has
    those below 2, bucket i those from 2**i to below 2**(i + 1), and the last all above as well."""

    buckets: tuple[int, ...]
    count: int
    sum: float

    @property
    def mean(self) -> float:
        """The mean of the observations; 0 if there were none."""
        return self.sum / self.count if self.count else 0.0

    def quantile(self, part: float) -> float:
        """The upper end of the bucket in which a part of the observations (0 to 1) is reached."""
        if not 0 <= part <= 1:
            raise GraphError(f"a quantile is a number from 0 to 1, found {part}")
        seen = 0
        for i, n in enumerate(self.buckets):
            seen += n
            if n and seen >= part * self.count:
                return float(2 ** (i + 1))
        return 0.0


@public
class Histogram:
    """How often observations fell into 16 buckets, each twice as wide as the one before. Safe to
    use from many threads."""

    def __init__(self) -> None:
        self._buckets, self._sum, self._lock = [0] * BUCKETS, 0.0, Lock()

    def observe(self, value: float) -> None:
        """Count an observation; GraphError for one below 0, and for nan."""
        if not value >= 0:
            raise GraphError(f"an observation is a number from 0 on, found {value}")
        bucket = BUCKETS - 1 if value >= 2**BUCKETS else max(0, int(value).bit_length() - 1)
        with self._lock:
            self._buckets[bucket] += 1
            self._sum += value

    @contextmanager
    def timed(self) -> Generator[None]:
        """Observe the microseconds that the block takes, also if it raises."""
        start = Tick.now()
        try:
            yield
        finally:
            self.observe(Tick.now().elapsed_ns(start) / 1000)

    def snapshot(self) -> HistogramSnapshot:
        """What was observed until now."""
        with self._lock:
            return HistogramSnapshot(tuple(self._buckets), sum(self._buckets), self._sum)


@public
class MetricsRegistry:
    """Counters and histograms by name, made when they are first asked for."""

    def __init__(self) -> None:
        self._made: dict[str, Counter | Histogram] = {}
        self._lock = Lock()

    def counter(self, name: str) -> Counter:
        """The counter of a name; GraphError if a histogram has it."""
        found = self._get(name, Counter)
        assert isinstance(found, Counter)
        return found

    def histogram(self, name: str) -> Histogram:
        """The histogram of a name; GraphError if a counter has it."""
        found = self._get(name, Histogram)
        assert isinstance(found, Histogram)
        return found

    def _get(self, name: str, kind: type[Counter | Histogram]) -> Counter | Histogram:
        if not isinstance(name, str) or not name:
            raise GraphError(f"a metric's name is text, found {shown(name)}")
        with self._lock:
            found = self._made.setdefault(name, kind())
        if not isinstance(found, kind):
            have = type(found).__name__.lower()
            raise GraphError(f"{name!r} is a {have}, and not a {kind.__name__.lower()}")
        return found

    def snapshot(self) -> dict[str, int | HistogramSnapshot]:
        """The values of all, by name."""
        with self._lock:
            made = dict(self._made)
        return {n: m.value if isinstance(m, Counter) else m.snapshot() for n, m in made.items()}
