"""Moves of data across the lanes of vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx.codegen.builder import Kernel
from rlx.codegen.lanes import transposed
from rlx.codegen.reg import Buffer, Reg

__all__ = ["sum_lanes", "transpose", "transpose_by"]


def transpose(
    k: Kernel, source: Buffer, rows: Sequence[Reg], columns: Reg, put: Callable[[Reg, Reg], None]
) -> None:
    """Call ``put(column, vector over rows)`` for all columns of the rows that start at ``rows``:
    by squares, and the last columns element by element."""
    transpose_by(k, lambda row, c, lanes: k.load(source, row + c, lanes), rows, columns, put)


def transpose_by(
    k: Kernel,
    load: Callable[[Reg, Reg, int], Reg],
    rows: Sequence[Reg],
    columns: Reg,
    put: Callable[[Reg, Reg], None],
) -> None:
    """As ``transpose``, of rows from which ``load(row, column, lanes)`` takes a vector, or a scalar
    where ``lanes`` is 0."""
    n = len(rows)
    whole = columns - columns % n

    def square(c: Reg) -> None:
        for i, x in enumerate(transposed(k, [load(at, c, n) for at in rows])):
            put(c + i if i else c, x)

    def column(c: Reg) -> None:
        put(c, k.from_elements([load(at, c, 0) for at in rows]))

    k.loop(0, whole, n, square)
    k.loop(whole, columns, 1, column)


def sum_lanes(k: Kernel, vectors: Sequence[Reg]) -> Reg:
    """A vector whose lane i is the sum over the lanes of ``vectors[i]``, for n vectors of n lanes.

    A transpose of the square by swaps of 1, 2, ... lanes, each added up at once.
    """
    rows, step = list(vectors), 1
    while len(rows) > 1:
        pairs = zip(rows[::2], rows[1::2], strict=True)
        rows = [k.arith("add", *_swap(k, a, b, step)) for a, b in pairs]
        step *= 2
    return rows[0]


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
