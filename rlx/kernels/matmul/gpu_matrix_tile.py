"""A tile of a matrix product by the matrix units of a block of threads.

    for every piece of the depth:
        all threads: bring the bits of a piece of A and B into shared memory, 0 for what is outside
        barrier
        every wave: fragments of A and B from there into registers, and their products
        barrier

A wave has ``rows`` x ``columns`` matrices of sums, side by side. In shared memory both pieces lie
along the depth, since a lane's elements of A and of B are neighbours there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget
from rlx.codegen.reg import Reg
from rlx.kernels.matmul.gpu_matrix_units import UNITS, MatrixUnit, Operands
from rlx.kernels.matmul.gpu_tile import Room, stage
from rlx.types import DType, f32, u16

__all__ = ["Fragments", "Panel", "emit_block", "multiply"]


@frozen
class Fragments:
    """A tile of a product by the matrix units of a block: ``waves_y`` x ``waves_x`` waves, each
    with ``rows`` x ``columns`` matrices of sums of the unit; ``depth`` is that of a piece in shared
    memory."""

    unit: str
    waves_y: int
    waves_x: int
    rows: int
    columns: int
    depth: int

    @property
    def threads(self) -> int:
        """Threads of the block."""
        return self.waves_y * self.waves_x * UNITS[self.unit].wave

    @property
    def height(self) -> int:
        """Rows of the tile."""
        return self.waves_y * self.rows * UNITS[self.unit].m

    @property
    def width(self) -> int:
        """Columns of the tile."""
        return self.waves_x * self.columns * UNITS[self.unit].n

    def fits(self, target: KernelTarget) -> bool:
        """Whether a block of the target can hold it."""
        shared = 2 * (self.height + self.width) * (self.depth + _APART)
        return shared <= target.shared_bytes and self.threads <= target.most_threads

    @property
    def sums(self) -> int:
        """Sums of a thread."""
        return self.rows * self.columns * len(UNITS[self.unit].sums)

    @staticmethod
    def tiles(unit: MatrixUnit) -> list[Fragments]:
        """The tiles for a unit, squares of 128, 64 and 32, the largest first: by 256 threads where
        each has something to do."""
        found: list[Fragments] = []
        for side in (128, 64, 32):
            y, x = 2, 4 if unit.wave == 32 and side > 32 else 2
            rows, columns = side // y // unit.m, side // x // unit.n
            found.append(Fragments(unit.name, y, x, rows, columns, 32))
        return found


_APART = 8
"""Elements between two rows of shared memory: so neighbouring rows begin in different banks, and
every piece at a multiple of 16 bytes."""


@frozen
class Panel(Room):
    """Shared memory for ``size`` rows of A, or columns of B, each of ``depth`` elements as bits."""

    @staticmethod
    def of(k: Kernel, dt: DType, size: int, depth: int) -> Panel:
        """New shared memory, for bits of type ``dt``."""
        return Panel(k.shared(dt, size * (depth + _APART)), size, depth)

    def at(self, step: Reg | int, place: Reg) -> Reg:
        return place * (self.depth + _APART) + step

    def piece(self, k: Kernel, step: Reg, place: Reg, run: int) -> Reg:
        """``run`` elements along the depth, of which the first is at a multiple of ``run``."""
        at = self.at(step, place)
        aligned = f"{{alignment = {min(16, 2 * run)} : i64}}"
        kind = f"{self.buffer.mlir}, vector<{run}xi16>"
        return k.op(f"vector.load {self.buffer.name}[{at.name}] {aligned} : {kind}", u16, run)


def multiply(
    k: Kernel, form: Fragments, panels: tuple[Panel, Panel], thread: Reg, dt: DType,
    sums: Sequence[Reg],
) -> list[Reg]:  # fmt: skip
    """``sums``, of one matrix after the other, row by row, plus the product of two panels."""
    unit = UNITS[form.unit]
    row0, column0, lane = _place(form, thread)
    left, right = panels
    row, column, step = (
        row0 + unit.row.of(lane),
        column0 + unit.column.of(lane),
        unit.depth.of(lane),
    )
    each = len(sums) // (form.rows * form.columns)

    def one(i: Reg, *acc: Reg) -> list[Reg]:
        def pieces(panel: Panel, first: Reg, places: Sequence[tuple[int, int]]) -> list[Reg]:
            return [panel.piece(k, i + step + s, first + p, unit.run) for p, s in places]

        rows = [pieces(left, row + r * unit.m, unit.a_pieces) for r in range(form.rows)]
        columns = [pieces(right, column + c * unit.n, unit.b_pieces) for c in range(form.columns)]
        out: list[Reg] = []
        for n, (a, b) in enumerate((a, b) for a in rows for b in columns):
            so_far = acc[each * n : each * (n + 1)]
            out += unit.multiply(k, unit, Operands(a, b, so_far, dt))
        return out

    return k.loop(0, form.depth, unit.k, one, sums)


def _place(form: Fragments, thread: Reg) -> tuple[Reg, Reg, Reg]:
    """Where in the tile a thread's wave has its first matrix of sums, and its lane."""
    unit = UNITS[form.unit]
    wave, lane = thread // unit.wave, thread % unit.wave
    row = wave // form.waves_x * (form.rows * unit.m)
    return row, wave % form.waves_x * (form.columns * unit.n), lane


