"""Folds along axes: sums, means, extremes, running sums, and where extremes are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rlx.frontends.common.values import full, scalar
from rlx.frontends.onnx.node import Node, Row, Rows
from rlx.ir.op import Op
from rlx.ir.value import Value
from rlx.ops.movement.movement import axis_of
from rlx.ops.pointwise.compare import Eq, Where
from rlx.ops.pointwise.unary import Abs, Exp, Log, Sqrt
from rlx.ops.reduction.cumulative import Cumprod, Cumsum
from rlx.ops.reduction.reduce import ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum
from rlx.ops.reduction.topk import TopK
from rlx.types import DType

__all__ = ["ROWS", "log_sum_exp"]

Fold = Callable[[Value, list[int], bool], Value]


def folding(fold: Fold) -> Row:
    """A reduction, over the axes of its attribute or second operand."""

    def row(n: Node) -> Value:
        x, axes, keep = n[0], n.axes(1) or [], bool(n.attr("keepdims", 1))
        nothing = n.attr("noop_with_empty_axes", 0)
        if not axes and not nothing:
            axes = list(range(x.rank))
        return fold(x, [axis_of(a, x.rank, "axes") for a in axes], keep)

    return row


def extreme(op: type[Op], start: Callable[[DType], float]) -> Fold:
    """The extreme of nothing is the other end of the type."""

    def fold(x: Value, axes: list[int], keep: bool) -> Value:
        if all(x.shape[a] != 0 for a in axes):
            return op.build(x, axes, keep)
        kept = [1 if i in axes else d for i, d in enumerate(x.shape)]
        shape = [d for i, d in enumerate(kept) if keep or i not in axes]
        return full(shape, start(x.dtype), x.dtype)

    return fold


def _lowest(dt: DType) -> float:
    if dt.is_int:
        return np.iinfo(dt.numpy).min
    return -np.inf if dt.is_float else 0


def _highest(dt: DType) -> float:
    if dt.is_int:
        return np.iinfo(dt.numpy).max
    return np.inf if dt.is_float else 1


def mean(x: Value, axes: list[int], keep: bool) -> Value:
    if x.dtype.is_float:
        return ReduceMean.build(x, axes, keep)
    count = np.prod([x.type.static_shape[a] for a in axes], dtype=np.int64)
    return ReduceSum.build(x, axes, keep) / scalar(int(count), x)


def log_sum_exp(x: Value, axes: list[int], keep: bool) -> Value:
    """The logarithm of a sum of exponentials, shifted by the greatest so that none overflows."""
    if any(x.shape[a] == 0 for a in axes):
        return Log.build(ReduceSum.build(Exp.build(x), axes, keep))
    top = ReduceMax.build(x, axes, True)
    top = Where.build(Eq.build(Abs.build(top), scalar(np.inf, x)), scalar(0, x), top)
    total = Log.build(ReduceSum.build(Exp.build(x - top), axes, True)) + top
    return total if keep else total.reshape([d for i, d in enumerate(x.shape) if i not in axes])


def running(op: type[Cumsum] | type[Cumprod]) -> Row:
    """A fold of the elements up to each."""

    def row(n: Node) -> Value:
        axis = axis_of(n.ints(1)[0], n[0].rank, "axis")
        return op(n[0], axis, bool(n.attr("exclusive", 0)), bool(n.attr("reverse", 0))).out

    return row


def top_k(n: Node) -> tuple[Value, Value]:
    n.ignore("sorted")  # they always are
    k = n.ints(1)[0] if n.version >= 10 else n.need("k")
    return TopK.build(n[0], k, n.axis(-1), bool(n.attr("largest", 1)))


def in_float(fold: Fold) -> Fold:
    """A fold of floats; that of integers is done in f64 and cut to whole numbers."""

    def row(x: Value, axes: list[int], keep: bool) -> Value:
        return (
            fold(x, axes, keep)
            if x.dtype.is_float
            else fold(x.cast("f64"), axes, keep).cast(x.dtype)
        )

    return row


ROWS: Rows = {
    "CumProd": running(Cumprod),
    "CumSum": running(Cumsum),
    "ReduceL1": folding(lambda x, axes, keep: ReduceSum.build(Abs.build(x), axes, keep)),
    "ReduceL2": folding(
        in_float(lambda x, axes, keep: Sqrt.build(ReduceSum.build(x * x, axes, keep)))
    ),
    "ReduceLogSum": folding(
        in_float(lambda x, axes, keep: Log.build(ReduceSum.build(x, axes, keep)))
    ),
    "ReduceLogSumExp": folding(in_float(log_sum_exp)),
    "ReduceMax": folding(extreme(ReduceMax, _lowest)),
    "ReduceMean": folding(mean),
    "ReduceMin": folding(extreme(ReduceMin, _highest)),
    "ReduceProd": folding(ReduceProd.build),
    "ReduceSum": folding(ReduceSum.build),
    "ReduceSumSquare": folding(lambda x, axes, keep: ReduceSum.build(x * x, axes, keep)),
    "TopK": top_k,
}
