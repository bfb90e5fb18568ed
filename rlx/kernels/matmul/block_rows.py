"""Rows of f32 in blocks of 8-bit integers, as ``mir.quantize_rows`` says, and sums of integers."""

from __future__ import annotations

from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.family import Launch
from rlx.codegen.reg import Reg
from rlx.ops.quant.rows import ROW_BLOCK
from rlx.types import f32, i8, i32

__all__ = ["SUM_OF", "BlockRowsConfig", "emit", "launch", "name", "sums_launch"]

name = "block_rows"

SUM_OF = 16
"""Elements of a row of which there is a sum: the shortest sub-block of a scheme."""

GRAIN_BLOCKS = 256


@frozen
class BlockRowsConfig:
    """What the code depends on: whether it makes the integers, or the ``sums`` of them."""

    sums: bool = False


def launch(m: int, depth: int, lda: int) -> Launch:
    """The launch that rounds ``m`` rows. The buffers are the rows, ``lda`` elements apart, their
    integers and scales."""
    return Launch(m * (depth // ROW_BLOCK), GRAIN_BLOCKS, (depth // ROW_BLOCK, lda))


def sums_launch(m: int, depth: int) -> Launch:
    """The launch that sums the integers of ``m`` rows. The buffers are these and the sums."""
    return Launch(m * (depth // ROW_BLOCK), GRAIN_BLOCKS, (depth // ROW_BLOCK,))


def emit(name: str, config: BlockRowsConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config; ``launch`` gives its sizes. A task is a block."""
    k = Kernel(name, target)
    lanes = min(SUM_OF, max(4, target.lanes(f32)))
    (_sums if config.sums else _round)(k, lanes)
    return k.text()


def _round(k: Kernel, lanes: int) -> None:
    x, q, scales = k.buffer("x", f32), k.buffer("q", i8), k.buffer("scales", f32)
    blocks, lda = k.size("blocks"), k.size("lda")

    def task(t: Reg) -> None:
        at = t / blocks * lda + t % blocks * ROW_BLOCK
        parts = [k.load(x, at + n if n else at, lanes) for n in range(0, ROW_BLOCK, lanes)]
        most = k.abs(parts[0])
        for part in parts[1:]:
            most = k.maximum(most, k.abs(part))
        most = k.reduce("maximum", most)
        scale = most / 127.0
        divisor = k.select(scale > 0.0, scale, 1.0)
        for n, part in enumerate(parts):
            whole = k.round_even(part / divisor)
            k.store(k.cast(whole, i8), q, t * ROW_BLOCK + n * lanes)
        k.store(scale, scales, t)

    k.parallel(task)


def _sums(k: Kernel, lanes: int) -> None:
    q, sums = k.buffer("q", i8), k.buffer("sums", i32)
    k.size("blocks")

    def task(t: Reg) -> None:
        for half in range(ROW_BLOCK // SUM_OF):
            at = t * ROW_BLOCK + half * SUM_OF
            total = k.cast(k.load(q, at, lanes), i32)
            for n in range(lanes, SUM_OF, lanes):
                total = total + k.cast(k.load(q, at + n, lanes), i32)
            k.store(k.reduce("add", total), sums, t * (ROW_BLOCK // SUM_OF) + half)

    k.parallel(task)
