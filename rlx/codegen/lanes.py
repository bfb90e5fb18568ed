"""Moving the lanes of vectors."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

from rlx.codegen.builder import Kernel
from rlx.codegen.reg import Buffer, Reg

__all__ = ["every", "halves", "shuffle", "totals", "transposed"]


def shuffle(k: Kernel, a: Reg, b: Reg, lanes: Sequence[int]) -> Reg:
    """A vector of the given lanes of ``a`` followed by ``b``."""
    return k.shuffle(a, b, lanes)


def halves(k: Kernel, x: Reg) -> tuple[Reg, Reg]:
    """The lower and the upper lanes of a vector."""
    n = x.lanes // 2
    return shuffle(k, x, x, range(n)), shuffle(k, x, x, range(n, x.lanes))


def every(k: Kernel, b: Buffer, at: Reg, known: int, step: Reg, lanes: int) -> Reg:
    """Load ``lanes`` elements, ``step`` apart. ``known`` is the step if that is 1 or 2 at compile
    time, else 0. No memory is read before the first of them or behind the last."""
    if not lanes or known == 1:
        return k.load(b, at, lanes)
    if known == 2:
        low, high = (k.load(b, at + n, lanes) for n in (0, lanes - 1))
        return shuffle(k, low, high, [*range(0, lanes, 2), *range(lanes + 1, 2 * lanes, 2)])
    return k.gather(b, at, step, lanes)


def transposed(k: Kernel, rows: list[Reg]) -> list[Reg]:
    """The columns of a square of registers, in log2(edge) rounds: round s swaps the off-diagonal
    quarters of every square of edge 2s."""
    n = len(rows)
    s = 1
    while s < n:
        low = [i if not i & s else n + i - s for i in range(n)]
        high = [i + s if not i & s else n + i for i in range(n)]
        out = list(rows)
        for i in range(n):
            if not i & s:
                out[i] = shuffle(k, rows[i], rows[i + s], low)
                out[i + s] = shuffle(k, rows[i], rows[i + s], high)
        rows = out
        s *= 2
    return rows


def totals(
    k: Kernel, vectors: Sequence[Reg], join: Callable[[Reg, Reg], Reg] = operator.add
) -> Reg:
    """A vector whose first lanes are the sums of the lanes of vectors, which are at most as many as
    it has lanes, or what ``join`` makes of them. Each is that of its halves, as ``folding.fold``
    makes it; two vectors of which the halves are joined share one.
    """
    lanes = vectors[0].lanes
    found = [*vectors, *[vectors[-1]] * ((1 << (len(vectors) - 1).bit_length()) - len(vectors))]
    size = lanes
    while size > 1:
        half = size // 2
        low = [i + n for i in range(0, 2 * lanes, size) for n in range(half)]
        high = [n + half for n in low]
        one = len(found) == 1
        pairs = [(found[0], found[0])] if one else zip(found[::2], found[1::2], strict=True)
        found = [join(shuffle(k, x, y, low), shuffle(k, x, y, high)) for x, y in pairs]
        size = half
    return found[0]
