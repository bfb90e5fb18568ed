"""Copies between strided views: transposes, slices, broadcasts, parts of a concatenation, padding.

A copy moves bits, so that one kernel serves every element type of a width. Most copies are the
elementwise kernel of an empty program. Where the source is contiguous along another dim than the
target, rows of one are columns of the other, and a walk along either touches a new cache line for
every element of the other; such a copy goes by tiles, transposed in registers:

    task (outer..., block of a, block of b):    source contiguous along a, target along b
        for each run of b of one cache line:    so that both sides use whole lines
            for each tile, such as 8 x 8: load vectors along a, transpose, store as many along b
        the edges, one by one
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx.kernels import elementwise
from rlx.kernels.builder import Kernel, KernelTarget, KernelText
from rlx.kernels.elementwise import ElementwiseConfig
from rlx.kernels.family import Launch
from rlx.kernels.lanes import transposed
from rlx.kernels.program import Program, Step
from rlx.kernels.reg import Reg
from rlx.kernels.strides import Space, Strides, ceil_div, collapse, order_for_output
from rlx.records import frozen
from rlx.types import DTYPES, DType

__all__ = ["CopyConfig", "TransposeConfig", "emit", "fill_launch", "launch"]

name = "copy"

TILE = 8
"""Edge of a tile at least, in elements of any width."""

LINE_BYTES = 64

SHARE_BYTES = 1 << 17
"""Bytes of the target that are worth a thread of their own."""


@frozen
class TransposeConfig:
    """A copy by tiles of elements of ``bits``; the last of ``rank`` dims is contiguous in the
    target, the one before it in the source."""

    bits: int
    rank: int

    @property
    def element(self) -> DType:
        """The unsigned type whose bits are moved."""
        return _element(self.bits)

    @property
    def blocks(self) -> tuple[int, int]:
        """Elements of a task along the source's and the target's contiguous dim."""
        line = LINE_BYTES * 8 // self.bits
        return line, elementwise.BLOCK // line


CopyConfig = ElementwiseConfig | TransposeConfig


def launch(
    bits: int,
    shape: Sequence[int],
    source: Strides,
    target: Strides,
    block: int = elementwise.BLOCK,
) -> tuple[CopyConfig, Launch]:
    """The kernel and its arguments to copy ``shape`` elements of ``bits`` (8, 16, 32, 64).

    Strides count elements and are not negative; the source's are 0 where it is broadcast. The
    kernel's buffers are source and target, which must not overlap. ``block``: see elementwise.
    """
    space = collapse(order_for_output(Space(tuple(shape), (tuple(source), tuple(target))), 1))
    across = _contiguous_across(space)
    if across is None or block < elementwise.BLOCK:
        identity = Program((_element(bits),), (), (0,))
        return elementwise.launch(identity, shape, [source], [target], block)

    last = len(space.shape) - 1
    space = space.permuted([d for d in range(last) if d != across] + [across, last])
    config = TransposeConfig(bits, len(space.shape))
    tasks = 1
    for n, b in zip(space.shape, (*[1] * (last - 1), *config.blocks), strict=True):
        tasks *= ceil_div(n, b)
    src, dst = space.strides
    sizes = (*space.shape, *src[:-2], src[-1], *dst[:-2], dst[-2])
    task_bytes = max(1, space.size * bits // 8 // max(1, tasks))
    return config, Launch(tasks, max(1, SHARE_BYTES // task_bytes), sizes)


def fill_launch(
    bits: int,
    pattern: int,
    shape: Sequence[int],
    target: Strides,
    block: int = elementwise.BLOCK,
) -> tuple[CopyConfig, Launch]:
    """The kernel and its arguments to set ``shape`` elements of ``bits`` to a bit pattern; its one
    buffer is the target. Padding is a fill and a copy into the inner part."""
    constant = Program((), (Step.literal(pattern, _element(bits)),), (0,))
    return elementwise.launch(constant, shape, [], [target], block)


def _element(bits: int) -> DType:
    return DTYPES[f"u{bits}"]


def _contiguous_across(space: Space) -> int | None:
    """The dim along which the source is contiguous, if that is not the target's and both are long
    enough for tiles."""
    source, target = space.strides
    if target[-1] != 1 or source[-1] in (0, 1) or space.shape[-1] < TILE:
        return None
    found = [d for d, n in enumerate(space.shape[:-1]) if source[d] == 1 and n >= TILE]
    return found[0] if found else None


def emit(name: str, config: CopyConfig, target: KernelTarget) -> KernelText:
    """The text of the kernel. A transposing one takes the shape, then the source's strides but the
    last-but-one and the target's but the last."""
    if isinstance(config, ElementwiseConfig):
        return elementwise.emit(name, config, target)
    return _Transpose(name, config, target).emit()


