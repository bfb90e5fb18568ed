"""Tiles by instructions that multiply two rows by two columns, of two groups each: SMMLA, UMMLA,
USMMLA and BFMMLA of AArch64, and SVE's of these names, which do so in each 128 bits.

Panels and rows lie as for single groups (``tile.py``): the groups of two steps are put side by side
in registers. A sum is a vector of 2 x 2 numbers within the loop, or of several such, and one of a
row's columns outside of it. A row without a second one is multiplied twice, so that its bits are
those of other tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel
from rlx.codegen.reg import Buffer, Reg
from rlx.kernels.matmul.dot import words
from rlx.kernels.matmul.dot_arm import multiplied
from rlx.types import u8

__all__ = ["PairTile"]


@frozen
class PairTile:
    """What two steps of a tile need: the instruction, the operands, the tile's ``panels`` and
    ``vectors`` of a panel, and where the rows have the groups of a step."""

    name: str
    a: Buffer
    b: Buffer
    b_step: Reg
    group: int
    panels: Sequence[Reg]
    vectors: int
    places: Callable[[Reg], list[Reg]]

    @property
    def turned(self) -> bool:
        """Whether columns come first: the unsigned operand does."""
        return self.a.dtype is not self.b.dtype and self.b.dtype is u8

    def begin(self, k: Kernel, sums: Sequence[Reg]) -> list[Reg]:
        """The sums of rows, one after the other, as those of pairs of rows and of columns."""
        halves = _woven(sums[0].lanes, 1 if self.turned else 2)
        return [
            k.shuffle(first, second, half) for first, second in self._pairs(sums) for half in halves
        ]

    def end(self, k: Kernel, found: Sequence[Reg], rows: int) -> list[Reg]:
        """The sums of rows again."""
        lanes, run = found[0].lanes, 1 if self.turned else 2
        order = [
            [i + n for i in range(row, 2 * lanes, 2 * run) for n in range(run)] for row in (0, run)
        ]
        wide, out = 2 * self._columns, list[Reg]()
        for r in range(rows):
            own = found[r // 2 * wide : (r // 2 + 1) * wide]
            out += [k.shuffle(own[c], own[c + 1], order[r % 2]) for c in range(0, wide, 2)]
        return out

    def two(self, k: Kernel, i: Reg, sums: Sequence[Reg]) -> list[Reg]:
        """The sums after the steps ``i`` and the one behind it."""
        columns: list[Reg] = []
        lanes = sums[0].lanes
        for panel in self.panels:
            for v in range(self.vectors):
                at = panel + i * self.b_step + v * lanes * self.group
                near, far = words(k, self.b, at, lanes), words(k, self.b, at + self.b_step, lanes)
                columns += [k.shuffle(near, far, half) for half in _woven(lanes, 1)]
        rows = [words(k, self.a, at, 2) for at in self.places(i)]
        out: list[Reg] = []
        for first, second in zip(rows[::2], [*rows[1::2], rows[-1]], strict=False):
            x = k.shuffle(first, second, (0, 1, 2, 3) * (lanes // 4))
            for y in columns:
                pair = (y, x) if self.turned else (x, y)
                out.append(multiplied(k, self.name, *pair, sums[len(out)]))
        return out

    @property
    def _columns(self) -> int:
        """Vectors of columns."""
        return len(self.panels) * self.vectors

    def _pairs(self, sums: Sequence[Reg]) -> list[tuple[Reg, Reg]]:
        n = self._columns
        rows = [sums[i : i + n] for i in range(0, len(sums), n)]
        found = zip(rows[::2], [*rows[1::2], rows[-1]], strict=False)
        return [pair for first, second in found for pair in zip(first, second, strict=True)]


def _woven(lanes: int, run: int) -> list[list[int]]:
    """What takes ``run`` numbers of two vectors in turn, as the halves of what that makes."""
    order = [v + i + n for i in range(0, lanes, run) for v in (0, lanes) for n in range(run)]
    return [order[:lanes], order[lanes:]]
