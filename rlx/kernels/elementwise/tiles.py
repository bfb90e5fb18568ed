"""Tiles of an elementwise kernel whose operands are contiguous along different dims.

Where an input is contiguous along dim a and the output along the last dim b, rows of one are
columns of the other, and a walk along either touches a new cache line of the other for every
element. So a task takes a block of both dims by square tiles: vectors of such an input are loaded
along a and transposed in registers; everything else is loaded and stored along b.

    for each tile of the block, along b first:
        load the inputs that lie across, as vectors along a; transpose them
        for each row of the tile: load the other inputs, program, store
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx.base.dims import maximum
from rlx.base.guards import prefers
from rlx.codegen.builder import Kernel
from rlx.codegen.lanes import transposed
from rlx.codegen.reg import Reg
from rlx.codegen.strides import Access, Space, Strided, ceil_div
from rlx.types import DType, bool_, u8

__all__ = ["EDGE", "LEAST", "Tiles", "dim_across", "lies_across", "tile_blocks", "with_across"]

LEAST = 8
"""Elements of a dim from which tiles pay."""

EDGE = 16
"""The largest edge of a tile, of which blocks are multiples."""

BLOCK = 64
"""Elements of a task along each of the two dims, to twice as many."""

Span = tuple[Reg, Reg]
"""Begin and end of a block along one dim."""


def dim_across(space: Space, loads: Sequence[DType | None]) -> int | None:
    """The dim along which most of the inputs are contiguous that are not so along the last one;
    None where there is no such input, or no room for tiles. ``loads`` are the types of the inputs,
    None for one without memory."""
    first_output = space.strides[len(loads)]
    if first_output[-1] != 1 or not _pays(space.shape[-1]):
        return None
    count: dict[int, int] = {}
    for s, dt in zip(space.strides, loads, strict=False):
        for d, n in enumerate(space.shape[:-1]):
            if s[-1] not in (0, 1) and s[d] == 1 and _pays(n) and _has_tiles(dt):
                count[d] = count.get(d, 0) + 1
    return max(count, key=lambda d: count[d]) if count else None


def _pays(n: int) -> bool:
    return prefers(lambda: n >= LEAST, otherwise=True)


def _has_tiles(dt: DType | None) -> bool:
    return dt is not None and not dt.is_complex


def with_across(
    space: Space, kinds: Sequence[Access], loads: Sequence[DType | None]
) -> list[Access]:
    """The accesses of the inputs, of which those that are contiguous along the last dim but one,
    and not along the last, say so."""
    return [
        (*a[:-2], "one", "any") if a[-1] == "any" and s[-2] == 1 and _has_tiles(dt) else a
        for a, s, dt in zip(kinds, space.strides, loads, strict=False)
    ]


def lies_across(access: Access) -> bool:
    """Whether an operand is contiguous along the last dim but one."""
    return access[-2:-1] == ("one",)


def tile_blocks(shape: Sequence[int]) -> list[int]:
    """The elements of a task along the last dim and the one before, which share them evenly."""
    return [
        ceil_div(ceil_div(n, maximum(1, n // BLOCK)), EDGE) * EDGE for n in (shape[-1], shape[-2])
    ]


class Tiles:
    """Emits the block of a task. ``row(at, begin, end)`` does a part of one row in the common way,
    ``point(at, j, known)`` a vector of ``edge`` elements of it of which some inputs are ``known``.

    ``overlap``: elements may be done twice. ``unrolled``: the rows of a tile stay in registers.
    """

    def __init__(
        self, k: Kernel, across: dict[int, Strided], edge: int,
        row: Callable[[list[Reg], Reg, Reg], None],
        point: Callable[[list[Reg], Reg, dict[int, Reg]], None],
        *, overlap: bool, unrolled: bool,
    ) -> None:  # fmt: skip
        self.k, self.across, self.edge = k, across, edge
        self.row, self.point = row, point
        self.overlap, self.unrolled = overlap, unrolled

    def emit(self, at: list[Reg], a: Span, b: Span) -> None:
        """The block of the last dim ``b`` and the one before, ``a``."""
        k, edge = self.k, self.edge
        if not edge:
            k.loop(*a, 1, lambda m: self.row([*at, m], *b))
            return
        a_end, b_end = self.covered(a), self.covered(b)

        def tiles(i: Reg) -> None:
            first = self.first(i, a)
            k.loop(b[0], b_end, edge, lambda j: self.tile(at, first, self.first(j, b)))

        k.loop(a[0], a_end, edge, tiles)

        def rest(m: Reg) -> None:
            self.row([*at, m], k.select(m < a_end, b_end, b[0]), b[1])

        k.when((a_end < a[1]) | (b_end < b[1]), lambda: k.loop(*a, 1, rest) and None)

    def covered(self, span: Span) -> Reg:
        """The end of what tiles do of a block."""
        begin, end = span
        if self.overlap:
            return self.k.select(end >= begin + self.edge, end, begin)
        return end - (end - begin) % self.edge

    def first(self, i: Reg, span: Span) -> Reg:
        """Where the tile at ``i`` begins: the last one ends with the block."""
        return self.k.minimum(i, span[1] - self.edge) if self.overlap else i

    def tile(self, at: list[Reg], i: Reg, j: Reg) -> None:
        """``edge`` x ``edge`` elements at (i, j)."""
        k, edge = self.k, self.edge
        squares = {v: self.square(o, [*at, i], j) for v, o in self.across.items()}
        if self.unrolled:
            for n in range(edge):
                known = {v: self.form(s[n], self.across[v].dtype) for v, s in squares.items()}
                self.point([*at, i + n], j, known)
            return
        rooms = {v: k.stack(s[0].dtype, edge * edge) for v, s in squares.items()}
        for v, square in squares.items():
            for n, x in enumerate(square):
                k.store(x, rooms[v], n * edge)

        def one(n: Reg) -> None:
            known = {
                v: self.form(k.load(room, n * edge, edge), self.across[v].dtype)
                for v, room in rooms.items()
            }
            self.point([*at, i + n], j, known)

        k.loop(0, edge, 1, one)

    def square(self, o: Strided, at: list[Reg], j: Reg) -> list[Reg]:
        """The rows of a tile of an input that lies across; bools as bytes."""
        k, edge = self.k, self.edge
        stride = o.strides[len(o.access) - 1]
        base = o.offset(at) + j * stride
        columns = [k.load(o.buffer, base + stride * n if n else base, edge) for n in range(edge)]
        if o.dtype is bool_:
            columns = [k.cast(x, u8) for x in columns]
        return transposed(k, columns)

    def form(self, x: Reg, dt: DType) -> Reg:
        """A row as the program takes it."""
        return self.k.compare("ne", x, 0) if dt is bool_ else x
