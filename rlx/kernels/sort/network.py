"""Sorting a line of numbers in work memory, by vectors.

What is sorted are keys or words. A key is an integer in the order of the elements, of 32 bits or of
64. A word is a key of 32 bits above the index of its element: words are all different, and order by
them is stable.

    blocks of R x L numbers (L lanes, R registers): each lane sorted by a network, then the lanes
        merged in pairs until there is one run, in registers
    merges of two runs each, from both ends at once, until there is one run

A merge takes a vector at a time: it holds the greater half of what it has met, joins it with the
next vector of the run whose next number is less, and puts out the lesser half. Forward and backward
half wait for nothing of one another, and neither meets the end of a run as long as it makes no more
numbers than the shorter run has: so there is no test in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx.base.dims import maximum
from rlx.base.guards import prefers
from rlx.codegen.builder import Kernel
from rlx.codegen.lanes import shuffle
from rlx.codegen.reg import Buffer, Reg
from rlx.types import DType, bf16, bool_, f16, f32, f64, i32, i64, u32, u64

__all__ = [
    "greatest", "index_of", "key_of", "key_type", "pad", "reserve", "sort_room", "sorted_at",
    "value_of",
]  # fmt: skip

LEAST_BLOCK, BLOCK = 16, 256
"""Numbers of the least and the greatest block on any target."""


def key_type(dt: DType) -> DType:
    """The type of the keys of elements."""
    return i32 if dt.bits <= 32 else i64


def greatest(dt: DType) -> int:
    """No key or word of a type is greater; words are less."""
    return (1 << (dt.bits - 1)) - 1


def _flipped(bits: Reg) -> Reg:
    """Bits of floats in the order of the floats, and the way back."""
    return bits ^ ((bits >> (bits.dtype.bits - 1)) & greatest(bits.dtype))


def key_of(k: Kernel, x: Reg, dt: DType, descending: bool) -> Reg:
    """The key(s) of element(s). nan counts as the greatest, and zeros are alike."""
    wide = key_type(dt)
    if dt.is_float:
        key = _flipped(k.bitcast(k.select(k.compare("eq", x, 0.0), 0.0, x), wide))
        key = k.select(k.compare("ne", x, x), greatest(wide), key)
    elif dt in (u32, u64):
        key = k.bitcast(x ^ (1 << (dt.bits - 1)), wide)
    else:
        key = k.cast(x, wide)
    return key ^ -1 if descending else key


def value_of(k: Kernel, key: Reg, dt: DType, descending: bool) -> Reg:
    """An element that has the key: the one itself, unless it is nan or a negative zero."""
    key = key ^ -1 if descending else key
    if dt.is_float:
        return k.bitcast(_flipped(key), f32 if dt in (f32, f16, bf16) else f64)
    if dt in (u32, u64):
        return k.bitcast(key, dt) ^ (1 << (dt.bits - 1))
    return k.compare("ne", key, 0) if dt is bool_ else k.cast(key, dt)


def index_of(word: Reg) -> Reg:
    """The index in a word."""
    return word & 0xFFFFFFFF


def reserve(n: int) -> int:
    """The numbers of a room in which n are sorted; it takes two of them, one after the other. Some
    more than the blocks need: rooms of whole pages would meet in few sets of a cache."""
    padded = LEAST_BLOCK
    while padded < BLOCK and prefers(lambda size=padded: size < n, otherwise=True):
        padded *= 2
    return maximum(padded, -(-n // BLOCK) * BLOCK) + LEAST_BLOCK


def _blocks(k: Kernel, n: int, dt: DType) -> tuple[int, int]:
    """The registers of a block, and how many blocks hold n numbers."""
    lanes, rows = k.target.lanes(dt), 1
    most = 16 if k.target.registers >= 32 else 8
    while rows < most and prefers(lambda size=rows * lanes: size < n, otherwise=True):
        rows *= 2
    return rows, -(-n // (rows * lanes))


def pad(k: Kernel, room: Buffer, n: int, base: Reg | int = 0) -> None:
    """Make the greatest of all that a sort of n numbers from ``base`` on takes beyond them, and of
    the last vector of these, which are to be written afterwards."""
    lanes = k.target.lanes(room.dtype)
    rows, blocks = _blocks(k, n, room.dtype)
    some, top = lanes if lanes > 1 else 0, greatest(room.dtype)
    size = rows * lanes * blocks
    k.loop(n - n % lanes, size, lanes, lambda i: k.store(top, room, i + base, some))


def sorted_at(k: Kernel, dt: DType, n: int) -> Reg | int:
    """How far from where they were n numbers begin after ``sort_room``."""
    rows, blocks = _blocks(k, n, dt)
    second, count = reserve(n), k.target.lanes(dt) * rows
    if isinstance(blocks, int):
        return second if (blocks - 1).bit_length() % 2 else 0

    def passed(at: Reg, other: Reg, width: Reg) -> tuple[Reg, Reg, Reg]:
        return other, at, width * 2

    start = [k.index(0), k.index(second), k.index(count)]
    return k.repeat(lambda at, other, width: width < blocks * count, passed, start)[0]


def sort_room(k: Kernel, room: Buffer, n: int, base: Reg | int = 0) -> None:
    """Sort the n numbers of a room from ``base`` on, padded by ``pad``. ``sorted_at`` says where
    they begin afterwards."""
    rows, blocks = _blocks(k, n, room.dtype)
    lanes = k.target.lanes(room.dtype)
    size = rows * lanes
    k.loop(0, blocks * size, size, lambda at: _sort_block(k, room, at + base, rows, lanes))
    second = reserve(n)

    def merge_all(source: Reg, target: Reg, width: Reg) -> tuple[Reg, Reg, Reg]:
        def pair(low: Reg) -> None:
            middle = k.minimum(low + width, blocks * size)
            high = k.minimum(middle + width, blocks * size)
            merge = _Merge(k, room, source, target, (low, middle, high))
            k.when(middle < high, merge.emit, merge.copy)

        k.loop(0, blocks * size, width * 2, pair)
        return target, source, width * 2

    start = [k.index(0) + base, k.index(second) + base, k.index(size)]
    if not isinstance(blocks, int):
        k.repeat(lambda _, __, width: width < blocks * size, merge_all, start)
    elif passes := (blocks - 1).bit_length():
        k.loop(0, passes, 1, lambda _, *state: merge_all(*state), start)


def _sort_block(k: Kernel, room: Buffer, at: Reg, rows: int, lanes: int) -> None:
    """Sort as many vectors as rows. The element of a lane and a row is number ``lane * rows + row``
    of the run."""
    some = lanes if lanes > 1 else 0
    block = [k.load(room, at + r * lanes, some) for r in range(rows)]
    for low, high in _network(rows):
        _exchange(k, block, low, high)
    width = 1
    while width < lanes:
        _merge_lanes(k, block, width)
        width *= 2
    half = rows // 2
    for _ in range(rows.bit_length() - 1):
        block = [x for r in range(half) for x in _zipped(k, block[r], block[r + half])]
    for r, x in enumerate(block):
        k.store(x, room, at + r * lanes)


def _merge_lanes(k: Kernel, block: list[Reg], width: int) -> None:
    """Merge runs of so many lanes in pairs, by K. E. Batcher's bitonic network: the first stage
    compares a run with the reversed other."""
    rows, lanes = len(block), block[0].lanes
    back = [i ^ (2 * width - 1) for i in range(lanes)]
    block[:] = [
        _halved(k, block[r], shuffle(k, other, other, back), width)
        for r, other in enumerate(block[::-1])
    ]
    step = width // 2
    while step:
        across = [i ^ step for i in range(lanes)]
        block[:] = [_halved(k, x, shuffle(k, x, x, across), step) for x in block]
        step //= 2
    step = rows // 2
    while step:
        for r in range(rows):
            if not r & step:
                _exchange(k, block, r, r + step)
        step //= 2


def _halved(k: Kernel, x: Reg, other: Reg, bit: int) -> Reg:
    """The lesser of two in the lanes whose number lacks a bit, the greater in the others."""
    low, high = k.minimum(x, other), k.maximum(x, other)
    return shuffle(k, low, high, [i + x.lanes if i & bit else i for i in range(x.lanes)])


def _exchange(k: Kernel, block: list[Reg], low: int, high: int) -> None:
    a, b = block[low], block[high]
    block[low], block[high] = k.minimum(a, b), k.maximum(a, b)


def _zipped(k: Kernel, a: Reg, b: Reg) -> tuple[Reg, Reg]:
    """The lanes of two registers in turns."""
    n = a.lanes
    if not n:
        return a, b
    both = [i // 2 + n * (i % 2) for i in range(2 * n)]
    return shuffle(k, a, b, both[:n]), shuffle(k, a, b, both[n:])


def _network(n: int) -> list[tuple[int, int]]:
    """The exchanges that sort n values, a power of two, by K. E. Batcher's odd-even merges."""
    found: list[tuple[int, int]] = []
    size = 1
    while size < n:
        step = size
        while step:
            for first in range(step % size, n - step, 2 * step):
                for i in range(first, first + step):
                    if i // (2 * size) == (i + step) // (2 * size):
                        found.append((i, i + step))
            step //= 2
        size *= 2
    return found


