"""The singular value decomposition."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from rlx.base.dims import is_known
from rlx.errors import DTypeError, ShapeError, UnsupportedError
from rlx.ir.op import Array, Cost, Op, attr, bad, operand, sample
from rlx.ir.value import Value, bytes_of
from rlx.ops.linalg.bidiagonal import Bidiagonal
from rlx.ops.linalg.common import (
    LinearAlgebra,
    check_matrices,
    columns_times,
    diagonal,
    each_matrix,
    embedded,
    inverse_differences,
    least,
)
from rlx.ops.linalg.rotations import with_signs
from rlx.types import TensorType

__all__ = ["Svd", "Svdvals"]

UNFINISHED = "svd: the iteration did not converge"


class Svd(LinearAlgebra, name="mir.svd"):
    """The decomposition x = u diag(s) vᵀ with orthonormal columns of u and v, and s falling.

    Results as ``numpy.linalg.svd``: u [..., m, m], s [..., k] and vᵀ [..., n, n], k = min(m, n);
    without ``full_matrices`` u is [..., m, k] and vᵀ [..., k, n]. Of the components of a column of
    u the first that is as large as any is positive. Vectors of equal singular values, and those
    that full matrices add, are any basis of their space. nan and infinities give nan. There are
    derivatives where all singular values differ, and none of full matrices that are not square, as
    in JAX: Townsend 2016, "Differentiating the singular value decomposition".
    """

    x: Value = operand("matrices [..., m, n]")
    full_matrices: bool = attr(True, "square u and v; False: min(m, n) columns")

    result_count: ClassVar[int] = 3
    samples = (
        sample("3x3xT", data={0: "spread"}),
        sample("2x4x2xT", data={0: "spread"}, full_matrices=False),
        sample("2x5xT", data={0: "spread"}, full_matrices=False),
        sample("3x2xT", data={0: "spread"}, derivatives=0),
        sample("2x3xT", data={0: "spread"}, derivatives=0),
        sample("2x0xT", data={0: "spread"}, full_matrices=False),
    )
    bads = (
        bad("3xf32", match="rank 2 or more", error=ShapeError),
        bad("2x2xbf16", match="16 bits are too few", error=DTypeError),
    )

    def infer(self) -> tuple[TensorType, TensorType, TensorType]:
        m, n = check_matrices(self, self.x)
        k, lead = least(self, m, n), self.x.shape[:-2]
        wide, tall = (m, n) if self.full_matrices else (k, k)
        shapes = ((*lead, m, wide), (*lead, k), (*lead, tall, n))
        u, s, vt = (self.x.type.with_shape(shape) for shape in shapes)
        return u, s, vt

    def cost(self) -> Cost:
        """About 20 operations for every element of x and of a column of the smaller side."""
        return _cost(self, 20)

    def reference(self, x: Array) -> tuple[Array, ...]:
        def solve(a: Array) -> tuple[Array, Array, Array]:
            u, s, vt = np.linalg.svd(a, full_matrices=self.full_matrices)
            signs, k = with_signs(u), len(s)
            vt[:k] *= signs[:k, None]
            vt[k:] *= with_signs(vt[k:].T)[:, None]
            return u * signs, s, vt

        return each_matrix(self, solve, x)

    def loops(self, b: Any) -> None:
        m, n = self.x.type.static_shape[-2:]
        turned = m < n
        u, vt = (self.results[i].type.static_shape for i in (0, 2))

        def matrix(*at: Any) -> None:
            source, lefts, rights = (
                b.matrix(0, at),
                b.result_matrix(0, at),
                b.result_matrix(2, at).T,
            )
            if turned:
                source, lefts, rights = source.T, rights, lefts
            left = max(u[-1], vt[-2])
            reduced = Bidiagonal(b, max(m, n), min(m, n), self.x.dtype, UNFINISHED, vectors=left)
            reduced.run(source, b.result_matrix(1, at), lefts, rights, turned=turned)

        b.parallel(self.x.type.static_shape[:-2], matrix)

    def vjp(self, gu: Value | None, gs: Value | None, gvt: Value | None) -> tuple[Value | None]:
        """With F = 1 / (s_j² - s_i²): u ((F ∘ (uᵀ gu - guᵀ u)) s + s (F ∘ (vᵀ gv - gvᵀ v)) +
        diag(gs)) vᵀ, and for what lies outside the columns of u and of v (1 - u uᵀ) gu s⁻¹ vᵀ and
        u s⁻¹ gvᵀ (1 - v vᵀ)."""
        self._check_derivative()
        u, s, vt = self.results
        m, n = self.x.shape[-2:]
        f = inverse_differences(s * s)
        parts: list[Value] = []
        if gs is not None:
            parts.append(u @ embedded(gs) @ vt)
        if gu is not None:
            inner = u.mT @ gu
            parts.append(u @ columns_times(f * (inner - inner.mT), s) @ vt)
            if m != s.shape[-1]:
                parts.append(columns_times(gu - u @ inner, 1.0 / s) @ vt)
        if gvt is not None:
            inner = gvt @ vt.mT
            # F is odd, so that the transposes of F ∘ skew matrices need no other sign.
            parts.append(columns_times(u, s) @ (f * (inner.mT - inner)) @ vt)
            if n != s.shape[-1]:
                parts.append(columns_times(u, 1.0 / s) @ (gvt - inner @ vt))
        if not parts:
            return (None,)
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return (total,)

    def jvp(self, t: Value) -> tuple[Value, Value, Value]:
        """With p = uᵀ t v: du = u (F ∘ (p s + s pᵀ)) + (1 - u uᵀ) t v s⁻¹, ds = diag(p), dv =
        v (F ∘ (s p + pᵀ s)) + (1 - v vᵀ) tᵀ u s⁻¹."""
        self._check_derivative()
        u, s, vt = self.results
        m, n = self.x.shape[-2:]
        moved = t @ vt.mT
        p = u.mT @ moved
        f = inverse_differences(s * s)
        ps, sp = columns_times(p, s), columns_times(p.mT, s).mT
        du = u @ (f * (ps + ps.mT))
        dvt = (f * (sp + sp.mT)).mT @ vt
        if m != s.shape[-1]:
            du = du + columns_times(moved - u @ p, 1.0 / s)
        if n != s.shape[-1]:
            rest = u.mT @ t
            dvt = dvt + columns_times((rest - p @ vt).mT, 1.0 / s).mT
        return du, diagonal(p), dvt

    def _check_derivative(self) -> None:
        m, n = self.x.shape[-2:]
        if self.full_matrices and m != n:
            raise UnsupportedError(
                f"svd with full_matrices of {m} rows and {n} columns has no derivative: the added"
                " vectors are any basis; take full_matrices=False"
            )


class Svdvals(LinearAlgebra, name="mir.svdvals"):
    """The singular values of matrices, in falling order. nan and infinities give nan."""

    x: Value = operand("matrices [..., m, n]")

    samples = (
        sample("2x4x2xT", data={0: "spread"}),
        sample("2x5xT", data={0: "spread"}),
    )
    bads = (
        bad("3xf32", match="rank 2 or more", error=ShapeError),
        bad("2x2xbf16", match="16 bits are too few", error=DTypeError),
    )

    def infer(self) -> TensorType:
        m, n = check_matrices(self, self.x)
        return self.x.type.with_shape((*self.x.shape[:-2], least(self, m, n)))

    def cost(self) -> Cost:
        """About 4 operations for every element of x and of a column of the smaller side."""
        return _cost(self, 4)

    def reference(self, x: Array) -> Array:
        return each_matrix(self, lambda a: (np.linalg.svd(a, compute_uv=False),), x)[0]

    def loops(self, b: Any) -> None:
        m, n = self.x.type.static_shape[-2:]

        def matrix(*at: Any) -> None:
            source = b.matrix(0, at).T if m < n else b.matrix(0, at)
            reduced = Bidiagonal(b, max(m, n), min(m, n), self.x.dtype, UNFINISHED)
            reduced.run(source, b.result_matrix(0, at))

        b.parallel(self.x.type.static_shape[:-2], matrix)

    def vjp(self, g: Value) -> tuple[Value]:
        """u diag(g) vᵀ."""
        u, _, vt = Svd(self.x, False).results
        return (columns_times(u, g) @ vt,)

    def jvp(self, t: Value) -> Value:
        """diag(uᵀ t v)."""
        u, _, vt = Svd(self.x, False).results
        return diagonal(u.mT @ t @ vt.mT)


def _cost(op: Op, factor: int) -> Cost:
    x = op.present[0]
    size = x.type.size
    flops = factor * size * min(x.type.static_shape[-2:]) if is_known(size) else 0
    return Cost(flops, bytes_of([x, *op.results]))
