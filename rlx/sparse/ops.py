"""The ops of sparse matrices, declared as ops from outside are.

Three are bilinear, on one pattern, and their derivatives are each other:

    times:    y[r, j] += d[k] x[c, j]       back:    x[c, j] += d[k] y[r, j]
    at:       d[k] = sum over j of y[r, j] x[c, j]           for every entry k = (r, c)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.custom import custom_op
from rlx.errors import DTypeError, FaultError, ShapeError, UnsupportedError
from rlx.ir.op import Array
from rlx.ir.value import Value
from rlx.sparse.kernels import FAULTS, at_kernel, back_kernel, times_kernel
from rlx.types import TensorType, f32, f64, i64

__all__ = ["at", "back", "check_system", "solve", "times"]

Cotangents = tuple[Value | None, ...]


def _pattern(
    what: str, x: TensorType, indices: TensorType, indptr: TensorType, rows: int, cols: int
) -> None:
    for name, t in (("indices", indices), ("indptr", indptr)):
        if t.dtype is not i64 or t.rank != 1:
            raise DTypeError(f"{what}: {name} is {t}, expected a vector of i64")
    if indptr.shape[0] != rows + 1:
        raise ShapeError(f"{what}: indptr has {indptr.shape[0]} elements, expected {rows + 1}")
    if x.dtype not in (f32, f64):
        raise DTypeError(f"{what} takes f32 or f64, found {x.dtype}; cast it first")
    if min(rows, cols) < 0 or (rows == 0 and indices.shape[0] != 0):
        raise ShapeError(f"{what}: a matrix of {rows} x {cols} has no {indices.shape[0]} entries")


def _data(what: str, d: TensorType, indices: TensorType, x: TensorType) -> None:
    if d.shape != indices.shape or d.dtype is not x.dtype:
        raise ShapeError(f"{what}: data is {d}, expected {x.dtype}{list(indices.shape)}")


def _product(what: str, d: TensorType, indices: TensorType, x: TensorType, length: int) -> None:
    _data(what, d, indices, x)
    if x.rank != 2 or x.shape[0] != length:
        raise ShapeError(f"{what}: the operand is {x}, expected {length} rows")


def check_system(
    what: str,
    d: TensorType,
    indices: TensorType,
    indptr: TensorType,
    b: TensorType,
    rows: int,
    cols: int,
) -> None:
    """DTypeError or ShapeError for a system whose parts do not fit each other."""
    _pattern(what, b, indices, indptr, rows, cols)
    _data(what, d, indices, b)


def _infer_times(
    d: TensorType, indices: TensorType, indptr: TensorType, x: TensorType, rows: int, cols: int
) -> TensorType:
    _pattern("sparse.matmul", x, indices, indptr, rows, cols)
    _product("sparse.matmul", d, indices, x, cols)
    return x.with_shape((rows, x.shape[1]))


def _infer_back(
    d: TensorType, indices: TensorType, indptr: TensorType, y: TensorType, rows: int, cols: int
) -> TensorType:
    _pattern("sparse.matmul transposed", y, indices, indptr, rows, cols)
    _product("sparse.matmul transposed", d, indices, y, rows)
    return y.with_shape((cols, y.shape[1]))


def _infer_at(
    indices: TensorType, indptr: TensorType, y: TensorType, x: TensorType, rows: int, cols: int
) -> TensorType:
    _pattern("sparse.at", x, indices, indptr, rows, cols)
    if y.dtype is not x.dtype or y.shape[1:] != x.shape[1:]:
        raise ShapeError(f"sparse.at: {y} and {x} do not fit each other")
    return x.with_shape(indices.shape)


def _entries(indices: Array, indptr: Array, rows: int, cols: int) -> Array:
    """The row of each entry; FaultError for a wrong pattern."""
    outside = indices.size and (indices.min() < 0 or indices.max() >= cols)
    counts = np.diff(indptr)
    if outside or indptr[0] != 0 or indptr[-1] != indices.size or (counts < 0).any():
        raise FaultError(FAULTS[0])
    return np.repeat(np.arange(rows), counts)


def _sum(a: Value | None, b: Value | None) -> Value | None:
    """The sum of what there is."""
    return b if a is None else a if b is None else a + b


def _times_vjp(n: Any, g: Value) -> Cotangents:
    pattern = n.indices, n.indptr
    return at(*pattern, g, n.x, **n.attrs), None, None, back(n.d, *pattern, g, **n.attrs)


def _times_jvp(n: Any, td: Value | None, ti: None, tp: None, tx: Value | None) -> Value | None:
    pattern = n.indices, n.indptr
    return _sum(
        None if td is None else times(td, *pattern, n.x, **n.attrs),
        None if tx is None else times(n.d, *pattern, tx, **n.attrs),
    )


@custom_op("sparse.times", infer=_infer_times, kernel=times_kernel, vjp=_times_vjp, jvp=_times_jvp)
def times(d: Array, indices: Array, indptr: Array, x: Array, *, rows: int, cols: int) -> Array:
    """A sparse matrix times a dense one."""
    r = _entries(indices, indptr, rows, cols)
    out = np.zeros((rows, x.shape[1]), x.dtype)
    np.add.at(out, r, d[:, None] * x[indices])
    return out


def _back_vjp(n: Any, g: Value) -> Cotangents:
    pattern = n.indices, n.indptr
    return at(*pattern, n.y, g, **n.attrs), None, None, times(n.d, *pattern, g, **n.attrs)


def _back_jvp(n: Any, td: Value | None, ti: None, tp: None, ty: Value | None) -> Value | None:
    pattern = n.indices, n.indptr
    return _sum(
        None if td is None else back(td, *pattern, n.y, **n.attrs),
        None if ty is None else back(n.d, *pattern, ty, **n.attrs),
    )


@custom_op("sparse.back", infer=_infer_back, kernel=back_kernel, vjp=_back_vjp, jvp=_back_jvp)
def back(d: Array, indices: Array, indptr: Array, y: Array, *, rows: int, cols: int) -> Array:
    """A sparse matrix transposed, times a dense one."""
    r = _entries(indices, indptr, rows, cols)
    out = np.zeros((cols, y.shape[1]), y.dtype)
    np.add.at(out, indices, d[:, None] * y[r])
    return out


def _at_vjp(n: Any, g: Value) -> Cotangents:
    pattern = n.indices, n.indptr
    return None, None, times(g, *pattern, n.x, **n.attrs), back(g, *pattern, n.y, **n.attrs)


def _at_jvp(n: Any, ti: None, tp: None, ty: Value | None, tx: Value | None) -> Value | None:
    pattern = n.indices, n.indptr
    return _sum(
        None if ty is None else at(*pattern, ty, n.x, **n.attrs),
        None if tx is None else at(*pattern, n.y, tx, **n.attrs),
    )


@custom_op("sparse.at", infer=_infer_at, kernel=at_kernel, vjp=_at_vjp, jvp=_at_jvp)
def at(indices: Array, indptr: Array, y: Array, x: Array, *, rows: int, cols: int) -> Array:
    """The entries of ``y @ x.T`` at the places of a pattern."""
    r = _entries(indices, indptr, rows, cols)
    return (y[r] * x[indices]).sum(axis=1, dtype=x.dtype)


def _infer_solve(
    d: TensorType, indices: TensorType, indptr: TensorType, b: TensorType, n: int, transposed: bool
) -> TensorType:
    _pattern("sparse.lu_solve", b, indices, indptr, n, n)
    _product("sparse.lu_solve", d, indices, b, n)
    return b


def _solve_vjp(node: Any, g: Value) -> tuple[Value | None, ...]:
    """x = inv(a) b: the cotangent of b is u = inv(a)' g, that of a is -u x'."""
    pattern, n = (node.indices, node.indptr), node.n
    u = solve(node.d, *pattern, g, n=n, transposed=not node.transposed)
    y, x = (node.out, u) if node.transposed else (u, node.out)
    return -at(*pattern, y, x, rows=n, cols=n), None, None, u


def _solve_jvp(node: Any, td: Value | None, ti: None, tp: None, tb: Value | None) -> Value | None:
    """inv(a) of (the tangent of b, less that of a times x)."""
    pattern, n = (node.indices, node.indptr), node.n
    product = back if node.transposed else times
    moved = None if td is None else -product(td, *pattern, node.out, rows=n, cols=n)
    both = _sum(tb, moved)
    return None if both is None else solve(node.d, *pattern, both, n=n, transposed=node.transposed)


@custom_op("sparse.solve", infer=_infer_solve, vjp=_solve_vjp, jvp=_solve_jvp)
def solve(
    d: Array, indices: Array, indptr: Array, b: Array, *, n: int, transposed: bool = False
) -> Array:
    """A sparse system, or that of the transposed matrix."""
    try:
        from scipy.sparse import csc_matrix
        from scipy.sparse.linalg import splu
    except ImportError:
        raise UnsupportedError(
            'sparse.lu_solve by "superlu" needs the package scipy: pip install scipy'
        ) from None
    rows = _entries(indices, indptr, n, n)
    if not n:
        return np.zeros(b.shape, b.dtype)
    try:
        found = splu(csc_matrix((d, (rows, indices)), shape=(n, n)))
    except RuntimeError as e:
        raise FaultError(f"sparse.lu_solve: {e}") from None
    return np.asarray(found.solve(np.ascontiguousarray(b), "T" if transposed else "N"), b.dtype)
