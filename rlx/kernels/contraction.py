"""Matrix products with a pointwise epilogue: ``C[b] = epilogue(A[b] @ B[b], operands ...)``.

A is [M, K] with contiguous rows or columns, B is packed in panels (``rlx.kernels.pack``), C is
[M, N] with contiguous rows. A task is one batch element, a chunk of rows and a group of panels:

    for each strip of panels in the group:
        for each panel, for each tile of rows:     sums in registers, then in the strip (scratch)
        for each row, for each vector of columns:  epilogue, from the strip to C

Only the epilogue reads operands and writes C, each element once and none outside [M, N]: tiles
may overlap at the last rows, and panels may be filled up. C may therefore be the very buffer of a
"full" operand, but it may share memory with nothing else.

The cut into tasks depends on the sizes alone, and an element is summed over k in one order
whatever tile computes it, so its bits depend neither on M nor on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from rlx.kernels import amx
from rlx.kernels.builder import Kernel, KernelTarget, KernelText
from rlx.kernels.contraction_plan import ContractionConfig, OperandKind, launch
from rlx.kernels.contraction_tile import (
    CACHE_LINE,
    PREFETCH_STEPS,
    TileOperands,
    emit_tile,
    tile_shape,
)
from rlx.kernels.reg import Buffer, Reg

__all__ = ["ContractionConfig", "OperandKind", "emit", "launch", "name"]

name = "contraction"


def emit(name: str, config: ContractionConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config; ``launch`` gives its sizes."""
    return _Emitter(name, config, target).emit()


@dataclass(frozen=True)
class _Rows:
    """A task's rows of A: where the first one begins, and the distance between them."""

    buffer: Buffer
    offset: Reg
    distance: Reg


@dataclass(frozen=True)
class _Task:
    """What a task works on: ``rows`` rows from ``row0`` on, of A, and B from its offset ``b`` on.

    ``sums`` is the scratch in which a strip of products waits for the epilogue.
    """

    batch: Reg
    row0: Reg
    rows: Reg
    a: _Rows
    b: Reg
    sums: Buffer


@dataclass(frozen=True)
class _Strip:
    """The panels [begin, end) of B that a task finishes together."""

    task: _Task
    begin: Reg
    end: Reg


