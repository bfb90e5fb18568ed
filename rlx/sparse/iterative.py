"""Loops that solve sparse systems, each from zero, in terms of products with the matrix.

They are plain loops of a graph; the ops of ``rlx.sparse.systems`` put their derivatives around
them. Every function gives x and the number of rounds, an i64.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rlx.ir.value import Value
from rlx.ops.control.builders import fori, while_loop
from rlx.ops.linalg.pinv import Lstsq
from rlx.ops.movement.constant import Constant
from rlx.ops.movement.movement import zeros

__all__ = ["Map", "bicgstab", "conjugate_gradients", "gmres", "lsqr"]

Map = Callable[[Value], Value]
Solution = tuple[Value, Value]


def _start() -> Value:
    return Constant(np.zeros((), np.int64)).out


def _dot(x: Value, y: Value) -> Value:
    return (x * y).sum()


def _norm(x: Value) -> Value:
    return _dot(x, x).sqrt()


def _over(x: Value, y: Value) -> Value:
    """x / y, and 0 where y is 0."""
    zero = y.eq(0.0)
    return zero.where(0.0, x / zero.where(1.0, y))


def conjugate_gradients(
    apply: Map, precondition: Map, b: Value, tol: float, limit: int
) -> Solution:
    """For a symmetric positive definite matrix and preconditioner: Hestenes and Stiefel 1952,
    "Methods of conjugate gradients for solving linear systems"."""
    enough = _dot(b, b) * (tol * tol)

    def going(k: Value, x: Value, r: Value, p: Value, rz: Value) -> Value:
        return _dot(r, r).gt(enough).logical_and(k < limit)

    def step(k: Value, x: Value, r: Value, p: Value, rz: Value) -> tuple[Value, ...]:
        q = apply(p)
        alpha = rz / _dot(p, q)
        r = r - alpha * q
        z = precondition(r)
        new = _dot(r, z)
        return k + 1, x + alpha * p, r, z + (new / rz) * p, new

    z = precondition(b)
    k, x, *_ = while_loop(going, step, (_start(), zeros(b.shape, b.dtype), b, z, _dot(b, z)))
    return x, k


def bicgstab(apply: Map, b: Value, tol: float, limit: int) -> Solution:
    """For any square matrix: van der Vorst 1992, "Bi-CGSTAB: a fast and smoothly converging variant
    of Bi-CG". Where the residual has become orthogonal to its shadow, it begins anew from there."""
    enough = _dot(b, b) * (tol * tol)
    least = float(np.finfo(b.dtype.numpy).eps) ** 2

    def going(k: Value, x: Value, r: Value, shadow: Value, p: Value, rho: Value) -> Value:
        return _dot(r, r).gt(enough).logical_and(k < limit)

    def step(
        k: Value, x: Value, r: Value, shadow: Value, p: Value, rho: Value
    ) -> tuple[Value, ...]:
        v = apply(p)
        alpha = _over(rho, _dot(shadow, v))
        s = r - alpha * v
        t = apply(s)
        omega = _over(_dot(t, s), _dot(t, t))
        x = x + alpha * p + omega * s
        r = s - omega * t
        new = _dot(shadow, r)
        lost = (new * new).le(_dot(shadow, shadow) * _dot(r, r) * least).logical_or(omega.eq(0.0))
        beta = _over(new, rho) * _over(alpha, omega)
        return (
            k + 1, x, r, lost.where(r, shadow), lost.where(r, r + beta * (p - omega * v)),
            lost.where(_dot(r, r), new),
        )  # fmt: skip

    k, x, *_ = while_loop(going, step, (_start(), zeros(b.shape, b.dtype), b, b, b, _dot(b, b)))
    return x, k


def gmres(apply: Map, b: Value, tol: float, limit: int, restart: int) -> Solution:
    """For any square matrix: Saad and Schultz 1986, "GMRES: a generalized minimal residual
    algorithm for solving nonsymmetric linear systems", begun anew after ``restart`` products; a
    round is one product."""
    n = b.type.static_shape[0]
    width = max(1, min(restart, n))
    enough = _dot(b, b) * (tol * tol)
    eps = float(np.finfo(b.dtype.numpy).eps)
    first = Constant(np.eye(width + 1, 1, dtype=b.dtype.numpy)).out

    def arnoldi(j: Value, carry: tuple[Value, Value]) -> tuple[Value, Value]:
        basis, hess = carry
        w = apply(basis.gather(j))
        size = _norm(w)
        # Twice is enough (Giraud, Langou and Rozloznik 2005): rows beyond j are 0.
        h = basis @ w
        w = w - h @ basis
        again = basis @ w
        w = w - again @ basis
        length = _norm(w)
        spent = length.le(size * (10 * eps))
        basis = basis.dynamic_update_slice(
            spent.where(0.0, _over(w, length)).reshape([1, n]), [j + 1, 0]
        )
        column = (h + again).dynamic_update_slice(spent.where(0.0, length).reshape([1]), [j + 1])
        return basis, hess.dynamic_update_slice(column.reshape([1, width + 1]), [j, 0])

    def going(k: Value, x: Value, r: Value) -> Value:
        return _dot(r, r).gt(enough).logical_and(k < limit)

    def cycle(k: Value, x: Value, r: Value) -> tuple[Value, ...]:
        length = _norm(r)
        basis = zeros((width + 1, n), b.dtype).dynamic_update_slice(
            (r / length).reshape([1, n]), [0, 0]
        )
        hess = zeros((width, width + 1), b.dtype)
        basis, hess = fori(width, arnoldi, (basis, hess))
        y = Lstsq.build(hess.T, first * length)
        x = x + y.reshape([width]) @ basis[:width]
        return k + width, x, b - apply(x)

    k, x, _ = while_loop(going, cycle, (_start(), zeros(b.shape, b.dtype), b))
    return x, k


def lsqr(apply: Map, back: Map, b: Value, cols: int, tol: float, limit: int) -> Solution:
    """The shortest x with the least |a x - b|: Paige and Saunders 1982, "LSQR: an algorithm for
    sparse linear equations and sparse least squares", with its first two tests of the end."""
    beta = _norm(b)
    u = _over(b, beta)
    v = back(u)
    alpha = _norm(v)
    v = _over(v, alpha)
    enough = beta * tol

    def going(
        k: Value, x: Value, u: Value, v: Value, w: Value, alpha: Value, bar: Value, rest: Value,
        square: Value, slope: Value,
    ) -> Value:  # fmt: skip
        steep = slope.gt(square.sqrt() * tol)
        return rest.gt(enough).logical_and(steep).logical_and(k < limit)

    def step(
        k: Value, x: Value, u: Value, v: Value, w: Value, alpha: Value, bar: Value, rest: Value,
        square: Value, slope: Value,
    ) -> tuple[Value, ...]:  # fmt: skip
        u = apply(v) - alpha * u
        beta = _norm(u)
        u = _over(u, beta)
        square = square + alpha * alpha + beta * beta
        v = back(u) - beta * v
        alpha = _norm(v)
        v = _over(v, alpha)
        rho = (bar * bar + beta * beta).sqrt()
        c, s = _over(bar, rho), _over(beta, rho)
        x = x + _over(c * rest, rho) * w
        w = v - _over(s * alpha, rho) * w
        return k + 1, x, u, v, w, alpha, -(c * alpha), s * rest, square, alpha * c.abs()

    x = zeros((cols,), b.dtype)
    begun = (_start(), x, u, v, v, alpha, alpha, beta, alpha * alpha, alpha)
    k, x, *_ = while_loop(going, step, begun)
    return x, k
