"""A tile of a matrix product by a block of threads: through shared memory into registers.

    for every piece of the depth:
        all threads: bring the piece of A and of B into shared memory, a zero for what is outside
        barrier
        for every step of the piece:    each thread: rows x columns multiply-adds in registers
        barrier

The threads of a block lie in ``threads_y`` rows of ``threads_x``. Thread (y, x) has the rows
y, y + threads_y, ... and the columns x, x + threads_x, ... of the tile: so neighbours read
neighbours of shared memory, and write neighbours of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget
from rlx.codegen.reg import Buffer, Reg
from rlx.types import DType

__all__ = [
    "Room", "Tile", "add_product", "each_sum", "lay_out", "multiply", "power_below", "stage",
]  # fmt: skip


@frozen
class Tile:
    """``rows`` x ``columns`` sums for each of ``threads_y`` x ``threads_x`` threads, and ``depth``
    steps of a piece. All but rows and columns are powers of two."""

    threads_y: int
    threads_x: int
    rows: int
    columns: int
    depth: int

    @property
    def threads(self) -> int:
        """Threads of the block."""
        return self.threads_y * self.threads_x

    @property
    def height(self) -> int:
        """Rows of the tile."""
        return self.threads_y * self.rows

    @property
    def width(self) -> int:
        """Columns of the tile."""
        return self.threads_x * self.columns

    def shared_bytes(self, dt: DType) -> int:
        """What a piece of A and one of B take, in elements of ``dt``."""
        return self.depth * (self.height + self.width + 2) * dt.bytes

    def fits(self, target: KernelTarget, dt: DType) -> bool:
        """Whether a block of the target can hold it."""
        small = self.shared_bytes(dt) <= target.shared_bytes
        return small and self.threads <= target.most_threads


def power_below(n: int) -> int:
    """The largest power of two that is not above n > 0."""
    return 1 << (n.bit_length() - 1)


def lay_out(target: KernelTarget, most: int = 256) -> tuple[int, int]:
    """Rows and columns of threads for the largest block that a target has, up to ``most``."""
    threads = power_below(min(target.most_threads, most))
    rows = 1 << ((threads.bit_length() - 1) // 2)
    return rows, threads // rows


@frozen
class Room:
    """Shared memory for a piece: ``depth`` rows of ``size`` elements, one more apart, so that
    threads that write along the depth do not all meet in one bank."""

    buffer: Buffer
    size: int
    depth: int

    @property
    def length(self) -> int:
        """Elements of shared memory."""
        return (self.size + 1) * self.depth

    @staticmethod
    def of(k: Kernel, dt: DType, size: int, depth: int) -> Room:
        """New shared memory."""
        return Room(k.shared(dt, (size + 1) * depth), size, depth)

    def at(self, step: Reg | int, place: Reg) -> Reg:
        """Where an element lies."""
        return place + step * (self.size + 1)


def stage(
    k: Kernel,
    room: Room,
    thread: Reg,
    threads: int,
    *,
    along: bool,
    element: Callable[[Reg, Reg], Reg],
) -> None:
    """Fill a room: each of ``threads`` threads stores its share of ``element(place, step)``.

    ``along`` says that neighbours in memory are successive steps; else they are successive places.
    """
    total = room.size * room.depth

    def one(q: Reg) -> None:
        inner = room.depth if along else room.size
        first, second = q % inner, q // inner
        step, place = (first, second) if along else (second, first)
        k.store(element(place, step), room.buffer, room.at(step, place))

    for begin in range(0, total, threads):
        q = thread + begin if begin else thread
        if begin + threads <= total:
            one(q)
        else:
            k.when(q < total, lambda q=q: one(q))


def multiply(
    k: Kernel,
    a: Room,
    b: Room,
    own: tuple[Reg, Reg],
    tile: Tile,
    sums: Sequence[Reg],
    *,
    first: Reg | None = None,
) -> list[Reg]:
    """``sums``, row by row, plus the product of two rooms for the thread ``own`` = (y, x): of all
    steps of B, and those of A from ``first`` on."""
    count = len(sums) // tile.rows
    y, x = own

    def one(i: Reg, *acc: Reg) -> list[Reg]:
        at_a, at_b = a.at(i if first is None else first + i, y), b.at(i, x)
        left = [k.load(a.buffer, _after(at_a, r * tile.threads_y)) for r in range(tile.rows)]
        right = [k.load(b.buffer, _after(at_b, c * tile.threads_x)) for c in range(count)]
        pairs = [(p, q) for p in left for q in right]
        return [add_product(k, p, q, s) for (p, q), s in zip(pairs, acc, strict=True)]

    return k.loop(0, b.depth, 1, one, sums)


def add_product(k: Kernel, a: Reg, b: Reg, total: Reg) -> Reg:
    """``total + a b``, for floats rounded once."""
    return k.fma(a, b, total) if total.dtype.is_float else total + a * b


def each_sum(
    k: Kernel,
    tile: Tile,
    sums: Sequence[Reg],
    at: tuple[Reg, Reg],
    store: Callable[[Reg, Reg, Reg], None],
    *,
    unrolled: bool,
) -> None:
    """``store(sum, row, column)`` for a thread's sums, the first of which is at ``at``: written out
    for each if ``unrolled``, else once, in a loop."""
    row, column = at
    if unrolled:
        for n, total in enumerate(sums):
            r, c = divmod(n, tile.columns)
            store(total, row + r * tile.threads_y, column + c * tile.threads_x)
        return
    room = k.stack(sums[0].dtype, len(sums))
    for n, total in enumerate(sums):
        k.store(total, room, n)

    def any_of(n: Reg) -> None:
        r, c = n // tile.columns * tile.threads_y, n % tile.columns * tile.threads_x
        store(k.load(room, n), row + r, column + c)

    k.loop(0, len(sums), 1, any_of)


def _after(at: Reg, distance: int) -> Reg:
    return at + distance if distance else at
