"""Sequences of plane rotations in kernels, and how vectors come out of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.ir.op import Array
from rlx.ops.linalg.reflect import NEGLIGIBLE

__all__ = [
    "Rotations",
    "rank_of",
    "rotation",
    "save_vectors",
    "sign_of",
    "with_signs",
]

NEAR = 1 - 2.0**-10
"""Components of at least this part of the largest one may give a vector its sign."""


def rotation(k: Any, f: Any, g: Any) -> tuple[Any, Any, Any]:
    """c, s and r with c f + s g = r and c g - s f = 0. Where both are negligible: 1, 0 and f."""
    square = k.fma(f, f, g * g)
    small = square < NEGLIGIBLE[f.dtype.bits] ** 2
    one, none = k.const(1.0, f.dtype), k.const(0.0, f.dtype)
    r = k.sqrt(square)
    # Not by the inverse of r: f * (1 / f) is often less than 1, and rows would shrink.
    divisor = k.select(small, one, r)
    return (
        k.select(small, one, f / divisor),
        k.select(small, none, g / divisor),
        k.select(small, f, r),
    )


class Rotations:
    """Rotations of neighbouring rows of a matrix, noted first and then applied in one pass, in
    which each row is read and written once."""

    def __init__(self, b: Any, dt: Any, count: int) -> None:
        self.k, self.c, self.s = b.k, b.work(1, count, dt), b.work(1, count, dt)

    def note(self, i: Any, c: Any, s: Any) -> None:
        """Rotation i takes rows i and i + 1, (x, y), to (c x + s y, c y - s x)."""
        self.c.set(0, i, c)
        self.s.set(0, i, s)

    def apply(self, rows: Any, columns: int, first: Any, last: Any, *, down: bool) -> None:
        """Rotations ``first`` to ``last`` - 1; if not ``down``, from the last on."""
        k, w = self.k, rows.width

        def tile(j: Any, nv: int) -> None:
            lanes = [j + v * w for v in range(nv)]

            def step(t: Any, *carried: Any) -> list[Any]:
                i = first + t if down else last - 1 - t
                c, s = self.c.get(0, i), self.s.get(0, i)
                # The row that the next rotation takes too stays in registers.
                kept, passed = (i + 1, i) if down else (i, i + 1)
                out: list[Any] = []
                for at, old in zip(lanes, carried, strict=True):
                    other = rows.vec(kept, at)
                    x, y = (old, other) if down else (other, old)
                    upper, lower = k.fma(x, c, y * s), k.fma(y, c, x * -s)
                    rows.put(passed, at, upper if down else lower)
                    out.append(lower if down else upper)
                return out

            start = first if down else last
            carried = k.loop(0, last - first, 1, step, [rows.vec(start, at) for at in lanes])
            end = last if down else first
            for at, x in zip(lanes, carried, strict=True):
                rows.put(end, at, x)

        rows.spans(0, columns, tile)

    def apply_one(self, rows: Any, columns: int, i: Any, p: Any, c: Any, s: Any) -> None:
        """Rotate rows i and p at once."""
        k = self.k

        def across(j: Any) -> None:
            x, y = rows.vec(i, j), rows.vec(p, j)
            rows.put(i, j, k.fma(x, c, y * s))
            rows.put(p, j, k.fma(y, c, x * -s))

        rows.span(0, columns, across)


def rank_of(k: Any, values: Any, n: int, i: Any, *, rising: bool) -> Any:
    """The place of value i among n, in order; equal ones keep theirs."""
    own = values.get(0, i)

    def count(j: Any, place: Any) -> Any:
        other = values.get(0, j)
        before = other < own if rising else other > own
        tie = k.compare("eq", other, own) & (j < i)
        return k.select(before | tie, place + 1, place)

    return k.loop(0, n, 1, count, [k.index(0)])[0]


def sign_of(k: Any, rows: Any, i: Any, n: int) -> Any:
    """1 or -1: what row i is multiplied by to get the sign that ``with_signs`` gives it."""
    zero = rows.const(0.0)

    def size(j: Any, top: Any) -> Any:
        return k.maximum(top, k.abs(rows.get(i, j)))

    (top,) = k.loop(0, n, 1, size, [zero])

    def look(t: Any, found: Any) -> Any:
        x = rows.get(i, n - 1 - t)
        return k.select(k.abs(x) >= top * NEAR, x, found)

    (leading,) = k.loop(0, n, 1, look, [zero])
    return k.select(leading < 0.0, rows.const(-1.0), rows.const(1.0))


def with_signs(v: Array) -> Array:
    """The sign of each column of a matrix, so that multiplied by it the first component that is as
    large as any (up to rounding) is positive."""
    if not v.size:
        return np.ones(v.shape[1])
    size = np.abs(v)
    leading = np.argmax(size >= size.max(axis=0) * NEAR, axis=0)
    return np.where(np.take_along_axis(v, leading[None], 0)[0] < 0, -1.0, 1.0)


def save_vectors(k: Any, rows: Any, i: Any, target: Any, n: int, factor: Any) -> None:
    """Row i times a factor to n elements of a column: ``target`` is (matrix, column)."""
    matrix, column = target
    k.loop(0, n, 1, lambda j: matrix.set(j, column, rows.get(i, j) * factor))
