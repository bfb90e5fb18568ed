"""Box kernels: a box of a tensor at run-time starts, read or overwritten.

Both sides are strided, and the starts [batch, axes] are dense. Elements are moved as bits, so that
one kernel serves every element type of a width. What is outside of a box is not touched: a tensor
that is overwritten in place costs no more than its box.

    task (batch element, outer dims of the box, block of the middle dim, block of the row):
        the starts, moved into the tensor
        for every row of the middle block: copy the block of the row by vectors
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.family import Launch
from rlx.codegen.reg import INDEX, Reg
from rlx.codegen.strides import ceil_div
from rlx.kernels.elementwise.emit import BLOCK, walk
from rlx.types import DTYPES, DType

__all__ = ["Axis", "BoxConfig", "emit", "launch"]

name = "box"

SHARE_BYTES = 1 << 17
"""Bytes of a box that are worth a thread of their own."""

VECTORS = 4
"""Vectors of a round."""


@frozen
class Axis:
    """An axis of a box: its extent, the strides of the tensor and of the box along it in elements,
    and unless it spans its dim the dim and the column of its start."""

    extent: int
    tensor: int
    box: int
    dim: int = 0
    column: int | None = None


@frozen
class BoxConfig:
    """Elements of ``bits`` by starts of a type, written to the tensor or read from it.

    ``batch`` is the number of batch axes. ``columns`` are those of the starts of each axis behind
    them, None for one that the box spans. ``contiguous``: rows are, on both sides.
    """

    bits: int
    index: DType
    writes: bool
    batch: int
    columns: tuple[int | None, ...]
    contiguous: bool


def launch(
    bits: int,
    index: DType,
    batch: Sequence[Axis],
    axes: Sequence[Axis],
    starts: int,
    *,
    writes: bool,
    block: int = BLOCK,
) -> tuple[BoxConfig, Launch]:
    """The kernel and its arguments for a box with ``axes``, in each element of a ``batch``, which
    has ``starts`` starts of its own. ``block`` is the number of elements of a task.
    """
    lead, found = _collapsed(batch), _collapsed(axes) or [Axis(1, 1, 1)]
    row = found[-1]
    contiguous = row.extent == 1 or (row.tensor, row.box) == (1, 1)
    columns = tuple(a.column for a in found)
    config = BoxConfig(bits, index, writes, len(lead), columns, contiguous)
    row_block = min(block, max(1, row.extent))
    blocks = [row_block]
    if len(found) > 1:
        blocks.append(min(max(1, found[-2].extent), max(1, block // row_block)))
    tasks = math.prod(a.extent for a in (*lead, *found[: -len(blocks)]))
    for a, size in zip(reversed(found), blocks, strict=False):
        tasks *= ceil_div(a.extent, size)
    sizes = [starts]
    for a in (*lead, *found):
        sizes += [a.extent, a.tensor, a.box, *([] if a.column is None else [a.dim])]
    task_bytes = math.prod(blocks) * bits // 8
    return config, Launch(tasks, max(1, SHARE_BYTES // max(1, task_bytes)), (*sizes, *blocks))


def _collapsed(axes: Sequence[Axis]) -> list[Axis]:
    """The axes with those that the box spans merged where both sides allow it."""
    found: list[Axis] = []
    for a in axes:
        if a.column is None and a.extent == 1:
            continue
        last = found[-1] if found else None
        merges = last is not None and last.column is None and a.column is None
        if last is not None and merges and _follows(last, a):
            found[-1] = Axis(last.extent * a.extent, a.tensor, a.box)
        else:
            found.append(a)
    return found


def _follows(outer: Axis, inner: Axis) -> bool:
    """Whether two axes are one, on both sides."""
    return (outer.tensor, outer.box) == (inner.tensor * inner.extent, inner.box * inner.extent)


def emit(name: str, config: BoxConfig, target: KernelTarget) -> KernelText:
    """The text of the kernel. Arguments: what is read, the starts, what is written; the sizes that
    ``launch`` lists."""
    return _Emitter(name, config, target).emit()


class _Emitter:
    def __init__(self, name: str, config: BoxConfig, target: KernelTarget) -> None:
        self.k, self.config = Kernel(name, target), config
        k, element = self.k, DTYPES[f"u{config.bits}"]
        lanes = target.lanes(element) if config.contiguous else 1
        self.lanes = lanes if lanes > 1 else 0
        self.source = k.buffer("source", element)
        self.starts = k.buffer("starts", config.index)
        self.result = k.buffer("result", element)
        self.count = k.size("starts_each")
        self.extents: list[Reg] = []
        self.strides: list[tuple[Reg, Reg]] = []
        self.dims: dict[int, Reg] = {}
        self.columns = (*[None] * config.batch, *config.columns)
        for d, column in enumerate(self.columns):
            self.extents.append(k.size(f"extent{d}"))
            self.strides.append((k.size(f"tensor{d}"), k.size(f"box{d}")))
            if column is not None:
                self.dims[d] = k.size(f"dim{d}")
        self.blocks = [k.size(f"block{n}") for n in range(min(2, len(config.columns)))]

    def emit(self) -> KernelText:
        k = self.k
        k.parallel(self.task)
        return k.text()

    def task(self, t: Reg) -> None:
        """Decode the task, innermost first, and move its rows."""
        k, rank = self.k, len(self.extents)
        spans: list[tuple[Reg, Reg]] = []
        for n, size in enumerate(self.blocks):
            extent = self.extents[rank - 1 - n]
            count = (extent + (size - 1)) // size
            begin = t % count * size
            spans.append((begin, k.minimum(begin + size, extent)))
            t = t // count
        tensor, box, first = k.index(0), k.index(0), k.index(0)
        for d in range(rank - 1 - len(self.blocks), -1, -1):
            if d == self.config.batch - 1:
                first = t * self.count
            at, t = t % self.extents[d], t // self.extents[d]
            tensor, box = tensor + at * self.strides[d][0], box + at * self.strides[d][1]
        for d, column in enumerate(self.columns):
            if column is not None:
                tensor = tensor + self.start(d, first + column) * self.strides[d][0]
        if len(self.blocks) == 1:
            self.row(tensor, box, *spans[0])
            return
        outer = self.strides[rank - 2]

        def middle(m: Reg) -> None:
            self.row(tensor + m * outer[0], box + m * outer[1], *spans[0])

        k.loop(*spans[1], 1, middle)

    def start(self, d: int, at: Reg) -> Reg:
        """Where the box begins along an axis: a negative start counts from the end, then it is
        moved so that the whole box lies within the tensor."""
        k = self.k
        s = k.load(self.starts, at)
        word = k.index_word(s.dtype)
        s, dim, extent = (k.cast(v, word) for v in (s, self.dims[d], self.extents[d]))
        if word.kind == "int":
            s = k.maximum(k.select(s < 0, s + dim, s), 0)
        return k.cast(k.minimum(s, dim - extent), INDEX)

    def row(self, tensor: Reg, box: Reg, begin: Reg, end: Reg) -> None:
        """The elements [begin, end) of a row."""
        k = self.k
        ends = (box, tensor) if self.config.writes else (tensor, box)
        if self.config.contiguous:
            steps = None
        else:
            own = self.strides[-1]
            steps = (own[1], own[0]) if self.config.writes else own

        def move(j: Reg, lanes: int) -> None:
            source, target = (
                base + (j if steps is None else j * steps[n]) for n, base in enumerate(ends)
            )
            k.store(k.load(self.source, source, lanes), self.result, target)

        walk(k, begin, end, move, lanes=self.lanes, vectors=VECTORS, overlap=True)
