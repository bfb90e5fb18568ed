"""Scatter kernels: rows written by index on a tensor or on zeros.

The result is [batch, outer, length, row], the indices [batch, count], the updates
[batch, outer, count, row]; all are dense. A task owns a part of the places and a block of the row,
and looks at all indices in order, so that no two tasks meet and the order of updates for a place
does not depend on the tasks:

    task (batch, outer, part of length, block of the row):
        start: the tensor's elements, zeros, or what lies there
        for every index, in order: check it; if its place is in the part, write the block by vectors

Sums and products of 16-bit floats are kept in an f32 buffer of the result's shape, and rounded in
the end. What is only set moves as bits, so that one kernel serves every type of a width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from rlx.base.dims import maximum, minimum
from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.family import Launch
from rlx.codegen.reg import INDEX, Buffer, Reg
from rlx.codegen.strides import ceil_div
from rlx.kernels.elementwise.emit import BLOCK, walk
from rlx.ops.indexing.index_modes import place
from rlx.ops.indexing.scatter_common import accumulator, combine
from rlx.types import DType

__all__ = ["ScatterConfig", "emit", "launch"]

name = "scatter"

SHARE = 1 << 15
"""Elements that are worth a thread of their own."""

TASKS = 16
"""Tasks that keep the threads of a machine busy."""

LOOK = 8
"""Elements of a row whose writing takes as long as looking at an index."""

VECTORS = 4
"""Vectors of a round."""


Start: TypeAlias = Literal["tensor", "zeros", "result"]


@frozen
class ScatterConfig:
    """Updates of a type by indices of a type; ``reduction`` and ``mode`` are those of the op.

    ``start``: on a tensor, on zeros, or on what the result holds. ``whole``: a task has whole rows.
    """

    dtype: DType
    index: DType
    reduction: str
    mode: str
    start: Start
    whole: bool

    @property
    def faults(self) -> bool:
        """Whether the kernel may fault: then it takes the error record and the site."""
        return self.mode == "fault"

    @property
    def accumulator(self) -> DType:
        """The type of elements until all updates are in; a buffer of it is taken if it differs."""
        return accumulator(self.dtype, self.reduction)


def launch(
    dtype: DType,
    index: DType,
    reduction: str,
    mode: str,
    shape: Sequence[int],
    count: int,
    *,
    start: Start = "tensor",
    site: int = 0,
    block: int = BLOCK,
    tasks: int = TASKS,
) -> tuple[ScatterConfig, Launch]:
    """The kernel and its arguments for a result of ``shape`` [batch, outer, length, row] and
    ``count`` indices a batch element.

    A task has at most ``block`` elements of a row; places are cut into parts as long as there are
    less than ``tasks`` tasks and looking at all indices again is cheap. ``site`` is told with a
    fault. With ``start="result"`` what no index names is not touched.
    """
    batch, outer, length, row = shape
    row_block = minimum(block, maximum(1, row))
    planes = batch * outer * ceil_div(row, row_block)
    work = ((0 if start == "result" else length) + count) * row_block
    most = minimum(
        ceil_div(tasks, maximum(1, planes)), row_block // LOOK, ceil_div(work, SHARE), length
    )
    part = ceil_div(length, maximum(1, most)) or 1
    config = ScatterConfig(dtype, index, reduction, mode, start, row_block >= row)
    sizes = [outer, length, part, row, row_block, count]
    if config.faults:
        sizes.append(site)
    range_ = planes * ceil_div(length, part) if math.prod(shape) else 0
    return config, Launch(range_, maximum(1, SHARE // maximum(1, work)), tuple(sizes))


def emit(name: str, config: ScatterConfig, target: KernelTarget) -> KernelText:
    """The text of the kernel. Arguments: the tensor if it starts from one, indices, updates,
    result, the accumulator if there is one, and if it may fault the record; the sizes that
    ``launch`` lists."""
    return _Emitter(name, config, target).emit()


class _Emitter:
    def __init__(self, name: str, config: ScatterConfig, target: KernelTarget) -> None:
        self.k, self.config = Kernel(name, target), config
        k, dt, wide = self.k, config.dtype, config.accumulator
        lanes = min(target.lanes(dt), target.lanes(wide))
        self.lanes = lanes if lanes > 1 else 0
        tensor = k.buffer("tensor", dt) if config.start == "tensor" else None
        self.indices = k.buffer("indices", config.index)
        self.updates = k.buffer("updates", dt)
        self.result = k.buffer("result", dt)
        self.tensor = self.result if config.start == "result" else tensor
        self.kept = self.result if wide is dt else k.buffer("kept", wide)
        error = k.error_record() if config.faults else None
        names = ("outer", "length", "part", "row", "row_block", "count")
        self.outer, self.length, self.part, self.row, self.row_block, self.count = (
            k.size(n) for n in names
        )
        self.fault = (error, k.size("site")) if error else None

    def emit(self) -> KernelText:
        k = self.k
        blocks = (self.row + (self.row_block - 1)) // self.row_block
        parts = (self.length + (self.part - 1)) // self.part

        def task(t: Reg) -> None:
            begin = t % blocks * self.row_block
            end = k.minimum(begin + self.row_block, self.row)
            low = t // blocks % parts * self.part
            high = k.minimum(low + self.part, self.length)
            plane = t // blocks // parts
            base = plane * self.length
            if self.tensor is not self.kept:
                self.move(self.tensor, self.kept, base, low, high, begin, end)
            self.update(plane, base, low, high, begin, end)
            if self.kept is not self.result:
                self.move(self.kept, self.result, base, low, high, begin, end)

        k.parallel(task)
        return k.text()

    def move(
        self, source: Buffer | None, target: Buffer, base: Reg, low: Reg, high: Reg, begin: Reg,
        end: Reg,
    ) -> None:  # fmt: skip
        """The task's elements from one buffer to another; zeros from None."""
        k = self.k

        def copy(at: Reg) -> Callable[[Reg, int], None]:
            def some(j: Reg, lanes: int) -> None:
                value = 0 if source is None else k.load(source, at + j, lanes)
                k.store(value, target, at + j, lanes)

            return some

        def row(first: Reg, last: Reg, at: Reg) -> None:
            walk(k, first, last, copy(at), lanes=self.lanes, vectors=VECTORS, overlap=True)

        if self.config.whole:
            row((base + low) * self.row, (base + high) * self.row, k.index(0))
        else:
            k.loop(low, high, 1, lambda i: row(begin, end, (base + i) * self.row))

    def update(self, plane: Reg, base: Reg, low: Reg, high: Reg, begin: Reg, end: Reg) -> None:
        """The updates for the task's places, in index order."""
        k, what = self.k, self.config.reduction
        indices = plane // self.outer * self.count

        def one(n: Reg) -> None:
            index = k.load(self.indices, indices + n)
            inside, outside = place(k, index, self.length, self.config.mode)
            if self.fault is not None:
                k.record_fault(outside, *self.fault, 1)
            at = k.cast(inside, INDEX)
            mine = (at >= low) & (at < high)
            if self.config.mode == "fill":
                mine = mine & k.logical_not(outside)
            source, target = (plane * self.count + n) * self.row, (base + at) * self.row

            def write(j: Reg, lanes: int) -> None:
                new = k.load(self.updates, source + j, lanes)
                if what != "set":
                    new = combine(k, what, k.load(self.kept, target + j, lanes), new)
                k.store(new, self.kept, target + j)

            # Only what is set may be written twice.
            overlap = what == "set"
            k.when(
                mine,
                lambda: walk(
                    k, begin, end, write, lanes=self.lanes, vectors=VECTORS, overlap=overlap
                ),
            )

        k.loop(0, self.count, 1, one)
