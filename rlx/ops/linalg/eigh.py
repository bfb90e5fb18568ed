"""Eigenvalues and eigenvectors of symmetric matrices."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from rlx.base.dims import is_known
from rlx.errors import DTypeError, ShapeError
from rlx.ir.op import Array, Cost, bad, operand, sample
from rlx.ir.value import Value, bytes_of
from rlx.ops.linalg.common import (
    LinearAlgebra,
    check_matrices,
    columns_times,
    diagonal,
    each_matrix,
    embedded,
    inverse_differences,
    mirrored,
    symmetric,
)
from rlx.ops.linalg.rotations import with_signs
from rlx.ops.linalg.tridiagonal import Eigensystem
from rlx.types import TensorType

__all__ = ["Eigh", "Eigvalsh"]

UNFINISHED = "eigh: the iteration did not converge"


class _Symmetric(LinearAlgebra):
    """What both ops take."""

    x: Value = operand("symmetric matrices [..., n, n], of which the lower triangle is read")

    samples = (
        sample("3x3xT", data={0: "spread"}),
        sample("2x5x5xT", data={0: "spread"}),
        sample("1x1xT", data={0: "spread"}),
        sample("2x0x0xT", data={0: "spread"}),
    )
    bads = (
        bad("2x3xf32", match="square matrices, found 2 rows and 3", error=ShapeError),
        bad("2xf32", match="rank 2 or more", error=ShapeError),
        bad("2x2xf16", match="16 bits are too few", error=DTypeError),
    )

    def _flops(self, factor: int) -> Cost:
        size, n = self.x.type.size, self.x.shape[-1]
        flops = factor * size * n if is_known(size) and is_known(n) else 0
        return Cost(flops, bytes_of([self.x, *self.results]))


class Eigh(_Symmetric, name="mir.eigh"):
    """Eigenvalues w in rising order and orthonormal eigenvectors v of symmetric matrices.

    Only the lower triangle of x is read. Column i of v belongs to w[i]; of its components the first
    that is as large as any is positive. Vectors of equal eigenvalues are any basis of their space,
    and have no derivative: it is not finite, as in JAX. nan and infinities give nan. Derivatives:
    Giles 2008, "Collected matrix derivative results".
    """

    result_count: ClassVar[int] = 2

    def infer(self) -> tuple[TensorType, TensorType]:
        check_matrices(self, self.x, square=True)
        return self.x.type.with_shape(self.x.shape[:-1]), self.x.type

    def cost(self) -> Cost:
        """About 9 n³ operations a matrix."""
        return self._flops(9)

    def reference(self, x: Array) -> tuple[Array, ...]:
        def solve(a: Array) -> tuple[Array, Array]:
            w, v = np.linalg.eigh(a)
            return w, v * with_signs(v)

        return each_matrix(self, solve, np.tril(x))

    def loops(self, b: Any) -> None:
        def matrix(*at: Any) -> None:
            system = Eigensystem(
                b, self.x.type.static_shape[-1], self.x.dtype, UNFINISHED, vectors=True
            )
            system.run(b.matrix(0, at), b.result_matrix(0, at), b.result_matrix(1, at))

        b.parallel(self.x.type.static_shape[:-2], matrix)

    def vjp(self, gw: Value | None, gv: Value | None) -> tuple[Value | None]:
        """v (diag(gw) + F ∘ (vᵀ gv)) vᵀ with F = 1 / (w_j - w_i), as that of a lower triangle."""
        w, v = self.results
        inner = None
        if gw is not None:
            inner = embedded(gw)
        if gv is not None:
            turned = inverse_differences(w) * (v.mT @ gv)
            inner = turned if inner is None else inner + turned
        if inner is None:
            return (None,)
        g = v @ inner @ v.mT
        return (symmetric((g + g.mT) * 0.5),)

    def jvp(self, t: Value) -> tuple[Value, Value]:
        """dw = diag(vᵀ t v), dv = v (F ∘ (vᵀ t v))."""
        w, v = self.results
        inner = v.mT @ mirrored(t) @ v
        return diagonal(inner), v @ (inverse_differences(w) * inner)


class Eigvalsh(_Symmetric, name="mir.eigvalsh"):
    """Eigenvalues in rising order of symmetric matrices, of which the lower triangle is read.

    nan and infinities give nan.
    """

    samples = (sample("2x4x4xT", data={0: "spread"}),)

    def infer(self) -> TensorType:
        check_matrices(self, self.x, square=True)
        return self.x.type.with_shape(self.x.shape[:-1])

    def cost(self) -> Cost:
        """About 2 n³ operations a matrix."""
        return self._flops(2)

    def reference(self, x: Array) -> Array:
        return each_matrix(self, lambda a: (np.linalg.eigvalsh(a),), np.tril(x))[0]

    def loops(self, b: Any) -> None:
        def matrix(*at: Any) -> None:
            system = Eigensystem(
                b, self.x.type.static_shape[-1], self.x.dtype, UNFINISHED, vectors=False
            )
            system.run(b.matrix(0, at), b.result_matrix(0, at))

        b.parallel(self.x.type.static_shape[:-2], matrix)

    def vjp(self, g: Value) -> tuple[Value]:
        """v diag(g) vᵀ, as that of a lower triangle."""
        _, v = Eigh(self.x).results
        return (symmetric(columns_times(v, g) @ v.mT),)

    def jvp(self, t: Value) -> Value:
        """diag(vᵀ t v)."""
        _, v = Eigh(self.x).results
        return diagonal(v.mT @ mirrored(t) @ v)
