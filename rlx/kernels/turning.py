"""A panel of columns that lie one behind the other, each along K.

A row of the panel lies in as many cache lines as it has columns; so squares of whole lines are read
and transposed in registers:

    for each run of columns, as many as a vector has lanes:
        for each run of as many rows, the last one with the end of K: load along K, transpose,
            store along the columns

The rows of a K shorter than a vector go element by element.
"""

from __future__ import annotations

from rlx.kernels.builder import Kernel
from rlx.kernels.contraction_tile import accumulate_type
from rlx.kernels.lanes import transposed
from rlx.kernels.reg import Buffer, Reg

__all__ = ["turn_panel"]


def turn_panel(
    k: Kernel, source: Buffer, at: Reg, stride: Reg, panel: Buffer, to: Reg, depth: Reg, count: Reg,
    width: int,
) -> None:  # fmt: skip
    """Write ``depth`` rows of ``width`` columns to ``panel`` from ``to`` on: ``count`` columns of
    ``source``, the first of which begins at ``at``, ``stride`` elements apart, and zeros."""
    lanes = k.target.lanes(accumulate_type(source.dtype))

    def squares() -> None:
        _squares(k, source, at, stride, panel, to, depth, count, width, lanes)

    def one_by_one() -> None:
        def row(i: Reg) -> None:
            def copy(j: Reg) -> None:
                k.store(k.load(source, at + j * stride + i), panel, to + i * width + j)

            k.loop(0, count, 1, copy)
            k.loop(count, width, 1, lambda j: k.store(0, panel, to + i * width + j))

        k.loop(0, depth, 1, row)

    if lanes > 1:
        k.when(depth >= lanes, squares, one_by_one)
    else:
        one_by_one()


def _squares(
    k: Kernel, source: Buffer, at: Reg, stride: Reg, panel: Buffer, to: Reg, depth: Reg, count: Reg,
    width: int, lanes: int,
) -> None:  # fmt: skip
    zeros = k.const(0, accumulate_type(source.dtype), lanes)
    whole = count - count % lanes

    def columns(v: Reg, inside: Reg | None = None) -> None:
        numbers = [v + n if n else v for n in range(lanes)]
        if inside is not None:  # the last column stands for those beyond, and becomes zeros
            numbers = [k.minimum(j, count - 1) for j in numbers]
        places = [at + stride * j for j in numbers]

        def square(step: Reg) -> None:
            i = k.minimum(step, depth - lanes)
            rows = transposed(k, [k.load(source, p + i, lanes) for p in places])
            for n, x in enumerate(rows):
                value = x if inside is None else k.select(inside, x, zeros)
                k.store(value, panel, to + (i + n if n else i) * width + v)

        k.loop(0, depth, lanes, square)

    def beyond(v: Reg) -> None:
        k.loop(0, depth, 1, lambda i: k.store(zeros, panel, to + i * width + v))

    k.loop(0, whole, lanes, columns)
    k.when(whole < count, lambda: columns(whole, k.first_lanes(count - whole, lanes)))
    k.loop((count + (lanes - 1)) / lanes * lanes, width, lanes, beyond)
