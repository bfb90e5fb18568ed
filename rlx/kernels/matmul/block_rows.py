"""Rows of f32 in blocks of 8-bit integers, as ``mir.quantize_rows`` says, and what products read of
them beside the integers (``Extras``).

``sums16`` and ``sums32`` are the negative sums of so many integers each, i32 ``[rows][K / 16]``
and ``[rows][K / 32]``. ``tiles`` have the integers block by block, of 16 rows side by side, their
scales and sums in the same order, and for ``starts`` the sums of sub-blocks times a negative
number:

    tiles [rows / 16][K / 32][16 rows][32], scales and sums [rows / 16][K / 32][16 rows],
    starts [rows / 16][K / sub-block][16 rows]

The last tile has room for 16 rows. Those that there are not have a scale and sums of 0, so that
nothing computed with them is a slow number; their integers are those of the last row.
"""

from __future__ import annotations

from functools import reduce

from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.family import Launch
from rlx.codegen.lanes import totals
from rlx.codegen.reg import Reg
from rlx.codegen.strides import ceil_div
from rlx.ops.quant.rows import ROW_BLOCK
from rlx.types import DType, f32, i8, i32

__all__ = [
    "SUM_OF", "TILE_ROWS", "BlockRowsConfig", "Extras", "emit", "extra_shapes", "launch", "name",
    "start_name",
]  # fmt: skip

name = "block_rows"

SUM_OF = 16
"""Elements of a row of which there is a sum: the shortest sub-block of a scheme."""
TILE_ROWS = 16

GRAIN_BLOCKS = 256


@frozen
class Extras:
    """What is made of rows beside their integers and scales. ``starts`` are the elements of a
    sub-block, and by what its sum is multiplied."""

    sums16: bool = False
    sums32: bool = False
    tiles: bool = False
    starts: tuple[tuple[int, int], ...] = ()


@frozen
class BlockRowsConfig:
    """What the code depends on: whether it ``rounds`` f32, or reads integers and scales, and what
    else it makes."""

    rounds: bool = True
    extras: Extras = Extras()


