"""Plans of Fourier transforms: the passes, and the roots of unity that they multiply by.

A transform of n = r1 * r2 * ... is one pass a factor, of Stockham's kind: every pass reads one
array and writes another, and the last leaves the result in order. Before a pass with radix r the
array holds ``stride`` interleaved transforms of ``length`` elements each, stride * length = n:

    for p in range(length / r), q in range(stride):
        a[j] = x[q + stride * (p + length / r * j)]
        y[q + stride * (r * p + k)] = w**(p * k) * sum over j of a[j] * v**(j * k)

with w = exp(-2 pi i / length) and v = exp(-2 pi i / r).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.base.frozen import frozen
from rlx.ops.fft.plan import prime_factors, roots

__all__ = ["LARGEST_RADIX", "Pass", "passes_of", "table_of", "untangling"]

LARGEST_RADIX = 13
"""The largest prime factor that a pass takes: its work grows by the square."""


@frozen
class Pass:
    """One pass. ``table`` is the place of its roots among all: w**(p * k) for k from 1.

    ``lanes`` is the vector length, 0 for scalars. A ``flat`` pass takes its vectors over p and q as
    one index, and puts the results of several p into one vector; another takes them over q.
    """

    radix: int
    stride: int
    length: int
    table: int
    lanes: int
    flat: bool

    @property
    def steps(self) -> int:
        """How many p there are."""
        return self.length // self.radix

    @property
    def roots(self) -> int:
        """How many roots its table has; the last pass multiplies by 1 alone."""
        return (self.radix - 1) * self.steps if self.steps > 1 else 0


def radices(n: int) -> list[int]:
    """Factors of n in the order of the passes: powers of two first, so that the stride soon fills
    a vector, of these the smaller ones first, since the first pass has the most roots; then the
    others, large ones first."""
    primes = prime_factors(n)
    twos = primes.count(2)
    fours = {0: 0, 1: 2, 2: 1}[twos % 3] if twos > 1 else 0
    eights = (twos - 2 * fours) // 3
    small = [2] if twos == 1 else [4] * fours
    return [*small, *[8] * eights, *(p for p in reversed(primes) if p > 2)]


def passes_of(n: int, lanes: int) -> list[Pass]:
    """The passes of a transform of n elements on vectors of ``lanes``."""
    out: list[Pass] = []
    stride, length, table = 1, n, 0
    for r in radices(n):
        count = n // r
        flat_lanes = _power_below(min(lanes, count))
        flat = stride & (stride - 1) == 0 and stride < flat_lanes
        own = flat_lanes if flat else _power_below(min(lanes, stride))
        made = Pass(r, stride, length, table, own if own > 1 else 0, flat)
        out.append(made)
        table += 2 * made.roots
        stride, length = stride * r, length // r
    return out


def _power_below(n: int) -> int:
    """The largest power of two that is not greater; 0 for 0."""
    return 1 << (n.bit_length() - 1) if n else 0


def table_of(
    n: int, passes: list[Pass], part: np.dtype[Any], real: int = 0
) -> np.ndarray[Any, Any]:
    """The roots of all passes, as reals.

    A flat pass reads by k the real parts of all p, then the imaginary parts; another by p both
    parts of all k. Behind them are the roots for a ``real`` transform of that many elements.
    """
    out: list[np.ndarray[Any, Any]] = [np.zeros(0)]
    for s in passes:
        if not s.roots:
            continue
        w = roots(np.outer(np.arange(1, s.radix), np.arange(s.steps)), s.length)
        if s.flat:
            out += [half for row in w for half in (row.real, row.imag)]
        else:
            out.append(np.stack([w.T.real, w.T.imag], axis=-1).reshape(-1))
    if real:
        w = roots(np.arange(n + 1), real)
        out += [w.real, w.imag]
    return np.concatenate(out).astype(part)


def untangling(passes: list[Pass]) -> int:
    """Where in the table the roots of a real transform begin."""
    return sum(2 * s.roots for s in passes)
