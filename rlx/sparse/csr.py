"""A sparse matrix in a graph, and what reads its pattern alone."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rlx.errors import GraphError, ShapeError
from rlx.ir.builders import located, public
from rlx.ir.op import Array
from rlx.ir.value import Value
from rlx.ops.movement.constant import Constant, Iota
from rlx.ops.movement.movement import zeros
from rlx.sparse.ops import times
from rlx.types import i64

__all__ = [
    "CSR", "diagonal", "from_dense", "known_pattern", "matmul", "row_of", "spgemm", "square",
    "to_dense", "transpose",
]  # fmt: skip


@public
class CSR(NamedTuple):
    """A matrix of ``shape`` (rows, cols): ``data[k]`` stands in column ``indices[k]`` of the row r
    for which ``indptr[r] <= k < indptr[r + 1]``."""

    data: Value
    indices: Value
    indptr: Value
    shape: tuple[int, int]


def square(a: CSR, what: str) -> int:
    """The rows of a square matrix; ShapeError for another."""
    rows, cols = a.shape
    if rows != cols:
        raise ShapeError(f"sparse.{what} takes a square matrix, found {rows} x {cols}")
    return rows


@located
def matmul(a: CSR, x: Value) -> Value:
    """``a @ x`` for a vector ``[cols]`` or a matrix ``[cols, n]``, of the matrix's element type."""
    if x.rank not in (1, 2):
        raise ShapeError(f"sparse.matmul takes a vector or a matrix, found {x.type}")
    rows, cols = a.shape
    wide = x.reshape([x.shape[0], 1]) if x.rank == 1 else x
    y = times(a.data, a.indices, a.indptr, wide, rows=rows, cols=cols)
    return y.reshape([rows]) if x.rank == 1 else y


@located
def from_dense(a: Any) -> tuple[Array, Array, Array]:
    """The data, indices and indptr of a NumPy matrix, to be fed as a CSR's."""
    dense = np.asarray(a)
    if dense.ndim != 2:
        raise ShapeError(f"sparse.from_dense takes a matrix, found shape {list(dense.shape)}")
    rows, cols = np.nonzero(dense)
    counts = np.bincount(rows, minlength=dense.shape[0])
    return (
        dense[rows, cols],
        cols.astype(np.int64),
        np.append(0, np.cumsum(counts)).astype(np.int64),
    )


@located
def to_dense(a: CSR) -> Value:
    """The matrix as a dense one."""
    eye = Constant(np.eye(a.shape[1], dtype=a.data.dtype.numpy)).out
    return matmul(a, eye)


def row_of(a: CSR) -> Value:
    """The row of every entry, i64, found between the elements of ``indptr``."""
    places = Iota((a.indices.shape[0],), 0, i64).out
    return a.indptr.searchsorted(places, side="right") - 1


@located
def diagonal(a: CSR) -> Value:
    """The diagonal of a square matrix: ``[rows]``, 0 where there is no entry."""
    rows = square(a, "diagonal")
    if not rows:
        return zeros((0,), a.data.dtype)
    row = row_of(a)
    kept = row.eq(a.indices).where(a.data, 0.0)
    return kept.scatter_add(row, size=rows, mode="clip")


@located
def transpose(a: CSR) -> CSR:
    """The transposed matrix, with the entries of a row in the order of their columns if those of
    ``a`` are; gradients go to ``a.data``."""
    rows, cols = a.shape
    order = a.indices.argsort()
    bounds = Iota((cols + 1,), 0, i64).out
    indptr = a.indices.gather(order).searchsorted(bounds)
    return CSR(a.data.gather(order), row_of(a).gather(order), indptr, (cols, rows))


def known_pattern(a: CSR, what: str) -> tuple[Array, Array]:
    """Indices and indptr of a matrix whose pattern is constant; GraphError for another."""
    found: list[Array] = []
    for name, v in (("indices", a.indices), ("indptr", a.indptr)):
        if not isinstance(v.op, Constant):
            raise GraphError(
                f"{what}: the pattern of the result decides its size, so those of the operands must"
                f" be constants, found {name} = {v!r}; make them with g.constant(...)"
            )
        found.append(v.op.value)
    return found[0], found[1]


@located
def spgemm(a: CSR, b: CSR) -> CSR:
    """The sparse product ``a @ b`` of matrices whose patterns are constants.

    Its pattern has every place that a product of two entries falls on, in order and once each. One
    product is computed an operation, and those of a place are added in the order of the columns of
    ``a``: memory is that of all products. GraphError for a pattern that is no constant, ShapeError
    for sizes that do not fit or a pattern that is wrong.
    """
    (rows, inner), (other, cols) = a.shape, b.shape
    if inner != other:
        raise ShapeError(f"sparse.spgemm: {rows} x {inner} and {other} x {cols} do not fit")
    if a.data.dtype is not b.data.dtype:
        raise ShapeError(f"sparse.spgemm: {a.data.type} and {b.data.type} are of different types")
    (ai, ap), (bi, bp) = known_pattern(a, "sparse.spgemm"), known_pattern(b, "sparse.spgemm")
    check_pattern(ai, ap, rows, inner, "sparse.spgemm")
    check_pattern(bi, bp, inner, cols, "sparse.spgemm")
    counts = np.diff(bp)[ai]
    left = np.repeat(np.arange(ai.size), counts)
    starts = np.cumsum(counts) - counts
    right = np.arange(left.size) - np.repeat(starts, counts) + bp[ai][left]
    row = np.repeat(np.arange(rows), np.diff(ap))[left]
    places, which = np.unique(row * max(cols, 1) + bi[right], return_inverse=True)
    indptr = np.searchsorted(places, np.arange(rows + 1) * max(cols, 1)).astype(np.int64)
    indices = (places % max(cols, 1)).astype(np.int64)
    products = a.data.gather(left) * b.data.gather(right)
    data = products.scatter_add(which, size=places.size) if places.size else products
    return CSR(data, Constant(indices).out, Constant(indptr).out, (rows, cols))


def check_pattern(indices: Array, indptr: Array, rows: int, cols: int, what: str) -> None:
    """ShapeError for a pattern that is none of a matrix of these sizes."""
    counts = np.diff(indptr)
    outside = indices.size and (indices.min() < 0 or indices.max() >= cols)
    bounds = indptr.size == rows + 1 and indptr[0] == 0 and indptr[-1] == indices.size
    if outside or not bounds or (counts < 0).any():
        raise ShapeError(
            f"{what}: this is no pattern of {rows} x {cols}: indptr must have {rows + 1} elements"
            f" that rise from 0 to the number of entries ({indices.size}), and every index must be"
            f" below {cols}"
        )
