"""The QR factorization."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from rlx.base.dims import is_known
from rlx.errors import DTypeError, ShapeError, UnsupportedError
from rlx.ir.op import Array, Cost, attr, bad, operand, sample
from rlx.ir.value import Value, bytes_of
from rlx.ops.linalg.common import (
    LinearAlgebra,
    below,
    blocks,
    check_matrices,
    each_matrix,
    least,
    tril,
)
from rlx.ops.linalg.reflect import Panels, make_reflection, scaled
from rlx.ops.linalg.triangular import triangular
from rlx.types import TensorType

__all__ = ["Qr"]


class Qr(LinearAlgebra, name="mir.qr"):
    """Q with orthonormal columns and an upper triangular R with Q R = x, as ``numpy.linalg.qr``.

    Reduced: q [..., m, k] and r [..., k, n] with k = min(m, n). Complete: q is square, [..., m, m],
    and r [..., m, n]. The signs are those of LAPACK. A matrix with nan or infinities gives nan.
    There are derivatives for a reduced q of m >= n, where x has full rank: Walter, Lehmann and
    Lamour 2012, "On evaluating higher-order derivatives of the QR decomposition".
    """

    x: Value = operand("matrices [..., m, n]")
    complete: bool = attr(False, "a square q; False: as many columns as min(m, n)")

    result_count: ClassVar[int] = 2
    samples = (
        sample("3x3xT", data={0: "spread"}),
        sample("2x5x2xT", data={0: "spread"}),
        sample("2x4xT", data={0: "spread"}, derivatives=0),
        sample("4x2xT", data={0: "spread"}, complete=True, derivatives=0),
        sample("0x2xT", data={0: "spread"}, derivatives=0),
    )
    bads = (
        bad("3xf32", match="rank 2 or more", error=ShapeError),
        bad("2x2xf16", match="16 bits are too few", error=DTypeError),
    )

    def infer(self) -> tuple[TensorType, TensorType]:
        m, n = check_matrices(self, self.x)
        k = m if self.complete else least(self, m, n)
        lead = self.x.shape[:-2]
        return self.x.type.with_shape((*lead, m, k)), self.x.type.with_shape((*lead, k, n))

    def cost(self) -> Cost:
        """About 4 k operations for every element of x, k = min(m, n), and for those of q."""
        size, wide = self.x.type.size, self.results[0].type.size
        known = is_known(size) and is_known(wide)
        k = min(self.x.type.static_shape[-2:]) if known else 0
        flops = 2 * k * (size + wide) if is_known(size) and is_known(wide) else 0
        return Cost(flops, bytes_of([self.x, *self.results]))

    def reference(self, x: Array) -> tuple[Array, ...]:
        mode = "complete" if self.complete else "reduced"
        q, r = each_matrix(self, lambda a: tuple(np.linalg.qr(a, mode)), x)
        return q, r

    def loops(self, b: Any) -> None:
        """Householder's reflections, a panel of columns at a time."""

        def matrix(*at: Any) -> None:
            _Factor(b, self).run(b.matrix(0, at), b.result_matrix(0, at), b.result_matrix(1, at))

        b.parallel(self.x.type.static_shape[:-2], matrix)

    def vjp(self, gq: Value | None, gr: Value | None) -> tuple[Value | None]:
        """(gq + q c(M)) r⁻ᵀ, M = r grᵀ - gqᵀ q, where c mirrors the lower triangle."""
        self._check_derivative()
        q, r = self.results
        m = None
        if gr is not None:
            m = r @ gr.mT
        if gq is not None:
            inner = gq.mT @ q
            m = -inner if m is None else m - inner
        if m is None:
            return (None,)
        moved = q @ (tril(m) + below(m).mT)
        moved = moved if gq is None else gq + moved
        return (triangular(r, moved, lower=False, transpose=True, left_side=False),)

    def jvp(self, t: Value) -> tuple[Value, Value]:
        """With s = t r⁻¹ and the skew part o of qᵀ s: dq = q (o - qᵀ s) + s, dr = (qᵀ s - o) r."""
        self._check_derivative()
        q, r = self.results
        s = triangular(r, t, lower=False, left_side=False)
        inner = q.mT @ s
        skew = below(inner) - below(inner).mT
        return q @ (skew - inner) + s, (inner - skew) @ r

    def _check_derivative(self) -> None:
        """As in JAX: of a wide matrix, and of a complete q that is not square, there is none."""
        m, n = self.x.type.static_shape[-2:]
        if m < n or (self.complete and m != n):
            what = f"m = {m} < n = {n}" if m < n else f"a complete q of {m} rows and {n} columns"
            raise UnsupportedError(
                f"qr has no derivative for {what}; take the reduced one of a matrix with m >= n"
            )