def extra_shapes(extras: Extras, m: int, depth: int) -> dict[str, tuple[DType, tuple[int, ...]]]:
    """The buffers that a kernel makes of ``m`` rows beside integers and scales, in their order."""
    shapes: dict[str, tuple[DType, tuple[int, ...]]] = {}
    if extras.sums16:
        shapes["sums16"] = i32, (m, depth // SUM_OF)
    if extras.sums32:
        shapes["sums32"] = i32, (m, depth // ROW_BLOCK)
    if extras.tiles:
        tiles = (ceil_div(m, TILE_ROWS), depth // ROW_BLOCK, TILE_ROWS)
        shapes |= {
            "tiles": (i8, (*tiles, ROW_BLOCK)), "tile_scales": (f32, tiles),
            "tile_sums": (f32, tiles),
        }  # fmt: skip
    for sub, factor in extras.starts:
        starts = (ceil_div(m, TILE_ROWS), depth // sub, TILE_ROWS)
        shapes[start_name(sub, factor)] = i32, starts
    return shapes


def start_name(sub: int, factor: int) -> str:
    """The buffer of the sums of sub-blocks times a factor."""
    return f"starts{sub}by{factor}"


def launch(config: BlockRowsConfig, m: int, depth: int, lda: int) -> Launch:
    """The launch for ``m`` rows. The buffers are the rows, ``lda`` elements apart, their integers
    and scales, and the extras; without ``rounds`` the integers come first."""
    blocks = depth // ROW_BLOCK
    if config.extras.tiles:
        tasks = ceil_div(m, TILE_ROWS) * blocks
        return Launch(tasks, GRAIN_BLOCKS // TILE_ROWS, (m, blocks, lda))
    return Launch(m * blocks, GRAIN_BLOCKS, (m, blocks, lda))


def emit(name: str, config: BlockRowsConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config; ``launch`` gives its sizes. A task is a block, or those of a tile's
    rows."""
    return _Emitter(name, config, target).emit()


class _Emitter:
    """Emits one kernel."""

    def __init__(self, name: str, config: BlockRowsConfig, target: KernelTarget) -> None:
        self.k = k = Kernel(name, target)
        self.config = config
        self.lanes = min(SUM_OF, max(4, target.lanes(f32)))
        self.x = k.buffer("x", f32) if config.rounds else None
        self.q, self.scales = k.buffer("q", i8), k.buffer("scales", f32)
        made = extra_shapes(config.extras, 1, ROW_BLOCK)
        self.extras = {name: k.buffer(name, dt) for name, (dt, _) in made.items()}
        self.m, self.blocks, self.lda = k.size("m"), k.size("blocks"), k.size("lda")

    def emit(self) -> KernelText:
        self.k.parallel(self.tile if self.config.extras.tiles else self.task)
        return self.k.text()

    # -- a block -----------------------------------------------------------------------------

    def task(self, t: Reg) -> None:
        """One block of a row."""
        row, block = t / self.blocks, t % self.blocks
        if self.x:
            most = self.k.reduce("maximum", self.most(row, block))
            scale, divisor = self.scale_of(self.k.bitcast(most, f32))
            self.k.store(scale, self.scales, t)
            parts = self.rounded(row, block, divisor)
        else:
            parts = self.read(t)
        if self.extras:
            self.extra(t, parts)

    def extra(self, t: Reg, parts: list[Reg]) -> None:
        """Write what products read beside."""
        k, extras = self.k, self.extras
        halves = [k.reduce("add", half) for half in self.halves(parts)]
        total = halves[0] + halves[1]
        if "sums16" in extras:
            for n, half in enumerate(halves):
                k.store(-half, extras["sums16"], t * len(halves) + n)
        if "sums32" in extras:
            k.store(-total, extras["sums32"], t)

    def place(self, row: Reg, block: Reg) -> Reg:
        """Where a block of f32 begins."""
        return row * self.lda + block * ROW_BLOCK

    def most(self, row: Reg, block: Reg) -> Reg:
        """The bits of the largest absolute values of a block, a lane of its vectors each. As
        integers they have the order of the numbers, and nan is the largest."""
        k, at = self.k, self.place(row, block)
        assert self.x is not None
        parts = [
            k.bitcast(k.load(self.x, at + n if n else at, self.lanes), i32) & 0x7FFFFFFF
            for n in range(0, ROW_BLOCK, self.lanes)
        ]
        return reduce(k.maximum, parts)

    def scale_of(self, most: Reg) -> tuple[Reg, Reg]:
        """The scale of a block by its largest absolute value, and what it is divided by."""
        scale = most / 127.0
        return scale, self.k.select(scale > 0.0, scale, 1.0)

    def rounded(self, row: Reg, block: Reg, divisor: Reg) -> list[Reg]:
        """The integers of a block, which are written."""
        k, lanes, x, at = self.k, self.lanes, self.x, self.place(row, block)
        assert x is not None
        parts = [k.load(x, at + n if n else at, lanes) for n in range(0, ROW_BLOCK, lanes)]
        out = [k.cast(k.round_even(part / divisor), i8) for part in parts]
        to = (row * self.blocks + block) * ROW_BLOCK
        for n, whole in enumerate(out):
            k.store(whole, self.q, to + n * lanes)
        return out

    def read(self, number: Reg) -> list[Reg]:
        """The integers of a block, which are known."""
        k, at = self.k, number * ROW_BLOCK
        return [k.load(self.q, at + n, self.lanes) for n in range(0, ROW_BLOCK, self.lanes)]

    def halves(self, parts: list[Reg]) -> list[Reg]:
        """The sums of 16 integers each, a lane of their vectors each."""
        k, each, out = self.k, SUM_OF // self.lanes, list[Reg]()
        for first in range(0, len(parts), each):
            total = k.cast(parts[first], i32)
            for part in parts[first + 1 : first + each]:
                total = total + k.cast(part, i32)
            out.append(total)
        return out

    # -- a block of a tile's rows --------------------------------------------------------------

    def tile(self, t: Reg) -> None:
        """A block of the rows of a tile, as many at a time as a vector has lanes."""
        k, lanes = self.k, self.lanes
        row0, block = t / self.blocks * TILE_ROWS, t % self.blocks

        def some(r: Reg) -> None:
            rows = [k.minimum(row0 + r + n, self.m - 1) for n in range(lanes)]
            there = k.lane_numbers(i32, lanes) < k.splat(k.cast(self.m - row0 - r, i32), lanes)
            scales, halves = self.tiled(t * TILE_ROWS + r, rows, block)
            self.sums(t, r, k.select(there, scales, 0.0), [k.select(there, h, 0) for h in halves])

        if lanes == TILE_ROWS:
            some(k.index(0))
        else:
            k.loop(0, TILE_ROWS, lanes, some)

    def tiled(self, at: Reg, rows: list[Reg], block: Reg) -> tuple[Reg, list[Reg]]:
        """A block of some rows goes to place ``at`` of the tiles; their scales, and the sums of 16
        integers each."""
        k, lanes = self.k, self.lanes
        if self.x:
            most = totals(k, [self.most(row, block) for row in rows], k.maximum)
            scales, divisors = self.scale_of(k.bitcast(most, f32))
        else:
            numbers = [row * self.blocks + block for row in rows]
            scales = divisors = k.from_elements([k.load(self.scales, n) for n in numbers])
        sums: list[list[Reg]] = []
        for n, row in enumerate(rows):
            if self.x:
                k.store(k.extract(scales, n), self.scales, row * self.blocks + block)
                parts = self.rounded(row, block, k.splat(k.extract(divisors, n), lanes))
            else:
                parts = self.read(row * self.blocks + block)
            for p, part in enumerate(parts):
                k.store(part, self.extras["tiles"], (at + n) * ROW_BLOCK + p * lanes)
            sums.append(self.halves(parts))
        return scales, [totals(k, half) for half in zip(*sums, strict=True)]

    def sums(self, t: Reg, r: Reg, scales: Reg, halves: list[Reg]) -> None:
        """Write the numbers of a block of some rows of a tile, the first of which is row ``r``."""
        k, extras = self.k, self.extras
        total = halves[0] + halves[1]
        k.store(scales, extras["tile_scales"], t * TILE_ROWS + r)
        k.store(k.cast(total, f32), extras["tile_sums"], t * TILE_ROWS + r)
        for sub, factor in self.config.extras.starts:
            found = [total] if sub == ROW_BLOCK else halves
            for n, part in enumerate(found):
                at = (t * len(found) + n) * TILE_ROWS + r
                k.store(part * -factor, extras[start_name(sub, factor)], at)
