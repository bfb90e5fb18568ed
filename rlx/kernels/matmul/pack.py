"""Packing of B for the contraction family: a strided [K, N] view into panels.

A packed matrix is [ceil(N / width)][K][width] with ``width = panel_width(target, dtype)``, and
zeros where the last panel goes beyond N; with groups (``rlx.kernels.matmul.dot``) it is
[ceil(N / width)][K / group][width][group]. Several matrices can be packed side by side into one:
each part writes the columns from ``column`` on, and the last one fills its panel up. Parts may
begin and end inside a panel, so launches for one destination run one after the other.
"""

from __future__ import annotations

from rlx.base.dims import maximum
from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.family import Launch
from rlx.codegen.reg import Reg
from rlx.kernels.elementwise.emit import walk
from rlx.kernels.matmul.dot import joined, store_words
from rlx.kernels.matmul.tile import packed_bytes, panel_width, tile_shape
from rlx.types import DType

__all__ = ["PackConfig", "emit", "launch", "name", "packed_bytes", "panel_width"]

name = "pack"

GRAIN_BYTES = 64 * 1024


@frozen
class PackConfig:
    """What the code depends on: the element type of the panels, whether columns are adjacent
    (stride 1), the group, and the element type of the source: f32 may become a 16-bit float."""

    dtype: DType
    adjacent_columns: bool
    group: int = 1
    source: DType | None = None


def launch(
    config: PackConfig,
    target: KernelTarget,
    *,
    k: int,
    n: int,
    row_stride: int,
    column_stride: int = 1,
    column: int = 0,
    fill: bool = True,
    batch: int = 1,
    source_batch: int = 0,
    packed_batch: int | None = None,
) -> Launch:
    """The launch that packs ``batch`` matrices [k, n].

    Element (i, j) of the source is at ``i * row_stride + j * column_stride``, and becomes column
    ``column + j`` of the packed matrix. ``fill`` says that this is the last part: what follows
    it in its panel is set to zero. ``*_batch`` are distances between batch elements; by default
    a packed matrix ends with this part. The kernel's buffers are the source and the panels.
    """
    if config.adjacent_columns and column_stride != 1:
        raise ValueError(f"pack: adjacent columns have the stride 1, not {column_stride}")
    width = panel_width(target, config.dtype)
    if packed_batch is None:
        packed_batch = packed_bytes(target, config.dtype, k, column + n) // config.dtype.bytes
    panels = -(-(column + n) // width) - column // width if n else 0
    grain = maximum(1, GRAIN_BYTES // maximum(1, k * width * config.dtype.bytes))
    strides = (row_stride, column_stride, source_batch, packed_batch)
    return Launch(batch * panels, grain, (k, n, *strides, column, int(fill), panels))


def emit(name: str, config: PackConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config; ``launch`` gives its sizes. One task is one panel."""
    return _Emitter(name, config, target).emit()


class _Emitter:
    """Emits one kernel. ``src`` and ``dst`` are where a task reads and writes from on."""

    def __init__(self, name: str, config: PackConfig, target: KernelTarget) -> None:
        self.k = k = Kernel(name, target)
        self.config, self.shape = config, tile_shape(target, config.dtype)
        self.lanes = self.shape.lanes if self.shape.lanes > 1 else 0
        self.source = k.buffer("source", config.source or config.dtype)
        self.packed = k.buffer("packed", config.dtype)
        self.depth, self.n = k.size("k"), k.size("n")
        self.row_stride, self.column_stride = k.size("row_stride"), k.size("column_stride")
        self.source_batch, self.packed_batch = k.size("source_batch"), k.size("packed_batch")
        self.column, self.fill, self.panels = k.size("column"), k.size("fill"), k.size("panels")

    def emit(self) -> KernelText:
        self.k.parallel(self.task)
        return self.k.text()

    def task(self, t: Reg) -> None:
        k, width, column = self.k, self.shape.width, self.column
        batch, panel = t / self.panels, t % self.panels + column / width
        first = panel * width
        begin = k.select(column > first, column, first)
        end = k.select(column + self.n < first + width, column + self.n, first + width)
        src = batch * self.source_batch + (begin - column) * self.column_stride
        dst = batch * self.packed_batch + first * self.depth
        k.when(
            end - begin >= width,
            lambda: self.whole(src, dst),
            lambda: self.last(src, dst, begin - first, end - first),
        )

    def last(self, src: Reg, dst: Reg, begin: Reg, end: Reg) -> None:
        """The columns [begin, end) of a panel. Vectors of groups are stored whole, with zeros for
        columns that are not there, if those need not be what another part has."""
        k = self.k
        by_columns = self.config.group > 1 and self.config.adjacent_columns and k.target.masks
        if by_columns:
            alone = k.compare("eq", begin, 0) & (self.fill > 0)
            k.when(
                alone, lambda: self.whole(src, dst, end), lambda: self.part(src, dst, begin, end)
            )
        else:
            self.part(src, dst, begin, end)

    def whole(self, src: Reg, dst: Reg, count: Reg | None = None) -> None:
        """A panel of this part's columns alone, by vectors: all, or ``count`` and zeros."""
        group, width = self.config.group, self.shape.width

        def rows(i: Reg) -> None:
            for v in range(0, width, self.shape.lanes):
                at = src + i * self.row_stride + self.column_stride * v
                places = [at + self.row_stride * r if r else at for r in range(group)]
                mask = None if count is None else self.k.first_lanes(count - v, self.lanes)
                found = [self.vector(p, mask) for p in places]
                to = dst + i * width + v * group
                if group > 1:
                    store_words(self.k, joined(self.k, found, self.config.dtype), self.packed, to)
                else:
                    self.k.store(found[0], self.packed, to, self.lanes)

        self.k.loop(0, self.depth, group, rows)

    def vector(self, at: Reg, mask: Reg | None = None) -> Reg:
        """Adjacent columns of a row."""
        if self.config.adjacent_columns or not self.lanes:
            return self.k.load(self.source, at, self.lanes, mask)
        return self.k.gather(self.source, at, self.column_stride, self.lanes)

    def part(self, src: Reg, dst: Reg, begin: Reg, end: Reg) -> None:
        """The columns [begin, end) of a panel, and zeros behind the last part."""
        k, group, width = self.k, self.config.group, self.shape.width
        stop = k.select(self.fill > 0, width, end)
        if group == 1 and self.config.adjacent_columns:

            def row_of_vectors(i: Reg) -> None:
                at, to = src + i * self.row_stride - begin, dst + i * width

                def copy(j: Reg, lanes: int, mask: Reg | None = None) -> None:
                    x = k.load(self.source, at + j, lanes, mask)
                    k.store(x, self.packed, to + j, lanes, mask)

                def fill(j: Reg, lanes: int, mask: Reg | None = None) -> None:
                    k.store(0, self.packed, to + j, lanes, mask)

                for first, last, body in ((begin, end, copy), (end, stop, fill)):
                    walk(k, first, last, body, lanes=self.lanes, vectors=1, masked=True)

            k.loop(0, self.depth, 1, row_of_vectors)
            return

        def row(i: Reg) -> None:
            to = dst + i / group * (width * group) + i % group

            def copy(j: Reg) -> None:
                at = src + i * self.row_stride + (j - begin) * self.column_stride
                k.store(k.load(self.source, at), self.packed, to + j * group)

            k.loop(begin, end, 1, copy)
            k.loop(end, stop, 1, lambda j: k.store(0, self.packed, to + j * group))

        k.loop(0, self.depth, 1, row)
