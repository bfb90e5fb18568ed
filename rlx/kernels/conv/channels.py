"""Convolutions whose vectors lie along the output channels (``conv`` has them along the columns).

A register tile is some windows times the output channels of a block: a step multiplies two vectors
of weights by an element of the input for each window. Its windows lie in a row of the image, or
are whole rows; so their elements are known distances apart, and nothing is computed that is not
stored. A task is some tiles and some blocks of output channels of a group:

    for each part of the input channels, for each block of output channels, for each tile:
        for each input channel of the part, for each tap:    sums in registers
        sums to the strip (scratch); behind the last part transposed, and through the epilogue

A part of the input, and of the weights of a block, stay in the L2 cache while they are in use. A
sum is one chain of fused multiply-adds over channels and taps, as in ``conv``, so its bits depend
on no cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.lanes import transposed
from rlx.codegen.reg import Reg
from rlx.kernels.conv.channels_any import Span
from rlx.kernels.conv.channels_plan import (
    ChannelsTile,
    ConvChannelsConfig,
    block_width,
    strip_rows,
)
from rlx.kernels.conv.epilogue import ConvEpilogue
from rlx.kernels.conv.taps import over_taps
from rlx.kernels.conv.words import held, multiply
from rlx.types import i32, i64

__all__ = ["ChannelsEmitter", "Rows"]


AHEAD = 16
"""Steps from a request for weights to their use."""
LINE_BYTES = 64


@frozen
class _Block:
    """A block of output channels: where its weights begin, its first channel, and how many; ``row``
    is its first row of all blocks of weights."""

    w: Reg
    row: Reg
    channel: Reg
    rows: Reg


Rows = tuple[Reg, Reg] | Reg | None
"""Which rows of taps of a tile are in the image; None where the tile tells, or all are."""

EDGES = ("before", "tap_row", "stride_y", "dilation_y", "low_y", "height", "tap_rows")


@frozen
class Edges:
    """Of images: the elements from the first tap of the first window to the image, and from a row
    of taps to the next; what says which of them are in the image; and how many there are."""

    before: Reg
    tap_row: Reg
    stride: Reg
    dilation: Reg
    low: Reg
    height: Reg
    rows: Reg

    def there(self, k: Kernel, line: Reg) -> tuple[Reg, Reg]:
        """The rows of taps that are in the image for the windows of a line."""
        first, step = line * self.stride, self.dilation
        above = k.maximum(self.low - first, k.index(0))
        below = k.maximum(self.low + self.height - first, k.index(0))
        round_up = step - 1
        return (above + round_up) / step, k.minimum((below + round_up) / step, self.rows)


class ChannelsEmitter:
    """Emits one kernel, of which ``channels_plan.launch`` gives the sizes: a method a loop
    level."""

    def __init__(self, name: str, config: ConvChannelsConfig, target: KernelTarget) -> None:
        self.k = k = Kernel(name, target)
        self.config = config
        self.lanes, self.width = target.lanes(config.dtype), block_width(target, config.dtype)
        self.strip_rows = strip_rows(target, config)
        self.strip_size = self.strip_rows * self.width
        elements = held(config)
        self.x, self.w = k.buffer("x", elements), k.buffer("w", elements)
        self.offsets = None if config.single or config.images else k.buffer("taps", i64)
        self.first = k.buffer("first", i32) if config.words and config.words.flipped else None
        self.epilogue = ConvEpilogue(k, config.epilogue, config.operands)
        self.declare()
        self.edges = Edges(*map(k.size, EDGES)) if config.images else None

    def declare(self) -> None:
        """The sizes but for those of edges."""
        k = self.k
        names = (
            "x_image", "x_slice", "x_line", "x_main", "x_rest", "x_row", "x_group", "x_channel",
            "c_image", "c_slice", "c_line", "c_channel", "slices", "lines", "line_tiles",
            "main_tiles", "tiles", "channels", "taps_count", "outputs", "part", "task_tiles",
            "tile_tasks", "task_blocks", "row_tasks",
        )  # fmt: skip
        (
            self.x_image, self.x_slice, self.x_line, self.x_main, self.x_rest, self.x_row,
            self.x_group, self.x_channel, self.c_image, self.c_slice, self.c_line, self.c_channel,
            self.slices, self.lines, self.line_tiles, self.main_tiles, self.tiles, self.channels,
            self.taps, self.outputs, self.part, self.task_tiles, self.tile_tasks, self.task_blocks,
            self.row_tasks,
        ) = map(k.size, names)  # fmt: skip
        self.ends = [k.size(f"tile{n}_end") for n in range(len(self.config.tiles) - 1)]

    def emit(self) -> KernelText:
        """The kernel's text."""
        self.k.parallel(self.task)
        return self.k.text()

    def task(self, index: Reg) -> None:
        """One (group, rows, tiles); tiles vary fastest."""
        k, width, dt = self.k, self.width, self.config.dtype
        self.square = k.scratch(dt)
        self.strip = k.scratch(dt, self.strip_rows * self.lanes * dt.bytes)
        tile_task, rest = index % self.tile_tasks, index / self.tile_tasks
        row_task, group = rest % self.row_tasks, rest / self.row_tasks
        blocks = (self.outputs + (width - 1)) / width
        depth = self.channels * self.taps
        begin, first = tile_task * self.task_tiles, row_task * self.task_blocks
        end = k.minimum(begin + self.task_tiles, self.tiles)
        last = k.minimum(first + self.task_blocks, blocks)

        def block(c: Reg, b: Reg) -> None:
            row0 = b * width
            rows = k.minimum(self.outputs - row0, k.index(width))
            row = (group * blocks + b) * width
            found = _Block(row * depth, row, group * self.outputs + row0, rows)
            place = (b - first) * self.task_tiles - begin
            k.loop(begin, end, 1, lambda t: self.tile(found, group, c, t, place + t))

        def part(c: Reg) -> None:
            k.loop(first, last, 1, lambda b: block(c, b))

        k.loop(0, self.channels, self.part, part)

    def tile(self, block: _Block, group: Reg, c: Reg, t: Reg, place: Reg) -> None:
        """The channels from ``c`` on of tile ``t``, whose sums are the strip's of that place."""
        k = self.k
        number, rest = t % self.line_tiles, t / self.line_tiles
        line, rest = rest % self.lines, rest / self.lines
        slice_, image = rest % self.slices, rest / self.slices
        main = k.minimum(number, self.main_tiles)
        rest = number - main
        x = image * self.x_image + slice_ * self.x_slice + line * self.x_line
        x = x + group * self.x_group + main * self.x_main + rest * self.x_rest
        if self.edges is not None:
            x = x - self.edges.before
        out = image * self.c_image + slice_ * self.c_slice + line * self.c_line
        most, least = self.windows()
        out = out + main * most + rest * least + block.channel * self.c_channel
        stop = k.minimum(c + self.part, self.channels)
        strip = k.select(self.part < self.channels, place * self.strip_size, 0)

        def sums(tile: ChannelsTile, there: Rows) -> None:
            whole, *rest = self.config.vectors

            def by(vectors: int) -> None:
                self.sums(tile, vectors, x, block, c, stop, strip, there, out)

            if rest:
                k.when(block.rows > rest[0] * self.lanes, lambda: by(whole), lambda: by(rest[0]))
            else:
                by(whole)

        self.one_of(number, line, sums)
        count = k.select(number < self.main_tiles, most, least)
        k.when(k.compare("eq", stop, self.channels), lambda: self.finish(block, strip, count, out))

    def windows(self) -> tuple[Reg, Reg]:
        """The windows of a main tile, and of the others."""
        tiles = self.config.tiles
        return self.k.index(tiles[0].windows), self.k.index(tiles[-1].windows)

    def one_of(self, number: Reg, line: Reg, sums: Callable[[ChannelsTile, Rows], None]) -> None:
        """The sums of the tile of a number of a line."""
        there = None if self.edges is None else self.edges.there(self.k, line)

        def one_of(n: int) -> None:
            tile = self.config.tiles[n]
            if n == len(self.ends):
                sums(tile, there)
            else:
                own = number < self.ends[n]
                self.k.when(own, lambda: sums(tile, there), lambda: one_of(n + 1))

        one_of(0)

    def sums(
        self, shape: ChannelsTile, vectors: int, x: Reg, block: _Block, c: Reg, stop: Reg,
        strip: Reg, there: Rows, out: Reg,
    ) -> None:  # fmt: skip
        """Add the channels [c, stop) to the sums of a tile in the strip; the first ones begin
        them."""
        k, dt = self.k, self.config.dtype
        places = [
            strip + (p * self.width + v * self.lanes)
            for p in range(shape.windows) for v in range(vectors)
        ]  # fmt: skip
        zero = k.const(0, dt, self.lanes)

        def first() -> list[Reg]:
            if self.first is None:
                return [zero] * len(places)
            at = [block.row + v * self.lanes for v in range(vectors)]
            return [k.load(self.first, v, self.lanes) for v in at] * shape.windows

        start = k.when(
            c > 0,
            lambda: [k.load(self.strip, at, self.lanes) for at in places],
            first,
            [zero] * len(places),
        )
        found = self.reduce(shape, vectors, x, block.w, c, stop, start, there, out)
        for at, value in zip(places, found, strict=True):
            k.store(value, self.strip, at, self.lanes)

    def reduce(
        self, shape: ChannelsTile, count: int, x: Reg, w: Reg, c: Reg, stop: Reg,
        start: list[Reg], there: Rows, out: Reg,
    ) -> list[Reg]:  # fmt: skip
        """The sums in registers, in the order window, vector."""
        k, width, line = self.k, self.width, LINE_BYTES // self.config.dtype.bytes
        starts = [x + self.x_row * r if r else x for r in range(shape.rows)]
        everywhere = (0, shape.rows), (0, shape.columns)

        def step(
            at: Reg, weight: Reg, acc: Sequence[Reg], spans: tuple[Span, Span] = everywhere
        ) -> list[Reg]:
            vectors = [k.load(self.w, weight + v * self.lanes, self.lanes) for v in range(count)]
            for n in range(AHEAD * width, AHEAD * width + width, line):
                k.prefetch(self.w, weight + n)
            sums = list(acc)
            for r in range(*spans[0]):
                place = starts[r] + at
                for q in range(*spans[1]):
                    element = k.load(self.x, place + q * self.config.step if q else place)
                    element = k.splat(element, self.lanes)
                    for n, y in enumerate(vectors, (r * shape.columns + q) * count):
                        sums[n] = multiply(k, self.config, element, y, sums[n])
            return sums

        ahead = self.ahead(shape, starts)

        def channel(c: Reg, *acc: Reg) -> list[Reg]:
            at = c * self.x_channel
            self.request(
                shape, [place + at for place in ahead], out + (c % self.width) * self.c_channel
            )
            if self.edges is not None:
                weight = w + c * self.taps * width
                return self.over_rows(shape, self.row_of(shape, at, weight, step), acc, there)
            if self.offsets is None:
                return step(at, w + c * width, acc)
            places = at, w + c * self.taps * width
            return over_taps(k, self.offsets, self.taps, width, step, places, acc)

        return k.loop(c, stop, 1, channel, start)

    def request(self, shape: ChannelsTile, ahead: Sequence[Reg], out: Reg) -> None:
        """Ask for what comes next of the input, and for the results of a tile in a channel."""
        for place in ahead:
            self.k.prefetch(self.x, place)
        if shape.rows == 1:
            self.epilogue.request(out, shape.windows)

    def ahead(self, shape: ChannelsTile, starts: Sequence[Reg]) -> list[Reg]:
        """What a tile whose rows begin at ``starts`` requests of a channel: of one tap the end of
        the next tile, which begins in a line of this one; of several the last row of the windows of
        a tile to come, which finds the others in a cache. Channels lie far apart, where the
        hardware does not look ahead."""
        if self.edges is not None:
            last = starts[-1] + self.edges.tap_row * (self.edges.rows - 1)
        elif self.offsets is not None:
            last = starts[-1] + self.k.cast(
                self.k.load(self.offsets, self.taps - 1), self.taps.dtype
            )
        else:
            end = self.x_main + (shape.columns - 1) * self.config.step
            return [first + end for first in starts]
        return [last + (self.x_row * shape.rows if shape.rows > 1 else self.x_main * 2)]

    def row_of(
        self, shape: ChannelsTile, at: Reg, w: Reg, step: Callable[..., list[Reg]]
    ) -> Callable[..., list[Reg]]:
        """What adds a row of taps of one channel, for some rows of a tile."""
        edges = self.edges
        assert edges is not None, "it reads images"

        def row(b: Reg | int, rows: Span, acc: Sequence[Reg]) -> list[Reg]:
            first, weight = at + edges.tap_row * b, w + len(shape.across) * self.width * b

            def tap(t: Reg | int, columns: Span, acc: Sequence[Reg]) -> list[Reg]:
                places = first + t * self.config.gap, weight + t * self.width
                return step(*places, acc, (rows, columns))

            return self.over(shape.across, tap, acc)

        return row

    def over(
        self, spans: Sequence[Span], one: Callable[..., list[Reg]], acc: Sequence[Reg]
    ) -> list[Reg]:
        """``one(n, span, acc)`` for each of the spans in turn that is not empty: those that follow
        one another and are the same have one code."""
        n = 0
        for span, alike in groupby(spans):
            begin, n = n, n + len(list(alike))
            if span[0] >= span[1]:
                continue
            if n == begin + 1:
                acc = one(begin, span, acc)
            else:
                acc = self.k.loop(begin, n, 1, lambda i, *acc, s=span: one(i, s, acc), acc)
        return list(acc)

    def over_rows(
        self, shape: ChannelsTile, row: Callable[..., list[Reg]], acc: Sequence[Reg], there: Rows
    ) -> list[Reg]:
        """Add the taps of one channel that are in the image, row by row."""
        if not shape.down:
            assert isinstance(there, tuple)
            return self.k.loop(*there, 1, lambda b, *acc: row(b, (0, 1), acc), acc)
        return self.over(shape.down, row, acc)

    def finish(self, block: _Block, strip: Reg, count: Reg, c: Reg) -> None:
        """The results of a tile: ``count`` neighbours in each output channel of the block."""
        given = strip, count, c, self.c_channel, block.channel, block.rows
        self.epilogue.apart([self.strip, self.square], given, self.results)

    def results(
        self, strip: Reg, count: Reg, c: Reg, c_channel: Reg, channel: Reg, rows: Reg
    ) -> None:
        """The results of ``rows`` output channels from ``channel`` on, to ``c`` on."""
        k, lanes = self.k, self.lanes
        edges = range(0, self.strip_rows, lanes)
        left = [k.cast(count, i32) - s for s in edges]
        masks = [k.first_lanes(n, lanes) for n in left] if k.target.masks else None

        def vector(v: Reg) -> None:
            at, first = strip + v * lanes, v * lanes
            for s in edges:
                found = [k.load(self.strip, at + (s + n) * self.width, lanes) for n in range(lanes)]
                for n, x in enumerate(transposed(k, found)):
                    k.store(x, self.square, n * self.strip_rows + s)

            def row(r: Reg, own: Reg, sums: Reg) -> list[Reg]:
                one = channel + first + r
                if masks is None:
                    self.epilogue.stretch(count, self.square, sums, own, one, lanes)
                else:
                    numbers = self.epilogue.numbers(one)
                    for s, mask in zip(edges, masks, strict=True):
                        total = k.load(self.square, sums + s, lanes)
                        self.epilogue.part(total, numbers, own + s, lanes, mask)
                return [own + c_channel, sums + self.strip_rows]

            most = k.minimum(rows - first, k.index(lanes))
            k.loop(0, most, 1, row, [c + first * c_channel, k.index(0)])

        k.loop(0, (rows + (lanes - 1)) / lanes, 1, vector)
