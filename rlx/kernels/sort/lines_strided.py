"""Lines side by side: sorting along another axis than the last, on CPUs.

As many neighbouring lines as fill a cache line are sorted together. Their elements are read and
written by rows, and transposed in registers into a room for each line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rlx.codegen.lanes import transposed
from rlx.codegen.reg import Buffer, Reg
from rlx.kernels.sort.lines import Coder, Index, Line
from rlx.kernels.sort.network import (
    greatest,
    index_of,
    key_type,
    pad,
    reserve,
    sort_room,
    sorted_at,
)
from rlx.types import i64

if TYPE_CHECKING:
    from rlx.kernels.fallback.emit import LoopBuilder

__all__ = ["LinesAcross"]


class LinesAcross:
    """As many neighbouring lines as ``Coder.together`` says: element i of line j lies at
    ``at(i, j)``, beside that of line j + 1."""

    def __init__(
        self, b: LoopBuilder, at: Callable[[Index, Index], Sequence[Index]], n: int, coder: Coder
    ) -> None:
        self.b, self.k, self.at, self.n, self.coder = b, b.k, at, n, coder
        self.many, self.lanes = coder.together, b.k.target.lanes(coder.type)

    def line(self, j: Index) -> Line:
        """One of the lines by itself."""
        return Line(self.b, lambda i: self.at(i, j), self.n, False, self.coder)

    def sort(self) -> None:
        """All lines in order, and the indices if they are sorted as words."""
        k, n = self.k, self.n
        rooms = self.b.work(self.many, 2 * reserve(n), self.coder.type)
        room, pitch = rooms.buffer, rooms.stride
        short = not isinstance(n, int) and n < self.lanes  # then they are not worth it
        if self.lanes == 1 or short:
            k.loop(0, self.many, 1, lambda j: self.line(j).sort())
            return

        def one(j: Reg) -> None:
            sort_room(k, room, n, j * pitch)

        def mend(j: Reg) -> None:
            self.line(j).mend()

        k.loop(0, self.many, 1, lambda j: pad(k, room, n, j * pitch))
        lost = self.fill(room, pitch)
        k.loop(0, self.many, 1, one)
        self.unpack(room, pitch, sorted_at(k, room.dtype, n))
        if lost is not None:
            some = k.any(k.compare("ne", lost, 0))
            k.when(some, lambda: self.b.loop(self.many, mend) or None)

    def squares(self, body: Callable[..., Sequence[Reg]], carried: Sequence[Reg] = ()) -> list[Reg]:
        """Cover the lines by squares of as many elements as lanes: ``body(i, j, rows, *carried)``
        for the elements from i on, of which there are so many, of the lines from j on."""
        k, lanes = self.k, self.lanes
        whole = self.n - self.n % lanes

        def some(j: Reg, *carried: Reg) -> Sequence[Reg]:
            state = k.loop(0, whole, lanes, lambda i, *x: body(i, j, lanes, *x), carried)
            if not isinstance(whole, int):  # elements that were covered already make up a square
                return body(k.index(self.n - lanes), j, lanes, *state)
            return body(k.index(whole), j, self.n - whole, *state) if whole < self.n else state

        return k.loop(0, self.many, lanes, some, carried)

    def fill(self, room: Buffer, pitch: int) -> Reg | None:
        """Make numbers of the elements. The bits that those do not tell, of all lines together;
        None: there are none."""
        k, b, lanes = self.k, self.b, self.lanes

        def square(i: Reg, j: Reg, rows: int, *found: Reg) -> Sequence[Reg]:
            numbers = [k.const(greatest(self.coder.type), self.coder.type, lanes)] * lanes
            for r in range(rows):
                index = k.splat(k.cast(i + r, i64), lanes)
                x = b.load(0, self.at(i + r, j), lanes)
                numbers[r], lost = self.coder.number(x, index)
                found = tuple(x | lost for x in found if lost is not None)
            for c, x in enumerate(transposed(k, numbers)):
                k.store(x, room, (j + c) * pitch + i)
            return found

        kind = self.coder.dtype
        none = [k.const(0, key_type(kind), lanes)] if kind.is_float else []
        found = self.squares(square, none)
        return found[0] if found else None

    def unpack(self, room: Buffer, pitch: int, start: Index) -> None:
        """Make results of the sorted numbers, which begin so far into a room."""
        k, b, lanes = self.k, self.b, self.lanes

        def square(i: Reg, j: Reg, rows: int) -> Sequence[Reg]:
            columns = [k.load(room, (j + c) * pitch + i + start, lanes) for c in range(lanes)]
            for r, numbers in enumerate(transposed(k, columns)[:rows]):
                if self.coder.words:
                    b.store(1, self.at(i + r, j), index_of(numbers))
                b.store(0, self.at(i + r, j), self.coder.value(numbers))
            return ()

        self.squares(square)
