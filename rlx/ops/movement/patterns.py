"""Matrices and masks of a fixed pattern, and the parts of a matrix that follow one."""

from __future__ import annotations

from typing import Any

from rlx.base.dims import as_dim, is_known, maximum, minimum
from rlx.errors import DTypeError, ShapeError
from rlx.ir.value import Value
from rlx.ops.indexing.gather import Gather
from rlx.ops.movement.constant import Iota
from rlx.ops.movement.movement import DimLike, axis_of
from rlx.ops.movement.slicing import Pad, Slice
from rlx.ops.reduction.reduce import as_value
from rlx.types import Dim, DType, i64

__all__ = ["diag", "diagonal", "eye", "one_hot", "trace", "tri", "tril", "triu"]


def one_hot(x: Value, depth: DimLike, axis: int = -1, dtype: DType | str | Any = "f32") -> Value:
    """For every integer a line of ``depth`` zeros with a 1 at its place, along a new axis.

    As ``jax.nn.one_hot``: a number below 0 or of ``depth`` and above has no 1.
    """
    if not x.dtype.is_int:
        raise DTypeError(f"one_hot takes integers, found {x.dtype}; cast them first")
    axis = axis_of(axis, x.rank + 1, "one_hot")
    places = Iota((as_dim(depth),), 0, i64).out.reshape([-1, *[1] * (x.rank - axis)])
    return x.cast(to=i64).unsqueeze(axis).eq(places).cast(to=dtype)


def tri(
    n: DimLike, m: DimLike | None = None, k: int = 0, dtype: DType | str | Any = "f32"
) -> Value:
    """An [n, m] matrix of ones at and below the ``k``-th diagonal, zeros above, as ``numpy.tri``.

    ``m`` is ``n`` unless given.
    """
    return _below(as_dim(n), as_dim(n if m is None else m), k).cast(to=dtype)


def eye(
    n: DimLike, m: DimLike | None = None, k: int = 0, dtype: DType | str | Any = "f32"
) -> Value:
    """An [n, m] matrix of ones on the ``k``-th diagonal, zeros elsewhere, as ``numpy.eye``.

    ``m`` is ``n`` unless given.
    """
    row, column = _grid(as_dim(n), as_dim(n if m is None else m))
    return column.eq(row + k).cast(to=dtype)


def tril(x: Value, k: int = 0) -> Value:
    """The last two axes at and below the ``k``-th diagonal, zeros above, as ``numpy.tril``."""
    return _matrices(x, "tril", k).where(x, 0)


def triu(x: Value, k: int = 0) -> Value:
    """The last two axes at and above the ``k``-th diagonal, zeros below, as ``numpy.triu``."""
    return _matrices(x, "triu", k - 1).logical_not().where(x, 0)


def _matrices(x: Value, what: str, k: int) -> Value:
    if x.rank < 2:
        raise ShapeError(f"{what} takes matrices, a rank of 2 or more; found {x.type}")
    return _below(x.shape[-2], x.shape[-1], k)


def _below(n: Dim, m: Dim, k: int) -> Value:
    row, column = _grid(n, m)
    return column.le(row + k)


def _grid(n: Dim, m: Dim) -> tuple[Value, Value]:
    """The number of the row and that of the column, as they broadcast."""
    return Iota((n, 1), 0, i64).out, Iota((1, m), 1, i64).out


def diagonal(x: Value, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Value:
    """The diagonal of two axes, as a last axis in their place, as ``numpy.diagonal``.

    ``offset`` counts the diagonals to the right of the main one.
    """
    first, second = (axis_of(a, x.rank, "diagonal") for a in (axis1, axis2))
    if first == second:
        raise ShapeError(f"diagonal needs two axes, found axis {axis1} twice")
    others = [i for i in range(x.rank) if i not in (first, second)]
    x = x.transpose([*others, first, second])
    *lead, n, m = x.shape
    size = maximum(0, minimum(n, m - offset) if offset >= 0 else minimum(n + offset, m))
    start = minimum(offset if offset >= 0 else -offset * m, n * m)
    if not is_known(m):  # the distance of two elements is known when it is bound
        numbers = Iota((size,), 0, i64).out * as_value(m + 1) + as_value(start)
        return Gather.build(x.reshape([*lead, n * m]), numbers, axis=-1, mode="clip")
    # One element after the other lies a row and a column further on.
    flat = x.reshape([*lead, n * m])
    places = [*[0] * len(lead), start], [*lead, size], [*[1] * len(lead), m + 1]
    return Slice.build(flat, *places)


def trace(x: Value, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Value:
    """The sum of the diagonal of two axes, as ``numpy.trace``; integers keep their type."""
    return diagonal(x, offset, axis1, axis2).sum(axes=-1)


def diag(x: Value, k: int = 0) -> Value:
    """The ``k``-th diagonal of a matrix, or of a vector the matrix that has it there, as
    ``numpy.diag``."""
    if x.rank == 2:
        return diagonal(x, k)
    if x.rank != 1 or not is_known(x.shape[0]):
        raise ShapeError(f"diag takes a vector or a matrix of known size, found {x.type}")
    side = x.shape[0] + abs(k)
    if not x.shape[0]:
        return Pad.build(x, 0, side * side).reshape([side, side])
    # The elements are a row and a column apart in the flat matrix.
    low = k if k >= 0 else -k * side
    high = side * side - low - 1 - (x.shape[0] - 1) * (side + 1)
    return Pad.build(x, low, high, 0, side).reshape([side, side])
