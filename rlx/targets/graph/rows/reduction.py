"""Reductions, and folds that keep what they have so far: by doubling, in log2 n steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlx.targets.graph.rows.common import Row, kept, least, most, shape_of
from rlx.targets.graph.tensor import Number, Tensor
from rlx.targets.graph.whole import Whole
from rlx.types import i64

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
    if x.dtype.is_complex:  # part by part, also over 0
        return kept(k, node, k.pair(total.re / n, total.im / n))
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
    k: Whole, fold: Fold, parts: Sequence[Tensor], start: Sequence[Number], axis: int,
    reverse: bool = False,
) -> list[Tensor]:  # fmt: skip
    """At each place along an axis the fold of the parts up to it; ``start`` changes nothing that it
    is folded with (W. D. Hillis, G. L. Steele, "Data parallel algorithms", CACM 29(12), 1986)."""
    found, n, step = list(parts), parts[0].shape[axis], 1
    while step < n:
        earlier = [
            _moved(k, t, k.literal(s, t.dtype), axis, -step if reverse else step)
            for t, s in zip(found, start, strict=True)
        ]
        found = list(fold(earlier, found))
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

        (out,) = running(k, fold, [wide], [first], axis, reverse)
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

    (out,) = running(k, fold, [k.widened(x)], [least(x.dtype)], node.axis, node.reverse)
    return k.rounded(out, x.dtype)


def _recurrence(k: Whole, node: Any, a: Tensor, x: Tensor) -> Tensor:
    if 0 in x.shape:
        return x
    factor, term = k.widened(a), k.widened(x)

    def fold(first: Sequence[Tensor], then: Sequence[Tensor]) -> list[Tensor]:
        return [first[0] * then[0], then[0] * first[1] + then[1]]

    _, out = running(k, fold, [factor, term], [1, 0], node.axis, node.reverse)
    return k.rounded(out, x.dtype)


def _selective_scan(
    k: Whole, node: Any, x: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor,
    d: Tensor | None, state: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The state [B, S, H, N] is a linear recurrence along S."""
    rows, steps, h = x.shape
    n = a.shape[1]
    wide = [k.rounded(k.widened(t), node.wide) for t in (x, delta, a, b, c)]
    x_, delta_, a_, b_, c_ = wide
    step = k.reshape(delta_, (rows, steps, h, 1))
    factor = k.exp(step * k.reshape(a_, (1, 1, h, n)))
    term = step * k.reshape(x_, (rows, steps, h, 1)) * k.reshape(b_, (rows, steps, 1, n))
    if state is not None and steps:
        first = k.narrow(factor, 1, 0, 1) * k.reshape(k.rounded(state, node.wide), (rows, 1, h, n))
        term = k.joined([k.narrow(term, 1, 0, 1) + first, k.narrow(term, 1, 1, steps)], 1)

    def fold(first: Sequence[Tensor], then: Sequence[Tensor]) -> list[Tensor]:
        return [first[0] * then[0], then[0] * first[1] + then[1]]

    if 0 in term.shape:
        last = state if state is not None else k.literal(0, node.wide, shape_of(node, 1))
        return k.literal(0, x.dtype, x.shape), k.rounded(last, node.wide)
    _, states = running(k, fold, [factor, term], [1, 0], 1)
    y = k.fold("add", states * k.reshape(c_, (rows, steps, 1, n)), [3], 0)
    if d is not None:
        y = y + k.reshape(k.rounded(k.widened(d), node.wide), (1, 1, h)) * x_
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
