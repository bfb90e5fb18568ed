"""Rows of f32 in blocks of 8-bit integers, as ``mir.quantize_rows`` says, and what products read of
them beside the integers (``Extras``).

``sums16`` and ``sums32`` are the negative sums of so many integers each, i32 ``[rows][K / 16]`` and
``[rows][K / 32]``; ``minus`` is ``-(f32(sum) * scale)`` of each block, f32 ``[rows][K / 32]``.
``tiles`` have the integers block by block, of 16 rows side by side, their scales in the same order,
and the sums of blocks times these:

    tiles [rows / 16][K / 32][16 rows][32], scales and sums [rows / 16][K / 32][16 rows]

The last tile has room for 16 rows. Those that there are not have a scale and sums of 0, so that
nothing computed with them is a slow number; their integers are any.
"""

from __future__ import annotations

from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.family import Launch
from rlx.codegen.reg import Reg
from rlx.codegen.strides import ceil_div
from rlx.ops.quant.rows import ROW_BLOCK
from rlx.types import DType, f32, i8, i32

__all__ = [
    "SUM_OF", "TILE_ROWS", "BlockRowsConfig", "Extras", "emit", "extra_shapes", "launch", "name",
]  # fmt: skip

name = "block_rows"

SUM_OF = 16
"""Elements of a row of which there is a sum: the shortest sub-block of a scheme."""
TILE_ROWS = 16

GRAIN_BLOCKS = 256


@frozen
class Extras:
    """What is made of rows beside their integers and scales."""

    sums16: bool = False
    sums32: bool = False
    minus: bool = False
    tiles: bool = False


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
    if extras.minus:
        shapes["minus"] = f32, (m, depth // ROW_BLOCK)
    if extras.tiles:
        tiles = (ceil_div(m, TILE_ROWS), depth // ROW_BLOCK, TILE_ROWS)
        shapes |= {
            "tiles": (i8, (*tiles, ROW_BLOCK)), "tile_scales": (f32, tiles),
            "tile_sums": (f32, tiles),
        }  # fmt: skip
    return shapes


def launch(m: int, depth: int, lda: int) -> Launch:
    """The launch for ``m`` rows. The buffers are the rows, ``lda`` elements apart, their integers
    and scales, and the extras; without ``rounds`` the integers come first."""
    return Launch(m * (depth // ROW_BLOCK), GRAIN_BLOCKS, (m, depth // ROW_BLOCK, lda))


def emit(name: str, config: BlockRowsConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config; ``launch`` gives its sizes. A task is a block."""
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
        self.k.parallel(self.task)
        return self.k.text()

    def task(self, t: Reg) -> None:
        """One block of a row."""
        parts, scale = self.rounded(t) if self.x else self.read(t)
        if self.extras:
            self.extra(t, parts, scale)

    def extra(self, t: Reg, parts: list[Reg], scale: Reg) -> None:
        """Write what products read beside."""
        k, extras = self.k, self.extras
        halves = self.halves(parts)
        total = halves[0] + halves[1]
        if "sums16" in extras:
            for n, half in enumerate(halves):
                k.store(-half, extras["sums16"], t * len(halves) + n)
        if "sums32" in extras:
            k.store(-total, extras["sums32"], t)
        scaled = k.cast(total, f32) * scale
        if "minus" in extras:
            k.store(-scaled, extras["minus"], t)
        if "tiles" in extras:
            self.tile(t, parts, scale, scaled)

    def rounded(self, t: Reg) -> tuple[list[Reg], Reg]:
        """The integers of a block, and its scale, which are written."""
        k, lanes, x = self.k, self.lanes, self.x
        assert x is not None
        at = t / self.blocks * self.lda + t % self.blocks * ROW_BLOCK
        parts = [k.load(x, at + n if n else at, lanes) for n in range(0, ROW_BLOCK, lanes)]
        most = k.abs(parts[0])
        for part in parts[1:]:
            most = k.maximum(most, k.abs(part))
        most = k.reduce("maximum", most)
        scale = most / 127.0
        divisor = k.select(scale > 0.0, scale, 1.0)
        out = [k.cast(k.round_even(part / divisor), i8) for part in parts]
        for n, whole in enumerate(out):
            k.store(whole, self.q, t * ROW_BLOCK + n * lanes)
        k.store(scale, self.scales, t)
        return out, scale

    def read(self, t: Reg) -> tuple[list[Reg], Reg]:
        """The integers of a block, and its scale."""
        k, at = self.k, t * ROW_BLOCK
        parts = [k.load(self.q, at + n, self.lanes) for n in range(0, ROW_BLOCK, self.lanes)]
        return parts, k.load(self.scales, t)

    def halves(self, parts: list[Reg]) -> list[Reg]:
        """The sums of 16 integers each."""
        k, each, out = self.k, SUM_OF // self.lanes, list[Reg]()
        for first in range(0, len(parts), each):
            total = k.cast(parts[first], i32)
            for part in parts[first + 1 : first + each]:
                total = total + k.cast(part, i32)
            out.append(k.reduce("add", total))
        return out

    def tile(self, t: Reg, parts: list[Reg], scale: Reg, total: Reg) -> None:
        """Write a block to its tile."""
        k = self.k
        tiles, scales, sums = (self.extras[n] for n in ("tiles", "tile_scales", "tile_sums"))
        row = t / self.blocks
        at = (row / TILE_ROWS * self.blocks + t % self.blocks) * TILE_ROWS + row % TILE_ROWS
        for n, part in enumerate(parts):
            k.store(part, tiles, at * ROW_BLOCK + n * self.lanes)
        k.store(scale, scales, at)
        k.store(total, sums, at)

        def fill(r: Reg) -> None:
            for room in (scales, sums):
                k.store(0.0, room, at + r)

        def rest() -> None:
            k.loop(1, TILE_ROWS - row % TILE_ROWS, 1, fill)

        k.when(k.compare("eq", row, self.m - 1), rest)
