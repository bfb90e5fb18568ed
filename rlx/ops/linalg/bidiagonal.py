"""Singular values in kernels: by a bidiagonal matrix and the implicit QR method.

Golub and Van Loan, "Matrix Computations", 8.6; the two passes of a step of the reduction are those
of Howell et al. 2008, "Cache efficient bidiagonalization using BLAS 2.5 operators".
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
from rlx.ops.linalg.rotations import Rotations, rank_of, rotation, save_vectors, sign_of

__all__ = ["Bidiagonal"]

SWEEPS = 60
"""Most sweeps a singular value; two are usual."""


class Bidiagonal:
    """The loop nest of one matrix of m rows and n <= m columns."""

    def __init__(self, b: Any, m: int, n: int, dt: Any, message: str, *, vectors: int = 0) -> None:
        """``vectors`` is how many left singular vectors are wanted: n to m of them, or none of
        either side."""
        self.b, self.k, self.m, self.n, self.message = b, b.k, m, n, message
        self.left = left = vectors
        self.epsilon = float(np.finfo(dt.numpy).eps)
        self.negligible = NEGLIGIBLE[dt.bits]
        self.a = b.work(m, n, dt)
        self.v, self.z, self.new = (b.work(1, m, dt) for _ in "vzn")
        self.y, self.u = (b.work(1, n, dt) for _ in "yu")
        # The element of e above d[i] in its column is e[i]; e[0] and e[n] are 0.
        self.d, self.e = b.work(1, n, dt), b.work(1, n + 1, dt)
        self.tau_left, self.tau_right = b.work(1, n, dt), b.work(1, n, dt)
        if left:
            self.q, self.lefts = b.work(m, left, dt), b.work(left, m, dt)
            self.rights = b.work(n, n, dt)
            self.turns, self.turns_right = Rotations(b, dt, n), Rotations(b, dt, n)
            self.panels = Panels(b, dt, self.a, self.tau_left, height=m, count=n, columns=left)
            self.panels_right = Panels(
                b, dt, self.a.T, self.tau_right, height=n, count=n - 1, columns=n, offset=1
            )

    def run(
        self,
        source: Any,
        values: Any,
        lefts: Any = None,
        rights: Any = None,
        *,
        turned: bool = False,
    ) -> None:
        """Singular values in falling order, and the vectors in columns of ``lefts`` and ``rights``.
        Signs go by the left ones, or if the matrix is ``turned`` by the right ones."""
        k, n, a = self.k, self.n, self.a
        power, finite = scaled(self.b, a, source, self.m, n)
        lost = k.select(finite, 0.0, a.const(np.nan))
        for row, length in ((self.v, self.m), (self.z, self.m), (self.y, n), (self.u, n)):
            row.fill(1, length)
        self.e.fill(1, n + 1)
        k.loop(0, n, 1, self._step)
        if self.left:
            self.panels.form(self.q)
            self.lefts.load(self.q.T, self.left, self.m)
            self.panels_right.form(self.rights)
            a.load(self.rights.T, n, n)  # the vectors as rows, so that rotations run along them
        self._iterate()
        k.loop(0, n, 1, self._make_positive)

        def save(i: Any) -> None:
            place = rank_of(k, self.d, n, i, rising=False)
            values.set(0, place, self.d.get(0, i) * power + lost)
            if self.left:
                by, length = (a, n) if turned else (self.lefts, self.m)
                factor = sign_of(k, by, i, length) + lost
                save_vectors(k, self.lefts, i, (lefts, place), self.m, factor)
                save_vectors(k, a, i, (rights, place), n, factor)

        k.loop(0, n, 1, save)

        def save_rest(i: Any) -> None:
            factor = sign_of(k, self.lefts, i, self.m) + lost
            save_vectors(k, self.lefts, i, (lefts, i), self.m, factor)

        if self.left > n:
            k.loop(n, self.left, 1, save_rest)

    def _make_positive(self, i: Any) -> None:
        k = self.k
        value = self.d.get(0, i)

        def negate() -> None:
            self.d.set(0, i, -value)
            if self.left:
                self.a.span(0, self.n, lambda j: self.a.put(i, j, -self.a.vec(i, j)))

        k.when(value < 0.0, negate)

    # -- to bidiagonal form ----------------------------------------------------------------

    def _step(self, c: Any) -> None:
        """Reflections that make column c and row c. What they do to the others,
        a -= v yᵀ + z uᵀ, is done in the first pass of the next step."""
        k, a, m = self.k, self.a, self.m
        yc, uc = -self.y.get(0, c), -self.u.get(0, c)

        def element(i: Any, total: Any) -> Any:
            x = k.fma(self.v.get(0, i), yc, k.fma(self.z.get(0, i), uc, a.get(i, c)))
            a.set(i, c, x)
            return k.select(i > c, k.fma(x, x, total), total)

        (square,) = k.loop(c, m, 1, element, [a.const(0.0)])
        beta, tau, divisor = make_reflection(k, a.get(c, c), square)
        self.d.set(0, c, beta)
        self.tau_left.set(0, c, tau)
        inverse = 1.0 / divisor

        def keep(i: Any) -> None:
            x = a.get(i, c) * inverse
            a.set(i, c, x)
            self.new.set(0, i, x)

        k.loop(c + 1, m, 1, keep)
        self.new.set(0, c, 1.0)
        pairs = ((self.v, self.y), (self.z, self.u))
        update_and_multiply(a, (c, m), (c + 1, self.n), pairs, self.new, tau, self.y)
        a.span(c, m, lambda j: self.v.put(0, j, self.new.vec(0, j)))
        k.when(c + 1 < self.n, lambda: self._row(c))

    def _row(self, c: Any) -> None:
        """The reflection of row c, and z = tau a u."""
        k, a, n = self.k, self.a, self.n
        y, u = self.y, self.u
        a.span(c + 1, n, lambda j: a.put(c, j, a.vec(c, j) - y.vec(0, j)))
        square = a.dot(c, a, c, c + 2, n)
        beta, tau, divisor = make_reflection(k, a.get(c, c + 1), square)
        self.e.set(0, c + 1, beta)
        self.tau_right.set(0, c, tau)
        inverse = 1.0 / divisor
        a.span(c + 2, n, lambda j: a.put(c, j, a.vec(c, j) * inverse))
        a.span(c + 2, n, lambda j: u.put(0, j, a.vec(c, j)))
        u.set(0, c + 1, 1.0)
        both = y.dot(0, u, 0, c + 1, n)

        def product(i: Any) -> None:
            x = a.dot(i, u, 0, c + 1, n)
            self.z.set(0, i, k.fma(self.v.get(0, i), -both, x) * tau)

        k.loop(c + 1, self.m, 1, product)

    # -- to diagonal form ------------------------------------------------------------------

    def _iterate(self) -> None:
        """Sweeps over the last part that off-diagonal elements join, until it is one element; then
        the part ends one earlier."""
        k = self.k

        def attempt(_: Any, end: Any) -> Any:
            def work() -> Any:
                start = self._start_of_part(end)
                done = k.compare("eq", start + 1, end)
                k.when(k.logical_not(done), lambda: self._improve(start, end - 1))
                return k.select(done, end - 1, end)

            return k.when(end > 0, work, lambda: end, results=(end,))[0]

        (end,) = k.loop(0, SWEEPS * self.n, 1, attempt, [k.index(self.n)])
        self.b.fault(end > 0, self.message)

    def _start_of_part(self, end: Any) -> Any:
        """Where the part that ends before ``end`` starts; the element of e there becomes 0."""
        k, d, e = self.k, self.d, self.e

        def look(i: Any, found: Any) -> Any:
            near = k.abs(d.get(0, i - 1)) + k.abs(d.get(0, i))
            size = k.abs(e.get(0, i))
            small = (size <= near * self.epsilon) | (size <= self.negligible)
            return k.select(small, i, found)

        (start,) = k.loop(1, end, 1, look, [k.index(0)])
        e.set(0, start, 0.0)
        return start

    def _improve(self, first: Any, last: Any) -> None:
        """Take a zero off the diagonal, or do a sweep."""
        k, d, e = self.k, self.d, self.e

        def look(i: Any, found: Any) -> Any:
            near = k.abs(e.get(0, i)) + k.abs(e.get(0, i + 1))
            size = k.abs(d.get(0, i))
            small = (size <= near * self.epsilon) | (size <= self.negligible)
            return k.select(small, i, found)

        none = last + 1
        (zero,) = k.loop(first, none, 1, look, [none])

        def split() -> None:
            d.set(0, zero, 0.0)
            at_end = k.compare("eq", zero, last)
            k.when(
                at_end,
                lambda: self._clear_column(first, last),
                lambda: self._clear_row(zero, last),
            )

        k.when(k.compare("ne", zero, none), split, lambda: self._sweep(first, last))

    def _clear_row(self, zero: Any, last: Any) -> None:
        """Where d is 0, rotate the element of e beside it out of its row."""
        k, d, e = self.k, self.d, self.e
        f = e.get(0, zero + 1)
        e.set(0, zero + 1, 0.0)

        def step(j: Any, f: Any) -> Any:
            c, s, r = rotation(k, d.get(0, j), f)
            d.set(0, j, r)
            beside = e.get(0, j + 1)
            e.set(0, j + 1, c * beside)
            if self.left:
                self.turns.apply_one(self.lefts, self.m, j, zero, c, s)
            return -(s * beside)

        k.loop(zero + 1, last + 1, 1, step, [f])

    def _clear_column(self, first: Any, last: Any) -> None:
        """Where the last of d is 0, rotate the element of e above it out of its column."""
        k, d, e = self.k, self.d, self.e
        f = e.get(0, last)
        e.set(0, last, 0.0)

        def step(t: Any, f: Any) -> Any:
            j = last - 1 - t
            c, s, r = rotation(k, d.get(0, j), f)
            d.set(0, j, r)
            above = e.get(0, j)
            e.set(0, j, c * above)
            if self.left:
                self.turns.apply_one(self.a, self.n, j, last, c, s)
            return -(s * above)

        k.loop(0, last - first, 1, step, [f])

    def _shifted(self, first: Any, last: Any) -> tuple[Any, Any]:
        """The first column of bᵀ b - shift, where the shift is the eigenvalue of its last two rows
        that is near its last element."""
        k, d, e = self.k, self.d, self.e
        size = k.maximum(k.abs(d.get(0, last)), k.abs(d.get(0, last - 1)))
        size = k.maximum(k.maximum(size, k.abs(e.get(0, last))), k.abs(d.get(0, first)))
        size = k.maximum(size, k.abs(e.get(0, first + 1)))
        inverse = 1.0 / size
        end, before = d.get(0, last) * inverse, d.get(0, last - 1) * inverse
        above = e.get(0, last) * inverse
        start, beside = d.get(0, first) * inverse, e.get(0, first + 1) * inverse
        half = k.fma(above, above, (before + end) * (before - end)) * 0.5
        product = end * above
        product = product * product
        root = k.sqrt(k.fma(half, half, product))
        below = half + k.select(half < 0.0, -root, root)
        none = k.compare("eq", below, 0.0)
        shift = k.select(none, d.const(0.0), product / k.select(none, d.const(1.0), below))
        return k.fma(start + end, start - end, shift), start * beside

    def _sweep(self, first: Any, last: Any) -> None:
        k, d, e = self.k, self.d, self.e

        def step(j: Any, f: Any, g: Any) -> list[Any]:
            c, s, r = rotation(k, f, g)
            e.set(0, j, k.select(k.compare("eq", j, first), e.const(0.0), r))
            own, beside, next_ = d.get(0, j), e.get(0, j + 1), d.get(0, j + 1)
            f, beside = k.fma(c, own, s * beside), k.fma(c, beside, -(s * own))
            g, next_ = s * next_, c * next_
            if self.left:
                self.turns_right.note(j, c, s)
            c, s, r = rotation(k, f, g)
            d.set(0, j, r)
            f = k.fma(c, beside, s * next_)
            d.set(0, j + 1, k.fma(c, next_, -(s * beside)))
            after = e.get(0, j + 2)
            e.set(0, j + 2, c * after)
            if self.left:
                self.turns.note(j, c, s)
            return [f, s * after]

        f, _ = k.loop(first, last, 1, step, list(self._shifted(first, last)))
        e.set(0, last, f)
        if self.left:
            self.turns.apply(self.lefts, self.m, first, last, down=True)
            self.turns_right.apply(self.a, self.n, first, last, down=True)
