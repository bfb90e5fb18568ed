"""Reductions, and folds that keep what they have so far: by doubling, in log2 n steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlx.targets.graph.rows.common import Row, kept, least, most, shape_of
from rlx.targets.graph.tensor import Number, Tensor
from rlx.targets.graph.whole import Whole
from rlx.types import i32, i64

__all__ = ["ROWS", "running"]


def _reduce(verb: str, start: Callable[[Any], Number]) -> Row:
    def row(k: Whole, node: Any, x: Tensor) -> Tensor:
        wide = k.widened(x)
        return kept(k, node, k.fold(verb, wide, node.axes, start(x.dtype)))

    return row


def _mean(k: Whole, node: Any, x: Tensor) -> Tensor:
    count = 1
    for axis in node.axes:
        count *= x.shape[axis]
    total, n = k.fold("add", k.widened(x), node.axes, 0), float(count)
    if x.dtype.is_complex:  # the quotient of complex numbers, whose divisor has a 0 in it
        re, im = total.re, total.im
        return kept(k, node, k.pair((re + im * 0.0) / n, (im - re * 0.0) / n))
    return kept(k, node, total / n)


def _extreme_at(verb: str) -> Row:
    """Where the largest or least element is: nan before all others, and of equal ones the first or
    the last."""

    def row(k: Whole, node: Any, x: Tensor) -> Tensor:
        axis = node.axis
        if 0 in shape_of(node):
            return k.literal(0, i64, shape_of(node))
        wide = k.widened(x)
        one = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
        best = k.spread(k.reshape(k.fold(verb, wide, [axis], 0), one), x.shape)
        here = k.compare("eq", wide, best)
        if wide.dtype.is_float:
            here = here | k.compare("ne", wide, wide)
        last = node.select_last_index
        places = k.iota(x.shape, axis, i64)
        found = k.select(here, places, -1 if last else x.shape[axis])
        return k.reshape(k.fold("max" if last else "min", found, [axis], 0), shape_of(node))

    return row


Fold = Callable[[Sequence[Tensor], Sequence[Tensor]], Sequence[Tensor]]


def running(
    k: Whole, fold: Fold, parts: Sequence[Tensor], axis: int, reverse: bool = False
) -> list[Tensor]:
    """At each place along an axis the fold of the parts up to it, in log2 n steps (W. D. Hillis,
    G. L. Steele, "Data parallel algorithms", CACM 29(12), 1986)."""
    found, n, step = list(parts), parts[0].shape[axis], 1
    line = [n if i == axis else 1 for i in range(parts[0].rank)]
    places = k.iota(tuple(line), axis, i32)
    while step < n:
        by = -step if reverse else step
        earlier = [_moved(k, t, k.literal(0, t.dtype), axis, by) for t in found]
        # Not folded with what changes nothing: times an infinity, 0 would.
        has = places < n - step if reverse else places >= step
        made = fold(earlier, found)
        found = [k.select(has, new, old) for new, old in zip(made, found, strict=True)]
        step *= 2
    return found


def _moved(k: Whole, t: Tensor, fill: Tensor, axis: int, by: int) -> Tensor:
    """The elements ``by`` places on, and a scalar where none come from."""
    low, high = [0] * t.rank, [0] * t.rank
    low[axis], high[axis] = by, -by
    return k.pad(t, fill, low, high)


def _cumulative(verb: str, start: Callable[[Any], Number]) -> Row:
    def row(k: Whole, node: Any, x: Tensor) -> Tensor:
        axis, reverse = node.axis, node.reverse
        if 0 in x.shape:
            return x
        wide, first = k.widened(x), start(x.dtype)

        def fold(a: Sequence[Tensor], b: Sequence[Tensor]) -> list[Tensor]:
            return [k.arith(verb, a[0], b[0])]

        (out,) = running(k, fold, [wide], axis, reverse)
        if getattr(node, "exclusive", False):
            fill = k.literal(first, wide.dtype)
            out = _moved(k, out, fill, axis, -1 if reverse else 1)
        return k.rounded(out, x.dtype)

    return row


def _log_cumulative(k: Whole, node: Any, x: Tensor) -> Tensor:
    if 0 in x.shape:
        return x

    def fold(a: Sequence[Tensor], b: Sequence[Tensor]) -> list[Tensor]:
        larger = k.maximum(a[0], b[0])
        apart = k.select(k.compare("eq", a[0], b[0]), 0.0, k.abs(a[0] - b[0]))
        return [larger + k.log1p(k.exp(-apart))]

    (out,) = running(k, fold, [k.widened(x)], node.axis, node.reverse)
    return k.rounded(out, x.dtype)


SHORT = 32
"""Elements of a line up to which a recurrence goes from one to the next. Longer ones double, where
an infinite factor can make more elements nan."""


def _lines(k: Whole, a: Tensor, x: Tensor, axis: int, reverse: bool = False) -> Tensor:
    """y[i] = a[i] y[i - 1] + x[i] along an axis, with 0 before its first element."""
    n = x.shape[axis]
    if n <= SHORT:
        parts: list[Tensor] = []
        for i in reversed(range(n)) if reverse else range(n):
            factor, term = (k.narrow(t, axis, i, i + 1) for t in (a, x))
            parts.append(factor * (parts[-1] if parts else 0.0) + term)
        return k.joined(parts[::-1] if reverse else parts, axis) if n > 1 else parts[0]

    def fold(first: Sequence[Tensor], then: Sequence[Tensor]) -> list[Tensor]:
        return [first[0] * then[0], then[0] * first[1] + then[1]]

    return running(k, fold, [a, x], axis, reverse)[1]


def _recurrence(k: Whole, node: Any, a: Tensor, x: Tensor) -> Tensor:
    if 0 in x.shape:
        return x
    out = _lines(k, k.widened(a), k.widened(x), node.axis, node.reverse)
    return k.rounded(out, x.dtype)


def _selective_scan(
    k: Whole, node: Any, x: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor,
    d: Tensor | None, state: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The state [B, S, H, N] is a linear recurrence along S."""
    rows, steps, h = x.shape
    n = a.shape[1]

    def wide(t: Tensor, shape: Sequence[int]) -> Tensor:
        return k.reshape(k.rounded(k.widened(t), node.wide), shape)

    if 0 in (rows, steps, h, n):
        last = k.literal(0, node.wide, shape_of(node, 1)) if state is None else state
        return k.literal(0, x.dtype, x.shape), k.rounded(last, node.wide)
    given, step = wide(x, (rows, steps, h, 1)), wide(delta, (rows, steps, h, 1))
    factor = k.exp(step * wide(a, (1, 1, h, n)))
    term = step * given * wide(b, (rows, steps, 1, n))
    if state is not None:  # in the first term, whose factor, which may be infinite, is done with
        first = k.narrow(factor, 1, 0, 1) * wide(state, (rows, 1, h, n)) + k.narrow(term, 1, 0, 1)
        done = k.literal(0, node.wide, first.shape)
        if steps > 1:
            term = k.joined([first, k.narrow(term, 1, 1, steps)], 1)
            factor = k.joined([done, k.narrow(factor, 1, 1, steps)], 1)
        else:
            term, factor = first, done
    states = _lines(k, factor, term, 1)
    y = k.fold("add", states * wide(c, (rows, steps, 1, n)), [3], 0)
    if d is not None:
        y = y + wide(d, (1, 1, h)) * k.reshape(given, x.shape)
    last = k.reshape(k.narrow(states, 1, steps - 1, steps), shape_of(node, 1))
    return k.rounded(y, x.dtype), last


ROWS: dict[str, Row] = {
    "mir.reduce_sum": _reduce("add", lambda _: 0),
    "mir.reduce_prod": _reduce("mul", lambda _: 1),
    "mir.reduce_max": _reduce("max", least),
    "mir.reduce_min": _reduce("min", most),
    "mir.reduce_mean": _mean,
    "mir.argmax": _extreme_at("max"),
    "mir.argmin": _extreme_at("min"),
    "mir.cumsum": _cumulative("add", lambda _: 0),
    "mir.cumprod": _cumulative("mul", lambda _: 1),
    "mir.cummax": _cumulative("max", least),
    "mir.cummin": _cumulative("min", most),
    "mir.logcumsumexp": _log_cumulative,
    "mir.linear_recurrence": _recurrence,
    "mir.selective_scan": _selective_scan,
}
