"""Moves of data across the lanes of vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx.kernels.builder import Kernel
from rlx.kernels.reg import Buffer, Reg

__all__ = ["sum_lanes", "transpose"]


def transpose(
    k: Kernel, source: Buffer, rows: Sequence[Reg], columns: Reg, put: Callable[[Reg, Reg], None]
) -> None:
    """Call ``put(column, vector over rows)`` for every column of the rows that start at ``rows``."""
    lanes = len(rows)
    whole = columns - columns % lanes

    def square(c: Reg) -> None:
        for n, x in enumerate(_butterfly(k, [k.load(source, at + c, lanes) for at in rows])):
            put(c + n, x)

    def column(c: Reg) -> None:
        put(c, k.from_elements([k.load(source, at + c) for at in rows]))

    k.loop(0, whole, lanes, square)
    k.loop(whole, columns, 1, column)


def sum_lanes(k: Kernel, vectors: Sequence[Reg]) -> Reg:
    """A vector whose lane i is the sum over the lanes of ``vectors[i]``, for n vectors of n lanes.

    The transpose of the square, with every swap of halves added up at once.
    """
    rows, step = list(vectors), 1
    while len(rows) > 1:
        pairs = zip(rows[::2], rows[1::2], strict=True)
        rows = [k.arith("add", *_swap(k, a, b, step)) for a, b in pairs]
        step *= 2
    return rows[0]


def _butterfly(k: Kernel, rows: Sequence[Reg]) -> list[Reg]:
    """Transpose a square of n vectors of n lanes by swapping its 1x1, 2x2, ... off-diagonals."""
    out, step = list(rows), 1
    while step < len(rows):
        for i in (i for i in range(len(rows)) if not i & step):
            out[i], out[i + step] = _swap(k, out[i], out[i + step], step)
        step *= 2
    return out


def _swap(k: Kernel, a: Reg, b: Reg, step: int) -> tuple[Reg, Reg]:
    """Exchange every second run of ``step`` lanes of a with the run before it of b."""
    lanes = range(a.lanes)
    masks = (
        [x + a.lanes - step if x & step else x for x in lanes],
        [x + a.lanes if x & step else x + step for x in lanes],
    )
    first, second = (
        k.op(f"vector.shuffle {a.name}, {b.name} {m} : {a.mlir}, {b.mlir}", a.dtype, a.lanes)
        for m in masks
    )
    return first, second
