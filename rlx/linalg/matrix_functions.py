"""Functions of matrices, and what is made of entries: exponentials, square roots, polar factors."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from rlx.custom import custom_fn
from rlx.errors import DTypeError, GraphError, ShapeError
from rlx.ir.builders import located
from rlx.ir.lift import lift
from rlx.ir.value import Value
from rlx.ops.control.builders import cond, fori, while_loop
from rlx.ops.linalg.common import TYPES, as_rows, columns_times, eye
from rlx.ops.linalg.eigh import Eigh
from rlx.ops.linalg.solve import Inv, Slogdet, Solve
from rlx.ops.linalg.svd import Svd
from rlx.ops.movement.constant import Constant
from rlx.ops.movement.movement import listed, zeros
from rlx.ops.sugar import concat

__all__ = ["diag_set", "diagonal", "expm", "kron", "logdet", "polar", "sqrtm", "trace"]


# -- entries ---------------------------------------------------------------------------------------


def _matrices(x: Value, what: str) -> None:
    if x.rank < 2:
        raise ShapeError(f"{what} takes matrices: rank 2 or more, found {listed(x.shape)}")


def _square(x: Value, what: str) -> None:
    if x.dtype not in TYPES:
        raise DTypeError(f"{what} takes f32 or f64, found {x.dtype}; cast it first")
    _matrices(x, what)
    m, n = x.shape[-2:]
    if m != n:
        raise ShapeError(f"{what} takes square matrices, found {m} rows and {n} columns")


@located
def diagonal(x: Value) -> Value:
    """The diagonals [..., min(m, n)] of x [..., m, n] of any element type."""
    _matrices(x, "diagonal")
    m, n = x.type.static_shape[-2:]
    k = min(m, n)
    square = x[..., :k, :k]
    places = Constant(np.arange(k) * (k + 1)).out
    return square.reshape((*x.shape[:-2], k * k)).gather(places, axis=-1)


@located
def trace(x: Value) -> Value:
    """The sums [...] of the diagonals of x [..., m, n]."""
    return diagonal(x).sum(axes=-1)


@located
def diag_set(x: Value, v: Value | float) -> Value:
    """x [..., m, n] with v on its diagonals: [..., min(m, n)], what broadcasts to it, or a number.
    ShapeError for another shape."""
    _matrices(x, "diag_set")
    m, n = x.type.static_shape[-2:]
    k = min(m, n)
    own = lift(v, x).cast(to=x.dtype)
    shape = (*x.shape[:-2], k)
    fits = own.rank <= len(shape) and all(
        d in (1, e) for d, e in zip(reversed(own.shape), reversed(shape), strict=False)
    )
    if not fits:
        raise ShapeError(f"diag_set: the diagonal is {own.type}, expected {listed(shape)}")
    on = Constant(np.eye(m, n, dtype=bool)).out
    line = own.expand(shape)
    if n > k:
        line = concat([line, zeros((*x.shape[:-2], n - k), x.dtype)], axis=-1)
    return on.where(as_rows(line), x)


@located
def kron(a: Value, b: Value) -> Value:
    """The Kronecker product [..., m p, n q] of a [..., m, n] and b [..., p, q], whose batch axes
    broadcast; of vectors [m] and [p] that of ``numpy.kron``, [m p]. ShapeError for a vector and a
    matrix."""
    if a.rank == 1 and b.rank == 1:
        return (a.unsqueeze(1) * b).reshape([a.shape[0] * b.shape[0]])
    if min(a.rank, b.rank) < 2:
        raise ShapeError(
            f"kron takes two vectors or two matrices, found {listed(a.shape)} and {listed(b.shape)}"
        )
    (m, n), (p, q) = a.shape[-2:], b.shape[-2:]
    left = a.reshape((*a.shape[:-2], m, 1, n, 1))
    product = left * b.reshape((*b.shape[:-2], 1, p, 1, q))
    return product.reshape((*product.shape[:-4], m * p, n * q))


@located
def logdet(x: Value) -> Value:
    """The logarithm of the determinant of x [..., n, n]: [...]. It is -inf where that is 0 and nan
    where it is negative; ``slogdet`` tells them apart."""
    sign, logarithm = Slogdet(x).results
    return sign.lt(0.0).where(lift(float("nan"), logarithm), logarithm)


# -- exponentials ----------------------------------------------------------------------------------

_PADE = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0,
    129060195264000.0, 10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0, 40840800.0,
    960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
"""Coefficients of the approximant of degree 13."""

_REACH = 5.371920351148152
"""The norm up to which that approximant is exact to f64's rounding: Higham 2005, table 2.3."""


