"""Reductions, sorting and searching: the array API standard's, on Values and arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlx.errors import GraphError
from rlx.ir.value import Value
from rlx.ops.movement.movement import axis_of
from rlx.types import DType, bool_, i64, u64
from rlx.types import dtype as as_dtype
from rlx.xp.function import Operand, function, refused

__all__ = [
    "all", "any", "argmax", "argmin", "argsort", "count_nonzero", "cumulative_prod",
    "cumulative_sum", "diff", "max", "mean", "min", "nonzero", "prod", "searchsorted", "sort",
    "std", "sum", "take", "take_along_axis", "unique_all", "unique_counts", "unique_inverse",
    "unique_values", "var",
]  # fmt: skip

Axis = int | Sequence[int] | None


def _axes(x: Value, axis: Axis) -> list[int]:
    """The axes of a reduction: all for None, none for an empty tuple."""
    if axis is None:
        return list(range(x.rank))
    return [axis] if isinstance(axis, int) else list(axis)


def _wide(dt: DType) -> DType:
    """The type of a sum: integers are summed in 64 bits."""
    if dt is bool_ or dt.kind == "int":
        return i64
    return u64 if dt.kind == "uint" else dt


def _widened(x: Value, dtype: Any) -> Value:
    to = _wide(x.dtype) if dtype is None else as_dtype(dtype)
    return x if x.dtype is to else x.cast(to)


@function
def sum(x: Operand, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """The sum along axes; integers are summed in 64 bits unless ``dtype`` says."""
    return _widened(x, dtype).sum(axes=_axes(x, axis), keepdims=keepdims)


@function
def prod(x: Operand, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """The product along axes."""
    return _widened(x, dtype).prod(axes=_axes(x, axis), keepdims=keepdims)


@function
def max(x: Operand, /, *, axis: Axis = None, keepdims: bool = False) -> Any:
    """The largest along axes."""
    return x.reduce_max(axes=_axes(x, axis), keepdims=keepdims)


@function
def min(x: Operand, /, *, axis: Axis = None, keepdims: bool = False) -> Any:
    """The smallest along axes."""
    return x.reduce_min(axes=_axes(x, axis), keepdims=keepdims)


@function
def mean(x: Operand, /, *, axis: Axis = None, keepdims: bool = False) -> Any:
    """The mean along axes; of integers as f64."""
    return _floats(x).mean(axes=_axes(x, axis), keepdims=keepdims)


def _floats(x: Value) -> Value:
    return x if x.dtype.is_float or x.dtype.is_complex else x.cast("f64")


@function
def var(
    x: Operand, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False
) -> Any:
    """The variance along axes: squares of the distances from the mean over n - correction."""
    return _spread(x, axis, correction, keepdims)


@function
def std(
    x: Operand, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False
) -> Any:
    """The square root of the variance."""
    return _spread(x, axis, correction, keepdims).sqrt()


def _spread(x: Value, axis: Axis, correction: float, keepdims: bool) -> Value:
    x, axes = _floats(x), _axes(x, axis)
    count = x.type.with_shape(tuple(x.shape[axis_of(a, x.rank, "var")] for a in axes)).size
    if correction == int(correction):
        return x.var(axes=axes, ddof=int(correction), keepdims=keepdims)
    if not isinstance(count, int):
        raise GraphError(f"var with the correction {correction} needs known sizes, found {x.type}")
    return x.var(axes=axes, keepdims=keepdims) * (count / (count - correction))


@function
def all(x: Operand, /, *, axis: Axis = None, keepdims: bool = False) -> Any:
    """Whether all elements along axes are true."""
    return x.all(axes=_axes(x, axis), keepdims=keepdims)


@function
def any(x: Operand, /, *, axis: Axis = None, keepdims: bool = False) -> Any:
    """Whether an element along axes is true."""
    return x.any(axes=_axes(x, axis), keepdims=keepdims)


@function
def count_nonzero(x: Operand, /, *, axis: Axis = None, keepdims: bool = False) -> Any:
    """How many elements along axes are not 0."""
    return x.cast(bool_).cast(i64).sum(axes=_axes(x, axis), keepdims=keepdims)


def _arg(name: str) -> Callable[..., Any]:
    def f(x: Operand, /, *, axis: int | None = None, keepdims: bool = False) -> Any:
        found = getattr(x.flatten() if axis is None else x, name)(axis=axis or 0)
        if not keepdims:
            return found
        return found.reshape([1] * x.rank) if axis is None else found.unsqueeze(axis % x.rank)

    f.__name__ = f.__qualname__ = name
    f.__doc__ = "Where the first of the extreme elements along an axis is; None counts through all."
    return function(f)


argmax, argmin = _arg("argmax"), _arg("argmin")


def _cumulative(name: str, method: str, start: int) -> Callable[..., Any]:
    def f(
        x: Operand, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
    ) -> Any:
        if axis is None and x.rank > 1:
            raise GraphError(f"{name} of an array of several axes needs an axis, found {x.type}")
        at = axis_of(axis or 0, x.rank, name)
        found = getattr(_widened(x, dtype), method)(at)
        if not include_initial:
            return found
        one = [1 if i == at else 0 for i in range(x.rank)]
        return found.pad(one, [0] * x.rank, value=start)

    f.__name__ = f.__qualname__ = name
    f.__doc__ = "What the elements up to each add up or multiply to; with what it starts from."
    return function(f)


cumulative_sum = _cumulative("cumulative_sum", "cumsum", 0)
cumulative_prod = _cumulative("cumulative_prod", "cumprod", 1)


@function
def diff(
    x: Operand,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: Operand | None = None,
    append: Operand | None = None,
) -> Any:
    """The differences of neighbours along an axis, ``n`` times over."""
    at = axis_of(axis, x.rank, "diff")
    if n < 0:
        raise GraphError(f"diff: n is how often, 0 or more, found {n}")
    parts = [v for v in (prepend, x, append) if v is not None]
    if len(parts) > 1:
        x = _joined(parts, at)
    for _ in range(n):
        length = x.shape[at]
        if not isinstance(length, int):
            raise GraphError(f"diff along an axis of the dim {length} needs a known size")
        if length < 2:
            return x.narrow(at, 0, 0)
        high, low = x.narrow(at, 1, length - 1), x.narrow(at, 0, length - 1)
        x = high.logical_xor(low) if x.dtype is bool_ else high - low
    return x


def _joined(parts: Sequence[Value], axis: int) -> Value:
    from rlx.ops.sugar import concat

    return concat(parts, axis)


@function
def sort(x: Operand, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """The elements along an axis in order."""
    return x.sort(axis, descending)


@function
def argsort(x: Operand, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """The places of the elements along an axis in their order; equal ones stay in theirs."""
    return x.argsort(axis, descending)


@function
def searchsorted(
    x1: Operand, x2: Operand, /, *, side: str = "left", sorter: Operand | None = None
) -> Any:
    """Where elements fit into a line that is in order, or that ``sorter`` puts in order."""
    line = x1 if sorter is None else x1.gather(sorter, axis=0)
    return line.searchsorted(x2, side=side)


@function
def take(x: Operand, indices: Operand, /, *, axis: int | None = None) -> Any:
    """The elements at places along an axis."""
    if axis is None and x.rank > 1:
        raise GraphError(f"take from an array of several axes needs an axis, found {x.type}")
    return x.gather(indices, axis=axis or 0)


@function
def take_along_axis(x: Operand, indices: Operand, /, *, axis: int = -1) -> Any:
    """The elements at places of their own along an axis: for axis 0 ``x[indices[i, j], j]``."""
    return x.take_along_axis(indices, axis=axis)


_UNIQUE = "compare within the array, or take numpy's function of an array outside of the trace"
nonzero = refused("nonzero", "write x.nonzero(size=n) on a Value, which says how many at most")
unique_all = refused("unique_all", _UNIQUE)
unique_counts = refused("unique_counts", _UNIQUE)
unique_inverse = refused("unique_inverse", _UNIQUE)
unique_values = refused("unique_values", _UNIQUE)
