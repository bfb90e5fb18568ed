"""Gather kernels: rows of a table by index.

The table is [batch, outer, length, row] with contiguous rows, the indices [batch, count], the
result [batch, outer, count, row]; everything but the table is dense. Rows are moved as bits, so
that one kernel serves every element type of a width.

    task (batch, outer, block of indices, block of the row):
        for every index: check it, copy the block of its row by vectors

On CPUs rows of one element are read by an elementwise kernel (``taken``).
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx.base.dims import maximum, minimum
from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.family import Launch
from rlx.codegen.reg import INDEX, Reg
from rlx.codegen.strides import Strides, ceil_div
from rlx.kernels.elementwise.emit import BLOCK, walk
from rlx.ops.indexing.index_modes import place
from rlx.types import DTYPES, DType

__all__ = ["GatherConfig", "emit", "launch"]

name = "gather"

SHARE_BYTES = 1 << 17
"""Bytes of the result that are worth a thread of their own."""

VECTORS = 4
"""Vectors of a round: enough loads in flight for a row that no cache holds."""


@frozen
class GatherConfig:
    """Elements of ``bits`` (8 to 64) by indices of a type; ``mode`` is that of the op."""

    bits: int
    index: DType
    mode: str

    @property
    def faults(self) -> bool:
        """Whether the kernel may fault: then it takes the error record and the site."""
        return self.mode == "fault"


def launch(
    config: GatherConfig,
    shape: Sequence[int],
    strides: Strides,
    count: int,
    *,
    site: int = 0,
    block: int = BLOCK,
) -> Launch:
    """The kernel's arguments for a table of ``shape`` [batch, outer, length, row] with ``strides``,
    whose last is 1 (unless rows have one element), and ``count`` indices a batch element.

    ``block`` is the number of elements of a task; ``site`` is told with a fault.
    """
    batch, outer, length, row = shape
    row_block = minimum(block, maximum(1, row))
    index_block = minimum(maximum(1, count), maximum(1, block // row_block))
    tasks = batch * outer * ceil_div(count, index_block) * ceil_div(row, row_block)
    task_bytes = index_block * row_block * config.bits // 8
    sizes = [outer, count, index_block, row, row_block, length, *strides[:3]]
    if config.faults:
        sizes.append(site)
    return Launch(tasks, maximum(1, SHARE_BYTES // task_bytes), tuple(sizes))


def emit(name: str, config: GatherConfig, target: KernelTarget) -> KernelText:
    """The text of the kernel. Arguments: table, indices, result and if it may fault the record;
    the sizes that ``launch`` lists."""
    return _Emitter(name, config, target).emit()


class _Emitter:
    def __init__(self, name: str, config: GatherConfig, target: KernelTarget) -> None:
        self.k, self.config = Kernel(name, target), config
        k, element = self.k, DTYPES[f"u{config.bits}"]
        lanes = target.lanes(element)
        self.lanes = lanes if lanes > 1 else 0
        self.table = k.buffer("table", element)
        self.indices = k.buffer("indices", config.index)
        self.result = k.buffer("result", element)
        error = k.error_record() if config.faults else None
        names = ("outer", "count", "index_block", "row", "row_block", "length")
        self.outer, self.count, self.index_block, self.row, self.row_block, self.length = (
            k.size(n) for n in names
        )
        self.strides = [k.size(f"{n}_stride") for n in ("batch", "outer", "row")]
        self.fault = (error, k.size("site")) if error else None

    def emit(self) -> KernelText:
        k = self.k
        index_blocks = (self.count + (self.index_block - 1)) // self.index_block
        row_blocks = (self.row + (self.row_block - 1)) // self.row_block

        def task(t: Reg) -> None:
            begin, end = self.block(t % row_blocks, self.row_block, self.row)
            t = t // row_blocks
            first, last = self.block(t % index_blocks, self.index_block, self.count)
            plane = t // index_blocks
            b = plane // self.outer
            source = b * self.strides[0] + plane % self.outer * self.strides[1]
            result = plane * self.count
            indices = b * self.count

            def one(n: Reg) -> None:
                place, outside = self.position(k.load(self.indices, indices + n))
                at, target = source + place * self.strides[2], (result + n) * self.row
                if self.config.mode != "fill":
                    self.copy(at, target, begin, end)
                    return
                k.when(
                    outside,
                    lambda: self.clear(target, begin, end),
                    lambda: self.copy(at, target, begin, end),
                )

            k.loop(first, last, 1, one)

        k.parallel(task)
        return k.text()

    def block(self, index: Reg, size: Reg, limit: Reg) -> tuple[Reg, Reg]:
        begin = index * size
        end = begin + size
        return begin, self.k.select(end < limit, end, limit)

    def position(self, index: Reg) -> tuple[Reg, Reg]:
        """The row that an index means, and whether it was out of range; a fault is recorded, and
        the first row taken."""
        inside, outside = place(self.k, index, self.length, self.config.mode)
        if self.fault is not None:
            self.k.record_fault(outside, *self.fault, 1)
        return self.k.cast(inside, INDEX), outside

    def clear(self, target: Reg, begin: Reg, end: Reg) -> None:
        """Zeros in place of the elements [begin, end) of one row."""
        k = self.k

        def zero(j: Reg, lanes: int) -> None:
            k.store(0, self.result, target + j, lanes)

        walk(k, begin, end, zero, lanes=self.lanes, vectors=VECTORS, overlap=True)

    def copy(self, source: Reg, target: Reg, begin: Reg, end: Reg) -> None:
        """The elements [begin, end) of one row."""
        k = self.k

        def move(j: Reg, lanes: int) -> None:
            k.store(k.load(self.table, source + j, lanes), self.result, target + j)

        walk(k, begin, end, move, lanes=self.lanes, vectors=VECTORS, overlap=True)
