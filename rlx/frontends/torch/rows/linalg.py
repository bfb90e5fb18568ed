"""Decompositions of matrices and solutions of linear equations. What torch says of success is 0:
a matrix that has none gives nan here."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.frontends.common.values import constant, full
from rlx.frontends.torch.node import Node, Rows, static
from rlx.ir.value import Value
from rlx.linalg import expm
from rlx.ops.linalg.common import eye
from rlx.ops.movement.constant import Iota
from rlx.ops.pointwise.compare import Where
from rlx.types import i32

__all__ = ["ROWS"]


def _success(x: Value) -> Value:
    return full(x.shape[:-2], 0, i32)


def inverse(n: Node, x: Value) -> tuple[Value, Value]:
    return x.inv(), _success(x)


def determinant(n: Node, x: Value) -> tuple[Value, Any, Any]:
    return x.det(), None, None


def log_determinant(n: Node, x: Value) -> tuple[Value, Value, Any, Any]:
    sign, size = x.slogdet()
    return sign, size, None, None


def cholesky(n: Node, x: Value, upper: bool = False) -> Value:
    """Of the lower triangle, which torch reads unless it is to give the upper one."""
    if not upper:
        return x.cholesky()
    return x.swapaxes(-1, -2).cholesky().swapaxes(-1, -2)


def cholesky_checked(n: Node, x: Value, *, upper: bool = False) -> tuple[Value, Value]:
    return cholesky(n, x, upper), _success(x)


def eigen(
    n: Node, x: Value, UPLO: str = "L", compute_v: bool = True
) -> tuple[Value, Value]:  # fmt: skip
    if UPLO != "L":
        x = x.swapaxes(-1, -2)
    return x.eigh() if compute_v else (x.eigvalsh(), constant([], x.dtype))


def qr(n: Node, x: Value, mode: str = "reduced") -> tuple[Value, Value]:
    if mode == "r":
        return constant([], x.dtype), x.qr()[1]
    return x.qr(complete=mode == "complete")


def svd(
    n: Node, x: Value, full_matrices: bool = False, compute_uv: bool = True
) -> tuple[Value, Value, Value]:
    if not compute_uv:
        return constant([], x.dtype), x.svdvals(), constant([], x.dtype)
    return x.svd(full_matrices)


def solved(n: Node, a: Value, b: Value, *, left: bool = True) -> tuple[Value, Any, Any, Value]:
    vector = b.rank == a.rank - 1 or n.shape == a.shape[:-1]
    b = b.unsqueeze(-1) if vector else b
    if not left:
        found = a.swapaxes(-1, -2).solve(b.swapaxes(-1, -2)).swapaxes(-1, -2)
    else:
        found = a.solve(b)
    return (found.squeeze(-1) if vector else found), None, None, _success(a)


def solved_triangular(
    n: Node, a: Value, b: Value, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Value:
    return a.triangular_solve(b, not upper, False, unitriangular, left)


def solved_triangular_first(
    n: Node, b: Value, a: Value, upper: bool = True, transpose: bool = False,
    unitriangular: bool = False,
) -> tuple[Value, Value]:  # fmt: skip
    """The old op, which takes the right side first and gives the matrix back too."""
    return a.triangular_solve(b, not upper, transpose, unitriangular), a


def solved_cholesky(n: Node, b: Value, factor: Value, upper: bool = False) -> Value:
    half = factor.triangular_solve(b, not upper, upper)
    return factor.triangular_solve(half, not upper, not upper)


def inverse_cholesky(n: Node, factor: Value, upper: bool = False) -> Value:
    return solved_cholesky(n, eye(factor.shape[-1], factor.dtype), factor, upper)


def lu_factors(n: Node, x: Value, *, pivot: bool = True) -> tuple[Value, Value, Value]:
    if not pivot:
        n.refuse("it factors without pivoting, which is unstable and not there")
    factors, pivots, _ = x.lu()
    return factors, pivots + 1, _success(x)


def lu_parts(n: Node, x: Value, *, pivot: bool = True) -> tuple[Value, Value, Value]:
    if not pivot:
        n.refuse("it factors without pivoting, which is unstable and not there")
    factors, _, order = x.lu()
    rows = Iota((x.shape[-1], 1), 0, i32).out
    permutation = order.unsqueeze(-2).eq(rows).cast(x.dtype)
    return permutation, factors.tril(-1) + eye(x.shape[-1], x.dtype), factors.triu()


def pseudo_inverse(
    n: Node, x: Value, *, atol: Value | None = None, rtol: Value | None = None,
    hermitian: bool = False,
) -> Value:  # fmt: skip
    """By singular values, of which those up to the larger bound count as 0. Of a Hermitian matrix
    the lower triangle alone is read."""
    if x.type.size == 0:
        return n.full(0)
    part = x.dtype.part
    size = max(static(n, d, "a side of its matrices") for d in x.shape[-2:])
    usual = constant(float(np.finfo(part.numpy).eps) * size, part)
    least = constant(0, part) if atol is None else atol.cast(part)
    if rtol is None:
        rtol = usual if atol is None else Where.build(least.gt(0), constant(0, part), usual)
    if hermitian:
        signed, u = x.eigh()
        s, vh = signed.abs(), (u * signed.sign().unsqueeze(-2)).swapaxes(-1, -2)
    else:
        u, s, vh = x.svd(False)
    most = s.max(axes=[-1], keepdims=True)
    least, rtol = (v.unsqueeze(-1) if v.rank else v for v in (least, rtol.cast(part)))
    counts = s.gt(least.maximum(rtol * most))
    inverse = counts.where(1.0 / counts.where(s, 1.0), 0.0).cast(x.dtype)
    left, right = vh.swapaxes(-1, -2), u.swapaxes(-1, -2)
    if x.dtype.is_complex:
        left, right = left.conj(), right.conj()
    return (left * inverse.unsqueeze(-2)).matmul(right)


def trace(n: Node, x: Value) -> Value:
    return n.cast(x.trace())


def distances(n: Node, a: Value, b: Value, p: float, compute_mode: int | None = None) -> Value:
    """The p-norm of the difference of every pair of rows."""
    return (a.unsqueeze(-2) - b.unsqueeze(-3)).norm(p, axes=[-1])


def distances_between(n: Node, x: Value, p: float = 2) -> Value:
    """The p-norm of the difference of every row and those after it."""
    first, second = np.triu_indices(static(n, x.shape[0], "the number of rows"), 1)
    a, b = (x.gather(constant(i.astype(np.int64)), axis=0) for i in (first, second))
    return (a - b).norm(p, axes=[-1])


ROWS: Rows = {
    "linalg_inv_ex": inverse, "_linalg_det": determinant, "_linalg_slogdet": log_determinant,
    "cholesky": cholesky, "linalg_cholesky_ex": cholesky_checked, "_linalg_eigh": eigen,
    "linalg_qr": qr, "_linalg_svd": svd, "_linalg_solve_ex": solved,
    "linalg_solve_triangular": solved_triangular, "triangular_solve": solved_triangular_first,
    "cholesky_solve": solved_cholesky, "cholesky_inverse": inverse_cholesky,
    "linalg_lu_factor_ex": lu_factors, "linalg_lu": lu_parts,
    "linalg_pinv.atol_rtol_tensor": pseudo_inverse, "trace": trace, "_cdist_forward": distances,
    "_pdist_forward": distances_between, "linalg_matrix_exp": lambda n, x: expm(x),
}  # fmt: skip