class _Factor:
    """The loop nest of one matrix."""

    def __init__(self, b: Any, op: Qr) -> None:
        self.b, self.k = b, b.k
        self.m, self.n = op.x.type.static_shape[-2:]
        self.count = min(self.m, self.n)
        dt = op.x.dtype
        self.width = blocks(self.count, dt)
        self.q_columns = op.results[0].type.static_shape[-1]
        columns = max(self.n, -(-self.count // self.width) * self.width)
        self.a, self.w = b.work(self.m, columns, dt), b.work(1, self.width, dt)
        self.taus = b.work(1, self.count, dt)
        self.q = b.work(self.m, self.q_columns, dt)
        self.columns = columns
        self.panels = Panels(
            b, dt, self.a, self.taus, height=self.m, count=self.count,
            columns=max(self.n, self.q_columns),
        )  # fmt: skip

    def run(self, source: Any, q: Any, r: Any) -> None:
        k, a = self.k, self.a
        self.a.fill(self.m, self.columns)
        power, finite = scaled(self.b, a, source, self.m, self.n)
        lost = k.select(finite, 0.0, a.const(np.nan))
        k.loop(0, self.count, self.width, self._panel)
        zero = a.const(0.0)
        rows = self.m if self.q_columns > self.count else self.count

        def kept(i: Any, j: Any, x: Any) -> Any:
            return k.select(j < i, zero, x * power) + lost

        a.save(r, rows, self.n, kept)
        self.panels.columns = self.q_columns
        self.panels.form(self.q)
        self.q.save(q, self.m, self.q_columns, lambda i, j, x: x + lost)

    def _panel(self, start: Any) -> None:
        k = self.k
        end = k.minimum(start + self.width, k.index(self.count))
        k.loop(start, end, 1, lambda c: self._column(c, start, end))
        if self.n == self.count <= self.width:
            return
        self.panels.columns = self.n
        self.panels.gather(start)
        self.panels.apply(self.a, end, start, transpose=True)

    def _column(self, c: Any, start: Any, end: Any) -> None:
        """Reflect column c, and the rest of its panel."""
        k, a, m = self.k, self.a, self.m

        def add(i: Any, total: Any) -> Any:
            x = a.get(i, c)
            return k.fma(x, x, total)

        (square,) = k.loop(c + 1, m, 1, add, [a.const(0.0)])
        beta, tau, divisor = make_reflection(k, a.get(c, c), square)
        self.taus.set(0, c, tau)
        k.loop(c + 1, m, 1, lambda i: a.set(i, c, a.get(i, c) / divisor))
        a.set(c, c, 1.0)

        def dot(j: Any, nv: int) -> None:
            """tau vᵀ A in some columns of the panel."""
            lanes = [start + j + v * a.width for v in range(nv)]

            def row(i: Any, *sums: Any) -> list[Any]:
                x = a.get(i, c)
                return [k.fma(a.vec(i, at), x, s) for at, s in zip(lanes, sums, strict=True)]

            sums = k.loop(c, m, 1, row, [k.const(0.0, a.dtype, a.lanes)] * nv)
            for v, s in enumerate(sums):
                self.w.put(0, j + v * a.width, s * tau)

        a.spans(0, self.width, dot)
        # The columns up to c hold reflections, those behind the panel are not its own: they stay.
        k.loop(start, c + 1, 1, lambda j: self.w.set(0, j - start, 0.0))
        k.loop(end - start, self.width, 1, lambda j: self.w.set(0, j, 0.0))

        def update(i: Any) -> None:
            x = -a.get(i, c)

            def across(j: Any) -> None:
                a.put(i, start + j, k.fma(self.w.vec(0, j), x, a.vec(i, start + j)))

            a.span(0, self.width, across)

        k.loop(c, m, 1, update)
        a.set(c, c, beta)
