"""The standard's extension of linear algebra: batched, of f32 and f64 as ``rlx.linalg`` has it, and
a FaultError of the run for a matrix that has no result. Products take all numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

from rlx import linalg
from rlx.errors import GraphError, ShapeError
from rlx.ir.lift import promoted
from rlx.ir.value import Value
from rlx.ops.movement.movement import axis_of
from rlx.types import dtype as as_dtype
from rlx.xp.function import Operand, function
from rlx.xp.manipulation import matmul, matrix_transpose, stack, tensordot, vecdot
from rlx.xp.statistics import sum as _sum

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matmul", "matrix_norm",
    "matrix_power", "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve",
    "svd", "svdvals", "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip

Order = int | float | str


class EighResult(NamedTuple):
    """What ``eigh`` gives."""

    eigenvalues: Any
    eigenvectors: Any


class QRResult(NamedTuple):
    """What ``qr`` gives."""

    Q: Any
    R: Any


class SlogdetResult(NamedTuple):
    """What ``slogdet`` gives."""

    sign: Any
    logabsdet: Any


class SVDResult(NamedTuple):
    """What ``svd`` gives."""

    U: Any
    S: Any
    Vh: Any


@function
def cholesky(x: Operand, /, *, upper: bool = False) -> Any:
    """The lower triangular L with L Lᵀ = x, or if ``upper`` its transpose; x [..., n, n] is
    symmetric and positive definite."""
    found = linalg.cholesky(x, symmetrize=False)
    return found.swapaxes(-1, -2) if upper else found


@function
def cross(x1: Operand, x2: Operand, /, *, axis: int = -1) -> Any:
    """The cross products of vectors of 3 along an axis."""
    a, b = promoted(x1, x2)
    parts: list[list[Value]] = []
    for v in (a, b):
        at = axis_of(axis, v.rank, "cross")
        if v.shape[at] != 3:
            raise ShapeError(f"cross takes vectors of 3 along axis {axis}, found {v.type}")
        parts.append([p.squeeze(at) for p in v.split(3, at)])
    (a1, a2, a3), (b1, b2, b3) = parts
    found = (a2 * b3 - a3 * b2, a3 * b1 - a1 * b3, a1 * b2 - a2 * b1)
    return stack(found, axis=axis)


@function
def det(x: Operand, /) -> Any:
    """The determinants of x [..., n, n]."""
    return linalg.det(x)


@function
def diagonal(x: Operand, /, *, offset: int = 0) -> Any:
    """The diagonals of x [..., m, n], of those above the main one by ``offset``."""
    return x.diagonal(offset, -2, -1)


@function
def eigh(x: Operand, /) -> Any:
    """Eigenvalues in rising order, and eigenvectors as columns, of symmetric x [..., n, n]."""
    return EighResult(*linalg.eigh(x, symmetrize=False))


@function
def eigvalsh(x: Operand, /) -> Any:
    """The eigenvalues alone."""
    return linalg.eigvalsh(x, symmetrize=False)


@function
def inv(x: Operand, /) -> Any:
    """The inverses of x [..., n, n]."""
    return linalg.inv(x)


@function
def matrix_norm(x: Operand, /, *, keepdims: bool = False, ord: Order | None = "fro") -> Any:
    """The norms of x [..., m, n]: "fro", "nuc", 1, -1, 2, -2, inf or -inf."""
    return linalg.matrix_norm(x, "fro" if ord is None else ord, keepdims)


@function
def matrix_power(x: Operand, n: int, /) -> Any:
    """x [..., m, m] multiplied ``n`` times; for n < 0 its inverse."""
    return linalg.matrix_power(x, n)


@function
def matrix_rank(x: Operand, /, *, rtol: float | None = None) -> Any:
    """How many singular values are more than ``rtol`` times the largest one."""
    return linalg.matrix_rank(x, rtol)


@function
def outer(x1: Operand, x2: Operand, /) -> Any:
    """The products of all pairs of elements of two vectors."""
    a, b = promoted(x1, x2)
    if a.rank != 1 or b.rank != 1:
        raise ShapeError(f"outer takes two vectors, found {a.type} and {b.type}")
    return a.unsqueeze(1) * b.unsqueeze(0)


@function
def pinv(x: Operand, /, *, rtol: float | None = None) -> Any:
    """The Moore-Penrose inverses [..., n, m] of x [..., m, n]."""
    return linalg.pinv(x, rtol)


@function
def qr(x: Operand, /, *, mode: str = "reduced") -> Any:
    """Q and R of x [..., m, n]; ``mode`` is "reduced" or "complete"."""
    if mode not in ("reduced", "complete"):
        raise GraphError(f'qr: mode is "reduced" or "complete", found {mode!r}')
    return QRResult(*x.qr(mode == "complete"))


@function
def slogdet(x: Operand, /) -> Any:
    """Signs and logarithms of the absolute values of the determinants of x [..., n, n]."""
    return SlogdetResult(*linalg.slogdet(x))


@function
def solve(x1: Operand, x2: Operand, /) -> Any:
    """The x with x1 x = x2, for x1 [..., n, n] and x2 [..., n, k], or one vector [n]."""
    a, b = promoted(x1, x2)
    return linalg.solve(a, b)


@function
def svd(x: Operand, /, *, full_matrices: bool = True) -> Any:
    """U, S and Vᵀ of x [..., m, n] = U diag(S) Vᵀ."""
    return SVDResult(*linalg.svd(x, full_matrices))


@function
def svdvals(x: Operand, /) -> Any:
    """The singular values of x [..., m, n], in falling order."""
    return linalg.svdvals(x)


@function
def trace(x: Operand, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """The sums of the diagonals of x [..., m, n]."""
    return _sum(x.diagonal(offset, -2, -1), axis=-1, dtype=dtype and as_dtype(dtype))


@function
def vector_norm(
    x: Operand, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False,
    ord: float = 2,
) -> Any:  # fmt: skip
    """``(Σ |x|^ord)^(1/ord)`` along axes; inf and -inf are the largest and the least, 0 counts what
    is not 0."""
    return linalg.vector_norm(x, ord, axis, keepdims)
