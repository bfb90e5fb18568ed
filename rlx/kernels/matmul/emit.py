"""Matrix products with a pointwise epilogue: ``C[b] = epilogue(A[b] @ B[b], operands ...)``.

A is [M, K] with contiguous rows or columns, B is packed in panels (``pack.py``) or [K, N]
with contiguous rows or columns, C is [M, N] with contiguous rows. A task is one batch element, a
chunk of rows and a group of panels:

    for each strip of panels in the group:
        the products (``products.py``), tile by tile:   sums in registers
        the epilogue (``epilogue.py``) of each tile:    from there, or a strip of scratch,
                                                                 to C

Only the epilogue reads operands and writes C, each element once and none outside [M, N]: tiles
may overlap at the last rows, and panels may be filled up or overlap. C may therefore be the very
buffer of a "full" operand, but it may share memory with nothing else.

The cut into tasks depends on the sizes alone, and an element is summed over k in one order, or by
the same blocks where K is long, whatever tile computes it, so its bits depend neither on M nor on
the number of threads.
"""

from __future__ import annotations

from rlx.codegen.builder import KernelTarget, KernelText
from rlx.codegen.reg import Reg
from rlx.kernels.matmul import amx
from rlx.kernels.matmul.epilogue import Rows, Strip, Task
from rlx.kernels.matmul.plan import ContractionConfig, OperandKind, launch
from rlx.kernels.matmul.products import Products

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
        """One (batch, chunk, group); neighbours share their rows, or their panels."""
        k = self.k
        panels = (self.n + (self.shape.width - 1)) / self.shape.width
        groups = (panels + self.group_panels - 1) / self.group_panels
        chunks = (self.m + self.chunk_rows - 1) / self.chunk_rows
        down, pair = k.compare("ne", self.rows_first, 0), index % (groups * chunks)
        chunk = k.select(down, pair % chunks, pair / groups)
        group, batch = k.select(down, pair / chunks, pair % groups), index / (groups * chunks)
        row0, panel0 = chunk * self.chunk_rows, group * self.group_panels
        panel_end = k.minimum(panel0 + self.group_panels, panels)
        after = k.select(down & (chunk + 1 < chunks), panel0, k.minimum(panel_end, panels - 1))
        rows = k.minimum(self.chunk_rows, self.m - row0)
        sums = self.sums()
        panel = self.panel_scratch() if self.config.as_it_lies else None
        distance = k.index(1) if self.config.across else self.lda
        a = Rows(self.a, batch * self.a_batch + row0 * distance, distance)
        if self.config.copies:
            a = self.convert(a, rows)
        t = Task(batch, row0, rows, a, batch * self.b_batch, sums, panel)

        step, whole = self.strip_panels, panel_end
        if self.config.plain_b:
            # The last panel shares columns with the one before: sums that tiles add to must not be
            # those of both, so it has a strip of its own. Not where few rows add to none, or one
            # tile has all panels of a strip.
            few = self.shape.rows - 1
            if self.config.long:
                few = max((rows for rows, side in self.shape.tail if side > 1), default=0)
            whole = k.select(self.m <= few, panel_end, self.n / self.shape.width)
            whole = k.minimum(whole, panel_end)

        def strip(begin: Reg) -> None:
            first = k.minimum(begin, whole)
            end = k.select(begin < whole, k.minimum(begin + step, whole), panel_end)
            then = k.select(end < panel_end, end, after)
            self.strip(Strip(t, first, end, self.column(first), then))

        stop = panel0 + (whole - panel0 + (step - 1)) / step * step + (panel_end - whole)
        k.loop(panel0, stop, step, strip)

    def convert(self, a: Rows, rows: Reg) -> Rows:
        """Rows of A in scratch, in the type in which a tile reads them."""
        k, dt, config = self.k, self.config.rows, self.config
        wide = self.wide_rows()
        distance = self.depth + config.row_pad

        def row(r: Reg) -> None:
            source, target = a.offset + r * a.distance, r * distance

            def copy(j: Reg, lanes: int, mask: Reg | None = None) -> None:
                x = k.load(a.buffer, source + j, lanes, mask)
                if config.flips:
                    x = k.bitcast(x, dt) ^ 0x80
                elif dt is not config.a:
                    x = k.cast(x, dt)
                k.store(x, wide, target + j, lanes, mask)

            self.columns(self.depth, copy)

        k.loop(0, rows, 1, row)
        return Rows(wide, k.index(0), distance)

    def strip(self, s: Strip) -> None:
        """Compute the products of a strip, then its part of C."""
        if self.config.amx:
            self.amx_products(s)
            self.finish_rest(s, self.k.index(0))
        else:
            self.products(s)

    def amx_products(self, s: Strip) -> None:
        """The products of a strip by AMX: rows of A beyond its last are whatever scratch holds."""
        k, t, shape = self.k, s.task, self.shape
        panel_size = self.depth * shape.width
        pair = 2 * amx.ROWS

        def block(p: Reg, r: Reg, tiles: int) -> None:
            work = amx.Block(
                t.a.buffer, r * t.a.distance, t.a.distance, self.b, t.b + p * panel_size,
                shape.vectors, t.sums, r * self.strip_width + (p - s.begin) * shape.width,
                k.index(self.strip_width),
            )  # fmt: skip
            amx.emit_block(k, work, self.depth, tiles)

        def panel(p: Reg) -> None:
            whole = (t.rows + (amx.ROWS - 1)) / pair * pair
            k.loop(0, whole, pair, lambda r: block(p, r, 2))
            k.when(whole < t.rows, lambda: block(p, whole, 1))

        k.loop(s.begin, s.end, 1, panel)