class _Transpose:
    def __init__(self, name: str, config: TransposeConfig, target: KernelTarget) -> None:
        self.k, self.config = Kernel(name, target), config
        k, rank = self.k, config.rank
        # A whole cache line where a vector holds one: then nothing must stay for the other half.
        line = config.blocks[0]
        whole = target.vector_bytes >= LINE_BYTES and 8 <= line <= 16
        self.tile_edge = (line if whole else TILE) if target.vector_bytes else 1
        self.source = k.buffer("source", config.element)
        self.target = k.buffer("target", config.element)
        self.shape = [k.size(f"dim{d}") for d in range(rank)]
        self.source_strides = [k.size(f"source_stride{d}") for d in (*range(rank - 2), rank - 1)]
        self.target_strides = [k.size(f"target_stride{d}") for d in range(rank - 1)]

    def emit(self) -> KernelText:
        k, config = self.k, self.config
        a_count, b_count = (
            (n + (b - 1)) // b for n, b in zip(self.shape[-2:], config.blocks, strict=True)
        )

        def task(t: Reg) -> None:
            b = self.block(t % b_count, -1)
            t = t // b_count
            a = self.block(t % a_count, -2)
            t = t // a_count
            source, target = k.index(0), k.index(0)
            for d in range(config.rank - 3, -1, -1):
                i = t % self.shape[d] if d else t
                t = t // self.shape[d] if d else t
                source = source + i * self.source_strides[d]
                target = target + i * self.target_strides[d]
            self.plane(source, target, a, b)

        k.parallel(task)
        return k.text()

    def block(self, index: Reg, dim: int) -> tuple[Reg, Reg]:
        """Begin and end of a task along one of the last two dims."""
        size, limit = self.config.blocks[dim], self.shape[dim]
        begin = index * size
        end = begin + size
        return begin, self.k.select(end < limit, end, limit)

    def plane(self, source: Reg, target: Reg, a: tuple[Reg, Reg], b: tuple[Reg, Reg]) -> None:
        """Whole tiles of the block, then what is left of it below and beside them."""
        k, edge = self.k, self.tile_edge
        line = self.config.blocks[0]
        a_whole = a[1] - (a[1] - a[0]) % edge
        b_whole = b[1] - (b[1] - b[0]) % edge

        def run_of_b(b0: Reg) -> None:
            end = b0 + line
            b_end = k.select(end < b_whole, end, b_whole)
            k.loop(
                a[0], a_whole, edge,
                lambda i: k.loop(b0, b_end, edge, lambda j: self.tile(source, target, i, j, edge)),
            )  # fmt: skip

        k.loop(b[0], b_whole, line, run_of_b)
        self.rest(source, target, (a_whole, a[1]), b)
        self.rest(source, target, (a[0], a_whole), (b_whole, b[1]))

    def rest(self, source: Reg, target: Reg, a: tuple[Reg, Reg], b: tuple[Reg, Reg]) -> None:
        """A part of the plane one by one."""
        if self.tile_edge == 1:
            return
        k = self.k
        k.loop(*a, 1, lambda i: k.loop(*b, 1, lambda j: self.tile(source, target, i, j, 1)))

    def tile(self, source: Reg, target: Reg, a: Reg, b: Reg, edge: int) -> None:
        """``edge`` x ``edge`` elements at (a, b)."""
        k, lanes = self.k, edge if edge > 1 else 0
        down, right = self.source_strides[-1], self.target_strides[-1]
        at = source + b * down + a
        vectors = [k.load(self.source, at + down * n if n else at, lanes) for n in range(edge)]
        at = target + a * right + b
        for n, v in enumerate(transposed(k, vectors)):
            k.store(v, self.target, at + right * n if n else at)
