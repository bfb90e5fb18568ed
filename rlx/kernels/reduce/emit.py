"""Reductions of columns: along an axis behind which contiguous elements lie.

The operand is [outer, reduced, inner] with contiguous inner elements, the result [outer, inner],
dense. Every lane of a vector is a column of its own, so no vector is ever folded:

    task (outer, part of reduced, block of inner):
        for j in the block, by vectors:
            for r of the part, in order: add element (r, j)     in registers
            store

Mostly there is one part. Where the tasks would be few and long, each column is cut into several:
then the result is [outer, parts, inner], and a second launch reduces that. The cut depends on the
sizes alone, so the order of a sum does not depend on the vectors and threads. What is long yet is
summed by parts within its task (``folding.by_parts``).

A row may have a weight, an element of a vector that it is multiplied by: so a matrix that lies
across, column by column, is multiplied by a vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rlx.base.dims import maximum, minimum
from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.combine import (
    ReduceKind,
    Total,
    add,
    by_parts,
    is_float_sum,
    multiply_add,
    registers,
    settle,
    start,
)
from rlx.codegen.family import Launch
from rlx.codegen.reg import Reg
from rlx.codegen.strides import Strides, ceil_div, maskable
from rlx.kernels.elementwise.emit import walk
from rlx.types import DType, bf16, f16, f32

__all__ = ["ReduceConfig", "accumulate_type", "emit", "launch", "rows_of_part"]

name = "reduce"

COLUMNS = 1024
"""Columns of a task: of each row so much that memory is read in runs of several lines. Where the
tasks are few for that, they are cut along the reduced axis."""

SHARE = 1 << 16
"""Elements that are worth a thread of their own: several microseconds."""

TASKS = 32
"""Tasks that keep the threads of a large machine busy."""

LONG = 256
"""Rows of a task from which on it sums by parts."""

VECTORS = 4
"""Vectors of a short round: as many independent sums as hide the latency of an addition."""


@frozen
class ReduceConfig:
    """A reduction of elements of ``dtype`` to the type ``out``. 16-bit floats accumulate in f32.

    ``long`` columns are summed by parts. ``weighted`` sums multiply each row by a number of its
    own, in floats with one rounding.
    """

    kind: ReduceKind
    dtype: DType
    out: DType
    long: bool = False
    weighted: bool = False

    def __post_init__(self) -> None:
        if self.weighted and self.kind != "sum":
            raise ValueError(f"reduce: weights are those of a sum, not of {self.kind}")

    def for_rows(self, target: KernelTarget, rows: int) -> ReduceConfig:
        """The config for columns of which a task takes ``rows``."""
        rounds_off = is_float_sum(self.kind, accumulate_type(self.dtype))
        long = rounds_off and rows > LONG and target.serial
        return replace(self, long=long)


def accumulate_type(dt: DType) -> DType:
    """The type in which elements of ``dt`` are summed."""
    return f32 if dt in (f16, bf16) else dt


def rows_of_part(shape: Sequence[int]) -> int:
    """How much of the reduced axis of [outer, reduced, inner] a task takes: all of it, unless the
    tasks would be fewer than ``TASKS`` and parts of a column are worth a thread."""
    outer, reduced, inner = shape
    tasks = maximum(1, outer * ceil_div(inner, COLUMNS))
    least = ceil_div(SHARE, maximum(1, minimum(COLUMNS, inner)))
    parts = minimum(ceil_div(TASKS, tasks), reduced // least)
    return ceil_div(reduced, parts) if parts > 1 else reduced


def launch(
    shape: Sequence[int],
    strides: Strides,
    *,
    rows: int | None = None,
    count: int | None = None,
    weights: Strides = (),
) -> Launch:
    """The kernel's arguments for an operand of ``shape`` [outer, reduced, inner] with ``strides``,
    the last of which is 1 (unless there is one inner element).

    A task takes ``rows`` of the reduced axis, by default all. A mean divides by ``count``, by
    default the reduced axis. ``weights`` are the strides of weights [outer, reduced], if there are
    any.
    """
    outer, reduced, inner = shape
    block = COLUMNS
    rows = reduced if rows is None else rows
    parts = ceil_div(reduced, rows) if rows else 1
    tasks = outer * parts * ceil_div(inner, block)
    work = minimum(block, inner) * maximum(1, rows)
    count = reduced if count is None else count
    sizes = (reduced, rows, parts, inner, block, count, *strides[:2], *weights)
    return Launch(tasks, maximum(1, SHARE // maximum(1, work)), sizes)


def long_round(config: ReduceConfig, target: KernelTarget) -> int:
    """Vectors of a long round: their sums take half of the registers."""
    return target.registers // 2 // registers(config.kind, accumulate_type(config.dtype))


def emit(name: str, config: ReduceConfig, target: KernelTarget) -> KernelText:
    """The text of the kernel. Arguments: operand, weights if there are any, result [outer, parts,
    inner]; the sizes that ``launch`` lists."""
    k = Kernel(name, target)
    source = k.buffer("source", config.dtype)
    weights = k.buffer("weights", config.dtype) if config.weighted else None
    result = k.buffer("result", config.out)
    names = ("reduced", "rows", "parts", "inner", "block", "count", "outer_stride", "stride")
    reduced, rows, parts, inner, block, count, outer_stride, stride = map(k.size, names)
    steps = [k.size(n) for n in ("outer_weights", "weight_stride")] if weights else []
    accumulate = accumulate_type(config.dtype)
    lanes = target.lanes(config.dtype)
    blocks = (inner + (block - 1)) // block

    def task(t: Reg) -> None:
        begin = t % blocks * block
        end = k.minimum(begin + block, inner)
        p, o = t // blocks % parts, t // blocks // parts
        first = p * rows
        last = k.minimum(first + rows, reduced)

        def columns(j: Reg, n: int, mask: Reg | None = None) -> None:
            at = o * outer_stride + j

            def one_row(r: Reg, *total: Reg) -> Total:
                x = k.load(source, at + r * stride, n, mask)
                if weights is None:
                    return add(k, config.kind, total, x)
                weight = k.load(weights, o * steps[0] + r * steps[1])
                return (multiply_add(k, x, weight, total[0]),)

            none = start(k, config.kind, accumulate, n)
            if config.long:
                found = by_parts(k, first, last, 1, one_row, none, [True])
            else:
                found = k.loop(first, last, 1, one_row, none)
            total = settle(k, tuple(found))
            if config.kind == "mean":
                total = total / k.cast(count, accumulate)
            k.store(total, result, (o * parts + p) * inner + j, 0, mask)

        if lanes > 1:
            most = lanes * long_round(config, target)
            whole = end - (end - begin) % most
            k.loop(begin, whole, most, lambda j: columns(j, most))
            begin = whole
        walk(
            k, begin, end, columns,
            lanes=lanes if lanes > 1 else 0, vectors=VECTORS, overlap=True,
            masked=maskable(config.dtype) and maskable(config.out),
        )  # fmt: skip

    k.parallel(task)
    return k.text()
