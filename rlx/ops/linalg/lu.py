"""The LU factorization, and determinants from it."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from rlx.base.dims import is_known
from rlx.errors import DTypeError, ShapeError
from rlx.ir.op import Array, Cost, bad, operand, sample
from rlx.ir.value import Value, bytes_of
from rlx.ops.indexing.gather import Gather
from rlx.ops.indexing.scatter import ScatterAdd
from rlx.ops.linalg.common import (
    LinearAlgebra,
    below,
    blocks,
    check_matrices,
    each_matrix,
    eye,
    triu,
)
from rlx.ops.linalg.triangular import triangular
from rlx.ops.movement.constant import Iota
from rlx.types import TensorType, i32

__all__ = ["Lu", "inverse_permutation", "permuted", "unit_lower"]


class Lu(LinearAlgebra, name="mir.lu"):
    """The factors L and U of square matrices, with partial pivoting: the rows of x, permuted.

    Results as ``jax.lax.linalg.lu``: L (below the diagonal; its own diagonal is ones) and U packed
    in one matrix; the pivots: row i was exchanged with row ``pivots[i]``, in order; and the
    permutation: row i of L U is row ``permutation[i]`` of x. A singular matrix has factors too;
    nan gives nan. Derivatives: de Hoog, Anderssen and Lukas 2011, "Differentiation of matrix
    functionals using triangular factorization".
    """

    x: Value = operand("square matrices [..., n, n]")

    result_count: ClassVar[int] = 3
    samples = (
        sample("3x3xT", data={0: "spread"}),
        sample("2x5x5xT", data={0: "spread"}),
        sample("1x1xT", data={0: "spread"}),
        sample("2x0x0xT", data={0: "spread"}),
    )
    bads = (
        bad("2x3xf32", match="square matrices, found 2 rows and 3", error=ShapeError),
        bad("f32", match="rank 2 or more", error=ShapeError),
        bad("2x2xbf16", match="16 bits are too few", error=DTypeError),
    )

    def infer(self) -> tuple[TensorType, TensorType, TensorType]:
        check_matrices(self, self.x, square=True)
        order = TensorType(self.x.shape[:-1], i32)
        return self.x.type, order, order

    def cost(self) -> Cost:
        """2 n³ / 3 operations a matrix."""
        size, n = self.x.type.size, self.x.shape[-1]
        flops = 2 * size * n // 3 if is_known(size) and is_known(n) else 0
        return Cost(flops, bytes_of([self.x, *self.results]))

    def reference(self, x: Array) -> tuple[Array, ...]:
        def factor(a: Array) -> tuple[Array, Array, Array]:
            n = len(a)
            pivots, order = np.arange(n), np.arange(n)
            for i in range(n):
                p = i + int(np.argmax(np.abs(a[i:, i])))
                pivots[i] = p
                a[[i, p]], order[[i, p]] = a[[p, i]], order[[p, i]]
                if a[i, i] != 0:
                    a[i + 1 :, i] /= a[i, i]
                a[i + 1 :, i + 1 :] -= np.outer(a[i + 1 :, i], a[i, i + 1 :])
            return a, pivots, order

        return each_matrix(self, factor, x)

    def loops(self, b: Any) -> None:
        """Right-looking: a panel of columns, the rows of U beside it, then the rest at once."""
        *batch, n, _ = self.x.type.static_shape

        def matrix(*at: Any) -> None:
            _Factor(b, self.x.dtype, n, b.result_matrix(1, at), b.result_matrix(2, at)).run(
                b.matrix(0, at), b.result_matrix(0, at)
            )

        b.parallel(batch, matrix)

    def vjp(self, g: Value | None, *integers: Value | None) -> tuple[Value | None]:
        """Pᵀ L⁻ᵀ (tril(Lᵀ gL, -1) + triu(gU Uᵀ)) U⁻ᵀ."""
        if g is None:
            return (None,)
        lu, _, permutation = self.results
        lower, upper = unit_lower(lu), triu(lu)
        inner = below(lower.mT @ below(g)) + triu(triu(g) @ upper.mT)
        left = triangular(lu, inner, transpose=True, unit_diagonal=True)
        both = triangular(lu, left, lower=False, transpose=True, left_side=False)
        return (permuted(both, inverse_permutation(permutation)),)

    def jvp(self, t: Value) -> tuple[Value, None, None]:
        """L tril(M, -1) + triu(M) U, where M = L⁻¹ P t U⁻¹."""
        lu, _, permutation = self.results
        left = triangular(lu, permuted(t, permutation), unit_diagonal=True)
        m = triangular(lu, left, lower=False, left_side=False)
        moved = below(unit_lower(lu) @ below(m)) + triu(triu(m) @ triu(lu))
        return moved, None, None


class _Factor:
    """The loop nest of one matrix."""

    def __init__(self, b: Any, dt: Any, n: int, pivots: Any, order: Any) -> None:
        self.b, self.k, self.n, self.dtype = b, b.k, n, dt
        self.pivots, self.order = pivots, order
        self.width = blocks(n, dt)
        self.a, self.row = b.work(n, self._columns(), dt), b.work(1, self.width, dt)

    def _columns(self) -> int:
        """Whole panels."""
        return -(-self.n // self.width) * self.width

    def run(self, source: Any, target: Any) -> None:
        k, n = self.k, self.n
        self.a.fill(n, self._columns())
        self.a.load(source, n, n)
        k.loop(0, n, 1, lambda i: self.order.set(0, i, k.cast(i, i32)))
        k.loop(0, n, self.width, self._panel)
        self.a.save(target, n, n)

    def _panel(self, start: Any) -> None:
        k, a, n = self.k, self.a, self.n
        end = k.minimum(start + self.width, k.index(n))
        k.loop(start, end, 1, lambda c: self._column(c, start))
        if n <= self.width:
            return

        def row(i: Any) -> None:
            a.subtract_product(a, a, (i, i + 1), (end, n), (start, i), tall=False)

        k.loop(start + 1, end, 1, row)
        a.subtract_product(a, a, (end, n), (end, n), (start, end))

    def _column(self, c: Any, start: Any) -> None:
        """Eliminate column c within its panel."""
        k, a = self.k, self.a

        def look(i: Any, best: Any, place: Any) -> list[Any]:
            size = k.abs(a.get(i, c))
            more = size > best
            return [k.select(more, size, best), k.select(more, i, place)]

        _, p = k.loop(c, self.n, 1, look, [a.const(-1.0), c])
        self.pivots.set(0, c, k.cast(p, i32))

        def exchange() -> None:
            a.swap_rows(c, p, self.n)
            upper, lower = self.order.get(0, c), self.order.get(0, p)
            self.order.set(0, c, lower)
            self.order.set(0, p, upper)

        k.when(k.compare("ne", p, c), exchange)
        pivot = a.get(c, c)
        pivot = k.select(k.compare("eq", pivot, 0.0), 1.0, pivot)
        # The rest of the pivot's row, with zeros up to the diagonal: rows of the panel are updated
        # from its beginning, by whole vectors.
        row = self.row
        a.span(0, self.width, lambda j: row.put(0, j, a.vec(c, start + j)))
        k.loop(start, c + 1, 1, lambda j: row.set(0, j - start, 0.0))

        def update(i: Any) -> None:
            factor = a.get(i, c) / pivot

            def across(j: Any) -> None:
                at = start + j
                a.put(i, at, k.fma(row.vec(0, j), -factor, a.vec(i, at)))

            a.span(0, self.width, across)
            a.set(i, c, factor)

        k.loop(c + 1, self.n, 1, update)


def unit_lower(lu: Value) -> Value:
    """L of packed factors."""
    return below(lu) + eye(lu.shape[-1], lu.dtype)


def permuted(x: Value, order: Value) -> Value:
    """The rows of matrices in another order."""
    lead = x.rank - 2
    return Gather(x, order, lead, "clip", lead).out


def inverse_permutation(order: Value) -> Value:
    """The permutation that undoes one."""
    lead = order.rank - 1
    places = Iota(order.shape, lead, i32).out
    return ScatterAdd(places, order, (order.shape[-1],), lead, "clip", lead).out
