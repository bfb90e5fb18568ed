"""Sparse matrices in compressed rows (CSR): products, direct solves and conjugate gradients.

    a = rlx.sparse.CSR(data, indices, indptr, (rows, cols))
    y = rlx.sparse.matmul(a, x)

All ops here are declared by ``rlx.custom_op``, as anybody could declare them. Values are floats of
32 or 64 bits; the pattern is of i64, may have entries of a row in any order and several at one
place, which count as their sum. An entry outside the matrix is a fault of the run.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rlx.errors import ShapeError
from rlx.ir.builders import located, public
from rlx.ir.op import Array
from rlx.ir.value import Value
from rlx.ops.control.builders import while_loop
from rlx.ops.movement.constant import Constant
from rlx.ops.movement.movement import zeros
from rlx.sparse.ops import solve, times

__all__ = ["CSR", "cg", "from_dense", "lu_solve", "matmul", "to_dense"]


@public
class CSR(NamedTuple):
    """A matrix of ``shape`` (rows, cols): ``data[k]`` stands in column ``indices[k]`` of the row r
    for which ``indptr[r] <= k < indptr[r + 1]``."""

    data: Value
    indices: Value
    indptr: Value
    shape: tuple[int, int]


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
def lu_solve(a: CSR, b: Value) -> Value:
    """x of ``a @ x = b`` for ``b`` of ``[n]`` or ``[n, m]``, by the LU decomposition of SciPy
    (SuperLU), with which graphs run in this process only. A singular matrix is a fault."""
    rows, cols = a.shape
    if rows != cols:
        raise ShapeError(f"sparse.lu_solve takes a square matrix, found {rows} x {cols}")
    wide = b.reshape([b.shape[0], 1]) if b.rank == 1 else b
    x = solve(a.data, a.indices, a.indptr, wide, n=rows)
    return x.reshape(list(b.shape)) if b.rank == 1 else x


@located
def cg(a: CSR, b: Value, *, tol: float = 1e-5, limit: int | None = None) -> tuple[Value, Value]:
    """x of ``a @ x = b`` for a symmetric positive definite matrix and a vector, by conjugate
    gradients (Hestenes and Stiefel 1952) from zero; and the rounds that it took, an i64.

    It ends once the residual is at most ``tol`` times as long as ``b``, or after ``limit`` rounds:
    10 times the rows, unless it is given.
    """
    rows, cols = a.shape
    if rows != cols or b.rank != 1:
        raise ShapeError(f"sparse.cg takes a square matrix and a vector, found {rows} x {cols} and"
                         f" {b.type}")  # fmt: skip
    most = 10 * rows if limit is None else limit
    enough = (b * b).sum() * (tol * tol)

    def going(k: Value, x: Value, r: Value, p: Value, rr: Value) -> Value:
        return (rr > enough).logical_and(k < most)

    def step(k: Value, x: Value, r: Value, p: Value, rr: Value) -> tuple[Value, ...]:
        q = matmul(a, p)
        alpha = rr / (p * q).sum()
        r = r - alpha * q
        new = (r * r).sum()
        return k + 1, x + alpha * p, r, r + (new / rr) * p, new

    start = Constant(np.zeros((), np.int64)).out
    k, x, *_ = while_loop(going, step, (start, zeros(b.shape, b.dtype), b, b, (b * b).sum()))
    return x, k


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