class _Emitter:
    """Emits one kernel: a method a loop level, from the task down to the tile."""

    def __init__(self, name: str, config: ContractionConfig, target: KernelTarget) -> None:
        self.k = k = Kernel(name, target)
        self.config = config
        self.shape = tile_shape(target, config.b)
        self.lanes = self.shape.lanes if self.shape.lanes > 1 else 0
        self.a, self.b = k.buffer("a", config.a), k.buffer("b", config.b)
        dtypes = config.epilogue.inputs[1:]
        self.operands = [k.buffer(f"operand{i}", dt) for i, dt in enumerate(dtypes)]
        self.c = k.buffer("c", config.c)
        self.m, self.n, self.depth = k.size("m"), k.size("n"), k.size("depth")
        self.lda, self.ldc = k.size("lda"), k.size("ldc")
        self.a_batch, self.b_batch, self.c_batch = (k.size(f"{x}_batch") for x in "abc")
        self.chunk_rows, self.group_panels = k.size("chunk_rows"), k.size("group_panels")
        self.strip_panels = k.size("strip_panels")
        self.operand_strides = [
            (k.size(f"operand{i}_row"), k.size(f"operand{i}_batch")) for i in range(len(dtypes))
        ]

    def emit(self) -> KernelText:
        self.k.parallel(self.task)
        return self.k.text()

    def task(self, index: Reg) -> None:
        """One (batch, chunk, group); groups vary fastest, so that neighbours share their rows."""
        k = self.k
        self.strip_width = self.strip_panels * self.shape.width
        panels = (self.n + (self.shape.width - 1)) / self.shape.width
        groups = (panels + self.group_panels - 1) / self.group_panels
        chunks = (self.m + self.chunk_rows - 1) / self.chunk_rows
        group, chunk, batch = index % groups, index / groups % chunks, index / groups / chunks
        row0, panel0 = chunk * self.chunk_rows, group * self.group_panels
        panel_end = _least(k, panel0 + self.group_panels, panels)
        rows = _least(k, self.chunk_rows, self.m - row0)
        sums = k.scratch(self.config.accumulate)
        distance = k.index(1) if self.config.across else self.lda
        a = _Rows(self.a, batch * self.a_batch + row0 * distance, distance)
        if self.config.copies:
            a = self.convert(a, rows)
        t = _Task(batch, row0, rows, a, batch * self.b_batch, sums)

        def strip(begin: Reg) -> None:
            self.strip(_Strip(t, begin, _least(k, begin + self.strip_panels, panel_end)))

        k.loop(panel0, panel_end, self.strip_panels, strip)

    def convert(self, a: _Rows, rows: Reg) -> _Rows:
        """Rows of A in scratch, in the type in which a tile reads them."""
        k, dt, config = self.k, self.config.rows, self.config
        wide = k.scratch(dt, self.chunk_rows * self.strip_width * config.accumulate.bytes)
        distance = self.depth + config.row_pad

        def row(r: Reg) -> None:
            source, target = a.offset + r * a.distance, r * distance

            def copy(j: Reg, lanes: int) -> None:
                x = k.load(a.buffer, source + j, lanes)
                if config.flips:
                    x = k.bitcast(x, dt) ^ 0x80
                elif dt is not config.a:
                    x = k.cast(x, dt)
                k.store(x, wide, target + j, lanes)

            self.columns(self.depth, self.lanes, copy)

        k.loop(0, rows, 1, row)
        return _Rows(wide, k.index(0), distance)

    def columns(self, count: Reg, lanes: int, body: Callable[[Reg, int], None]) -> None:
        """Cover ``count`` columns by vectors of ``lanes``, and the rest one by one."""
        if self.lanes:
            self.k.vector_loop(count, lanes, body)
        else:
            self.k.loop(0, count, 1, lambda j: body(j, 0))

    def strip(self, s: _Strip) -> None:
        """Compute the products of a strip, then its part of C."""
        if self.config.amx:
            self.amx_products(s)
        else:
            self.products(s)
        self.k.loop(0, s.task.rows, 1, partial(self.epilogue, s))

    def amx_products(self, s: _Strip) -> None:
        """The products of a strip by AMX: rows of A beyond its last are whatever scratch holds."""
        k, t, shape = self.k, s.task, self.shape
        panel_size = self.depth * shape.width
        pair = 2 * amx.ROWS

        def block(p: Reg, r: Reg, tiles: int) -> None:
            work = amx.Block(
                t.a.buffer, r * t.a.distance, t.a.distance, self.b, t.b + p * panel_size,
                shape.vectors, t.sums, r * self.strip_width + (p - s.begin) * shape.width,
                self.strip_width,
            )  # fmt: skip
            amx.emit_block(k, work, self.depth, tiles)

        def panel(p: Reg) -> None:
            whole = (t.rows + (amx.ROWS - 1)) / pair * pair
            k.loop(0, whole, pair, lambda r: block(p, r, 2))
            k.when(whole < t.rows, lambda: block(p, whole, 1))

        k.loop(s.begin, s.end, 1, panel)

    def products(self, s: _Strip) -> None:
        """The products of a strip by tiles of registers."""
        k, t, rows = self.k, s.task, self.shape.rows
        rest = t.rows % rows
        whole = t.rows - rest

        # The first tile of a panel may wait for memory; while a later one finds the panel in the
        # cache, the next panel is on its way.
        soon, next_panel = PREFETCH_STEPS * self.shape.width, self.depth * self.shape.width

        def whole_tile(p: Reg, first: Reg) -> None:
            at = [first + i if i else first for i in range(rows)]
            self.request(t, at, p)
            self.tile(s, at, [p], k.select(first > 0, next_panel, soon), whole=True)

        def panel(p: Reg) -> None:
            k.loop(0, whole, rows, partial(whole_tile, p))

        k.loop(s.begin, s.end, 1, panel)
        k.when(rest > 0, lambda: self.tail(s, whole, rest, self.shape.tail))

    def tail(self, s: _Strip, first: Reg, count: Reg, tiles: tuple[tuple[int, int], ...]) -> None:
        """The last rows, by the smallest tile that holds them.

        Rows and panels that a tile has too many repeat its last ones: they compute the same sums
        and store them to the same place.
        """
        k = self.k
        (rows, panels), *larger = tiles
        soon = k.index(PREFETCH_STEPS * self.shape.width)

        def run(p: Reg) -> None:
            at = [_least(k, first + i, s.task.rows - 1) if i else first for i in range(rows)]
            self.tile(s, at, [_least(k, p + i, s.end - 1) if i else p for i in range(panels)], soon)

        def all_panels() -> None:
            k.loop(s.begin, s.end, panels, run)

        if larger:
            k.when(count <= rows, all_panels, lambda: self.tail(s, first, count, tuple(larger)))
        else:
            all_panels()

    def tile(
        self, s: _Strip, rows: list[Reg], panels: list[Reg], ahead: Reg, *, whole: bool = False
    ) -> None:
        """Compute a tile, and store its sums into the strip; ``whole``: of successive rows."""
        k, t, shape, config = self.k, s.task, self.shape, self.config
        panel_size = self.depth * shape.width
        sums = emit_tile(
            k,
            shape,
            TileOperands(
                t.a.buffer, self.b, config.accumulate, config.group, config.flips,
                self.lda if config.across else None, config.across and whole,
            ),
            rows=[t.a.offset + r * t.a.distance for r in rows],
            panels=[t.b + p * panel_size for p in panels],
            depth=self.depth,
            ahead=ahead,
        )  # fmt: skip
        vectors = [
            (p - s.begin) * shape.width + v * shape.lanes
            for p in panels
            for v in range(shape.vectors)
        ]
        places = [row + v for row in [r * self.strip_width for r in rows] for v in vectors]
        for value, at in zip(sums, places, strict=True):
            k.store(value, t.sums, at, self.lanes)

    def request(self, t: _Task, rows: list[Reg], panel: Reg) -> None:
        """Prefetch what the epilogue of a tile will touch, while its sums are computed."""
        matrices = [(self.c, self.ldc, self.c_batch)]
        operands = zip(self.config.operands, self.operands, self.operand_strides, strict=True)
        matrices += [(buffer, *strides) for kind, buffer, strides in operands if kind == "full"]
        for buffer, distance, batch_distance in matrices:
            base = t.batch * batch_distance + t.row0 * distance + panel * self.shape.width
            for r in rows:
                at = base + r * distance
                for line in range(0, self.shape.width, CACHE_LINE // buffer.dtype.bytes):
                    self.k.prefetch(buffer, at + line if line else at)

    def epilogue(self, s: _Strip, r: Reg) -> None:
        """Row ``r`` of a strip, from the sums to C."""
        k, t, program = self.k, s.task, self.config.epilogue
        m, n0 = t.row0 + r, s.begin * self.shape.width
        count = _least(k, self.n - n0, (s.end - s.begin) * self.shape.width)
        sums, c = r * self.strip_width, t.batch * self.c_batch + m * self.ldc + n0
        operands = [self.operand(i, t.batch, m, n0) for i in range(len(self.operands))]

        def columns(j: Reg, lanes: int) -> None:
            product = k.round_to(k.load(t.sums, sums + j, lanes), program.inputs[0])
            values = [self.operand_value(x, j, lanes) for x in operands]
            result = program.emit(k, [product, *values])[0]
            k.store(k.splat(result, lanes) if lanes else result, self.c, c + j, lanes)

        # With few registers, two vectors at a time: they share constants and hide latencies.
        lanes = self.shape.width if self.shape.vectors == 2 else self.lanes
        self.columns(count, lanes, columns)

    def operand(self, i: int, batch: Reg, m: Reg, n0: Reg) -> Reg | tuple[Buffer, Reg]:
        """What a row needs of an operand: its one value, or where its columns are."""
        kind, buffer = self.config.operands[i], self.operands[i]
        row_stride, batch_stride = self.operand_strides[i]
        at = batch * batch_stride
        if kind in ("full", "column"):
            at = at + m * row_stride
        return (buffer, at + n0) if kind in ("full", "row") else self.k.load(buffer, at)

    def operand_value(self, x: Reg | tuple[Buffer, Reg], j: Reg, lanes: int) -> Reg:
        if isinstance(x, Reg):
            return x
        buffer, at = x
        return self.k.load(buffer, at + j, lanes)


def _least(k: Kernel, a: Reg, b: Reg) -> Reg:
    return k.select(a < b, a, b)
