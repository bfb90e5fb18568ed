"""Operands of an elementwise kernel that are read by index.

Such an input is a table: at each point of the space another input says which element along one of
its axes is read. Indices are checked by vectors, by one comparison where all mean what they say.
"""

from __future__ import annotations

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
    side."""

    table: int
    index: int
    mode: str
    dense: bool

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
