"""Reductions that are composed of others: variance, any and all, sums of sizes."""

from __future__ import annotations

from collections.abc import Iterable

from rlx.base.dims import is_known
from rlx.errors import GraphError, ShapeError
from rlx.ir.value import Value
from rlx.ops.movement.fill import full
from rlx.ops.movement.movement import axis_of
from rlx.ops.nn.norms import norm
from rlx.ops.pointwise.cast import widened
from rlx.ops.reduction.reduce import ReduceMax, ReduceMin
from rlx.types import bool_

__all__ = ["all_", "any_", "reduce_l1", "reduce_l2", "std", "var"]


def _axes(x: Value, axes: Iterable[int] | int | None, what: str) -> tuple[int, ...]:
    many = range(x.rank) if axes is None else axes if isinstance(axes, Iterable) else (axes,)
    return tuple(sorted(axis_of(a, x.rank, what) for a in many))


def var(
    x: Value,
    axes: Iterable[int] | int | None = None,
    ddof: int = 0,
    keepdims: bool = False,
) -> Value:
    """The mean square of the distances from the mean along axes, as ``numpy.var``: their sum over
    ``n - ddof``. nan where nothing is left to divide by."""
    return _spread(x, axes, ddof, keepdims, "var").cast(to=x.dtype)


def std(
    x: Value,
    axes: Iterable[int] | int | None = None,
    ddof: int = 0,
    keepdims: bool = False,
) -> Value:
    """The square root of the variance, as ``numpy.std``."""
    return _spread(x, axes, ddof, keepdims, "std").sqrt().cast(to=x.dtype)


def _spread(
    x: Value, axes: Iterable[int] | int | None, ddof: int, keepdims: bool, what: str
) -> Value:
    if not x.dtype.is_float:
        raise GraphError(f"{what} takes floats, found {x.dtype}. Cast the operand first")
    folded = _axes(x, axes, what)
    wide = widened(x)
    centered = wide - wide.mean(axes=folded, keepdims=True)
    total = (centered * centered).sum(axes=folded, keepdims=keepdims)
    count = x.type.with_shape(x.shape[a] for a in folded).size
    if not is_known(count):
        raise ShapeError(f"{what} along axes {list(folded)} of {x.type} needs static sizes")
    # NumPy gives nan and inf where nothing is left to divide by.
    return total / float(max(count - ddof, 0))


def any_(x: Value, axes: Iterable[int] | int | None = None, keepdims: bool = False) -> Value:
    """Whether an element along axes is true, or not 0; of none it is false."""
    return _decide(x, axes, keepdims, ReduceMax, empty=False)


def all_(x: Value, axes: Iterable[int] | int | None = None, keepdims: bool = False) -> Value:
    """Whether all elements along axes are true, or not 0; of none it is true."""
    return _decide(x, axes, keepdims, ReduceMin, empty=True)


def _decide(
    x: Value,
    axes: Iterable[int] | int | None,
    keepdims: bool,
    kind: type[ReduceMax | ReduceMin],
    empty: bool,
) -> Value:
    truth = x.cast(to=bool_)
    folded = _axes(x, axes, "any" if kind is ReduceMax else "all")
    if any(x.shape[a] == 0 for a in folded):
        kept = [
            1 if a in folded else d for a, d in enumerate(x.shape) if keepdims or a not in folded
        ]
        return full(kept, empty)
    return kind.build(truth, axes=folded, keepdims=keepdims)


def reduce_l1(x: Value, axes: Iterable[int] | int | None = None, keepdims: bool = False) -> Value:
    """The sum of the absolute values along axes."""
    return norm(x, 1, axes, keepdims)


def reduce_l2(x: Value, axes: Iterable[int] | int | None = None, keepdims: bool = False) -> Value:
    """The square root of the sum of the squares along axes."""
    return norm(x, 2, axes, keepdims)
