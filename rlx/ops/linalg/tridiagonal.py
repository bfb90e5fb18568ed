"""Eigenvalues of symmetric matrices in kernels: by a tridiagonal matrix and the implicit QL method.

Golub and Van Loan, "Matrix Computations", 8.3; the shifts are Wilkinson's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.ops.linalg.reflect import (
    NEGLIGIBLE,
    Panels,
    make_reflection,
    scaled,
    update_and_multiply,
)
from rlx.ops.linalg.rotations import (
    Rotations,
    rank_of,
    rotation,
    save_vectors,
    sign_of,
)

__all__ = ["Eigensystem"]

SWEEPS = 40
"""Most sweeps an eigenvalue; two are usual."""


class Eigensystem:
    """The loop nest of one matrix of order n."""

    def __init__(self, b: Any, n: int, dt: Any, message: str, *, vectors: bool) -> None:
        self.b, self.k, self.n, self.message, self.vectors = b, b.k, n, message, vectors
        self.epsilon = float(np.finfo(dt.numpy).eps)
        self.negligible = NEGLIGIBLE[dt.bits]
        self.a = b.work(n, n, dt)
        self.d, self.e, self.taus = (b.work(1, n, dt) for _ in "det")
        self.v, self.w, self.new, self.p = (b.work(1, n, dt) for _ in "vwnp")
        if vectors:
            self.q, self.rotations = b.work(n, n, dt), Rotations(b, dt, n)
            self.panels = Panels(
                b, dt, self.a.T, self.taus, height=n, count=n - 1, columns=n, offset=1
            )

    def run(self, source: Any, values: Any, vectors: Any = None) -> None:
        """Eigenvalues, and vectors in columns, of the matrix with the lower triangle of
        ``source``."""
        k, n, a = self.k, self.n, self.a
        if n == 0:
            return
        power, finite = scaled(self.b, a, source, n, n, lower=True)
        lost = k.select(finite, 0.0, a.const(np.nan))
        self._reduce()
        if self.vectors:
            self.panels.form(self.q)
            # The vectors become rows, so that rotations run along them.
            self.a.load(self.q.T, n, n)
        self._iterate()

        def save(i: Any) -> None:
            place = rank_of(k, self.d, n, i, rising=True)
            values.set(0, place, self.d.get(0, i) * power + lost)
            if self.vectors:
                factor = sign_of(k, a, i, n) + lost
                save_vectors(k, a, i, (vectors, place), n, factor)

        k.loop(0, n, 1, save)

    # -- to tridiagonal form ---------------------------------------------------------------

    def _reduce(self) -> None:
        """Reflections H with H a H tridiagonal. Step c makes row c; what it does to the others,
        a -= v wᵀ + w vᵀ, is done in the pass in which step c + 1 multiplies by them."""
        k, a, n = self.k, self.a, self.n
        for row in (self.v, self.w, self.new, self.p, self.e):
            row.fill(1, n)
        k.loop(0, n - 1, 1, self._step)
        last = n - 1
        both = self.v.get(0, last) * self.w.get(0, last)
        self.d.set(0, last, a.get(last, last) - (both + both))
        self.taus.set(0, last, 0.0)

    def _step(self, c: Any) -> None:
        k, a, n = self.k, self.a, self.n
        v, w, new, p = self.v, self.w, self.new, self.p
        vc, wc = -v.get(0, c), -w.get(0, c)
        a.span(
            c, n,
            lambda j: a.put(c, j, k.fma(v.vec(0, j), wc, k.fma(w.vec(0, j), vc, a.vec(c, j)))),
        )  # fmt: skip
        self.d.set(0, c, a.get(c, c))
        square = a.dot(c, a, c, c + 2, n)
        beta, tau, divisor = make_reflection(k, a.get(c, c + 1), square)
        self.e.set(0, c, beta)
        self.taus.set(0, c, tau)
        inverse = 1.0 / divisor
        a.span(c + 2, n, lambda j: a.put(c, j, a.vec(c, j) * inverse))
        a.span(c + 2, n, lambda j: new.put(0, j, a.vec(c, j)))
        new.set(0, c + 1, 1.0)
        rest = (c + 1, n)
        update_and_multiply(a, rest, rest, ((v, w), (w, v)), new, tau, p)
        half = p.dot(0, new, 0, c + 1, n) * tau * 0.5

        def follow(j: Any) -> None:
            x = new.vec(0, j)
            w.put(0, j, k.fma(x, -half, p.vec(0, j)))
            v.put(0, j, x)

        a.span(c + 1, n, follow)

    # -- to diagonal form ------------------------------------------------------------------

    def _iterate(self) -> None:
        """Sweeps over the part from ``first`` on, until its first off-diagonal element is
        negligible; then that part begins one later."""
        k, n = self.k, self.n

        def attempt(_: Any, first: Any) -> Any:
            def work() -> Any:
                last = self._end_of_part(first)
                done = k.compare("eq", last, first)
                k.when(k.logical_not(done), lambda: self._sweep(first, last))
                return k.select(done, first + 1, first)

            return k.when(first < n, work, lambda: first, results=(first,))[0]

        (first,) = k.loop(0, SWEEPS * n, 1, attempt, [k.index(0)])
        self.b.fault(first < n, self.message)

    def _end_of_part(self, first: Any) -> Any:
        """The last row that off-diagonal elements join to ``first``."""
        k, d, e = self.k, self.d, self.e

        def look(t: Any, found: Any) -> Any:
            i = (self.n - 2 - t) + first
            near = k.abs(d.get(0, i)) + k.abs(d.get(0, i + 1))
            size = k.abs(e.get(0, i))
            small = (size <= near * self.epsilon) | (size <= self.negligible)
            return k.select(small, i, found)

        return k.loop(first, self.n - 1, 1, look, [k.index(self.n - 1)])[0]

    def _sweep(self, first: Any, last: Any) -> None:
        k, d, e = self.k, self.d, self.e
        corner = e.get(0, first)
        g = (d.get(0, first + 1) - d.get(0, first)) / (corner + corner)
        r = k.sqrt(k.fma(g, g, 1.0))
        r = k.select(g < 0.0, -r, r)
        g = d.get(0, last) - d.get(0, first) + corner / (g + r)
        one, none = d.const(1.0), d.const(0.0)

        def step(t: Any, s: Any, c: Any, p: Any, g: Any) -> list[Any]:
            i = last - 1 - t
            off = e.get(0, i)
            f, h = s * off, c * off
            c, s, r = rotation(k, g, f)
            e.set(0, i + 1, r)
            g = d.get(0, i + 1) - p
            r = k.fma(d.get(0, i) - g, s, (c + c) * h)
            p = s * r
            d.set(0, i + 1, g + p)
            if self.vectors:
                self.rotations.note(i, c, -s)
            return [s, c, p, k.fma(c, r, -h)]

        _, _, p, g = k.loop(0, last - first, 1, step, [one, one, none, g])
        d.set(0, first, d.get(0, first) - p)
        e.set(0, first, g)
        e.set(0, last, 0.0)
        if self.vectors:
            self.rotations.apply(self.a, self.n, first, last, down=False)