class Product(Protocol):
    """What a block computes a tile of: the operands, and what becomes of an element of A B."""

    k: Kernel
    config: Any
    a: Any
    b: Any
    m: Reg
    n: Reg
    depth: Reg

    def corner(self, i: Reg, tile: Any) -> tuple[Reg, Reg]:
        """The first row and column of the tile of block ``i``."""
        ...

    def bits(self, matrix: Any, row: Reg, rows: Reg, column: Reg, columns: Reg) -> Reg:
        """The bits of an element, or 0 outside of so many rows and columns."""
        ...

    def finish(self, product: Reg, row: Reg, column: Reg) -> None:
        """Store what becomes of an element."""
        ...


def emit_block(of: Product, form: Fragments, i: Reg, thread: Reg, *, unrolled: bool) -> None:
    """Block ``i`` of a product. ``unrolled`` says that every element's end is written out."""
    k = of.k
    row0, column0 = of.corner(i, form)
    a, b = (Panel.of(k, u16, size, form.depth) for size in (form.height, form.width))
    along = of.a.access[-1] == "one", of.b.access[-2] == "one"

    def piece(step0: Reg, *sums: Reg) -> list[Reg]:
        def left(place: Reg, step: Reg) -> Reg:
            return of.bits(of.a, row0 + place, of.m, step0 + step, of.depth)

        def right(place: Reg, step: Reg) -> Reg:
            return of.bits(of.b, step0 + step, of.depth, column0 + place, of.n)

        stage(k, a, thread, form.threads, along=along[0], element=left)
        stage(k, b, thread, form.threads, along=along[1], element=right)
        k.barrier()
        sums = tuple(multiply(k, form, (a, b), thread, of.config.a, sums))
        k.barrier()
        return list(sums)

    none = UNITS[form.unit].zeros(k) * (form.rows * form.columns)
    sums = k.loop(0, of.depth, form.depth, piece, none)

    def store(product: Reg, row: Reg, column: Reg) -> None:
        inside = (row < of.m) & (column < of.n)
        k.when(inside, partial(of.finish, product, row, column))

    _each(k, form, sums, (row0, column0), thread, store, unrolled=unrolled)


def _each(
    k: Kernel, form: Fragments, sums: Sequence[Reg], corner: tuple[Reg, Reg], thread: Reg,
    store: Callable[[Reg, Reg, Reg], None], *, unrolled: bool,
) -> None:  # fmt: skip
    """``store(sum, row, column)`` for a thread's sums, of the tile that begins at ``corner``."""
    unit = UNITS[form.unit]
    row, column, lane = _place(form, thread)
    row = corner[0] + row + unit.sum_row.of(lane)
    column = corner[1] + column + unit.sum_column.of(lane)
    count, matrices = len(unit.sums), form.rows * form.columns
    values = [v for n in range(matrices) for v in unit.each(k, sums, n)]

    def matrix(products: Sequence[Reg], r: Reg, c: Reg) -> None:
        for product, (down, right) in zip(products, unit.sums, strict=True):
            store(product, r + down, c + right)

    if unrolled:
        for n in range(matrices):
            y, x = divmod(n, form.columns)
            matrix(values[n * count :][:count], row + y * unit.m, column + x * unit.n)
        return
    room = k.stack(f32, len(values))
    for at, product in enumerate(values):
        k.store(product, room, at)

    def any_of(n: Reg) -> None:
        y, x = n // form.columns * unit.m, n % form.columns * unit.n
        products = [k.load(room, n * count + e) for e in range(count)]
        matrix(products, row + y, column + x)

    k.loop(0, matrices, 1, any_of)
