"""Householder reflections in kernels, many at once (Schreiber and Van Loan 1989).

A reflection is H = I - tau v vᵀ with v = (0, …, 0, 1, v'). A panel of them in order is
I - V T Vᵀ with an upper triangular T, so that applying it is three products.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.ops.linalg.common import blocks
from rlx.types import u32, u64

__all__ = ["NEGLIGIBLE", "Panels", "make_reflection", "scaled", "update_and_multiply"]

NEGLIGIBLE = {32: 2.0**-56, 64: 2.0**-490}
"""What counts as 0 in a matrix whose largest element is about 1: its square, and the inverse of
that, are still normal numbers."""


def make_reflection(k: Any, alpha: Any, square: Any) -> tuple[Any, Any, Any]:
    """The reflection of a vector (alpha, x) to (beta, 0): beta, tau and the divisor of x that
    gives v'. ``square`` is |x|². beta has the sign that alpha has not, as in LAPACK; where x is
    negligible, H is the identity."""
    one, none = k.const(1.0, alpha.dtype), k.const(0.0, alpha.dtype)
    trivial = square < NEGLIGIBLE[alpha.dtype.bits] ** 2
    norm = k.sqrt(k.fma(alpha, alpha, square))
    beta = k.select(alpha > 0.0, -norm, norm)
    tau = (beta - alpha) / k.select(trivial, one, beta)
    return (
        k.select(trivial, alpha, beta),
        k.select(trivial, none, tau),
        k.select(trivial, one, alpha - beta),
    )


def power_of_two(k: Any, size: Any) -> tuple[Any, Any]:
    """A power of two near a finite number, and its inverse: to scale by them is exact. Near 0, and
    near the ends of the range, it is one whose inverse is a normal number."""
    dt = size.dtype
    info = np.finfo(dt.numpy)
    size = k.minimum(k.maximum(size, float(info.tiny) * 4), float(info.max) / 4)
    bits, mask = (u32, 0x7F800000) if dt.bits == 32 else (u64, 0x7FF << 52)
    power = k.bitcast(k.bitcast(size, bits) & mask, dt)
    return power, 1.0 / power


def scaled(
    b: Any, work: Any, source: Any, rows: int, columns: int, *, lower: bool = False
) -> tuple[Any, Any]:
    """Load a matrix, or the symmetric one with its lower triangle, so that its largest element is
    about 1. Gives the scale to multiply by to undo that, and whether the matrix is finite; one that
    is not is loaded as zeros."""
    k = b.k

    def row(i: Any, largest: Any) -> Any:
        def element(j: Any, largest: Any) -> Any:
            size = k.abs(source.get(i, j))
            # nan and infinities stay: the maximum of nan and a number is nan.
            return k.maximum(largest, size)

        return k.loop(0, i + 1 if lower else columns, 1, element, [largest])[0]

    (largest,) = k.loop(0, rows, 1, row, [work.const(0.0)])
    finite = k.compare("eq", largest - largest, 0.0)
    power, inverse = power_of_two(k, k.select(finite, largest, 1.0))
    work.load(source, rows, columns, inverse)
    if lower:
        k.loop(0, rows, 1, lambda i: k.loop(0, i, 1, lambda j: work.set(j, i, work.get(i, j))))
    k.when(k.logical_not(finite), lambda: work.fill(rows, columns))
    return power, finite


def update_and_multiply(
    a: Any, rows: Any, columns: Any, pairs: Any, x: Any, factor: Any, out: Any
) -> None:
    """In ranges of rows and columns ``a -= r cᵀ`` for each of ``pairs`` (r, c), which are rows of
    work memory, and ``out = factor aᵀ x`` with what that gives, in one pass. ``out`` may be a c."""
    k = a.k

    def tile(j: Any, nv: int) -> None:
        lanes = [j + n * a.width for n in range(nv)]
        across = [[c.vec(0, at) for _, c in pairs] for at in lanes]

        def row(i: Any, *sums: Any) -> list[Any]:
            down, weight = [-r.get(0, i) for r, _ in pairs], x.get(0, i)
            totals: list[Any] = []
            for at, cs, total in zip(lanes, across, sums, strict=True):
                element = a.vec(i, at)
                for r, c in zip(down, cs, strict=True):
                    element = k.fma(c, r, element)
                a.put(i, at, element)
                totals.append(k.fma(element, weight, total))
            return totals

        zero = k.const(0.0, a.dtype, a.lanes)
        for at, total in zip(lanes, k.loop(*rows, 1, row, [zero] * nv), strict=True):
            out.put(0, at, total * factor)

    a.spans(*columns, tile)


class Panels:
    """Applies reflections, a panel at a time.

    Reflection c lies in column c of ``store``: v' in the rows from c + offset + 1 on. ``height`` is
    the length of the reflected vectors, ``columns`` that of what they are applied to, ``count`` the
    number of reflections, and ``taus`` a row of their factors.
    """

    def __init__(
        self, b: Any, dt: Any, store: Any, taus: Any, *,
        height: int, count: int, columns: int, offset: int = 0,
    ) -> None:  # fmt: skip
        self.b, self.k, self.store, self.taus = b, b.k, store, taus
        self.height, self.count, self.columns, self.offset = height, count, columns, offset
        self.width = blocks(count, dt)
        self.v = b.work(height, self.width, dt)
        self.gram, self.t = b.work(self.width, self.width, dt), b.work(self.width, self.width, dt)
        self.y, self.z = b.work(self.width, columns, dt), b.work(self.width, columns, dt)

    def gather(self, start: Any) -> None:
        """Take the panel that begins with reflection ``start``: its V and T. Reflections beyond the
        last one are identities."""
        k, width = self.k, self.width
        self.v.fill(self.height, width)
        end = k.minimum(start + width, k.index(self.count))

        def reflection(c: Any) -> None:
            first = start + c + self.offset
            self.v.set(first, c, 1.0)
            k.loop(
                first + 1, self.height, 1,
                lambda i: self.v.set(i, c, self.store.get(i, start + c)),
            )  # fmt: skip

        k.loop(0, end - start, 1, reflection)
        span = (start + self.offset, self.height)
        self.gram.set_product(self.v.T, self.v, (0, width), (0, width), span, tall=False)
        self.t.fill(width, width)

        def column(c: Any) -> None:
            tau = self.taus.get(0, start + c)
            self.t.set(c, c, tau)

            def above(r: Any) -> None:
                def add(s: Any, total: Any) -> Any:
                    return k.fma(self.t.get(r, s), self.gram.get(s, c), total)

                (total,) = k.loop(r, c, 1, add, [self.t.const(0.0)])
                self.t.set(r, c, -(tau * total))

            k.loop(0, c, 1, above)

        k.loop(0, end - start, 1, column)

    def apply(self, target: Any, first: Any, start: Any, *, transpose: bool) -> None:
        """``target -= V op(T) Vᵀ target`` in the columns from ``first`` on, for the panel at
        ``start`` that was gathered."""
        width, columns = self.width, (first, self.columns)
        rows = (start + self.offset, self.height)
        self.y.set_product(self.v.T, target, (0, width), columns, rows)
        t = self.t.T if transpose else self.t
        self.z.set_product(t, self.y, (0, width), columns, (0, width), tall=False)
        target.subtract_product(self.v, self.z, rows, columns, (0, width))

    def form(self, q: Any) -> None:
        """Make ``q`` the product of all reflections, in order, times the identity."""
        k, width = self.k, self.width
        q.fill(self.height, self.columns)
        k.loop(0, min(self.height, self.columns), 1, lambda i: q.set(i, i, 1.0))
        last = (self.count - 1) // width * width

        def panel(done: Any) -> None:
            start = last - done
            self.gather(start)
            # What the later ones did lies in the rows and columns from here on.
            self.apply(q, start, start, transpose=False)

        k.loop(0, self.count, width, panel)
