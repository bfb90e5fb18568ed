"""The Cholesky factorization."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.base.dims import is_known
from rlx.errors import DTypeError, ShapeError
from rlx.ir.op import Array, Cost, bad, operand, sample
from rlx.ir.value import Value, bytes_of
from rlx.ops.linalg.common import (
    LinearAlgebra,
    blocks,
    check_matrices,
    each_matrix,
    mirrored,
    no_result,
    on_diagonal,
    symmetric,
    tril,
)
from rlx.ops.linalg.triangular import triangular
from rlx.types import TensorType

__all__ = ["Cholesky"]

INDEFINITE = (
    "cholesky: the matrix is not positive definite; add to its diagonal, or factor it by lu or eigh"
)


class Cholesky(LinearAlgebra, name="mir.cholesky"):
    """The lower triangular L with L Lᵀ = x, of symmetric positive definite matrices.

    Only the lower triangle of x is read. A matrix that is not positive definite is a FaultError of
    the run; nan gives nan. Derivatives: Murray 2016, "Differentiation of the Cholesky
    decomposition".
    """

    x: Value = operand("matrices [..., n, n]")

    samples = (
        sample("3x3xT", data={0: "spd"}),
        sample("2x2x5x5xT", data={0: "spd"}),
        sample("1x1xT", data={0: "spd"}),
        sample("2x0x0xT", data={0: "spd"}),
    )
    bads = (
        bad("2x3xf32", match="square matrices, found 2 rows and 3", error=ShapeError),
        bad("3xf32", match="rank 2 or more", error=ShapeError),
        bad("2x2xf16", match="16 bits are too few.*cast it first", error=DTypeError),
        bad("2x2xi32", match="found i32; cast it first", error=DTypeError),
    )

    def infer(self) -> TensorType:
        check_matrices(self, self.x, square=True)
        return self.x.type

    def cost(self) -> Cost:
        """n³ / 3 operations a matrix."""
        size = self.x.type.size
        n = self.x.shape[-1]
        flops = size * n // 3 if is_known(size) and is_known(n) else 0
        return Cost(flops, bytes_of([self.x, self.out]))

    def reference(self, x: Array) -> Array:
        def factor(a: Array) -> tuple[Array]:
            try:
                return (np.linalg.cholesky(a),)
            except np.linalg.LinAlgError:
                raise no_result(self, INDEFINITE) from None

        return np.tril(each_matrix(self, factor, x)[0])

    def loops(self, b: Any) -> None:
        """U = Lᵀ, whose updates are along rows: right-looking, a panel of rows at a time."""
        *batch, n, _ = self.x.type.static_shape
        width = blocks(n, self.x.dtype)

        def matrix(*at: Any) -> None:
            k, u = b.k, b.work(n, n, self.x.dtype)
            u.load(b.matrix(0, at).T, n, n)

            def row(r: Any, end: Any) -> None:
                pivot = u.get(r, r)
                b.fault(pivot <= 0.0, INDEFINITE)
                root = k.sqrt(pivot)
                u.set(r, r, root)
                u.span(r + 1, n, lambda j: u.put(r, j, u.vec(r, j) / root))

                def update(i: Any) -> None:
                    m = -u.get(r, i)
                    u.span(i, n, lambda j: u.put(i, j, k.fma(u.vec(r, j), m, u.vec(i, j))))

                k.loop(r + 1, end, 1, update)

            def panel(start: Any) -> None:
                end = k.minimum(start + width, k.index(n))
                k.loop(start, end, 1, lambda r: row(r, end))
                if n <= width:
                    return

                def rest(first: Any) -> None:
                    last = k.minimum(first + width, k.index(n))
                    u.subtract_product(u.T, u, (first, last), (first, n), (start, end))

                k.loop(end, n, width, rest)

            k.loop(0, n, width, panel)
            kept = b.const(0.0, self.x.dtype)
            u.T.save(b.result_matrix(0, at), n, n, lambda i, j, x: k.select(j <= i, x, kept))

        b.parallel(batch, matrix)

    def vjp(self, g: Value) -> tuple[Value]:
        """L⁻ᵀ Φ(Lᵀ g) L⁻¹, symmetrised; Φ takes the lower triangle with half the diagonal."""
        inner = _half(self.out.mT @ tril(g))
        left = triangular(self.out, inner, transpose=True)
        s = triangular(self.out, left, left_side=False)
        return (symmetric((s + s.mT) * 0.5),)

    def jvp(self, t: Value) -> Value:
        """L Φ(L⁻¹ t L⁻ᵀ)."""
        left = triangular(self.out, mirrored(t))
        inner = triangular(self.out, left, left_side=False, transpose=True)
        return self.out @ _half(inner)


def _half(x: Value) -> Value:
    return tril(x) - on_diagonal(x) * 0.5
