"""Packing of B for the contraction family: a strided [K, N] view into panels.

A packed matrix is [ceil(N / width)][K][width] with ``width = panel_width(target, dtype)``, and
zeros where the last panel goes beyond N. Several matrices can be packed side by side into one:
each part writes the columns from ``column`` on, and the last one fills its panel up. Parts may
begin and end inside a panel, so launches for one destination run one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlx.kernels.builder import Kernel, KernelTarget, KernelText
from rlx.kernels.contraction_tile import packed_bytes, panel_width, tile_shape
from rlx.kernels.family import Launch
from rlx.kernels.reg import Reg
from rlx.types import DType

__all__ = ["PackConfig", "emit", "launch", "name", "packed_bytes", "panel_width"]

name = "pack"

GRAIN_BYTES = 64 * 1024


@dataclass(frozen=True)
class PackConfig:
    """What the code depends on: the element type, and whether columns are adjacent (stride 1)."""

    dtype: DType
    adjacent_columns: bool


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
    grain = max(1, GRAIN_BYTES // max(1, k * width * config.dtype.bytes))
    strides = (row_stride, column_stride, source_batch, packed_batch)
    return Launch(batch * panels, grain, (k, n, *strides, column, int(fill), panels))


def emit(name: str, config: PackConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config; ``launch`` gives its sizes. One task is one panel."""
    k = Kernel(name, target)
    shape = tile_shape(target, config.dtype)
    width, lanes = shape.width, shape.lanes if shape.lanes > 1 else 0
    source, packed = k.buffer("source", config.dtype), k.buffer("packed", config.dtype)
    depth, n = k.size("k"), k.size("n")
    row_stride, column_stride = k.size("row_stride"), k.size("column_stride")
    source_batch, packed_batch = k.size("source_batch"), k.size("packed_batch")
    column, fill, panels = k.size("column"), k.size("fill"), k.size("panels")

    def whole_row(src: Reg, dst: Reg) -> None:
        for v in range(0, width, shape.lanes):
            at = src + column_stride * v
            if config.adjacent_columns or not lanes:
                x = k.load(source, at, lanes)
            else:
                x = k.gather(source, at, column_stride, lanes)
            k.store(x, packed, dst + v, lanes)

    def task(t: Reg) -> None:
        batch, panel = t / panels, t % panels + column / width
        first = panel * width
        begin = k.select(column > first, column, first)
        end = k.select(column + n < first + width, column + n, first + width)
        src = batch * source_batch + (begin - column) * column_stride
        dst = batch * packed_batch + first * depth

        def copy(i: Reg, j: Reg) -> None:
            value = k.load(source, src + i * row_stride + (j - begin) * column_stride)
            k.store(value, packed, dst + i * width + (j - first))

        def part_row(i: Reg) -> None:
            k.loop(begin, end, 1, lambda j: copy(i, j))
            stop = k.select(fill > 0, first + width, end)
            k.loop(end, stop, 1, lambda j: k.store(0.0, packed, dst + i * width + (j - first)))

        k.when(
            end - begin >= width,
            lambda: k.loop(0, depth, 1, lambda i: whole_row(src + i * row_stride, dst + i * width)),
            lambda: k.loop(0, depth, 1, part_row),
        )

    k.parallel(task)
    return k.text()