class _Merge:
    """The merge of the runs from ``low`` to ``middle`` and from there to ``high``, from one part of
    a room to another. All are multiples of ``step`` numbers, which are taken at a time."""

    def __init__(
        self, k: Kernel, room: Buffer, source: Reg, target: Reg, runs: tuple[Reg, Reg, Reg]
    ) -> None:
        self.k, self.room, self.source, self.target = k, room, source, target
        self.low, self.middle, self.high = runs
        self.lanes = k.target.lanes(room.dtype)
        # More than one register at a time, since each stage of a merge waits for the last.
        self.taken = 4 if k.target.registers >= 32 else 2
        self.step = self.lanes * self.taken

    def emit(self) -> None:
        """Merge; neither run is empty."""
        k, step, low, high = self.k, self.step, self.low, self.high
        many = k.minimum(self.middle - low, high - self.middle)
        front = [low + step, self.middle, *self.numbers(low)]
        back = [self.middle - step, high - 2 * step, *self.numbers(high - step)]

        def body(i: Reg, *state: Reg) -> list[Reg]:
            left, right, *rest = state[: len(front)]
            first, last, *kept = state[len(front) :]
            second = self.number(right) < self.number(left)
            out, rest = self.joined(rest, self.numbers(k.select(second, right, left)))
            self.put(low + i, out)
            end = step - 1
            earlier = self.number(last + end) < self.number(first + end)
            kept, top = self.joined(kept, self.numbers(k.select(earlier, first, last)))
            self.put(high - step - i, top)
            return [
                k.select(second, left, left + step), k.select(second, right + step, right), *rest,
                k.select(earlier, first - step, first), k.select(earlier, last, last - step),
                *kept,
            ]  # fmt: skip

        state = k.loop(0, many, step, body, [*front, *back])
        self.remainder(many, state[: len(front)])

    def remainder(self, many: Reg, front: Sequence[Reg]) -> None:
        """What lies between the least and the greatest numbers, where one run is longer."""
        k, step = self.k, self.step

        def body(i: Reg, left: Reg, right: Reg, *rest: Reg) -> list[Reg]:
            # The longer run ends only where the other's first number follows, unread till then.
            b = self.number(k.minimum(right, self.high - 1))
            second = (right < self.high) & (b < self.number(left))
            out, after = self.joined(rest, self.numbers(k.select(second, right, left)))
            self.put(i, out)
            return [
                k.select(second, left, left + step), k.select(second, right + step, right), *after,
            ]  # fmt: skip

        k.loop(self.low + many, self.high - many, step, body, front)

    def copy(self) -> None:
        """Move a run that there is no other to."""
        step = self.step
        self.k.loop(self.low, self.high, step, lambda i: self.put(i, self.numbers(i)))

    def number(self, i: Reg) -> Reg:
        """The number at a place."""
        return self.k.load(self.room, self.source + i)

    def numbers(self, i: Reg) -> list[Reg]:
        """As many as a step takes, from a place on."""
        some = self.lanes if self.lanes > 1 else 0
        at = self.source + i
        return [self.k.load(self.room, at + n * self.lanes, some) for n in range(self.taken)]

    def put(self, i: Reg, found: Sequence[Reg]) -> None:
        """Write numbers from a place on."""
        at = self.target + i
        for n, x in enumerate(found):
            self.k.store(x, self.room, at + n * self.lanes)

    def joined(self, a: Sequence[Reg], b: Sequence[Reg]) -> tuple[list[Reg], list[Reg]]:
        """The lesser and the greater half of two sorted lists, sorted: a bitonic merge in which
        every stage compares the same places, since they are taken in turns after each."""
        k, both = self.k, [*a, *b[::-1]]
        if self.lanes > 1:
            back = range(self.lanes - 1, -1, -1)
            both[self.taken :] = [shuffle(k, x, x, back) for x in both[self.taken :]]
        size = self.step
        while size:
            pairs = zip(both[: self.taken], both[self.taken :], strict=True)
            ends = [(k.minimum(x, y), k.maximum(x, y)) for x, y in pairs]
            both = [x for low, high in ends for x in _zipped(k, low, high)]
            size //= 2
        return both[: self.taken], both[self.taken :]
