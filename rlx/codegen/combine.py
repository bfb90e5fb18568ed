"""Reduction monoids: the identity, and the step that combines one more element."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from rlx.codegen.builder import Kernel
from rlx.codegen.lanes import halves
from rlx.codegen.reg import Reg
from rlx.ops.reduction.reduce import ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum
from rlx.types import DType, bool_

__all__ = [
    "PART",
    "REDUCTIONS",
    "ReduceKind",
    "Total",
    "add",
    "by_parts",
    "fold",
    "is_float_sum",
    "multiply_add",
    "registers",
    "settle",
    "start",
]

ReduceKind = Literal["sum", "mean", "max", "min", "prod", "max_number", "min_number"]
"""``max_number`` and ``min_number`` are the extremes of what is no nan."""

REDUCTIONS: dict[str, ReduceKind] = {
    ReduceSum.name: "sum",
    ReduceMean.name: "mean",
    ReduceProd.name: "prod",
    ReduceMax.name: "max",
    ReduceMin.name: "min",
}
"""The reductions by the names of their ops."""


def _identity(kind: ReduceKind, dt: DType) -> float | int | bool:
    """What a reduction in ``dt`` starts from."""
    if kind in ("sum", "mean"):
        return 0
    if kind == "prod":
        return 1
    upper = kind.startswith("max")
    if dt is bool_:
        return not upper
    if dt.is_float:
        return -math.inf if upper else math.inf
    info = np.iinfo(dt.numpy)
    return int(info.min if upper else info.max)


def _combine(k: Kernel, kind: ReduceKind, total: Reg, x: Reg) -> Reg:
    """A reduction in one register with one more element; the mean is a sum until its end."""
    if kind in ("max_number", "min_number"):
        return _further(k, kind, total, x)
    if kind in ("max", "min"):
        return (k.maximum if kind == "max" else k.minimum)(total, x)
    return total * x if kind == "prod" else total + x


Total = tuple[Reg, ...]
"""A reduction under way: one register; two for the extreme of vectors of floats, the extreme of
what is no nan, and a nan if there was one.

Both are an instruction or two an element. One register that carries a nan on takes more, each of
which waits for the one before. The second is 0 where there was no nan.
"""


def start(k: Kernel, kind: ReduceKind, dt: DType, lanes: int) -> Total:
    """A reduction of nothing."""
    first = k.const(_identity(kind, dt), dt, lanes)
    return (first, k.const(0.0, dt, lanes)) if _by_two(kind, dt, lanes) else (first,)


def _by_two(kind: ReduceKind, dt: DType, lanes: int) -> bool:
    return lanes > 0 and registers(kind, dt) > 1


def registers(kind: ReduceKind, dt: DType) -> int:
    """How many vectors a reduction of vectors of ``dt`` is."""
    return 2 if kind in ("max", "min") and dt.is_float else 1


def multiply_add(k: Kernel, x: Reg, y: Reg, total: Reg) -> Reg:
    """``total`` plus a product; floats are rounded once."""
    y = k.splat(y, x.lanes) if x.lanes else y
    return k.fma(x, y, total) if x.dtype.is_float else total + x * y


def add(k: Kernel, kind: ReduceKind, total: Total, x: Reg) -> Total:
    """A reduction with one more element in each lane."""
    if len(total) == 1:
        return (_combine(k, kind, total[0], x),)
    return _further(k, kind, total[0], x), _nan_or(k, x, total[1])


def _further(k: Kernel, kind: ReduceKind, total: Reg, x: Reg) -> Reg:
    """The extreme; ``total`` if one is nan."""
    return k.select(k.compare("gt" if kind.startswith("max") else "lt", x, total), x, total)


def _nan_or(k: Kernel, x: Reg, other: Reg) -> Reg:
    return k.select(k.compare("ne", x, x), x, other)


PART = 128
"""Rounds of a loop that add to a sum of their own."""

LEVELS = 2
"""How often rounds are put together; the outermost loop has as many parts as there are."""


def is_float_sum(kind: ReduceKind, accumulate: DType) -> bool:
    """Whether a reduction rounds with every element that it adds."""
    return kind in ("sum", "mean") and accumulate.is_float


def by_parts(
    k: Kernel,
    begin: Reg,
    end: Reg,
    step: int,
    body: Callable[..., Sequence[Reg] | Reg],
    init: Sequence[Reg],
    sums: Sequence[bool],
    levels: int = LEVELS,
) -> list[Reg]:
    """``k.loop`` whose carried values that are ``sums`` are sums of sums of ``PART`` rounds.

    In one long chain of additions, what each of them rounds off adds up, to parts of a thousand
    after ten million equal elements.
    """
    if not levels:
        return k.loop(begin, end, step, body, init)
    rounds = step * PART**levels

    def part(first: Reg, *carried: Reg) -> list[Reg]:
        own = [
            k.const(0, x.dtype, x.lanes) if adds else x
            for x, adds in zip(carried, sums, strict=True)
        ]
        last = k.minimum(first + rounds, end)
        found = by_parts(k, first, last, step, body, own, sums, levels - 1)
        return [a + b if adds else b for a, b, adds in zip(carried, found, sums, strict=True)]

    return k.loop(begin, end, rounds, part, init)


def fold(k: Kernel, kind: ReduceKind, total: Total, lanes: int) -> Total:
    """The halves of vectors combined until they have ``lanes``; 0 is a scalar."""
    while total[0].lanes > max(1, lanes):
        a, b = halves(k, total[0])
        if len(total) == 1:
            total = (_combine(k, kind, a, b),)
        else:
            c, d = halves(k, total[1])
            total = (_further(k, kind, a, b), c + d)
    if lanes or not total[0].lanes:
        return total
    return (settle(k, tuple(k.extract(x, 0) for x in total)),)


def settle(k: Kernel, total: Total) -> Reg:
    """The one register of a reduction at its end."""
    found, *nan = total
    return _nan_or(k, nan[0], found) if nan else found
