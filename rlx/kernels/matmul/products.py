"""The products of a contraction: blocks of K, panels and tiles, from A and B to sums.

``emit.py`` has the loops around them, and ``epilogue.py`` what follows. For a strip of
panels:

    for each block of K:
        for each panel, for each whole tile of rows: add to its sums in the strip
        for each panel, or some side by side: the last rows, by tiles of as many
    finish them

A block of a panel and a block of the rows of A stay in the L2 cache while they are used again. Each
block is a chain of sums of floats; where K is long, there are several, and each adds its sums to
those that wait in the strip. Blocks of integers, and the short ones of a turned B, resume the sums
of the block before. Whole tiles are finished in the last block, from registers where the epilogue
is short.

A plain B, which nobody has packed, is read where it lies. The first tile of a panel puts what it
reads into scratch as a panel, for the other tiles. Of a turned B, whose rows are adjacent, each
block of a panel is transposed into scratch before its tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from rlx.base.frozen import frozen
from rlx.codegen.reg import Buffer, Reg
from rlx.kernels.matmul.epilogue import Epilogue, Rows, Strip, Task
from rlx.kernels.matmul.tile import (
    PLAIN_STEPS,
    PREFETCH_STEPS,
    Later,
    Parts,
    TileOperands,
    TileRows,
    emit_tile,
)
from rlx.kernels.matmul.transpose_panel import transpose_panel

__all__ = ["Products"]

REQUEST_ROWS = 64
"""Rows from which on a tile requests what its epilogue reads row by row; with fewer that costs more
than it gains."""


@frozen
class _Block:
    """``depth`` steps of k from ``first`` on, of the panels of a strip; its rows of A begin at
    ``a``."""

    strip: Strip
    first: Reg
    depth: Reg
    a: Reg


@frozen
class _Panel:
    """A panel's block: where it begins, and the distance between its rows."""

    number: Reg
    buffer: Buffer
    at: Reg
    step: Reg


@frozen
class _Following:
    """What the tiles of a panel request of the one after it, each an equal part: so the memory has
    work in all the time of their multiply-adds. A step of k goes on by ``step`` elements, a row of
    the tiles by ``row``."""

    at: Reg
    step: Reg
    row: Reg

    def of(self, first: Reg) -> Later:
        """What the tile of the rows from ``first`` on requests."""
        return Later(self.at + first * self.row, self.step)


