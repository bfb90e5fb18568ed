"""What solves a sparse system: iterative methods, and direct ones."""

from __future__ import annotations

from rlx.errors import GraphError, ShapeError
from rlx.ir.builders import located
from rlx.ir.value import Value
from rlx.ops.linalg.cholesky import Cholesky
from rlx.ops.linalg.solve import Solve
from rlx.ops.linalg.triangular import TriangularSolve
from rlx.sparse.csr import CSR, square, to_dense
from rlx.sparse.ops import at, solve
from rlx.sparse.systems import System, krylov, least_squares

__all__ = [
    "bicgstab", "cg", "cholesky", "cholesky_solve", "gmres", "ilu_pcg", "lsqr", "lu_solve", "pcg",
    "values_grad",
]  # fmt: skip


def _krylov(
    method: str, a: CSR, b: Value, tol: float, limit: int | None, restart: int = 1
) -> tuple[Value, Value]:
    rows, cols = a.shape
    if rows != cols or b.rank != 1:
        raise ShapeError(
            f"sparse.{method} takes a square matrix and a vector, found {rows} x {cols} and"
            f" {b.type}"
        )
    most = 10 * rows if limit is None else limit
    return krylov(System(method, rows, cols, tol, most, restart), a, b)


@located
def cg(a: CSR, b: Value, *, tol: float = 1e-5, limit: int | None = None) -> tuple[Value, Value]:
    """x of ``a @ x = b`` for a symmetric positive definite matrix and a vector, by conjugate
    gradients (Hestenes and Stiefel 1952) from zero; and the rounds that it took, an i64.

    It ends once the residual is at most ``tol`` times as long as ``b``, or after ``limit`` rounds:
    10 times the rows, unless it is given. That x is then as good as ``limit`` allowed is seen from
    the rounds. Derivatives are those of the solution, by the same method.
    """
    return _krylov("cg", a, b, tol, limit)


@located
def pcg(a: CSR, b: Value, *, tol: float = 1e-5, limit: int | None = None) -> tuple[Value, Value]:
    """``cg`` with Jacobi's preconditioner: every residual is divided by the diagonal, of which no
    element may be 0. Arguments and results as in ``cg``."""
    return _krylov("pcg", a, b, tol, limit)


@located
def ilu_pcg(
    a: CSR, b: Value, *, tol: float = 1e-5, limit: int | None = None
) -> tuple[Value, Value]:
    """``cg`` with an incomplete LU decomposition as its preconditioner: no entry beside those of
    ``a`` (Meijerink and van der Vorst 1977). Rows must be in order, with one entry a place and one
    on the diagonal; otherwise, or where a pivot is 0, it is a fault. Arguments and results as in
    ``cg``."""
    return _krylov("ilu_pcg", a, b, tol, limit)


@located
def bicgstab(
    a: CSR, b: Value, *, tol: float = 1e-5, limit: int | None = None
) -> tuple[Value, Value]:
    """``cg`` for a matrix that need not be symmetric: Bi-CGSTAB (van der Vorst 1992), with two
    products a round. Arguments and results as in ``cg``."""
    return _krylov("bicgstab", a, b, tol, limit)


@located
def gmres(
    a: CSR, b: Value, *, tol: float = 1e-5, limit: int | None = None, restart: int = 30
) -> tuple[Value, Value]:
    """``cg`` for a matrix that need not be symmetric: GMRES (Saad and Schultz 1986), which keeps
    the vectors of ``restart`` products and begins anew from what it has. A round is a product, and
    the end is looked for after each ``restart`` of them; with ``restart`` of the rows or more it
    never begins anew. Arguments and results as in ``cg``."""
    return _krylov("gmres", a, b, tol, limit, restart)


@located
def lsqr(a: CSR, b: Value, *, tol: float = 1e-8, limit: int | None = None) -> tuple[Value, Value]:
    """The shortest x with the least ``|a @ x - b|`` for a matrix of any shape and rank and a vector
    ``[rows]``, by LSQR (Paige and Saunders 1982); and the rounds that it took, an i64.

    It ends once the residual is at most ``tol`` times as long as b, or its slope ``a' r`` at most
    ``tol |a| |r|``, or after ``limit`` rounds (4 times the longer side, unless it is given).
    Derivatives are those at constant rank, by LSQR again.
    """
    rows, cols = a.shape
    if b.rank != 1 or b.shape[0] != rows:
        raise ShapeError(f"sparse.lsqr takes a vector of {rows} elements, found {b.type}")
    most = 4 * max(rows, cols) if limit is None else limit
    return least_squares(System("lsqr", rows, cols, tol, most), a, b)


@located
def lu_solve(a: CSR, b: Value, *, method: str = "dense") -> Value:
    """x of ``a @ x = b`` for ``b`` of ``[n]`` or ``[n, m]``. A singular matrix is a fault.

    "dense" makes a dense matrix of ``a`` and factors it by RLX's own kernels, everywhere and in
    artifacts; its memory is n². "superlu" is the sparse decomposition of SciPy, with which graphs
    run in this process only. GraphError for another method.
    """
    rows = square(a, "lu_solve")
    if method not in ("dense", "superlu"):
        raise GraphError(f'sparse.lu_solve: method is "dense" or "superlu", found {method!r}')
    wide = b.reshape([b.shape[0], 1]) if b.rank == 1 else b
    if method == "dense":
        x = Solve(to_dense(a), wide, False).out
    else:
        x = solve(a.data, a.indices, a.indptr, wide, n=rows)
    return x.reshape(list(b.shape)) if b.rank == 1 else x


@located
def cholesky(a: CSR) -> Value:
    """The lower triangular L [n, n] with L Lᵀ = a, dense, for a symmetric positive definite matrix,
    of which the lower triangle is read; another is a fault."""
    square(a, "cholesky")
    return Cholesky(to_dense(a)).out


@located
def cholesky_solve(a: CSR, b: Value) -> Value:
    """x of ``a @ x = b`` for a symmetric positive definite matrix, by ``cholesky``, and ``b`` of
    ``[n]`` or ``[n, m]``."""
    low = cholesky(a)
    wide = b.reshape([b.shape[0], 1]) if b.rank == 1 else b
    y = TriangularSolve.build(low, wide)
    x = TriangularSolve.build(low, y, transpose=True)
    return x.reshape(list(b.shape)) if b.rank == 1 else x


@located
def values_grad(a: CSR, y: Value, x: Value) -> Value:
    """The entries of ``y @ x.T`` at the places of ``a``, ``[entries]``: for ``y`` of [rows, n] and
    ``x`` of [cols, n], or vectors. With y the cotangent of ``matmul(a, x)`` it is that of
    ``a.data``."""
    wide = [v.reshape([v.shape[0], 1]) if v.rank == 1 else v for v in (y, x)]
    rows, cols = a.shape
    return at(a.indices, a.indptr, *wide, rows=rows, cols=cols)