@located
def expm(x: Value, max_squarings: int = 16) -> Value:
    """The exponential of x [..., n, n], by scaling, a Padé approximant and squaring: Higham 2005,
    "The scaling and squaring method for the matrix exponential revisited".

    A matrix whose 1-norm is above 5.37 2^``max_squarings`` gives nan, as in JAX: so many rounds
    there are, of which those that no matrix of the batch needs are left out. GraphError for fewer
    than 0.
    """
    _square(x, "expm")
    if max_squarings < 0:
        raise GraphError(f"expm: max_squarings is 0 or more, found {max_squarings}")
    if x.shape[-1] == 0:
        return x
    size = x.abs().sum(axes=-2).max(axes=-1)
    needed = ((size / _REACH).log2().ceil()).maximum(0.0)
    rounds = needed.minimum(float(max_squarings))
    small = x * (2.0**-rounds).reshape((*rounds.shape, 1, 1)).stop_gradient()
    result = _approximant(small)
    most = rounds.max()

    def square(i: Value, r: Value) -> Value:
        def once(r: Value) -> Value:
            wanted = i.cast(to=x.dtype).lt(rounds)
            return wanted.reshape((*rounds.shape, 1, 1)).where(r @ r, r)

        return cond(i.cast(to=x.dtype).lt(most), once, lambda r: r, r)

    result = fori(max_squarings, square, result) if max_squarings else result
    beyond = needed.gt(float(max_squarings)).reshape((*needed.shape, 1, 1))
    return beyond.where(lift(float("nan"), result), result)


def _approximant(x: Value) -> Value:
    """(V - U)⁻¹ (V + U) for the odd and even parts U and V of the polynomial."""
    b = _PADE
    one = eye(x.shape[-1], x.dtype)
    # Scaled so that no coefficient overflows f32.
    c = [v / b[0] for v in b]
    x2 = x @ x
    x4 = x2 @ x2
    x6 = x4 @ x2
    odd = x6 @ (x6 * c[13] + x4 * c[11] + x2 * c[9]) + x6 * c[7] + x4 * c[5] + x2 * c[3]
    u = x @ (odd + one * c[1])
    v = x6 @ (x6 * c[12] + x4 * c[10] + x2 * c[8]) + x6 * c[6] + x4 * c[4] + x2 * c[2] + one
    return Solve(v - u, v + u, False).out


# -- square roots ----------------------------------------------------------------------------------


@located
def sqrtm(x: Value, symmetric: bool = False) -> Value:
    """The principal square root of x [..., n, n]: the one whose eigenvalues have positive real
    parts.

    Without ``symmetric`` by the product form of Denman and Beavers' iteration, with scaling (Cheng,
    Higham, Kenney and Laub 2001, "Approximating the logarithm of a matrix to specified accuracy").
    A matrix with a negative real eigenvalue has no real root and gives nan, a singular one is a
    FaultError of the run. The derivative is exact, and the first one alone.

    With ``symmetric`` from the eigenvalues of a symmetric positive semidefinite matrix; those below
    0 count as 0. (x + xᵀ) / 2 is what the root is of. Its derivatives, of every order, are for
    matrices of which at most one eigenvalue is 0 (at two they are not finite).
    """
    _square(x, "sqrtm")
    if x.shape[-1] == 0:
        return x
    if symmetric:
        return _symmetric_root((x + x.mT) * 0.5)

    def vjp(args: Any, results: Any, g: Value) -> tuple[Value]:
        return (_root_along(args[0].mT, g),)

    def jvp(args: Any, tangents: Any) -> Value:
        return _root_along(args[0], tangents[0])

    return custom_fn(_root, vjp=vjp, jvp=jvp)(x)


def _root_along(x: Value, e: Value) -> Value:
    """The derivative of the root along e: the corner of the root of [[x, e], [0, x]] (Higham 2008,
    "Functions of Matrices", theorem 3.6)."""
    n = x.shape[-1]
    upper, lower = concat([x, e], axis=-1), concat([zeros(x.shape, x.dtype), x], axis=-1)
    return _root(concat([upper, lower], axis=-2))[..., :n, n:]


