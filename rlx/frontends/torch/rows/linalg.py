"""Decompositions of matrices and solutions of linear equations. What torch says of success is 0:
a matrix that has none gives nan here."""

from __future__ import annotations

from typing import Any

from rlx.frontends.common.values import constant, full
from rlx.frontends.torch.node import Node, Rows
from rlx.ir.value import Value
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


ROWS: Rows = {
    "linalg_inv_ex": inverse, "_linalg_det": determinant, "_linalg_slogdet": log_determinant,
    "cholesky": cholesky, "linalg_cholesky_ex": cholesky_checked, "_linalg_eigh": eigen,
    "linalg_qr": qr, "_linalg_svd": svd, "_linalg_solve_ex": solved,
    "linalg_solve_triangular": solved_triangular,
}  # fmt: skip
