"""A panel of columns that lie one behind the other, each along K.

A row of the panel lies in as many cache lines as it has columns; so squares of whole lines are read
and transposed in registers:

    for each run of columns, as many as a vector has lanes:
        for each run of as many rows, the last one with the end of K: load along K, transpose,
            store along the columns

Groups (``rlx.kernels.matmul.dot``) are transposed as words of 32 bits. The rows of a K shorter than
a vector of them go element by element.
"""

from __future__ import annotations

from rlx.codegen.builder import Kernel
from rlx.codegen.lanes import transposed
from rlx.codegen.reg import Buffer, Reg
from rlx.kernels.matmul.dot import store_words, words
from rlx.kernels.matmul.tile import accumulate_type
from rlx.types import DType, u32

__all__ = ["transpose_panel"]


def transpose_panel(
    k: Kernel, source: Buffer, at: Reg, stride: Reg, panel: Buffer, to: Reg, depth: Reg, count: Reg,
    width: int, group: int = 1,
) -> None:  # fmt: skip
    """Write ``depth`` rows of ``width`` columns to ``panel`` from ``to`` on: ``count`` columns of
    ``source``, the first of which begins at ``at``, ``stride`` elements apart, and zeros. ``depth``
    is a multiple of the group."""
    dt = u32 if group > 1 else accumulate_type(source.dtype)
    lanes = k.target.lanes(dt)

    def squares() -> None:
        _squares(k, source, at, stride, panel, to, depth, count, width, group, dt)

    def one_by_one() -> None:
        def row(i: Reg) -> None:
            row_at = to + i / group * (width * group) + i % group

            def copy(j: Reg) -> None:
                k.store(k.load(source, at + j * stride + i), panel, row_at + j * group)

            k.loop(0, count, 1, copy)
            k.loop(count, width, 1, lambda j: k.store(0, panel, row_at + j * group))

        k.loop(0, depth, 1, row)

    if lanes > 1:
        k.when(depth >= lanes * group, squares, one_by_one)
    else:
        one_by_one()


def _squares(
    k: Kernel, source: Buffer, at: Reg, stride: Reg, panel: Buffer, to: Reg, depth: Reg, count: Reg,
    width: int, group: int, dt: DType,
) -> None:  # fmt: skip
    lanes = k.target.lanes(dt)
    steps = depth / group
    held = dt if group > 1 or source.dtype.is_float else source.dtype  # integers are not widened
    zeros = k.const(0, held, lanes)

    def load(place: Reg) -> Reg:
        return words(k, source, place, lanes) if group > 1 else k.load(source, place, lanes)

    def store(x: Reg, i: Reg, v: Reg) -> None:
        place = to + (i * width + v) * group
        if group > 1:
            store_words(k, x, panel, place)
        else:
            k.store(x, panel, place)

    def columns(v: Reg) -> None:
        # The last column stands for those beyond, and becomes zeros. That is one square for all:
        # to have another of whole vectors would be half of the code, and as fast.
        inside = k.first_lanes(k.minimum(count - v, lanes), lanes)
        places = [at + stride * k.minimum(v + n, count - 1) for n in range(lanes)]

        def square(step: Reg) -> None:
            i = k.minimum(step, steps - lanes)
            rows = transposed(k, [load(p + i * group) for p in places])
            for n, x in enumerate(rows):
                store(k.select(inside, x, zeros), i + n if n else i, v)

        k.loop(0, steps, lanes, square)

    def beyond(v: Reg) -> None:
        k.loop(0, steps, 1, lambda i: store(zeros, i, v))

    k.loop(0, count, lanes, columns)
    k.loop((count + (lanes - 1)) / lanes * lanes, width, lanes, beyond)
