"""Systems of equations and factorizations: a row of the matrix after the other.

The steps are written out, so that a matrix has at most ``LARGEST`` rows.
"""

from __future__ import annotations

from typing import Any

from rlx.ops.linalg.cholesky import INDEFINITE
from rlx.ops.linalg.triangular import SINGULAR
from rlx.targets.graph.rows.common import Row, shape_of
from rlx.targets.graph.tensor import Tensor
from rlx.targets.graph.whole import Refused, Whole
from rlx.types import i32

__all__ = ["LARGEST", "ROWS"]

LARGEST = 64
"""Rows of a matrix up to which its steps are written out."""


def _check_size(n: int) -> None:
    if n > LARGEST:
        raise Refused(f"a matrix of {n} rows, and steps are written out for {LARGEST} at most")


def _part(k: Whole, t: Tensor, row: int, column: int) -> Tensor:
    """The element of each matrix, [..., 1, 1]."""
    return k.narrow(k.narrow(t, t.rank - 2, row, row + 1), t.rank - 1, column, column + 1)


def _swapped(k: Whole, t: Tensor) -> Tensor:
    return k.transpose(t, [*range(t.rank - 2), t.rank - 1, t.rank - 2])


def _cholesky(k: Whole, node: Any, x: Tensor) -> Tensor:
    """A column of L after the other; what is right of it is updated at once."""
    n, rank = x.shape[-1], x.rank
    _check_size(n)
    if 0 in x.shape:
        return x
    rest, columns = x, list[Tensor]()
    lines = k.iota((n, 1), 0, i32)
    bad: Tensor | None = None
    for j in range(n):
        pivot = _part(k, rest, j, j)
        wrong = k.logical_not(pivot > 0.0)
        wrong = wrong & k.compare("eq", pivot, pivot)
        bad = wrong if bad is None else bad | wrong
        column = k.narrow(rest, rank - 1, j, j + 1) / k.sqrt(pivot)
        column = k.select(lines < j, k.literal(0, x.dtype), column)
        columns.append(column)
        rest = rest - column * _swapped(k, column)
    assert bad is not None, "there is a column"
    k.check(bad, INDEFINITE)
    return k.joined(columns, rank - 1) if n > 1 else columns[0]


def _triangular(k: Whole, node: Any, a: Tensor, b: Tensor) -> Tensor:
    n = a.shape[-1]
    _check_size(n)
    if 0 in b.shape:
        return b
    turned = node.transpose == node.left_side  # so that the system is t x = rhs
    t = _swapped(k, a) if turned else a
    forward = node.lower != turned
    rhs = b if node.left_side else _swapped(k, b)
    if not node.unit_diagonal:
        diagonal = [_part(k, t, i, i) for i in range(n)]
        k.check(k.compare("eq", k.joined(diagonal, t.rank - 1), 0.0), SINGULAR)
    rows: list[Tensor] = []
    for i in range(n) if forward else reversed(range(n)):
        line = k.narrow(rhs, rhs.rank - 2, i, i + 1)
        if rows:
            known = k.joined(rows, rhs.rank - 2) if len(rows) > 1 else rows[0]
            at = (0, i) if forward else (i + 1, n)
            factors = k.narrow(k.narrow(t, t.rank - 2, i, i + 1), t.rank - 1, *at)
            line = line - k.product(factors, known)
        if not node.unit_diagonal:
            line = line / _part(k, t, i, i)
        rows = [*rows, line] if forward else [line, *rows]
    out = k.joined(rows, rhs.rank - 2) if n > 1 else rows[0]
    return out if node.left_side else _swapped(k, out)


def _lu(k: Whole, node: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """With the largest element of each column as its pivot; rows change places by a gather."""
    n, rank = x.shape[-1], x.rank
    _check_size(n)
    lead = x.shape[:-2]
    if 0 in x.shape:
        return x, k.literal(0, i32, shape_of(node, 1)), k.literal(0, i32, shape_of(node, 2))
    lines = k.iota((n,), 0, i32)
    order = k.spread(lines, (*lead, n))
    pivots: list[Tensor] = []
    down, across = k.iota((n, 1), 0, i32), k.iota((1, n), 1, i32)
    for i in range(n):
        column = k.reshape(k.narrow(x, rank - 1, i, i + 1), (*lead, n))
        size = k.select(lines < i, -1.0, k.abs(column))
        best = k.reshape(k.folded("max", size, [rank - 2]), (*lead, 1))
        same = k.compare("eq", size, best) | k.compare("ne", size, size)
        found = k.select(same & (lines >= i), k.spread(lines, size.shape), n)
        p = k.reshape(k.folded("min", found, [rank - 2]), (*lead, 1))
        pivots.append(p)
        here = k.spread(lines, (*lead, n))
        p_ = k.spread(p, (*lead, n))
        swap = k.select(k.compare("eq", here, i), p_, here)
        swap = k.select(k.compare("eq", here, p_), i, swap)
        x = k.reshape(k.taken(x, swap, rank - 2, rank - 2), x.shape)
        order = k.reshape(k.taken(order, swap, rank - 2, rank - 2), order.shape)
        pivot = _part(k, x, i, i)
        divisor = k.select(k.compare("eq", pivot, 0.0), 1.0, pivot)
        factors = k.narrow(x, rank - 1, i, i + 1) / divisor
        factors = k.select(down > i, factors, 0.0)
        row = k.select(across > i, k.narrow(x, rank - 2, i, i + 1), 0.0)
        below = (down > i) & k.compare("eq", across, i)
        x = k.select(below, k.spread(factors, x.shape), x - factors * row)
    places = k.joined(pivots, rank - 2) if n > 1 else pivots[0]
    return x, places, order


ROWS: dict[str, Row] = {
    "mir.cholesky": _cholesky,
    "mir.triangular_solve": _triangular,
    "mir.lu": _lu,
}
