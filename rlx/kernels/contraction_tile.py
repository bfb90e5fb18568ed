"""The register tile of a contraction: its shape on a target, and the loop over K that fills it.

B comes in panels: [ceil(N / width)][K][width], the last one filled up with zeros. A tile is some
rows of A times some panels of B, with one accumulator for every row and vector of columns. Each
accumulator is one chain of fused multiply-adds over k = 0, 1, 2, ...; tiles of every size
therefore give the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlx.kernels.builder import Kernel, KernelTarget
from rlx.kernels.reg import Buffer, Reg
from rlx.types import DType, f32, f64

__all__ = [
    "TASK_PANELS",
    "TileShape",
    "accumulate_type",
    "emit_tile",
    "packed_bytes",
    "panel_width",
    "tile_shape",
]

TASK_PANELS = 4
"""Panels of a task, and of a tile of one row."""

CACHE_LINE = 64
PREFETCH_STEPS = 64
"""How many steps of k ahead a panel is requested; at its end that is the next panel's start."""


ROWS_AHEAD = 16
"""How many steps of k ahead an A that lies across is requested."""


@dataclass(frozen=True)
class TileShape:
    """The tile that fills the register file: ``rows`` times ``vectors`` accumulators.

    ``lanes`` counts elements of the accumulate type; ``width`` is the columns of a panel.
    """

    rows: int
    vectors: int
    lanes: int

    @property
    def width(self) -> int:
        """Columns of the tile."""
        return self.vectors * self.lanes

    @property
    def tail(self) -> tuple[tuple[int, int], ...]:
        """(rows, panels) of the tiles for the last rows, smallest first.

        The fewer rows, the more panels side by side: enough independent chains to hide the
        latency of a multiply-add, and as many streams for the memory.
        """
        small = [(r, TASK_PANELS // r) for r in (1, 2, 4) if r < self.rows]
        return (*small, (self.rows, 1))


def accumulate_type(dt: DType) -> DType:
    """The type in which products of ``dt`` are summed: f64 for f64, f32 for every other float."""
    return f64 if dt is f64 else f32


def tile_shape(target: KernelTarget, dt: DType) -> TileShape:
    """The tile for operands of type ``dt``; B's vectors and one value of A need registers too."""
    lanes = target.lanes(accumulate_type(dt))
    if target.registers >= 32:
        return TileShape(8, 3, lanes)
    if target.registers >= 16:
        return TileShape(6, 2, lanes)
    return TileShape(2, 2, lanes)


def panel_width(target: KernelTarget, dt: DType) -> int:
    """Columns of a panel of packed B of type ``dt``."""
    return tile_shape(target, dt).width


def packed_bytes(target: KernelTarget, dt: DType, k: int, n: int, batch: int = 1) -> int:
    """Size of ``batch`` packed matrices [k, n], one after the other."""
    width = panel_width(target, dt)
    return batch * -(-n // width) * width * k * dt.bytes


def emit_tile(
    k: Kernel,
    shape: TileShape,
    a: Buffer,
    b: Buffer,
    *,
    rows: list[Reg],
    panels: list[Reg],
    depth: Reg,
    ahead: Reg | int,
    step: Reg | None = None,
    neighbours: bool = False,
) -> list[Reg]:
    """Emit a tile; returns its accumulators in the order row, panel, vector.

    ``rows`` and ``panels`` are the element offsets of the tile's rows of A and panels of B, and
    ``depth`` is the number of steps of k. B is requested ``ahead`` elements before it is read.
    ``step`` is the distance of two elements of a row of A, None for 1. If it is given, A is
    requested some steps before, and ``neighbours`` says that the rows' elements lie side by side.
    """
    lanes = shape.lanes if shape.lanes > 1 else 0
    lines = range(0, shape.width, CACHE_LINE // b.dtype.bytes)

    def one(i: Reg, *acc: Reg) -> list[Reg]:
        row_of_b = i * shape.width
        at = [p + row_of_b for p in panels]
        columns = [k.load(b, p + v * shape.lanes, lanes) for p in at for v in range(shape.vectors)]
        for p in at:
            for line in lines:
                k.prefetch(b, p + ahead + line if line else p + ahead)
        along = i if step is None else i * step
        if step is not None:
            k.prefetch(a, rows[0] + (along + step * ROWS_AHEAD))
        sums: list[Reg] = []
        for r, row in enumerate(rows):
            # One address with the rows as displacements, where that can be said.
            x = k.load(a, (rows[0] + along) + r if neighbours else row + along)
            x = k.splat(x, lanes) if lanes else x
            sums += [k.fma(x, y, acc[len(sums) + n]) for n, y in enumerate(columns)]
        return sums

    zero = k.const(0.0, accumulate_type(b.dtype), lanes)
    return k.loop(0, depth, 1, one, [zero] * (len(rows) * len(panels) * shape.vectors))
