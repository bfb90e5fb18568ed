"""Row-wise kernels: pointwise steps and reductions along the last axis, fused over each row.

One emitter serves softmax, the norms, and every region of that kind, with whatever comes before
and after; see ``plan.py`` for how a region becomes passes over a row.

    task (row, or a few short ones side by side):
        values with one element a row: loaded once
        for each pass:
            for j along the row, by vectors, of which the last is masked:
                load or recompute values, keep some, store outputs, add to the reductions
            fold each reduction, and compute what has one value a row from it

Between two passes everything waits for a few dozen instructions that depend on each other: side by
side, rows share that time. Memory waits too, while passes go over what is in a cache: so rows that
are far off are asked for two rows ahead, each pass asking for its part of the lines.

The order of a reduction depends on the length of the row and on the vector width alone, and not on
the rows beside it. Outputs must not overlap inputs: a pass may use an output's row before a later
pass reads the input again.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx.base.dims import at_least, choose, maximum, minimum
from rlx.base.guards import prefers
from rlx.codegen.combine import is_float_sum
from rlx.codegen.family import Launch
from rlx.codegen.strides import (
    Space,
    Strides,
    accesses,
    are_far,
    ceil_div,
    collapse,
    run_time_strides,
)
from rlx.kernels.rowwise.emit import BLOCK, GROUP, SHORT_ROW, emit, widest
from rlx.kernels.rowwise.plan import Reduce, RowProgram, RowwiseConfig, plan

__all__ = ["Reduce", "RowProgram", "RowwiseConfig", "emit", "launch"]

name = "rowwise"

SHARE = 1 << 16
"""Instructions on elements that are worth a thread of their own: several microseconds."""

ALIGN = 64

FAR_ROWS = range(2 << 10, (32 << 10) + 1)
"""Bytes of a row that is worth asking for: a shorter one comes too late, a longer one pushes out
what was asked for."""

LONG_ROW = 4 << 10
"""Elements of a row beyond which a CPU sums it by parts; shorter ones are chains of few hundred
additions in each lane."""

SERIAL = 4
"""Elements of a row for each of the threads that share it: up to that, one does it all."""


def launch(
    program: RowProgram,
    shape: Sequence[int],
    inputs: Sequence[Strides],
    outputs: Sequence[Strides],
    *,
    blocks: bool = False,
    serial: bool = True,
) -> tuple[RowwiseConfig, Launch]:
    """The kernel and its arguments for a region on ``shape`` = [leading dims..., row].

    ``inputs`` and ``outputs`` give each operand's stride along every dim of ``shape``, in elements
    and not negative: 0 along the row for an operand with one value a row, 0 along leading dims for
    one that rows share (never an output). ``serial`` is the target's. With ``blocks`` it is a GPU
    whose threads share memory: then several share a row that is not very short.
    """
    *lead, columns = shape
    strides = [tuple(s) for s in (*inputs, *outputs)]
    rows = collapse(Space(tuple(lead), tuple(s[:-1] for s in strides)))
    # One element a row and one value a row are the same; then, and with no row, take the former.
    along = [1 if columns == 1 or rows.size == 0 else s[-1] for s in strides]
    space = Space(
        (*rows.shape, columns),
        tuple((*s, a) for s, a in zip(rows.strides, along, strict=True)),
    )
    kinds = accesses(space)
    threads = _threads(columns) if blocks else 0
    row_bytes = columns * widest(program)
    worth = not blocks and prefers(
        lambda: FAR_ROWS.start <= row_bytes < FAR_ROWS.stop, otherwise=False
    )
    results = [program.dtypes[v] for v in program.outputs]
    far = worth and are_far(space, [*program.inputs, *results])
    long = serial and _sums_floats(program) and columns > LONG_ROW
    operands, outs = kinds[: len(inputs)], kinds[len(inputs) :]
    config = RowwiseConfig(program, operands, outs, threads, far, long)

    planned = plan(config)
    scratch_row = -(-row_bytes // ALIGN) * ALIGN
    sizes = [*space.shape, scratch_row]
    for kind, s in zip(kinds, space.strides, strict=True):
        sizes += run_time_strides(kind, s)
    work = maximum(1, columns * sum(p.cost for p in planned.passes))
    grain = maximum(1, SHARE // work)
    together = choose(at_least(SHORT_ROW, row_bytes), GROUP, 1)
    scratch_rows = planned.scratch_rows * together
    tasks = ceil_div(rows.size, BLOCK // threads) if threads else rows.size
    return config, Launch(tasks, grain, tuple(sizes), scratch_rows * scratch_row)


def _sums_floats(program: RowProgram) -> bool:
    reductions = [s for s in program.steps if isinstance(s, Reduce)]
    return any(is_float_sum(s.kind, s.accumulate) for s in reductions)


def _threads(columns: int) -> int:
    """How many threads share a row: a power of two, or 0 where one does a row alone."""
    shared = 1 << (columns // SERIAL).bit_length()
    return minimum(BLOCK, shared) if columns > SERIAL else 0
