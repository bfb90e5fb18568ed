"""Operands of an elementwise kernel that are read by index.

Such an input is a table: at each point of the space another input says which element along one of
its axes is read. Indices are checked by vectors, by one comparison where all mean what they say.

Where a row is read in so many times its size, as when an image grows, the neighbours that a vector
needs are loaded as they lie and spread by a shuffle, and the indices are not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx.base.frozen import frozen
from rlx.codegen.reg import INDEX, Buffer, Reg
from rlx.codegen.strides import Strided
from rlx.ops.indexing.index_modes import place
from rlx.types import bf16, f16, f32, i64, u64

__all__ = ["Take", "Taken"]


@frozen
class Take:
    """That the input number ``table`` is read at the indices that ``index``, an input before it,
    holds; ``mode`` is that of the op gather. ``dense``: neighbours along the axis lie side by
    side. With ``phases`` d, s of them, the indices are s to each element of the axis: that number o
    is ``o // s + d[o % s]``, or the nearest one in the axis."""

    table: int
    index: int
    mode: str
    dense: bool
    phases: tuple[int, ...] = ()

    @property
    def faults(self) -> bool:
        """Whether it may fault: then the kernel takes the error record and the site."""
        return self.mode == "fault"

    def sizes(self, length: int, step: int, site: int) -> list[int]:
        """The sizes of a launch: the elements of the axis, how far they are apart (1 if ``dense``),
        and what is told with a fault."""
        return [length, *([] if self.dense else [step]), *([site] if self.faults else [])]


class Taken(Strided):
    """A table in memory; its strides are those of the element that the index 0 names."""

    def declare(self, take: Take, error: Buffer | None) -> None:
        """Declare the sizes of a launch."""
        k = self.k
        self.mode, self.error = take.mode, error if take.faults else None
        self.length = k.size(f"{self.name}_length")
        self.step = None if take.dense else k.size(f"{self.name}_step")
        self.site = k.size(f"{self.name}_site") if take.faults else None

    @property
    def maskable(self) -> bool:
        """Never: each element is a load of its own."""
        return False

    def take(self, index: Reg, base: Reg, j: Reg, lanes: int) -> Reg:
        """The element(s) at inner index ``j`` that ``index`` names, from the offset ``base`` of the
        row."""
        k = self.k
        own = k.index(1) if self.inner == "one" else self.strides.get(len(self.access) - 1)
        at = base if own is None else base + j * own

        def read(inside: Reg) -> Reg:
            return self.read(inside, at, own, lanes)

        def checked() -> Reg:
            inside, outside = place(k, index, self.length, self.mode)
            if self.error is not None and self.site is not None:
                k.record_fault(k.any(outside), self.error, self.site, 1)
            value = read(inside)
            return (
                k.select(outside, k.const(0, value.dtype, value.lanes), value)
                if self.mode == "fill"
                else value
            )

        if not index.lanes:
            return checked()
        # Indices are mostly what they mean: one comparison finds those that are not.
        plain = k.cast(k.cast(index, k.index_word(index.dtype)), u64)
        odd = k.any(plain >= k.cast(self.length, u64))
        wide = f32 if self.dtype in (f16, bf16) else self.dtype
        like = k.const(0, wide, lanes)
        return k.when(odd, checked, lambda: read(plain), [like])[0]

    def spread(
        self, phases: Sequence[int], base: Reg, j: Reg, lanes: int, other: Callable[[], Reg]
    ) -> Reg:
        """The elements at inner index ``j`` of a table with phases: by shuffles, if a vector begins
        with an element of the axis and reaches beyond it at one end at most; else the ``other``
        way."""
        k, s = self.k, len(phases)
        if lanes % s or not lanes:
            return other()
        wide = f32 if self.dtype in (f16, bf16) else self.dtype
        like = [k.const(0, wide, lanes)]
        first, count = j // s, lanes // s
        above, below = first + min(phases) >= 0, first + (count - 1 + max(phases)) < self.length
        begins, ends = k.compare("eq", j, k.index(0)), k.compare("eq", first + count, self.length)
        places = [n // s + phases[n % s] for n in range(lanes)]
        ways = [
            (above & below, places),
            (begins & below, [max(p, 0) for p in places]),
            (above & ends, [min(p, count - 1) for p in places]),
        ]

        def tried(n: int) -> Reg:
            if n == len(ways):
                return other()
            fits, wanted = ways[n]
            return k.when(
                fits, lambda: self.neighbours(base + first, wanted), lambda: tried(n + 1), like
            )[0]

        whole = k.compare("eq", j % s, k.index(0))
        return k.when(whole, lambda: tried(0), other, like)[0]

    def neighbours(self, at: Reg, places: Sequence[int]) -> Reg:
        """The elements at known places from ``at`` on, of which few lie apart; nothing before the
        first or behind the last of them is read."""
        k, width = self.k, min(len(places), self.k.target.lanes(self.dtype))
        parts: list[Reg] = []
        for n in range(0, len(places), width):
            part = places[n : n + width]
            low, count = min(part), max(part) - min(part) + 1
            if count == 1:
                parts.append(k.splat(k.load(self.buffer, at + low), width))
                continue
            half = max(2, 1 << ((count + 1) // 2 - 1).bit_length())
            second = low + count - half
            a, b = (k.load(self.buffer, at + n, half) for n in (low, second))
            lanes = (p - low if p < low + half else half + p - second for p in part)
            parts.append(k.shuffle(a, b, list(lanes)))
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [k.shuffle(a, b, range(2 * a.lanes)) for a, b in pairs]
        return parts[0]

    def read(self, inside: Reg, at: Reg, own: Reg | None, lanes: int) -> Reg:
        """The element(s) at places along the axis, counted from ``at``."""
        k = self.k
        if not inside.lanes:
            found = k.cast(inside, INDEX)
            at = at + (found * self.step if self.step else found)
            if not lanes or own is None:
                return k.load(self.buffer, at)
            if self.inner == "one":
                return k.load(self.buffer, at, lanes)
            return k.gather(self.buffer, at, own, lanes)
        places = k.cast(inside, i64)
        places = places if self.step is None else places * k.cast(self.step, i64)
        if own is not None:
            places = places + k.lane_numbers(i64, lanes) * k.cast(own, i64)
        return k.take(self.buffer, at, places)
