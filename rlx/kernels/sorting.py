"""Sorting a line of words: 64-bit integers, all different, of which a part says where they were.

An element of 32 bits or less and its index make a word: a number of the elements' order above the
index. Words are compared as one number, and order by them is stable.

    blocks of 2 L x L words (L lanes): sorted as 2 L registers, lane by lane, by a network, and
        transposed: L runs of 2 L
    merges of two runs each, from both ends at once, until there is one run

Forward and backward half of a merge wait for nothing of one another, and neither meets the end of
a run as long as it makes no more words than the shorter run has: so there is no test in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rlx.kernels.builder import Kernel
from rlx.kernels.lanes import transposed
from rlx.kernels.reg import Buffer, Reg
from rlx.types import DType, bf16, f16, f32, i32, i64, u32

__all__ = ["Line", "index_of", "sort_words", "word_of"]

GREATEST = (1 << 63) - 1
"""Greater than every word."""


class Line(NamedTuple):
    """Words in memory, so many elements apart."""

    buffer: Buffer
    base: Reg
    stride: int

    def place(self, i: Reg) -> Reg:
        """Where the word i lies."""
        return self.base + (i * self.stride if self.stride != 1 else i)


Words = Callable[[Reg, int], Reg]
"""The words of the elements from an index on: so many, or one for 0."""


def word_of(k: Kernel, x: Reg, dt: DType, index: Reg, descending: bool) -> Reg:
    """The word of element(s) of a type with at most 32 bits. nan counts as the greatest, and zeros
    are alike."""
    if dt in (f32, f16, bf16):
        bits = k.bitcast(k.select(k.compare("eq", x, 0.0), 0.0, x), i32)
        key = bits ^ ((bits >> 31) & 0x7FFFFFFF)
        key = k.select(k.compare("ne", x, x), 0x7FFFFFFF, key)
    elif dt is u32:
        key = k.cast(x ^ (1 << 31), i32)
    else:
        key = k.cast(x, i32)
    key = key ^ -1 if descending else key
    return (k.cast(key, i64) << 32) | index


def index_of(word: Reg) -> Reg:
    """The index in a word."""
    return word & 0xFFFFFFFF


def sort_words(k: Kernel, n: int, words: Words, line: Line, spare: Line) -> None:
    """Put ``n`` words, with n below 2**31, in ascending order into ``line``; ``spare`` is another
    such line. ``words`` makes vectors only where the lines are contiguous."""
    lanes = k.target.lanes(i64) if line.stride == 1 else 1
    run = 2 * lanes if lanes > 1 else 1
    passes = max(0, -(-n // run) - 1).bit_length()
    rooms = (line, spare) if passes % 2 == 0 else (spare, line)
    if lanes > 1:
        _sorted_runs(k, n, words, rooms[0], lanes)
    else:
        k.loop(0, n, 1, lambda i: k.store(words(i, 0), rooms[0].buffer, rooms[0].place(i)))
    width = k.index(run)
    if passes % 2:
        _merge_all(k, n, width, *rooms)
        width = width * 2

    def round_(_: Reg, width: Reg) -> Reg:
        _merge_all(k, n, width, line, spare)
        _merge_all(k, n, width * 2, spare, line)
        return width * 4

    k.loop(0, passes // 2, 1, round_, [width])


def _sorted_runs(k: Kernel, n: int, words: Words, line: Line, lanes: int) -> None:
    """Runs of twice as many words as lanes, the last one shorter."""
    rows = 2 * lanes
    block = rows * lanes

    def whole(start: Reg) -> None:
        columns = [words(start + r * lanes, lanes) for r in range(rows)]
        _store_runs(k, columns, line.buffer, line.place(start))

    rest = n % block
    k.loop(0, n - rest, block, whole)
    if not rest:
        return
    room = k.stack(i64, block)
    for r in range(rows):
        k.store(GREATEST, room, r * lanes, lanes)
    k.loop(0, rest, 1, lambda i: k.store(words(i + (n - rest), 0), room, i))
    _store_runs(k, [k.gather(room, r, rows, lanes) for r in range(rows)], room, k.index(0))

    def copy(i: Reg) -> None:
        k.store(k.load(room, i), line.buffer, line.place(i + (n - rest)))

    k.loop(0, rest, 1, copy)


def _store_runs(k: Kernel, columns: list[Reg], buffer: Buffer, at: Reg) -> None:
    """Sort each lane of some registers, and store the lanes one after the other."""
    for low, high in _network(len(columns)):
        a, b = columns[low], columns[high]
        columns[low], columns[high] = k.minimum(a, b), k.maximum(a, b)
    lanes = columns[0].lanes
    squares = [transposed(k, columns[s : s + lanes]) for s in range(0, len(columns), lanes)]
    for lane in range(lanes):
        for s, square in enumerate(squares):
            k.store(square[lane], buffer, at + (lane * len(columns) + s * lanes))


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


def _merge_all(k: Kernel, n: int, width: Reg, source: Line, target: Line) -> None:
    """Merge neighbouring runs of ``width`` in pairs."""

    def pair(low: Reg) -> None:
        middle = k.minimum(low + width, n)
        high = k.minimum(middle + width, n)
        many = k.minimum(middle - low, high - middle)
        left, last = _from_both_ends(k, low, middle, high, many, source, target)
        _remainder(k, (low, middle, high), many, (left, last), source, target)

    k.loop(0, n, width * 2, pair)


def _from_both_ends(
    k: Kernel, low: Reg, middle: Reg, high: Reg, many: Reg, source: Line, target: Line
) -> list[Reg]:
    """The ``many`` least and the ``many`` greatest words of two runs; where the first run's rest
    begins, and its last word."""

    def read(i: Reg) -> Reg:
        return k.load(source.buffer, source.place(i))

    def step(j: Reg, left: Reg, last: Reg) -> tuple[Reg, Reg]:
        # What a run has not given the other has.
        a, b = read(left), read(low + middle + j - left)
        back = high - 1 - j
        c, d = read(last), read(back + middle - 1 - last)
        second, first = b < a, d < c
        k.store(k.select(second, b, a), target.buffer, target.place(low + j))
        k.store(k.select(first, c, d), target.buffer, target.place(back))
        return k.select(second, left, left + 1), k.select(first, last - 1, last)

    return k.loop(0, many, 1, step, [low, middle - 1])


def _remainder(
    k: Kernel, run: tuple[Reg, Reg, Reg], many: Reg, left: tuple[Reg, Reg], source: Line,
    target: Line,
) -> None:  # fmt: skip
    """What lies between the least and the greatest words, where one run is longer."""
    low, middle, high = run
    first, last = left
    # The second run's rest ends so many words before its end as the first has not given.
    end = high - (many - (middle - 1 - last))

    def step(i: Reg, left: Reg) -> Reg:
        right = middle + i - left
        # A run that is used up is still read, at a place that there is.
        a = k.load(source.buffer, source.place(k.minimum(left, high - 1)))
        b = k.load(source.buffer, source.place(k.minimum(right, high - 1)))
        second = (right < end) & ((left > last) | (b < a))
        k.store(k.select(second, b, a), target.buffer, target.place(i))
        return k.select(second, left, left + 1)

    k.loop(low + many, high - many, 1, step, [first])
