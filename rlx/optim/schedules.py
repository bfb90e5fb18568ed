"""Learning rates that change with the number of updates made.

A schedule is a function of graph values: it takes that number, a float scalar counted from 0, and
gives the rate of the next update, of the same type: f32, or f64 for params of f64. Any such
function will do; these are the common ones.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

from rlx.base.frozen import frozen
from rlx.errors import GraphError
from rlx.ir.builders import located, public
from rlx.ir.value import Value
from rlx.ops.movement.constant import Constant as Literal
from rlx.types import DType

__all__ = [
    "Constant", "Schedule", "StepDecay", "WarmupCosine", "WarmupLinear", "as_schedule",
    "scalar",
]  # fmt: skip

Schedule = Callable[[Value], Value]


@public
@frozen
class Constant:
    """The same rate always."""

    rate: float

    def __post_init__(self) -> None:
        _check_rate(self.rate)

    def __call__(self, done: Value) -> Value:
        return scalar(self.rate, done.dtype)


@public
@frozen
class StepDecay:
    """``rate`` times ``factor`` for every ``every`` updates made, as PyTorch's StepLR."""

    rate: float
    every: int
    factor: float = 0.1

    def __post_init__(self) -> None:
        _check_rate(self.rate)
        _check_count("every", self.every, 1)
        _check_factor(self.factor)

    def __call__(self, done: Value) -> Value:
        times = (done / float(self.every)).floor()
        return self.factor**times * self.rate


@frozen
class _Warmup(ABC):
    """From 0 to ``rate`` in ``warmup`` updates, then down to ``end`` at update ``total``, where it
    stays. The first update of a warm-up has the rate ``rate / warmup``, and not 0."""

    rate: float
    total: int
    warmup: int = 0
    end: float = 0.0

    def __post_init__(self) -> None:
        _check_rate(self.rate)
        _check_rate(self.end)
        _check_count("warmup", self.warmup, 0)
        _check_count("total", self.total, self.warmup + 1)

    def __call__(self, done: Value) -> Value:
        part = (done - float(self.warmup)) / float(self.total - self.warmup)
        falling = self.fall(part.maximum(0.0).minimum(1.0)) * (self.rate - self.end) + self.end
        if self.warmup == 0:
            return falling
        rising = (done + 1.0) * (self.rate / self.warmup)
        return (done < float(self.warmup)).where(rising, falling)

    @abstractmethod
    def fall(self, part: Value) -> Value:
        """From 1 to 0 as ``part`` goes from 0 to 1."""


@public
@frozen
class WarmupLinear(_Warmup):
    """Up linearly from 0 to ``rate`` in ``warmup`` updates, then down linearly to ``end`` at update
    ``total``, where it stays. The first update has the rate ``rate / warmup``."""

    def fall(self, part: Value) -> Value:
        return 1.0 - part


@public
@frozen
class WarmupCosine(_Warmup):
    """Up linearly from 0 to ``rate`` in ``warmup`` updates, then down along half a cosine to
    ``end`` at update ``total``, where it stays. The first update has the rate ``rate / warmup``."""

    def fall(self, part: Value) -> Value:
        return ((part * math.pi).cos() + 1.0) * 0.5


def as_schedule(rate: float | Schedule) -> Schedule:
    """A number is a constant schedule; GraphError for what is neither."""
    if callable(rate):
        return rate
    return Constant(rate)


def scalar(number: float, dtype: DType) -> Value:
    """A literal scalar."""
    return Literal(np.asarray(number, dtype.numpy)).out


@located
def _check_factor(factor: float) -> None:
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor <= 1:
        raise GraphError(f"factor is a number above 0 and up to 1, found {factor!r}")


@located
def _check_rate(rate: float) -> None:
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate < math.inf:
        raise GraphError(f"a learning rate is a number from 0 on, or a schedule; found {rate!r}")


@located
def _check_count(name: str, n: int, least: int) -> None:
    if isinstance(n, bool) or not isinstance(n, int) or n < least:
        raise GraphError(f"{name} is a number of updates from {least} on, found {n!r}")
