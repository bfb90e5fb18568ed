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
from functools import partial

from rlx.kernels import amx
from rlx.kernels.builder import KernelTarget, KernelText
from rlx.kernels.contraction_plan import ContractionConfig, OperandKind, launch
from rlx.kernels.contraction_products import Products, Rows, Strip, Task
from rlx.kernels.reg import Buffer, Reg

__all__ = ["ContractionConfig", "OperandKind", "emit", "launch", "name"]

name = "contraction"


def emit(name: str, config: ContractionConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config; ``launch`` gives its sizes."""
    return _Emitter(name, config, target).emit()


class _Emitter(Products):
    """Emits one kernel: a method a loop level, from the task down to the products of a strip."""

    def emit(self) -> KernelText:
        self.k.parallel(self.task)
        return self.k.text()

    def task(self, index: Reg) -> None:
        """One (batch, chunk, group); groups vary fastest, so that neighbours share their rows."""
        k = self.k
        self.start()
        panels = (self.n + (self.shape.width - 1)) / self.shape.width
        groups = (panels + self.group_panels - 1) / self.group_panels
        chunks = (self.m + self.chunk_rows - 1) / self.chunk_rows
        group, chunk, batch = index % groups, index / groups % chunks, index / groups / chunks
        row0, panel0 = chunk * self.chunk_rows, group * self.group_panels
        panel_end = k.minimum(panel0 + self.group_panels, panels)
        rows = k.minimum(self.chunk_rows, self.m - row0)
        sums = k.scratch(self.config.accumulate)
        panel = self.panel_scratch() if self.config.plain_b else None
        distance = k.index(1) if self.config.across else self.lda
        a = Rows(self.a, batch * self.a_batch + row0 * distance, distance)
        if self.config.copies:
            a = self.convert(a, rows)
        t = Task(batch, row0, rows, a, batch * self.b_batch, sums, panel)

        step, whole = self.strip_panels, panel_end
        if panel is not None:
            # The last panel shares columns with the one before: sums that whole tiles add to must
            # not be those of both, so it has a strip of its own.
            whole = k.select(rows < self.shape.rows, panel_end, self.n / self.shape.width)
            whole = k.minimum(whole, panel_end)

        def strip(begin: Reg) -> None:
            first = k.minimum(begin, whole)
            end = k.select(begin < whole, k.minimum(begin + step, whole), panel_end)
            self.strip(Strip(t, first, end, self.column(first)))

        stop = panel0 + (whole - panel0 + (step - 1)) / step * step + (panel_end - whole)
        k.loop(panel0, stop, step, strip)

    def panel_scratch(self) -> Buffer:
        """Scratch for a block of a panel, after the sums."""
        sums = self.chunk_rows * self.strip_width * self.config.accumulate.bytes
        return self.k.scratch(self.config.b, sums)

    def convert(self, a: Rows, rows: Reg) -> Rows:
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
        return Rows(wide, k.index(0), distance)

    def columns(self, count: Reg, lanes: int, body: Callable[[Reg, int], None]) -> None:
        """Cover ``count`` columns by vectors of ``lanes``, and the rest one by one."""
        if self.lanes:
            self.k.vector_loop(count, lanes, body)
        else:
            self.k.loop(0, count, 1, lambda j: body(j, 0))

    def strip(self, s: Strip) -> None:
        """Compute the products of a strip, then its part of C."""
        if self.config.amx:
            self.amx_products(s)
        else:
            self.products(s)
        self.k.loop(0, s.task.rows, 1, partial(self.epilogue, s))

    def amx_products(self, s: Strip) -> None:
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

    def epilogue(self, s: Strip, r: Reg) -> None:
        """Row ``r`` of a strip, from the sums to C."""
        k, t, program = self.k, s.task, self.config.epilogue
        m, n0 = t.row0 + r, s.begin * self.shape.width
        count = k.minimum(self.n - n0, (s.end - s.begin) * self.shape.width)
        sums = r * self.strip_width + (n0 - s.column)
        c = t.batch * self.c_batch + m * self.ldc + n0
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
