"""Solvers of sparse systems, with derivatives of the solution and not of the loop that finds it.

For ``x = inv(a) b`` the cotangent of b is ``u = inv(a)' g`` and that of a is ``-u x'``, taken at
the entries of a; u comes from the same method, so that a derivative is as accurate as ``tol`` says.
These derivatives are loops, so they have none themselves.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from rlx.base.frozen import frozen
from rlx.custom import custom_fn
from rlx.errors import GraphError
from rlx.ir.value import Value
from rlx.sparse.csr import CSR, diagonal
from rlx.sparse.incomplete import ilu_solve, incomplete_lu
from rlx.sparse.iterative import Map, bicgstab, conjugate_gradients, gmres, lsqr
from rlx.sparse.ops import at, back, check_system, times

__all__ = ["SYMMETRIC", "System", "krylov", "least_squares"]

SYMMETRIC = ("cg", "pcg", "ilu_pcg")

Args = tuple[Value, ...]
Pair = tuple[Value, Value]


@frozen
class System:
    """A method and its settings, for matrices of one size."""

    method: str
    rows: int
    cols: int
    tol: float
    limit: int
    restart: int = 1

    def check(self, a: CSR, b: Value) -> None:
        """DTypeError or ShapeError for parts that do not fit, GraphError for wrong settings."""
        what = f"sparse.{self.method}"
        check_system(
            what, a.data.type, a.indices.type, a.indptr.type, b.type, self.rows, self.cols
        )  # fmt: skip
        if not self.tol >= 0:
            raise GraphError(f"{what}: tol is a part of the length of b, found {self.tol}")
        if self.limit < 0:
            raise GraphError(f"{what}: limit is a number of rounds, found {self.limit}")
        if self.restart < 1:
            raise GraphError(f"{what}: restart is 1 or more products, found {self.restart}")

    def product(self, op: Any, d: Value, pattern: Args, v: Value) -> Value:
        """The matrix (``times``), or the transposed one (``back``), times a vector."""
        y = op(d, *pattern, v.reshape([*v.shape, 1]), rows=self.rows, cols=self.cols)
        return y.reshape([y.shape[0]])

    def outer(self, pattern: Args, y: Value, x: Value) -> Value:
        """The entries of ``y x'``."""
        wide = [v.reshape([*v.shape, 1]) for v in (y, x)]
        return at(*pattern, *wide, rows=self.rows, cols=self.cols)


# -- square matrices --------------------------------------------------------------------------


def krylov(s: System, a: CSR, b: Value) -> Pair:
    """x of ``a x = b`` and the rounds, by the method of ``s``."""
    s.check(a, b)

    def vjp(args: Args, results: Args, cotangents: Args) -> tuple[Value | None, ...]:
        d, *pattern, _ = args
        u, _ = _square(s, d, tuple(pattern), cotangents[0], s.method not in SYMMETRIC)
        return -s.outer(tuple(pattern), u, results[0]), None, None, u

    def jvp(args: Args, tangents: Args) -> tuple[Value | None, ...]:
        d, *pattern, b = args
        x, _ = _square(s, d, tuple(pattern), b, False)
        rest = tangents[-1] - s.product(times, tangents[0], tuple(pattern), x)
        return _square(s, d, tuple(pattern), rest, False)[0], None

    def forward(d: Value, indices: Value, indptr: Value, b: Value) -> Pair:
        return _square(s, d, (indices, indptr), b, False)

    return custom_fn(forward, vjp=vjp, jvp=jvp)(a.data, a.indices, a.indptr, b)


def _square(s: System, d: Value, pattern: Args, b: Value, transposed: bool) -> Pair:
    apply: Map = partial(s.product, back if transposed else times, d, pattern)
    if s.method == "bicgstab":
        return bicgstab(apply, b, s.tol, s.limit)
    if s.method == "gmres":
        return gmres(apply, b, s.tol, s.limit, s.restart)
    precondition = _preconditioner(s, d, pattern)
    return conjugate_gradients(apply, precondition, b, s.tol, s.limit)


def _preconditioner(s: System, d: Value, pattern: Args) -> Map:
    if s.method == "pcg":
        scale = diagonal(CSR(d, *pattern, shape=(s.rows, s.rows)))
        return lambda r: r / scale
    if s.method == "ilu_pcg":
        factors, place = incomplete_lu(d, *pattern, n=s.rows)
        return partial(ilu_solve, factors, place, *pattern)
    return lambda r: r


# -- any matrices -----------------------------------------------------------------------------


def least_squares(s: System, a: CSR, b: Value) -> Pair:
    """The shortest x with the least ``|a x - b|``, and the rounds."""
    s.check(a, b)

    def vjp(args: Args, results: Args, cotangents: Args) -> tuple[Value | None, ...]:
        """At constant rank (Golub and Pereyra 1973), with ⁺ by LSQR again and r the residual:
        w = a⁺ᵀ g is the cotangent of b, that of a is r (a⁺ w)ᵀ - w xᵀ + a⁺ᵀ x (g - aᵀ w)ᵀ."""
        d, *rest = args
        pattern, b, x, g = tuple(rest[:2]), rest[2], results[0], cotangents[0]
        w = _least(s, d, pattern, g, True)
        residual = b - s.product(times, d, pattern, x)
        entries = s.outer(pattern, residual, _least(s, d, pattern, w, False))
        entries = entries - s.outer(pattern, w, x)
        across = g - s.product(back, d, pattern, w)
        entries = entries + s.outer(pattern, _least(s, d, pattern, x, True), across)
        return entries, None, None, w

    def jvp(args: Args, tangents: Args) -> tuple[Value | None, ...]:
        d, *rest = args
        pattern, b, moved = tuple(rest[:2]), rest[2], tangents[0]
        x = _least(s, d, pattern, b, False)
        residual = b - s.product(times, d, pattern, x)
        change = tangents[-1] - s.product(times, moved, pattern, x)
        tilt = _least(s, d, pattern, s.product(back, moved, pattern, residual), True)
        inside = _least(s, d, pattern, change + tilt, False)
        side = s.product(back, moved, pattern, _least(s, d, pattern, x, True))
        beside = side - _least(s, d, pattern, s.product(times, d, pattern, side), False)
        return inside + beside, None

    def forward(d: Value, indices: Value, indptr: Value, b: Value) -> Pair:
        return _lsqr(s, d, (indices, indptr), b, False)

    return custom_fn(forward, vjp=vjp, jvp=jvp)(a.data, a.indices, a.indptr, b)


def _lsqr(s: System, d: Value, pattern: Args, b: Value, transposed: bool) -> Pair:
    ahead: Map = partial(s.product, times, d, pattern)
    home: Map = partial(s.product, back, d, pattern)
    if transposed:
        return lsqr(home, ahead, b, s.rows, s.tol, s.limit)
    return lsqr(ahead, home, b, s.cols, s.tol, s.limit)


def _least(s: System, d: Value, pattern: Args, b: Value, transposed: bool) -> Value:
    return _lsqr(s, d, pattern, b, transposed)[0]
