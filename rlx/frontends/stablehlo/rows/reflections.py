"""QR factorizations as LAPACK packs them: R above the diagonal, Householder vectors below it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx.frontends.stablehlo.node import Node
from rlx.ir.value import Value
from rlx.ops.control.builders import fori
from rlx.ops.movement.constant import Constant

__all__ = ["apply_reflections", "factor"]


def _column(a: Value, j: Value, columns: Value) -> Value:
    """Column j of matrices, where ``columns`` counts."""
    return columns.eq(j).where(a, 0.0).sum([-1])


def _counts(a: Value, axis: int) -> Value:
    return Constant(np.arange(a.type.static_shape[axis])).out


def _reflect(v: Value, tau: Value, a: Value) -> Value:
    """What (I - tau v vᵀ) a takes away from a."""
    along = (v.unsqueeze(-1) * a).sum([-2], keepdims=True)
    return v.unsqueeze(-1) * (tau.unsqueeze(-1).unsqueeze(-1) * along)


def factor(n: Node) -> Sequence[Value]:
    """``geqrf``: matrices [..., m, n] packed, and the scalars tau [..., min(m, n)]; LAPACK's
    ``geqr2``, a column at a time."""
    a = n.x
    if a.dtype.is_complex:
        raise n.refuse("of complex matrices")
    rows, columns = _counts(a, -2), _counts(a, -1)
    count = min(a.type.static_shape[-2:])
    places = Constant(np.arange(count)).out
    taus = Constant(np.zeros((*a.type.static_shape[:-2], count), a.dtype.numpy)).out

    def one(j: Value, carry: tuple[Value, Value]) -> tuple[Value, Value]:
        a, taus = carry
        column = _column(a, j, columns)
        alpha = rows.eq(j).where(column, 0.0).sum([-1])
        below = rows.gt(j).where(column, 0.0)
        square = (below * below).sum([-1])
        none = square.eq(0.0)
        norm = (alpha * alpha + square).sqrt()
        beta = none.where(alpha, alpha.gt(0.0).where(-norm, norm))
        tau = none.where(0.0, (beta - alpha) / none.where(1.0, beta))
        v = below / none.where(1.0, alpha - beta).unsqueeze(-1) + rows.eq(j).cast(a.dtype)
        a = columns.gt(j).where(a - _reflect(v, tau, a), a)
        packed = rows.lt(j).where(column, rows.eq(j).where(beta.unsqueeze(-1), v))
        a = columns.eq(j).where(packed.unsqueeze(-1), a)
        return a, places.eq(j).where(tau.unsqueeze(-1), taus)

    return list(fori(count, one, (a, taus)))


def apply_reflections(n: Node) -> Value:
    """``orgqr``: the first columns of the product of reflections that are packed in matrices."""
    a, taus = n.xs[:2]
    if a.dtype.is_complex:
        raise n.refuse("of complex matrices")
    rows, columns = _counts(a, -2), _counts(a, -1)
    count = taus.type.static_shape[-1]
    places = Constant(np.arange(count)).out
    shape = a.type.static_shape
    start = Constant(np.broadcast_to(np.eye(*shape[-2:], dtype=a.dtype.numpy), shape)).out

    def one(j: Value, q: Value) -> Value:
        v = rows.gt(j).where(_column(a, j, columns), rows.eq(j).cast(a.dtype))
        tau = places.eq(j).where(taus, 0.0).sum([-1])
        return q - _reflect(v, tau, q)

    return fori(count, one, start, reverse=True) if count else start