def _root(x: Value) -> Value:
    n = x.type.static_shape[-1]
    one = eye(n, x.dtype)
    eps = float(np.finfo(x.dtype.numpy).eps)

    def away(m: Value) -> Value:
        return (m - one).abs().sum(axes=-1).max(axes=-1)

    def going(k: Value, m: Value, r: Value) -> Value:
        return away(m).gt(n * eps).any().logical_and(k < 40)

    def step(k: Value, m: Value, r: Value) -> tuple[Value, ...]:
        # Scaling by the determinant helps far from the end, and is left out near it.
        # A singular matrix stays as it is, for its inverse to be the fault.
        logarithm = Slogdet(m).results[1] * (-0.5 / n)
        far = away(m).gt(1e-2).logical_and(logarithm.lt(float("inf")))
        mu = far.where(logarithm.exp(), 1.0).reshape((*logarithm.shape, 1, 1))
        scaled = m * (mu * mu)
        inverse = Inv(scaled).out
        r = (r * mu) @ (one + inverse) * 0.5
        return k + 1, (one + (scaled + inverse) * 0.5) * 0.5, r

    start = Constant(np.zeros((), np.int64)).out
    _, m, r = while_loop(going, step, (start, x, x))
    found = away(m).le(n * eps * 100).reshape((*r.shape[:-2], 1, 1))
    return found.where(r, lift(float("nan"), r))


def _symmetric_root(x: Value) -> Value:
    def parts(x: Value) -> tuple[Value, Value]:
        w, v = Eigh(x).results
        return w.relu().sqrt(), v

    def root(x: Value) -> Value:
        s, v = parts(x)
        return columns_times(v, s) @ v.mT

    def along(x: Value, t: Value) -> Value:
        """In the basis of eigenvectors, the tangent over the sums of roots."""
        s, v = parts(x)
        sums = as_rows(s) + s.unsqueeze(-1)
        return v @ ((v.mT @ t @ v) / sums) @ v.mT

    return custom_fn(
        root, vjp=lambda args, results, g: (along(args[0], g),),
        jvp=lambda args, tangents: along(args[0], tangents[0]),
    )(x)  # fmt: skip


# -- polar factors ---------------------------------------------------------------------------------


@located
def polar(x: Value, side: Literal["right", "left"] = "right") -> tuple[Value, Value]:
    """u and p of x [..., m, n] with x = u p, or x = p u if ``side`` is "left", as
    ``scipy.linalg.polar``: u [..., m, n] has orthonormal columns (rows, if it is wide), and p,
    [..., n, n] or [..., m, m], is symmetric positive semidefinite.

    Derivatives are for matrices of full rank. On the side on which p is regular ("right" for
    m >= n, "left" for m <= n) equal singular values have them too; on the other they are those of
    ``svd``, which has none there. GraphError for another side.
    """
    if side not in ("right", "left"):
        raise GraphError(f'polar: side is "right" or "left", found {side!r}')
    _matrices(x, "polar")
    if side == "left":
        u, p = polar(x.mT)
        return u.mT, p
    m, n = x.shape[-2:]
    if not (isinstance(m, int) and isinstance(n, int) and m >= n):
        return _polar(x)
    return custom_fn(_polar, vjp=_polar_vjp, jvp=_polar_jvp)(x)


def _polar(x: Value) -> tuple[Value, Value]:
    w, s, vt = Svd(x, False).results
    return w @ vt, columns_times(vt.mT, s) @ vt


def _skew(x: Value, m: Value) -> Value:
    """The Ω with Ω p + p Ω = m, in the basis of right singular vectors."""
    _, s, vt = Svd(x, False).results
    sums = as_rows(s) + s.unsqueeze(-1)
    return vt.mT @ ((vt @ m @ vt.mT) / sums) @ vt


def _polar_jvp(args: Any, tangents: Any) -> tuple[Value, Value]:
    x, t = args[0], tangents[0]
    u, p = _polar(x)
    inner = u.mT @ t
    turn = _skew(x, inner - inner.mT)
    outside = t - u @ inner
    return u @ turn + Solve(p, outside.mT, False).out.mT, inner - turn @ p


def _polar_vjp(args: Any, results: Any, cotangents: Any) -> tuple[Value]:
    x, (u, p), (gu, gp) = args[0], results, cotangents
    inner = u.mT @ gu
    k = inner - gp @ p
    outside = gu - u @ inner
    return (u @ (_skew(x, k - k.mT) + gp) + Solve(p, outside.mT, False).out.mT,)
