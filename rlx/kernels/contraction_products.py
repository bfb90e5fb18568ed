"""The products of a contraction: blocks of K, panels and tiles, from A and B to sums.

``contraction`` has the loops around them, and ``contraction_epilogue`` what follows. For a strip of
panels:

    for each block of K, for each panel:
        for each whole tile of rows: add to its sums in the strip; after the last block, finish them
    for each panel: the last rows, by smaller tiles, over all of K; finish them

A block of a panel and a block of the rows of A stay in the L2 cache while they are used again. The
sums wait in the strip for the next block to go on with them, so that an element stays one chain
over K; those of the last block stay in registers where the epilogue is short. The last rows read a
panel but once, and so need no blocks.

A plain B, which nobody has packed, is read where it lies. The first tile of a panel puts what it
reads into scratch as a panel, for the other tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx.kernels.contraction_epilogue import Epilogue, Strip
from rlx.kernels.contraction_tile import (
    PREFETCH_STEPS,
    REQUEST_ROWS,
    TileOperands,
    emit_tile,
)
from rlx.kernels.reg import Buffer, Reg

__all__ = ["Products"]


@dataclass(frozen=True)
class _Block:
    """``depth`` steps of k from ``first`` on, of the panels of a strip; its rows of A begin at
    ``a``."""

    strip: Strip
    first: Reg
    depth: Reg
    a: Reg


@dataclass(frozen=True)
class _Panel:
    """A panel's block: where it begins, and the distance between its rows."""

    number: Reg
    buffer: Buffer
    at: Reg
    step: Reg


