"""What kernels of block products share: the scales of a block on the stack, and how a panel of
results is written.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx.codegen.builder import Kernel
from rlx.codegen.reg import Buffer, Reg
from rlx.kernels.matmul.block_weights import Decoder, Record
from rlx.types import f32

__all__ = ["BlockScales", "Scales", "store_panel"]

Scales = list[tuple[Reg, Reg | None]]


class BlockScales:
    """The scales of a block of ``subs`` sub-blocks on the stack, and its least values if it has
    such, of so many panels: a loop over the chunks of a block reads them by number."""

    def __init__(self, k: Kernel, decoder: Decoder, subs: int, lanes: int, panels: int = 1) -> None:
        self._k, self._decoder = k, decoder
        self._subs, self._lanes, self._panels = subs, lanes, panels
        room = panels * subs * lanes
        self._scales = k.stack(f32, room)
        self._leasts = k.stack(f32, room) if decoder.has_least else None

    def put(self, records: Sequence[Record]) -> None:
        """Put the scales of a block there, whose records are those of the panels."""
        for p, record in enumerate(records):
            for s, (scale, least) in enumerate(self._decoder.scales(record)):
                at = self._k.index((p * self._subs + s) * self._lanes)
                self._k.store(scale, self._scales, at)
                if self._leasts is not None and least is not None:
                    self._k.store(least, self._leasts, at)

    def of_chunk(self, c: Reg) -> Scales:
        """The scales of a chunk, by panel and part."""
        k, out = self._k, Scales()
        for p in range(self._panels):
            for s in range(self._decoder.parts):
                number = self._decoder.number(c, s)
                at = (number + p * self._subs if p else number) * self._lanes
                least = None if self._leasts is None else k.load(self._leasts, at, self._lanes)
                out.append((k.load(self._scales, at, self._lanes), least))
        return out


def store_panel(k: Kernel, value: Reg, y: Buffer, n: Reg, row: Reg, panel: Reg) -> None:
    """Write a panel of a row's results to ``y``, whose rows have ``n``: those that there are."""
    lanes = value.lanes
    column = panel * lanes
    at, left = row * n + column, n - column

    def part() -> None:
        for lane in range(lanes - 1):
            k.when(left > lane, lambda lane=lane: k.store(k.extract(value, lane), y, at + lane))

    def masked() -> None:
        k.store(value, y, at, mask=k.first_lanes(left, lanes))

    k.when(left >= lanes, lambda: k.store(value, y, at), masked if k.target.masks else part)
