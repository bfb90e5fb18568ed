"""Linear algebra on Values: factorizations, systems and what is made of them.

    x = rlx.linalg.solve(a, b)

All functions are batched: every axis but the last two (the last, for vectors) is a batch axis. They
take f32 and f64. A matrix for which there is no result, such as a singular one in ``solve``, is a
FaultError of the run with the line of the call; nan and infinities in a matrix give nan. The ops
behind them, with their derivatives, are in docs/ops.md.

All but the norms raise DTypeError for other element types, and ShapeError for what is no matrix, or
not a square one where the shapes below say [..., n, n]; each function says what else it raises.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from rlx.errors import GraphError, ShapeError
from rlx.ir.builders import located
from rlx.ir.lift import lift
from rlx.ir.value import Value
from rlx.linalg.matrix_functions import (
    diag_set,
    diagonal,
    expm,
    kron,
    logdet,
    polar,
    sqrtm,
    trace,
)
from rlx.ops.linalg.cholesky import Cholesky
from rlx.ops.linalg.common import LinearAlgebra, eye
from rlx.ops.linalg.eigh import Eigh, Eigvalsh
from rlx.ops.linalg.lu import Lu
from rlx.ops.linalg.pinv import Lstsq, Pinv
from rlx.ops.linalg.qr import Qr
from rlx.ops.linalg.solve import Det, Inv, Slogdet, Solve
from rlx.ops.linalg.svd import Svd, Svdvals
from rlx.ops.linalg.triangular import TriangularSolve
from rlx.ops.movement.movement import axis_of, listed
from rlx.types import i64

__all__ = [
    "cholesky",
    "det",
    "diag_set",
    "diagonal",
    "eigh",
    "eigvalsh",
    "expm",
    "inv",
    "kron",
    "logdet",
    "lstsq",
    "lu",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "norm",
    "pinv",
    "polar",
    "qr",
    "slogdet",
    "solve",
    "sqrtm",
    "svd",
    "svdvals",
    "trace",
    "triangular_solve",
    "vector_norm",
]

Order = int | float | str


def _symmetrized(x: Value, symmetrize: bool) -> Value:
    square = x.rank >= 2 and x.shape[-1] == x.shape[-2] and x.dtype in LinearAlgebra.dtypes
    return (x + x.mT) * 0.5 if symmetrize and square else x


# -- factorizations --------------------------------------------------------------------------------


@located
def cholesky(x: Value, symmetrize: bool = True) -> Value:
    """The lower triangular L with L Lᵀ = x, for symmetric positive definite x [..., n, n].

    With ``symmetrize`` (x + xᵀ) / 2 is factored, as in JAX, so that gradients are symmetric;
    without it the lower triangle of x alone is read, as in NumPy. FaultError of the run if the
    matrix is not positive definite.
    """
    return Cholesky(_symmetrized(x, symmetrize)).out


@located
def lu(x: Value) -> tuple[Value, Value, Value]:
    """L and U packed in one matrix, pivots and permutation of x [..., n, n], as
    ``jax.lax.linalg.lu``: row i of L U is row ``permutation[i]`` of x. The three are [..., n, n],
    i32 [..., n] and i32 [..., n]."""
    packed, pivots, permutation = Lu(x).results
    return packed, pivots, permutation


@located
def qr(x: Value, mode: Literal["reduced", "complete"] = "reduced") -> tuple[Value, Value]:
    """Q and R of x [..., m, n], as ``numpy.linalg.qr``: Q is [..., m, k] and R [..., k, n], with
    k = min(m, n), or m if ``mode`` is "complete". GraphError for another mode."""
    if mode not in ("reduced", "complete"):
        raise GraphError(f'qr: mode is "reduced" or "complete", found {mode!r}')
    q, r = Qr(x, mode == "complete").results
    return q, r


@located
def eigh(x: Value, symmetrize: bool = True) -> tuple[Value, Value]:
    """Eigenvalues w [..., n] in rising order and eigenvectors v [..., n, n], as columns, of
    symmetric x; ``symmetrize`` as in ``cholesky``."""
    w, v = Eigh(_symmetrized(x, symmetrize)).results
    return w, v


@located
def eigvalsh(x: Value, symmetrize: bool = True) -> Value:
    """The eigenvalues alone, [..., n] in rising order, in a quarter of the time; see ``eigh``."""
    return Eigvalsh(_symmetrized(x, symmetrize)).out


@located
def svd(x: Value, full_matrices: bool = True) -> tuple[Value, Value, Value]:
    """u [..., m, m], s [..., k] and vᵀ [..., n, n] of x [..., m, n] with x = u diag(s) vᵀ, as
    ``numpy.linalg.svd``; k = min(m, n). Without ``full_matrices`` u is [..., m, k] and vᵀ
    [..., k, n]; gradients of matrices that are not square need that."""
    u, s, vt = Svd(x, full_matrices).results
    return u, s, vt


@located
def svdvals(x: Value) -> Value:
    """The singular values of x [..., m, n] alone, [..., min(m, n)] in falling order."""
    return Svdvals(x).out


# -- systems ---------------------------------------------------------------------------------------


@located
def solve(a: Value, b: Value) -> Value:
    """The x with a x = b, for a [..., n, n]. b is [..., n, k], or holds vectors: if its rank is 1,
    or its shape that of a without the last axis; x has the shape of b. DTypeError if a and b are of
    different types, ShapeError if their rows or batch axes differ; FaultError of the run if a
    matrix is singular."""
    return Solve.build(a, b)


@located
def triangular_solve(
    a: Value,
    b: Value,
    lower: bool = True,
    transpose: bool = False,
    unit_diagonal: bool = False,
    left_side: bool = True,
) -> Value:
    """The x with op(a) x = b, or x op(a) = b if not ``left_side``; op(a) is a or its transpose.
    a is [..., n, n]; b is [..., n, k] (without ``left_side`` [..., k, n]) or holds vectors, as in
    ``solve``, and so does x. Only the named triangle of a is read; a 0 on its diagonal is a
    FaultError of the run. DTypeError and ShapeError for operands that do not fit each other."""
    return TriangularSolve.build(a, b, lower, transpose, unit_diagonal, left_side)


@located
def inv(x: Value) -> Value:
    """The inverse of x [..., n, n]; FaultError of the run if a matrix is singular."""
    return Inv(x).out


@located
def pinv(x: Value, rtol: float | None = None) -> Value:
    """The Moore-Penrose inverse [..., n, m] of x [..., m, n]. Singular values of at most ``rtol``
    (by default max(m, n) eps) times the largest count as 0. GraphError for a negative ``rtol``;
    ShapeError for none where m or n is symbolic."""
    return Pinv.build(x, rtol)


@located
def lstsq(a: Value, b: Value, rtol: float | None = None) -> Value:
    """The shortest x with the least ``|a x - b|``, for a [..., m, n] of any rank; b as in
    ``solve``, with m rows, ``rtol`` as in ``pinv``; x has n rows in their place. Raises what these
    raise."""
    return Lstsq.build(a, b, rtol)


# -- numbers of matrices ---------------------------------------------------------------------------


@located
def det(x: Value) -> Value:
    """The determinant of x [..., n, n]: [...]."""
    return Det(x).out


@located
def slogdet(x: Value) -> tuple[Value, Value]:
    """Sign and logarithm of the absolute value of the determinant of x [..., n, n]: [...] each."""
    sign, logarithm = Slogdet(x).results
    return sign, logarithm


@located
def matrix_power(x: Value, n: int) -> Value:
    """x [..., m, m] multiplied n times; for n < 0 its inverse. GraphError if n is no int."""
    if not isinstance(n, int | np.integer) or isinstance(n, bool):
        raise GraphError(f"matrix_power: the exponent is an int, found {n!r}")
    if x.rank < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"matrix_power takes square matrices, found {listed(x.shape)}")
    if n == 0:
        return eye(x.shape[-1], x.dtype).expand(x.shape)
    base = Inv(x).out if n < 0 else x
    result: Value | None = None
    for bit in reversed(bin(abs(n))[2:]):
        if bit == "1":
            result = base if result is None else result @ base
        base = base @ base
    assert result is not None
    return result


@located
def matrix_rank(x: Value, rtol: float | None = None) -> Value:
    """How many singular values of x [..., m, n] are more than ``rtol`` (by default max(m, n) eps)
    times the largest one: i64 [...]. ShapeError if m or n is symbolic."""
    s = Svdvals(x).out
    m, n = x.type.static_shape[-2:]
    cutoff = max(m, n) * float(np.finfo(x.dtype.numpy).eps) if rtol is None else rtol
    if not min(m, n):
        return s.cast(to=i64).sum(axes=-1)
    return s.gt(s.max(axes=-1, keepdims=True) * cutoff).cast(to=i64).sum(axes=-1)


@located
def vector_norm(
    x: Value, ord: Order = 2, axis: int | tuple[int, ...] | None = None, keepdims: bool = False
) -> Value:
    """``(Σ |x|^ord)^(1/ord)`` along the axes, by default all, as ``numpy.linalg.vector_norm``: inf
    and -inf are the largest and the least, 0 counts what is not 0. The axes are gone, or 1 with
    ``keepdims``. ShapeError for an axis that x has not, GraphError for an ``ord`` that is text."""
    given = range(x.rank) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    axes = [axis_of(a, x.rank, "norm") for a in given]
    if isinstance(ord, str):
        raise GraphError(f"norm of vectors: ord is a number, found {ord!r}")
    size = x.abs()
    if ord == math.inf:
        return size.max(axes=axes, keepdims=keepdims)
    if ord == -math.inf:
        return size.min(axes=axes, keepdims=keepdims)
    if ord == 0:
        return x.ne(lift(0, x)).cast(to=size.dtype).sum(axes, keepdims)
    if ord == 1:
        return size.sum(axes, keepdims)
    if ord == 2:
        square = x.complex_norm_sq() if x.dtype.is_complex else x * x
        return square.sum(axes, keepdims).sqrt()
    return (size ** float(ord)).sum(axes, keepdims) ** (1.0 / ord)


def _extreme(v: Value, ord: Order) -> Value:
    """The largest of the last axis, or for a negative ord the least."""
    return v.min(axes=-1) if not isinstance(ord, str) and ord < 0 else v.max(axes=-1)


@located
def matrix_norm(x: Value, ord: Order = "fro", keepdims: bool = False) -> Value:
    """A norm of x [..., m, n], as ``numpy.linalg.matrix_norm``: "fro", "nuc" (the sum of the
    singular values), 1 and inf (the largest sum of a column, of a row), 2 (the largest singular
    value), and -1, -inf and -2, the least of them. It is [...], or [..., 1, 1] with ``keepdims``.
    ShapeError for rank 0 or 1, GraphError for another ``ord``."""
    if x.rank < 2:
        raise ShapeError(f"norm of matrices: rank 2 or more, found {listed(x.shape)}")
    if ord == "fro":
        return vector_norm(x, 2, (-2, -1), keepdims)
    if ord == "nuc" or ord in (2, -2):
        s = Svdvals(x).out
        out = s.sum(axes=-1) if ord == "nuc" else _extreme(s, ord)
    elif ord in (1, -1, math.inf, -math.inf):
        across = -2 if ord in (1, -1) else -1
        out = _extreme(x.abs().sum(axes=across), ord)
    else:
        raise GraphError(
            f'norm of matrices: ord is "fro", "nuc", 1, -1, 2, -2, inf or -inf, found {ord!r}'
        )
    return out.reshape((*out.shape, 1, 1)) if keepdims else out


@located
def norm(
    x: Value,
    ord: Order | None = None,
    axis: int | tuple[int, int] | None = None,
    keepdims: bool = False,
) -> Value:
    """``numpy.linalg.norm``: of vectors along one axis, or of matrices in two; by default the root
    of the sum of all squares. The axes are gone, or 1 with ``keepdims``. ShapeError for axes that
    are the same or that x has not, and for an ``ord`` of a tensor of higher rank without ``axis``;
    GraphError for an ``ord`` that there is not."""
    if axis is None:
        if ord is None:
            return vector_norm(x, 2, None, keepdims)
        if x.rank not in (1, 2):
            raise ShapeError(f"norm: give the axis or axes of {listed(x.shape)} that ord is for")
        axis = 0 if x.rank == 1 else (0, 1)
    if isinstance(axis, int):
        return vector_norm(x, 2 if ord is None else ord, axis, keepdims)
    row, column = (axis_of(a, x.rank, "norm") for a in axis)
    if row == column:
        raise ShapeError(f"norm: the axes {axis} are the same")
    if ord is None or ord == "fro":
        return vector_norm(x, 2, (row, column), keepdims)
    rest = [a for a in range(x.rank) if a not in (row, column)]
    out = matrix_norm(x.transpose([*rest, row, column]), ord)
    shape = [1 if a in (row, column) else d for a, d in enumerate(x.shape)]
    return out.reshape(shape) if keepdims else out
