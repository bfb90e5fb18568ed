"""The kernel of ``channels.py`` for images of any size: it has the code of all tiles, and cuts the
tasks itself (``channels_any.py``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx.codegen.builder import Kernel, KernelText
from rlx.codegen.reg import Reg
from rlx.kernels.conv.channels import ChannelsEmitter, Rows
from rlx.kernels.conv.channels_any import PART_BYTES, TASK_SUMS, TASKS, RowTile
from rlx.kernels.conv.channels_plan import ChannelsTile

__all__ = ["AnyChannelsEmitter"]

Numbered = tuple[tuple[int, ...], RowTile]
"""A tile, and the numbers by which it is chosen."""


class AnyChannelsEmitter(ChannelsEmitter):
    """Emits one kernel."""

    def declare(self) -> None:
        """The sizes, as ``channels_any.launch`` gives them."""
        assert self.config.any is not None
        self.any = self.config.any
        names = (
            "x_image", "x_slice", "x_line", "x_group", "x_channel", "c_image", "c_slice", "c_line",
            "c_channel", "images", "slices", "rows", "length", "groups", "channels", "taps_count",
            "outputs", "plane",
        )  # fmt: skip
        (
            self.x_image, self.x_slice, self.x_line, self.x_group, self.x_channel, self.c_image,
            self.c_slice, self.c_line, self.c_channel, self.images, self.slices, self.out_rows,
            self.out_columns, self.groups, self.channels, self.taps, self.outputs, self.plane,
        ) = map(self.k.size, names)  # fmt: skip
        self.high = self.k.size("high") if self.config.images else None
        self.x_row = self.x_line

    def emit(self) -> KernelText:
        """The kernel's text."""
        self.tile_up()
        self.cut()
        return super().emit()

    def task(self, index: Reg) -> None:
        """One (group, rows, tiles), if the range has not more tasks than there are."""
        count = self.groups * self.row_tasks * self.tile_tasks
        self.k.when(index < count, lambda: super(AnyChannelsEmitter, self).task(index))

    def tile_up(self) -> None:
        """The lines and their tiles."""
        k, most = self.k, self.any.most
        zero, one = k.index(0), k.index(1)
        columns, rows = self.out_columns, self.out_rows
        if self.any.row == (1, 1):
            self.whole = zero
        elif self.any.line == (1, 1):
            self.whole = one
        else:
            self.whole = k.select(columns < most // 2 + 1, one, zero)
        whole = self.whole > 0
        units = k.select(whole, k.index(most) / columns, k.index(most))
        length = k.select(whole, rows, columns)
        self.lines = k.select(whole, one, rows)
        self.row_windows = k.select(whole, columns, one)
        unit = k.select(whole, self.x_line, k.index(self.config.step))
        self.line_tiles = up(length, units)
        self.units = up(length, self.line_tiles)
        self.main_tiles = (length - 1) % self.line_tiles + 1
        self.x_main, self.x_rest = self.units * unit, (self.units - 1) * unit
        self.tiles = self.images * self.slices * self.lines * self.line_tiles

    def cut(self) -> None:
        """The tasks: as ``_fair_cut`` of ``channels_plan.py`` says."""
        k, width, tiles = self.k, self.width, self.tiles
        blocks, wanted = up(self.outputs, width), up(k.index(TASKS), self.groups)
        depth, data = self.channels * self.taps, self.channels * self.plane
        by_blocks = blocks * depth * width >= data
        few, many = k.minimum(blocks, wanted), k.minimum(tiles, wanted)
        rows = k.select(by_blocks, few, k.minimum(blocks, up(wanted, many)))
        cut = k.select(by_blocks, k.minimum(tiles, up(wanted, few)), many)
        self.task_blocks = up(blocks, rows)
        self.row_tasks = up(blocks, self.task_blocks)
        cut = k.maximum(cut, up(tiles * self.task_blocks, TASK_SUMS))
        self.task_tiles = up(tiles, cut)
        self.tile_tasks = up(tiles, self.task_tiles)
        together = up(self.plane, self.tile_tasks) + self.taps * width
        parts = up(self.channels * together * self.config.dtype.bytes, PART_BYTES)
        self.part = up(self.channels, parts)

    def windows(self) -> tuple[Reg, Reg]:
        """The windows of a main tile, and of the others."""
        return self.units * self.row_windows, (self.units - 1) * self.row_windows

    def one_of(self, number: Reg, line: Reg, sums: Callable[[ChannelsTile, Rows], None]) -> None:
        """The sums of the tile of a number of a line, of all that may be."""
        k, tiles, zero = self.k, self.any, self.k.index(0)
        main = k.minimum(number, self.main_tiles)
        before = main * self.units + (number - main) * (self.units - 1)
        units = k.select(number < self.main_tiles, self.units, self.units - 1)
        first = k.select(k.compare("eq", number, 0), k.index(1), zero)
        high = self.high
        if high is not None:
            last = k.compare("eq", number, self.line_tiles - 1)
            high = k.select(last, high, zero)

        def in_line() -> None:
            there = None if self.edges is None else self.edges.there(k, line)
            found = [((t.high, int(t.first), t.columns), t) for t in tiles.in_lines()]
            wanted = high or zero, first, units
            choice(k, wanted, found, lambda t: sums(self.own(t), there))

        def in_rows() -> None:
            found = [((t.high, t.columns, t.rows), t) for t in tiles.in_rows()]

            def one(t: RowTile) -> None:
                there: Rows = None
                if self.edges is not None and t.rows == 1:
                    there = self.edges.there(k, before)
                elif self.edges is not None:
                    there = before * self.edges.stride - self.edges.low
                sums(self.own(t), there)

            choice(k, (self.high or zero, self.row_windows, units), found, one)

        if tiles.row == (1, 1):
            in_line()
        elif tiles.line == (1, 1):
            in_rows()
        else:
            k.when(self.whole > 0, in_rows, in_line)

    def own(self, tile: RowTile) -> ChannelsTile:
        """A tile with the windows that its taps are in the image for."""
        ends = self.any.ends
        across = ends.across(tile.columns, tile.first, tile.high) if ends else ()
        return ChannelsTile(tile.rows, tile.columns, across)

    def over_rows(
        self, shape: ChannelsTile, row: Callable[..., list[Reg]], acc: Sequence[Reg], there: Rows
    ) -> list[Reg]:
        """Of a tile of several rows, ``there`` is where in the image its first tap is: taps that
        are in the image for all rows at once, and else for one after the other."""
        if not isinstance(there, Reg):
            return super().over_rows(shape, row, acc, there)
        k, each, top, edges = self.k, len(acc) // shape.rows, there, self.edges
        assert edges is not None, "it reads images"

        def inside(place: Reg) -> Reg:
            return (place >= 0) & (place < edges.height)

        def taps(b: Reg, *acc: Reg) -> list[Reg]:
            places = [top + b * edges.dilation]
            for _ in range(1, shape.rows):
                places.append(places[-1] + edges.stride)

            def one_by_one() -> list[Reg]:
                found = list(acc)
                for r, place in enumerate(places):
                    mine = slice(r * each, (r + 1) * each)
                    old = found[mine]
                    given = list(found)

                    def one(r: int = r, mine: slice = mine, given: list[Reg] = given) -> list[Reg]:
                        return row(b, (r, r + 1), given)[mine]

                    found[mine] = k.when(inside(place), one, lambda old=old: old, old)
                return found

            whole = (places[0] >= 0) & (places[-1] < edges.height)
            return k.when(whole, lambda: row(b, (0, shape.rows), acc), one_by_one, list(acc))

        return k.loop(0, edges.rows, 1, taps, acc)


def choice(
    k: Kernel, wanted: tuple[Reg, ...], found: list[Numbered], body: Callable[[RowTile], None]
) -> None:
    """``body`` of the tile whose numbers are those wanted, which is one of those found."""
    if len(found) == 1:
        body(found[0][1])
        return
    key, *others = wanted
    numbers = sorted({n[0] for n, _ in found})
    if len(numbers) == 1:
        choice(k, tuple(others), [(n[1:], t) for n, t in found], body)
        return
    middle = numbers[len(numbers) // 2]
    below = [f for f in found if f[0][0] < middle]
    above = [f for f in found if f[0][0] >= middle]
    k.when(
        key < middle, lambda: choice(k, wanted, below, body), lambda: choice(k, wanted, above, body)
    )


def up(whole: Reg, part: Reg | int) -> Reg:
    """A quotient of numbers above 0, rounded up."""
    return (whole + (part - 1)) / part