class Products(Epilogue):
    """Emits the products of a strip."""

    def start(self) -> None:
        """What the whole kernel needs once it has begun."""
        super().start()
        self.near = self.k.index(PREFETCH_STEPS * self.shape.width)
        self.zeros = self.chunk_rows * self.strip_width

    def sums(self) -> Buffer:
        """The scratch of the sums, a row of zeros after them."""
        k, sums = self.k, self.k.scratch(self.config.accumulate)
        for v in range(self.shape.vectors):
            k.store(0, sums, self.zeros + v * self.shape.lanes, self.lanes)
        return sums

    @property
    def sums_bytes(self) -> Reg:
        """Size of the scratch of the sums."""
        return (self.zeros + self.shape.width) * self.config.accumulate.bytes

    def column(self, panel: Reg) -> Reg:
        """The first column of a panel. The last one of a plain B ends with B: some of its columns
        are those of the panel before, computed twice."""
        first = panel * self.shape.width
        return self.k.minimum(first, self.n - self.shape.width) if self.config.plain_b else first

    def products(self, s: Strip) -> None:
        """A strip: its sums, and what becomes of them."""
        k, task = self.k, s.task
        rest = task.rows % self.shape.rows
        whole = task.rows - rest
        if self.overlaps:
            rest = k.select(rest <= self.tails[-1][0], rest, 0)
        tiled = task.rows - rest

        def block(first: Reg) -> None:
            depth = k.minimum(self.depth - first, self.block_depth)
            a = task.a.offset + (first * self.lda if self.config.across else first)
            b = _Block(s, first, depth, a)
            k.loop(s.begin, s.end, 1, lambda p: self.panel(b, p, tiled, whole))

        # Once where K is 0, too: the sums are 0 then.
        k.loop(0, k.select(tiled > 0, k.maximum(self.depth, 1), 0), self.block_depth, block)
        over_all = _Block(s, k.index(0), self.depth, task.a.offset)
        k.when(rest > 0, lambda: self.tail(over_all, tiled, rest, self.tails))
        self.finish_rest(s, whole)

    @property
    def overlaps(self) -> bool:
        """Whether a whole tile serves one row less, and computes the last one twice. An A that lies
        across would be read beyond it, and a plain B would be copied for nothing."""
        return not (self.config.across or self.config.plain_b)

    @property
    def tails(self) -> tuple[tuple[int, int], ...]:
        """The tiles of the last rows, smallest first."""
        return self.shape.tail[:-1] if self.overlaps else self.shape.tail

    def panel(self, b: _Block, p: Reg, tiled: Reg, whole: Reg) -> None:
        """The whole tiles of a panel: ``tiled`` rows, of which ``whole`` fill theirs."""
        k = self.k
        source, packed = self.source(b, p), b.strip.task.panel
        complete = (b.first + b.depth >= self.depth) & self.is_whole(p)

        def tile(
            first: Reg,
            panel: _Panel,
            ahead: Reg | None,
            keep: Buffer | None = None,
            extra: Sequence[Reg] = (),
        ) -> Sequence[Reg]:
            rows = [first + i if i else first for i in range(self.shape.rows)]
            if self.overlaps:
                rows = [k.minimum(r, b.strip.task.rows - 1) for r in rows]
            start = self.begin(b, rows, panel)
            sums, extra = self.tile(b, rows, [panel], ahead, start, True, keep, extra)

            def store() -> None:
                self.store(b.strip, rows, [p], sums)

            def finish() -> None:
                self.finish_tile(b.strip, p, first, sums)

            done = complete & (first < whole)
            if self.is_short:
                k.when(done, finish, store)
            else:
                store()
                k.when(done, finish)
            return extra

        rows = self.shape.rows
        if packed is not None:
            tile(k.index(0), source, None, packed)
            copy = _Panel(p, packed, k.index(0), k.index(self.shape.width))
            k.loop(rows, tiled, rows, lambda i: tile(i, copy, None))
        elif self.config.flips:
            # The first tile finds for all what flipped sign bits add to a row.
            extra = tile(k.index(0), source, self.near)
            k.loop(rows, tiled, rows, lambda i: tile(i, source, self.near, extra=extra))
        else:
            k.loop(0, tiled, rows, lambda i: tile(i, source, self.near))

    def begin(self, b: _Block, rows: list[Reg], panel: _Panel) -> list[Reg]:
        """The sums that a block goes on from; those of the first are a row of zeros."""
        k, lanes = self.k, self.shape.lanes
        is_first = k.compare("eq", b.first, 0)
        at = k.select(is_first, self.zeros, self.column(panel.number) - b.strip.column)
        distance = k.select(is_first, 0, self.strip_width)
        return [
            k.load(b.strip.task.sums, at + r * distance + v * lanes, self.lanes)
            for r in rows
            for v in range(self.shape.vectors)
        ]

    def store(self, s: Strip, rows: list[Reg], panels: list[Reg], sums: list[Reg]) -> None:
        """The sums of a tile into the strip."""
        columns = [
            self.column(p) - s.column + v * self.shape.lanes
            for p in panels
            for v in range(self.shape.vectors)
        ]
        places = [at + c for at in [r * self.strip_width for r in rows] for c in columns]
        for value, at in zip(sums, places, strict=True):
            self.k.store(value, s.task.sums, at, self.lanes)

    def source(self, b: _Block, p: Reg) -> _Panel:
        """A panel in B."""
        start = b.strip.task.b
        if self.config.plain_b:
            return _Panel(p, self.b, start + self.column(p) + b.first * self.ldb, self.ldb)
        width = self.shape.width
        at = start + p * (self.depth * width) + b.first * width
        return _Panel(p, self.b, at, self.k.index(width * self.config.group))

    def tail(self, b: _Block, first: Reg, count: Reg, tiles: tuple[tuple[int, int], ...]) -> None:
        """The last rows, by the smallest tile that holds them.

        Rows and panels that a tile has too many repeat its last ones: they compute the same sums
        and store them to the same place.
        """
        k, s = self.k, b.strip
        (rows, panels), *larger = tiles
        ahead = self.near if rows >= REQUEST_ROWS and not self.config.plain_b else None

        def run(p: Reg) -> None:
            at = [k.minimum(first + i, s.task.rows - 1) if i else first for i in range(rows)]
            side = [k.minimum(p + i, s.end - 1) if i else p for i in range(panels)]
            zero = self.k.const(0, self.config.accumulate, self.lanes)
            start = [zero] * (rows * panels * self.shape.vectors)
            sums, _ = self.tile(b, at, [self.source(b, q) for q in side], ahead, start)
            self.store(s, at, side, sums)

        def all_panels() -> None:
            k.loop(s.begin, s.end, panels, run)

        if larger:
            k.when(count <= rows, all_panels, lambda: self.tail(b, first, count, tuple(larger)))
        else:
            all_panels()

    def tile(
        self, b: _Block, rows: list[Reg], panels: list[_Panel], ahead: Reg | None,
        start: list[Reg], successive: bool = False, keep: Buffer | None = None,
        extra: Sequence[Reg] = (),
    ) -> tuple[list[Reg], Sequence[Reg]]:  # fmt: skip
        """The sums of a tile, which go on from ``start``, and what flipped sign bits have added to
        each row of it before that was taken off: it is ``extra`` where that is known.

        ``successive`` says that the rows follow each other. ``keep`` takes a copy of the panel.
        """
        t, config = b.strip.task, self.config
        flipped = config.flips and not extra
        sums = emit_tile(
            self.k,
            self.shape,
            TileOperands(
                t.a.buffer, panels[0].buffer, panels[0].step, config.accumulate, config.group,
                flipped, self.lda if config.across else None, config.across and successive, keep,
            ),
            rows=[b.a + r * t.a.distance for r in rows],
            panels=[p.at for p in panels],
            depth=b.depth,
            ahead=ahead,
            start=start,
        )  # fmt: skip
        if flipped:
            sums, extra = sums[: len(start)], sums[len(start) :]
        if extra:
            sums = [x - extra[n % len(extra)] for n, x in enumerate(sums)]
        return sums, extra
