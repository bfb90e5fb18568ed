"""Folds along axes, running folds, and orders: sums, means, extremes, sorts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rlx.frontends.common.values import constant, full, scalar
from rlx.frontends.torch.node import Node, Row, Rows, axes_of, axis_of, static
from rlx.ir.op import Op
from rlx.ir.value import Value
from rlx.ops.pointwise.compare import Where
from rlx.ops.reduction.argreduce import ArgMax, ArgMin
from rlx.ops.reduction.cumulative import Cummax, Cummin, Cumprod, Cumsum
from rlx.ops.reduction.reduce import ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum
from rlx.types import bool_, i64, u8

__all__ = ["ROWS"]

Dims = Sequence[int] | int | None


def folded(op: type[Op]) -> Row:
    """A fold in the type of the result."""

    def row(n: Node, x: Value, dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> Value:
        return op.build(n.cast(x), axes_of(dim, x), keepdim)

    return row


def extreme(op: type[Op]) -> Row:
    """An extreme along axes; integers of one bit are their "or" and "and"."""

    def row(n: Node, x: Value, dim: Dims = None, keepdim: bool = False) -> Value:
        return op.build(x, axes_of(dim, x), keepdim)

    return row


def truth(name: str) -> Row:
    """Whether any or all elements are true."""

    def row(n: Node, x: Value, dim: Dims = None, keepdim: bool = False) -> Value:
        found = getattr(n.cast(x, bool_), name)(axes=axes_of(dim, x), keepdims=keepdim)
        return found.cast(n.dtype)  # of u8 it is u8

    return row


def extreme_with_place(op: type[Op], place: type[Op]) -> Row:
    """An extreme along an axis, and where it is."""

    def row(n: Node, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
        if not x.rank:
            return x, constant(0, i64)
        axis = axis_of(dim, x.rank)
        return op.build(x, [axis], keepdim), place.build(x, axis, keepdim)

    return row


def place_of_extreme(op: type[Op]) -> Row:
    """Where an extreme is, along an axis or in all elements."""

    def row(n: Node, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
        if dim is None or not x.rank:
            return op.build(x.reshape([-1]), 0, False).reshape(n.shape)
        return op.build(x, axis_of(dim, x.rank), keepdim)

    return row


def variance(
    n: Node,
    x: Value,
    dim: Dims = None,
    unbiased: bool = True,
    keepdim: bool = False,
    correction: float | None = None,
) -> Value:
    ddof = (1 if unbiased else 0) if correction is None else correction
    if ddof != int(ddof):
        n.refuse(f"a correction of {ddof} is no whole number")
    return x.var(axes_of(dim, x), int(ddof), keepdim)


def variance_of_all(n: Node, x: Value, unbiased: bool = True) -> Value:
    return variance(n, x, None, unbiased)


def with_correction(row: Row) -> Row:
    """The overload that has a correction in the place of ``unbiased``."""

    def corrected(
        n: Node,
        x: Value,
        dim: Dims = None,
        correction: float | None = None,
        keepdim: bool = False,
    ) -> Any:
        return row(n, x, dim, keepdim=keepdim, correction=1 if correction is None else correction)

    return corrected


def deviation(n: Node, x: Value, *args: Any, **kwargs: Any) -> Value:
    return variance(n, x, *args, **kwargs).sqrt()


def variance_and_mean(
    n: Node, x: Value, dim: Dims = None, unbiased: bool = True, keepdim: bool = False,
    correction: float | None = None,
) -> tuple[Value, Value]:  # fmt: skip
    spread = variance(n, x, dim, unbiased, keepdim, correction)
    return spread, ReduceMean.build(x, axes_of(dim, x), keepdim)


def deviation_and_mean(n: Node, x: Value, *args: Any, **kwargs: Any) -> tuple[Value, Value]:
    spread, mean = variance_and_mean(n, x, *args, **kwargs)
    return spread.sqrt(), mean


def log_sum_exp(n: Node, x: Value, dim: Dims, keepdim: bool = False) -> Value:
    return n.cast(x).logsumexp(axes_of(dim, x), keepdim)


def norm(
    n: Node, x: Value, ord: float = 2, dim: Dims = None, keepdim: bool = False, dtype: Any = None
) -> Value:
    wide = x if x.dtype.is_complex else n.cast(x)
    return n.cast(wide.norm(float(ord), axes_of(dim, x), keepdim))


def running(op: type[Op]) -> Row:
    """A running fold in the type of the result."""

    def row(n: Node, x: Value, dim: int, dtype: Any = None) -> Value:
        return op.build(n.cast(x), axis_of(dim, x.rank)) if x.rank else n.cast(x)

    return row


def running_extreme(op: type[Op]) -> Row:
    """A running extreme, and the last place at which it was met."""

    def row(n: Node, x: Value, dim: int) -> tuple[Value, Value]:
        if not x.rank:
            return x, constant(0, i64)
        axis = axis_of(dim, x.rank)
        best = op.build(x, axis)
        met = x.eq(best)
        if x.dtype.is_float:
            met = met.logical_or(x.isnan())
        at = constant(0, i64).expand([x.shape[axis], *[1] * (x.rank - axis - 1)])
        at = (at + 1).cumsum(0) - 1
        return best, Cummax.build(Where.build(met, at, constant(0, i64)), axis)

    return row


def log_cumulative(n: Node, x: Value, dim: int) -> Value:
    return x.logcumsumexp(axis_of(dim, x.rank)) if x.rank else x


def sorted_(n: Node, x: Value, dim: int = -1, descending: bool = False) -> tuple[Value, Value]:
    """Of equals the first comes first, as torch has it where it says so."""
    if not x.rank:
        return x, constant(0, i64)
    return x.sort(dim, descending), x.argsort(dim, descending)


def stable_sorted(
    n: Node, x: Value, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Value, Value]:
    return sorted_(n, x, dim, descending)


def order(n: Node, x: Value, dim: int = -1, descending: bool = False) -> Value:
    return sorted_(n, x, dim, descending)[1]


def top_k(
    n: Node, x: Value, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Value, Value]:
    if not x.rank:
        return x, constant(0, i64)
    return x.topk(k, axis_of(dim, x.rank), largest)


def both_extremes(
    n: Node, x: Value, dim: int | None = None, keepdim: bool = False
) -> tuple[Value, Value]:
    axes = axes_of(dim, x)
    return ReduceMin.build(x, axes, keepdim), ReduceMax.build(x, axes, keepdim)


def kth(n: Node, x: Value, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Value, Value]:
    if not x.rank:
        return x, constant(0, i64)
    axis = axis_of(dim, x.rank)
    found = [v.narrow(axis, k - 1, 1) for v in sorted_(n, x, axis)]
    values, places = found if keepdim else [v.squeeze(axis) for v in found]
    return values, places


def median(n: Node, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    """The lower of two; a line with a nan gives the first of these."""
    if not x.rank:
        return x, constant(0, i64)
    axis = axis_of(dim, x.rank)
    middle = (static(n, x.shape[axis], "the axis of its median") + 1) // 2
    value, place = kth(n, x, middle, dim, keepdim)
    if not x.dtype.is_float:
        return value, place
    unknown = x.isnan().cast(u8)
    first = unknown.argmax(axis, keepdim).cast(i64)
    there = unknown.max(axes=[axis], keepdims=keepdim).ne(0)
    return there.where(scalar(math.nan, value), value), there.where(first, place)


def median_of_all(n: Node, x: Value) -> Value:
    return median(n, x.reshape([-1]), 0)[0]


def softmax(n: Node, x: Value, dim: int, half_to_float: Any = None) -> Value:
    return n.cast(x).softmax(dim) if x.rank else full((), 1, n.dtype)


def safe_softmax(n: Node, x: Value, dim: int, dtype: Any = None) -> Value:
    """0 along a line of -inf alone."""
    y = n.cast(x)
    hidden = ReduceMax.build(y, [axis_of(dim, x.rank)], True).eq(scalar(float("-inf"), y))
    return Where.build(hidden, scalar(0, y), y.softmax(dim))


def log_softmax(n: Node, x: Value, dim: int, half_to_float: Any = None) -> Value:
    return n.cast(x).log_softmax(dim) if x.rank else full((), 0, n.dtype)


def count_nonzero(n: Node, x: Value, dim: Dims = None) -> Value:
    return n.cast(n.cast(x, bool_), i64).sum(axes_of(dim, x))


ROWS: Rows = {
    **{name: folded(op) for name, op in {
        "sum": ReduceSum, "mean": ReduceMean, "prod": ReduceProd,
    }.items()},
    "prod": lambda n, x, dtype=None: ReduceProd.build(n.cast(x), axes_of(None, x), False),
    "prod.dim_int": folded(ReduceProd),
    "sum": lambda n, x, dtype=None: ReduceSum.build(n.cast(x), axes_of(None, x), False),
    "sum.dim_IntList": folded(ReduceSum),
    "mean": lambda n, x, dtype=None: ReduceMean.build(n.cast(x), axes_of(None, x), False),
    "mean.dim": folded(ReduceMean),
    "amax": extreme(ReduceMax), "amin": extreme(ReduceMin), "aminmax": both_extremes,
    "max": extreme(ReduceMax), "min": extreme(ReduceMin),
    "max.dim": extreme_with_place(ReduceMax, ArgMax),
    "min.dim": extreme_with_place(ReduceMin, ArgMin),
    "argmax": place_of_extreme(ArgMax), "argmin": place_of_extreme(ArgMin),
    "any": truth("any"), "all": truth("all"),
    "var": variance_of_all, "var.dim": variance, "var.correction": with_correction(variance),
    "std": lambda n, x, unbiased=True: variance(n, x, None, unbiased).sqrt(),
    "std.dim": deviation, "std.correction": with_correction(deviation),
    "var_mean": lambda n, x, unbiased=True: variance_and_mean(n, x, None, unbiased),
    "var_mean.dim": variance_and_mean,
    "var_mean.correction": with_correction(variance_and_mean),
    "std_mean": lambda n, x, unbiased=True: deviation_and_mean(n, x, None, unbiased),
    "std_mean.dim": deviation_and_mean,
    "std_mean.correction": with_correction(deviation_and_mean),
    "logsumexp": log_sum_exp, "linalg_vector_norm": norm,
    "cumsum": running(Cumsum), "cumprod": running(Cumprod), "logcumsumexp": log_cumulative,
    "cummax": running_extreme(Cummax), "cummin": running_extreme(Cummin),
    "sort": sorted_, "sort.stable": stable_sorted, "argsort": order,
    "argsort.stable": lambda n, x, stable=None, dim=-1, descending=False: order(
        n, x, dim, descending),
    "topk": top_k, "kthvalue": kth, "median.dim": median, "median": median_of_all,
    "_is_all_true": lambda n, x: x.all(),
    "_softmax": softmax, "softmax": softmax, "_safe_softmax": safe_softmax,
    "_log_softmax": log_softmax, "log_softmax": log_softmax, "count_nonzero": count_nonzero,
}  # fmt: skip