class Products(Epilogue):
    """Emits the products of a strip."""

    @property
    def near(self) -> Reg:
        """How far ahead a tile requests its own panel."""
        near = self.k.index(PREFETCH_STEPS * self.shape.width)
        return self.ldb * PLAIN_STEPS if self.config.plain_b else near

    @property
    def nothing(self) -> Reg:
        """Where the strip has the sums before the first block."""
        return self.chunk_rows * self.strip_width

    def sums(self) -> Buffer:
        """The scratch of the sums, and after them a tile of zeros in rows of the same distance. To
        add -0 changes no sum, be it -0 itself."""
        k, sums = self.k, self.sums_scratch()

        def row(r: Reg) -> None:
            for v in range(self.shape.vectors):
                at = self.nothing + r * self.strip_width + v * self.shape.lanes
                k.store(0 if self.config.resumes else -0.0, sums, at, self.lanes)

        k.loop(0, k.minimum(self.m, self.shape.rows), 1, row)
        return sums

    def sums_scratch(self) -> Buffer:
        """The scratch of the sums."""
        return self.k.scratch(self.config.accumulate)

    def wide_rows(self) -> Buffer:
        """That of rows of A in the type in which a tile reads them, after the sums."""
        return self.k.scratch(self.config.rows, self.sums_bytes)

    def panel_scratch(self) -> Buffer:
        """That of a block of a panel, in the same place."""
        return self.k.scratch(self.config.b, self.sums_bytes)

    @property
    def sums_bytes(self) -> Reg:
        """Size of the scratch of the sums."""
        rows = self.chunk_rows + self.shape.rows
        return rows * (self.strip_width * self.config.accumulate.bytes)

    def column(self, panel: Reg) -> Reg:
        """The first column of a panel. The last one of a plain B ends with B: some of its columns
        are those of the panel before, computed twice."""
        first = panel * self.shape.width
        return self.k.minimum(first, self.n - self.shape.width) if self.config.plain_b else first

    def products(self, s: Strip) -> None:
        """A strip: its sums, and what becomes of them."""
        k, task = self.k, s.task
        whole, step = self.cut(task.rows)

        def block(first: Reg) -> None:
            depth = k.minimum(self.depth - first, self.block_depth)
            a = task.a.offset + (first * self.lda if self.config.across else first)

            def panels(b: _Block) -> None:
                k.loop(b.strip.begin, b.strip.end, 1, lambda p: self.panel(b, p, whole))
                if self.config.rest:
                    self.tails(b, whole, step)

            def turned(p: Reg) -> None:
                b = _Block(replace(s, begin=p, end=p + 1), first, depth, a)
                self.turn(b, p)
                panels(b)

            if self.config.turned:
                k.loop(s.begin, s.end, 1, turned)
            else:
                panels(_Block(s, first, depth, a))

        # Once where K is 0, too: the sums are 0 then.
        k.loop(0, k.maximum(self.depth, 1), self.block_depth, block)
        self.finish_rest(s, whole)

    def cut(self, rows: Reg) -> tuple[Reg, Reg]:
        """The rows of whole tiles, and those of each tile of the rest.

        A tile of very few rows waits for its panel as long as one of more. So a short rest shares
        the rows of one whole tile.
        """
        k, most = self.k, self.shape.rows
        if not self.config.rest:
            return rows, k.index(most)
        rest = rows % most
        shares = (rows > most) & (rest > 0) & (rest * 2 < most)
        whole = rows - rest - k.select(shares, k.index(most), 0)
        return whole, k.select(shares, (rest + (most + 1)) / 2, most)

    def panel(self, b: _Block, p: Reg, whole: Reg) -> None:
        """The whole tiles of a panel."""
        k, rows = self.k, self.shape.rows
        source = self.source(b, p)
        packed = b.strip.task.panel if self.config.plain_b else None
        complete = (b.first + b.depth >= self.depth) & self.is_whole(p)
        parts = self.parts(b, p, whole, complete)
        following = None if self.config.as_it_lies else self.following(b, p, whole)
        near = None if self.config.turned else self.near

        def tile(
            first: Reg,
            panel: _Panel,
            ahead: Reg | None,
            keep: Buffer | None = None,
            extra: Sequence[Reg] = (),
        ) -> Sequence[Reg]:
            later = following and following.of(first)
            sums, extra = self.tile(
                b, first, rows, [panel], ahead, self.config.long, keep, extra, parts(first), later
            )

            def store() -> None:
                self.store(b.strip, first, [p], sums)

            def finish() -> None:
                self.finish_tile(b.strip, p, first, sums)

            if self.is_short:
                k.when(complete, finish, store)
            else:
                store()
                k.when(complete, finish)
            return extra

        def copied() -> None:
            tile(k.index(0), source, None, packed)
            copy = _Panel(p, packed, k.index(0), k.index(self.shape.width)) if packed else source
            k.loop(rows, whole, rows, lambda i: tile(i, copy, None))

        def flipped() -> None:
            # The first tile finds for all what flipped sign bits add to a row.
            extra = tile(k.index(0), source, near)
            k.loop(rows, whole, rows, lambda i: tile(i, source, near, extra=extra))

        if packed is not None:
            k.when(whole > 0, copied)
        elif self.config.flips:
            k.when(whole > 0, flipped)
        else:
            k.loop(0, whole, rows, lambda i: tile(i, source, near))

    def parts(self, b: _Block, p: Reg, whole: Reg, complete: Reg) -> Callable[[Reg], Parts | None]:
        """The parts of a tile of rows from one on. Each begins with requests for a row of what the
        epilogue reads."""
        if "full" not in self.config.operands:
            return lambda first: None
        k, rows = self.k, self.shape.rows
        many = whole >= REQUEST_ROWS
        count = k.select(many, k.index(rows), 1)

        def of_tile(first: Reg) -> Parts:
            def row(n: Reg) -> None:
                self.request_operands(b.strip, first + n, p, complete)

            def begin(part: Reg) -> None:
                k.loop(part, k.select(many, part + 1, rows), 1, row)

            return Parts(count, begin)

        return of_tile

    def following(self, b: _Block, p: Reg, whole: Reg) -> _Following:
        """The block that comes after one of a panel, for the ``whole`` rows to request: a single
        tile requests no more than the lines that it has itself."""
        k, s, end = self.k, b.strip, b.first + b.depth
        inside, last = p + 1 < s.end, end >= self.depth
        first = k.select(inside, b.first, k.select(last, 0, end))
        number = k.select(inside, p + 1, k.select(last, s.after, s.begin))
        next_one = self.source(_Block(s, first, b.depth, b.a), number).at
        several, tiles = whole > self.shape.rows, k.maximum(whole / self.shape.rows, 1)
        width = self.shape.width * self.config.group
        step = k.select(several, (tiles + (width - 1)) / tiles, 0)
        row = b.depth / self.config.group * step / self.shape.rows
        return _Following(k.select(several, next_one, self.source(b, p).at), step, row)

    def places(self, s: Strip, first: Reg, panels: list[Reg]) -> list[Reg]:
        """Where the strip has the sums of the rows from ``first`` on, of some panels."""
        return [first * self.strip_width + (self.column(p) - s.column) for p in panels]

    def vectors(self, rows: int, places: list[Reg]) -> list[tuple[Buffer, int]]:
        """The vectors of a tile, of which each panel begins at its place in the strip: a part of
        scratch, and how far behind its start. LLVM has less to do for addresses that differ by
        constants from a pointer than for as many sums of integers."""
        dt = self.config.accumulate
        starts = [self.k.scratch(dt, at * dt.bytes) for at in places]
        steps = [v * self.shape.lanes for v in range(self.shape.vectors)]
        return [
            (start, r * self.strip_width + v)
            for r in range(rows)
            for start in starts
            for v in steps
        ]

    def begin(self, b: _Block, first: Reg, count: int, panels: list[_Panel]) -> list[Reg]:
        """The sums that wait for a block; before the first one there are zeros."""
        k = self.k
        is_first = k.compare("eq", b.first, 0)
        places = self.places(b.strip, first, [p.number for p in panels])
        places = [k.select(is_first, self.nothing, at) for at in places]
        return [k.load(start, at, self.lanes) for start, at in self.vectors(count, places)]

    def store(self, s: Strip, first: Reg, panels: list[Reg], sums: list[Reg]) -> None:
        """The sums of a tile into the strip."""
        rows = len(sums) // (len(panels) * self.shape.vectors)
        places = self.vectors(rows, self.places(s, first, panels))
        for value, (start, at) in zip(sums, places, strict=True):
            self.k.store(value, start, at, self.lanes)

    def turn(self, b: _Block, p: Reg) -> None:
        """Transpose a panel's block of a turned B into scratch."""
        k, t, width = self.k, b.strip.task, self.shape.width
        assert t.panel is not None
        column = p * width
        at, count = t.b + column * self.ldb + b.first, k.minimum(self.n - column, width)
        transpose_panel(k, self.b, at, self.ldb, t.panel, k.index(0), b.depth, count, width)

    def source(self, b: _Block, p: Reg) -> _Panel:
        """A panel in B, or of a turned one in scratch."""
        start = b.strip.task.b
        if self.config.plain_b:
            return _Panel(p, self.b, start + self.column(p) + b.first * self.ldb, self.ldb)
        width = self.shape.width
        if self.config.turned:
            assert b.strip.task.panel is not None
            return _Panel(p, b.strip.task.panel, self.k.index(0), self.k.index(width))
        at = start + p * (self.depth * width) + b.first * width
        return _Panel(p, self.b, at, self.k.index(width * self.config.group))

    def tails(self, b: _Block, whole: Reg, step: Reg) -> None:
        """The rows from ``whole`` on, ``step`` at a time: a function that kernels share, as these
        tiles are most of the code and the same for any epilogue."""
        k, s, t = self.k, b.strip, b.strip.task
        sizes = self.n, self.depth, self.lda, self.ldb, self.chunk_rows

        def body(
            rows: Reg, whole: Reg, step: Reg, begin: Reg, end: Reg, column: Reg, first: Reg,
            depth: Reg, a: Reg, distance: Reg, at: Reg,
        ) -> None:  # fmt: skip
            buffer = self.wide_rows() if self.config.copies else self.a
            panel = self.panel_scratch() if self.config.as_it_lies else None
            task = Task(
                t.batch, t.row0, rows, Rows(buffer, a, distance), at, self.sums_scratch(), panel
            )
            block = _Block(Strip(task, begin, end, column, end), first, depth, a)

            def rest(row: Reg) -> None:
                self.tail(block, row, k.minimum(step, rows - row), self.shape.tail)

            k.loop(whole, rows, step, rest)

        indices = (
            t.rows, whole, step, s.begin, s.end, s.column, b.first, b.depth, b.a, t.a.distance, t.b
        )  # fmt: skip
        given = [self.a, self.b, k.whole_scratch, *sizes]
        k.when(whole < t.rows, lambda: k.outline("tails", given, indices, body, shared=True))

    def tail(self, b: _Block, first: Reg, count: Reg, tiles: tuple[tuple[int, int], ...]) -> None:
        """``count`` rows from ``first`` on, by the tile that has as many.

        Panels that a tile has too many repeat the last one: they compute the same sums and store
        them to the same place. Panels side by side are streams in which the machine itself looks
        ahead, and requests would be half of all reads of rows that do little but read.
        """
        k, s = self.k, b.strip
        (rows, panels), *larger = tiles
        if self.config.flips and (rows + 1) * panels > self.shape.rows + 1:
            panels = 1  # what flipped sign bits add takes the registers of a row
        if self.config.turned:
            panels = 1
        adds = not self.config.resumes  # long or not, the code is the same
        ahead = self.near if panels == 1 and not self.config.turned else None

        def run(p: Reg) -> None:
            side = [k.minimum(p + i, s.end - 1) if i else p for i in range(panels)]
            sums, _ = self.tile(b, first, rows, [self.source(b, q) for q in side], ahead, adds)
            self.store(s, first, side, sums)

        def all_panels() -> None:
            k.loop(s.begin, s.end, panels, run)

        if larger:
            k.when(count <= rows, all_panels, lambda: self.tail(b, first, count, tuple(larger)))
        else:
            all_panels()

    def tile(
        self, b: _Block, first: Reg, count: int, panels: list[_Panel], ahead: Reg | None,
        adds: bool, keep: Buffer | None = None, extra: Sequence[Reg] = (),
        parts: Parts | None = None, later: Later | None = None,
    ) -> tuple[list[Reg], Sequence[Reg]]:  # fmt: skip
        """The sums of a tile of ``count`` rows from ``first`` on, and what flipped sign bits have
        added to each row of it before that was taken off: it is ``extra`` where that is known.
        ``keep`` takes a copy of the panel. Sums that do not resume those of the block before may be
        added to them, which changes nothing in the first block."""
        t, config = b.strip.task, self.config
        flipped = config.flips and not extra
        vectors = count * len(panels) * self.shape.vectors
        zeros = [self.k.const(0, config.accumulate, self.lanes)] * vectors
        start = self.begin(b, first, count, panels) if config.resumes else zeros
        sums = emit_tile(
            self.k,
            self.shape,
            TileOperands(
                t.a.buffer, panels[0].buffer, panels[0].step, config.accumulate, config.group,
                flipped, self.lda if config.across else None, keep,
            ),
            rows=TileRows(count, b.a + first * t.a.distance, t.a.distance),
            panels=[p.at for p in panels],
            depth=b.depth,
            ahead=ahead,
            later=later,
            start=start,
            parts=parts,
        )  # fmt: skip
        if flipped:
            sums, extra = sums[: len(start)], sums[len(start) :]
        if extra:
            sums = [x - extra[n % len(extra)] for n, x in enumerate(sums)]
        if adds:
            before = self.begin(b, first, count, panels)
            sums = [a + x for a, x in zip(before, sums, strict=True)]
        return sums, extra
