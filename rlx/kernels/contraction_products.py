"""The products of a contraction: blocks of K, panels and tiles, from A and B to sums in scratch.

``contraction`` has the loops around them and the epilogue. For a strip of panels:

    for each block of K, for each panel:
        for each whole tile of rows: add to its sums in the strip
    for each panel: the last rows, by smaller tiles, over all of K

A block of a panel and a block of the rows of A stay in the L2 cache while they are used again. The
sums wait in the strip for the next block to go on with them, so that an element stays one chain
over K. The last rows read a panel but once, and so need no blocks.

A plain B, which nobody has packed, is read where it lies. The first tile of a panel puts what it
reads into scratch as a panel, for the other tiles.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlx.kernels.builder import Kernel, KernelTarget
from rlx.kernels.contraction_plan import ContractionConfig
from rlx.kernels.contraction_tile import (
    PREFETCH_STEPS,
    REQUEST_ROWS,
    TileOperands,
    emit_tile,
)
from rlx.kernels.reg import Buffer, Reg

__all__ = ["Products", "Rows", "Strip", "Task"]


@dataclass(frozen=True)
class Rows:
    """A task's rows of A: where the first one begins, and the distance between them."""

    buffer: Buffer
    offset: Reg
    distance: Reg


@dataclass(frozen=True)
class Task:
    """What a task works on: ``rows`` rows from ``row0`` on, of A, and B from its offset ``b`` on.

    ``sums`` is the scratch in which a strip of products waits for the epilogue, and ``panel`` that
    for a block of a panel of a plain B.
    """

    batch: Reg
    row0: Reg
    rows: Reg
    a: Rows
    b: Reg
    sums: Buffer
    panel: Buffer | None


@dataclass(frozen=True)
class Strip:
    """The panels [begin, end) of B that a task finishes together; sums begin at ``column``."""

    task: Task
    begin: Reg
    end: Reg
    column: Reg


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


class Products:
    """Declares the arguments of a kernel, and emits the products of a strip."""

    def __init__(self, name: str, config: ContractionConfig, target: KernelTarget) -> None:
        self.k = k = Kernel(name, target)
        self.config = config
        self.shape = config.shape(target)
        self.lanes = self.shape.lanes if self.shape.lanes > 1 else 0
        self.a, self.b = k.buffer("a", config.a), k.buffer("b", config.b)
        dtypes = config.epilogue.inputs[1:]
        self.operands = [k.buffer(f"operand{i}", dt) for i, dt in enumerate(dtypes)]
        self.c = k.buffer("c", config.c)
        self.m, self.n, self.depth = k.size("m"), k.size("n"), k.size("depth")
        self.lda, self.ldb, self.ldc = (k.size(f"ld{x}") for x in "abc")
        self.a_batch, self.b_batch, self.c_batch = (k.size(f"{x}_batch") for x in "abc")
        self.chunk_rows, self.group_panels = k.size("chunk_rows"), k.size("group_panels")
        self.strip_panels, self.block_depth = k.size("strip_panels"), k.size("block_depth")
        self.operand_strides = [
            (k.size(f"operand{i}_row"), k.size(f"operand{i}_batch")) for i in range(len(dtypes))
        ]

    def start(self) -> None:
        """What the whole kernel needs once it has begun."""
        self.strip_width = self.strip_panels * self.shape.width
        self.near = self.k.index(PREFETCH_STEPS * self.shape.width)

    def column(self, panel: Reg) -> Reg:
        """The first column of a panel. The last one of a plain B ends with B: some of its columns
        are those of the panel before, computed twice."""
        first = panel * self.shape.width
        return self.k.minimum(first, self.n - self.shape.width) if self.config.plain_b else first

    def products(self, s: Strip) -> None:
        """The sums of a strip."""
        k, rows, lanes = self.k, self.shape.rows, self.shape.lanes
        rest = s.task.rows % rows
        whole = s.task.rows - rest
        sums = s.task.sums
        k.loop(0, whole * self.strip_width, lanes, lambda at: k.store(0, sums, at, self.lanes))

        def block(first: Reg) -> None:
            depth = k.minimum(self.depth - first, self.block_depth)
            a = s.task.a.offset + (first * self.lda if self.config.across else first)
            b = _Block(s, first, depth, a)
            k.loop(s.begin, s.end, 1, lambda p: self.panel(b, p, whole))

        k.loop(0, k.select(whole > 0, self.depth, 0), self.block_depth, block)
        over_all = _Block(s, k.index(0), self.depth, s.task.a.offset)
        k.when(rest > 0, lambda: self.tail(over_all, whole, rest, self.shape.tail))

    def panel(self, b: _Block, p: Reg, whole: Reg) -> None:
        """The whole tiles of a panel."""
        k, rows, width = self.k, self.shape.rows, self.shape.width
        source, packed = self.source(b, p), b.strip.task.panel

        def tile(first: Reg, panel: _Panel, ahead: Reg | None, keep: Buffer | None = None) -> None:
            at = [first + i if i else first for i in range(rows)]
            self.tile(b, at, [panel], ahead, more=True, keep=keep)

        following = self.depth * width
        if packed is None:
            # The first tile of a panel may wait for memory; while a later one finds the panel in
            # the cache, the next panel is on its way.
            k.loop(0, whole, rows, lambda i: tile(i, source, k.select(i > 0, following, self.near)))
        else:
            tile(k.index(0), source, None, packed)
            copy = _Panel(p, packed, k.index(0), k.index(width))
            k.loop(rows, whole, rows, lambda i: tile(i, copy, None))

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
            self.tile(b, at, [self.source(b, q) for q in side], ahead)

        def all_panels() -> None:
            k.loop(s.begin, s.end, panels, run)

        if larger:
            k.when(count <= rows, all_panels, lambda: self.tail(b, first, count, tuple(larger)))
        else:
            all_panels()

    def tile(
        self, b: _Block, rows: list[Reg], panels: list[_Panel], ahead: Reg | None, *,
        more: bool = False, keep: Buffer | None = None,
    ) -> None:  # fmt: skip
        """Compute a tile, and store its sums into the strip; ``more``: of successive rows, whose
        sums go on from there. ``keep`` takes a copy of the panel."""
        k, t, shape, config = self.k, b.strip.task, self.shape, self.config
        vectors = [
            self.column(p.number) - b.strip.column + v * shape.lanes
            for p in panels
            for v in range(shape.vectors)
        ]
        places = [row + v for row in [r * self.strip_width for r in rows] for v in vectors]
        zero = k.const(0, config.accumulate, self.lanes)
        sums = emit_tile(
            k,
            shape,
            TileOperands(
                t.a.buffer, panels[0].buffer, panels[0].step, config.accumulate, config.group,
                config.flips, self.lda if config.across else None, config.across and more, keep,
            ),
            rows=[b.a + r * t.a.distance for r in rows],
            panels=[p.at for p in panels],
            depth=b.depth,
            ahead=ahead,
            start=[k.load(t.sums, at, self.lanes) if more else zero for at in places],
        )  # fmt: skip
        for value, at in zip(sums, places, strict=True):
            k.store(value, t.sums, at, self.lanes)
