"""Depthwise convolutions: of one channel a group, where every input element meets few weights.

Vectors lie along the rows of the image. A register tile is some vectors of some rows of windows::

    for each output channel, for each tile:
        for each input row of the tile that is there: load it once
            for each tap of a row: the row moved by lanes, times a weight for each row of windows
        the sums through the epilogue to the result

With masks the input is read as it lies, and what is beyond it is zero; else it comes in planes with
their padding. A sum is one chain of fused multiply-adds over the taps, as in ``conv``, so its bits
depend on no cut.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.reg import Reg
from rlx.kernels.conv.depthwise_plan import ConvDepthwiseConfig, held_taps
from rlx.kernels.conv.epilogue import ConvEpilogue
from rlx.types import i32, u32

__all__ = ["emit"]


def emit(name: str, config: ConvDepthwiseConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config; ``conv_depthwise_plan.launch`` gives its sizes."""
    return _Emitter(name, config, target).emit()


@frozen
class _Channel:
    """An output channel of an image, in one slice: where its input, its weights and its result
    begin, its number, and its weights if they stay in registers."""

    x: Reg
    w: Reg
    c: Reg
    number: Reg
    held: Sequence[Reg]


@frozen
class _Tile:
    """The first row and column of windows of a tile, the masks of the vectors of input that are not
    read whole, by their numbers, and whether the image may end before its last vector does."""

    row: Reg
    column: Reg
    masks: dict[int, Reg]
    edge: bool


Sums = dict[tuple[int, int], Reg]
"""Sums by row and vector of a tile."""


class _Emitter:
    """Emits one kernel: a method a loop level."""

    def __init__(self, name: str, config: ConvDepthwiseConfig, target: KernelTarget) -> None:
        self.k = k = Kernel(name, target)
        self.config, self.rows, self.vectors = config, config.tile.rows, config.tile.vectors
        self.step = target.lanes(config.dtype)
        self.lanes = self.step if self.step > 1 else 0
        self.taps = config.kernel[0] * config.kernel[1] * config.kernel[2]
        self.zero = k.const(0.0, config.dtype, self.lanes)
        self.x, self.w = k.buffer("x", config.source), k.buffer("w", config.dtype)
        self.epilogue = ConvEpilogue(k, config.epilogue, config.operands)
        names = (
            "x_image", "x_channel", "x_z", "x_y", "depth", "height", "width", "low_z", "low_y",
            "stride_z", "dilation_z", "out_z", "out_y", "out_x", "channels", "outputs", "tiles",
            "panels", "task_channels", "channel_tasks", "task_tiles", "tile_tasks", "task_panels",
            "panel_tasks",
        )  # fmt: skip
        (
            self.x_image, self.x_channel, self.x_z, self.x_y, self.depth, self.height, self.width,
            self.low_z, self.low_y, self.stride_z, self.dilation_z, self.out_z, self.out_y,
            self.out_x, self.channels, self.outputs, self.tiles, self.panels, self.task_channels,
            self.channel_tasks, self.task_tiles, self.tile_tasks, self.task_panels,
            self.panel_tasks,
        ) = map(k.size, names)  # fmt: skip

    def emit(self) -> KernelText:
        self.k.parallel(self.task)
        return self.k.text()

    def task(self, index: Reg) -> None:
        """One (image, channels, slice, rows, columns); columns vary fastest."""
        k = self.k
        self.strip = k.scratch(self.config.dtype)
        panel_task, rest = index % self.panel_tasks, index / self.panel_tasks
        tile_task, rest = rest % self.tile_tasks, rest / self.tile_tasks
        slice_, rest = rest % self.out_z, rest / self.out_z
        channel_task, image = rest % self.channel_tasks, rest / self.channel_tasks
        first, tile0 = channel_task * self.task_channels, tile_task * self.task_tiles
        panel0 = panel_task * self.task_panels
        last = k.minimum(first + self.task_channels, self.channels)
        tile_end = k.minimum(tile0 + self.task_tiles, self.tiles)
        panel_end = k.minimum(panel0 + self.task_panels, self.panels)
        z0 = slice_ * self.stride_z - self.low_z
        depths = [z0 + self.dilation_z * a if a else z0 for a in range(self.config.kernel[0])]
        self.there = [(z >= 0) & (z < self.depth) for z in depths]

        def channel(number: Reg) -> None:
            x = image * self.x_image + number / self.outputs * self.x_channel + z0 * self.x_z
            c = ((image * self.channels + number) * self.out_z + slice_) * (self.out_y * self.out_x)
            w = number * self.taps
            few = self.taps <= held_taps(k.target)
            held = [self.weight(w + t) for t in range(self.taps)] if few else ()
            found = _Channel(x, w, c, number, held)

            def row(t: Reg) -> None:
                k.loop(panel0, panel_end, 1, lambda p: self.tile(found, t, p))

            k.loop(tile0, tile_end, 1, row)

        k.loop(first, last, 1, channel)

    def weight(self, at: Reg) -> Reg:
        x = self.k.load(self.w, at)
        return self.k.splat(x, self.lanes) if self.lanes else x

    def tile(self, channel: _Channel, t: Reg, p: Reg) -> None:
        """A tile; of those that are no whole rows, most lie inside of the image."""
        k, stride = self.k, self.config.stride[1]
        row, column = t * self.rows, p * (self.vectors * self.step)

        def some(numbers: list[int], edge: bool) -> None:
            masks = self.masks(column * stride, numbers) if k.target.masks else {}
            self.sums(channel, _Tile(row, column, masks, edge))

        numbers = self.vectors_read()
        if self.config.row:
            some([n for n in numbers if n == self.config.row - 1], True)
            return
        begin = column * stride + numbers[0] * self.step
        end = column * stride + (numbers[-1] + 1) * self.step
        whole = column + self.vectors * self.step <= self.out_x
        inside = (begin >= 0) & (end <= self.width) & whole
        k.when(inside, lambda: some([], False), lambda: some(numbers, True))

    def masks(self, x0: Reg, numbers: list[int]) -> dict[int, Reg]:
        """Which elements of the vectors of input from a column on are there, by their numbers."""
        k, width = self.k, self.k.cast(self.width, u32)
        lanes, found = k.lane_numbers(i32, self.step), dict[int, Reg]()
        for n in numbers:
            places = lanes + k.cast(x0 + n * self.step, i32)
            found[n] = k.compare("lt", k.bitcast(places, u32), width)
        return found

    def shifts(self) -> list[tuple[int, int, int]]:
        """For each tap of a row: its place in a stride, and how many vectors and lanes on its
        elements begin."""
        config = self.config
        places = [t * config.dilation[1] - config.low for t in range(config.kernel[2])]
        found = [divmod(place, config.stride[1]) for place in places]
        return [(part, *divmod(shift, self.step)) for shift, part in found]

    def vectors_read(self) -> list[int]:
        """The numbers of the vectors of input that a row of a tile needs, from its column on."""
        step, row = self.config.stride[1], self.config.row
        wanted = {
            (v + n + more) * step + part
            for _, n, lane in self.shifts() for v in range(self.vectors)
            for more in range(2 if lane else 1) for part in range(step)
        }  # fmt: skip
        return sorted(n for n in wanted if not row or 0 <= n < row)

    def sums(self, channel: _Channel, tile: _Tile) -> None:
        """The sums of a tile, and its results."""
        k, config, kernel = self.k, self.config, self.config.kernel
        y0, x0 = tile.row * config.stride[0] - self.low_y, tile.column * config.stride[1]
        total = {(r, v): self.zero for r in range(self.rows) for v in range(self.vectors)}
        for a in range(kernel[0]):
            for i in config.rows_read():
                y = y0 + i
                at = channel.x + y * self.x_y + x0
                if a:
                    at = at + self.x_z * self.dilation_z * a
                taps = {
                    r: a * kernel[1] + b for r in range(self.rows) for b in range(kernel[1])
                    if r * config.stride[0] + b * config.dilation[0] == i
                }  # fmt: skip
                own = {key: x for key, x in total.items() if key[0] in taps}
                before = list(own.values())

                def row(at: Reg = at, own: Sums = own, taps: dict[int, int] = taps) -> list[Reg]:
                    return list(self.row(channel, tile, at, taps, own).values())

                there = self.there[a] & (y >= 0) & (y < self.height)
                found = k.when(there, row, lambda before=before: before, before)
                total.update(zip(own, found, strict=True))
        self.finish(channel, tile, total)

    def row(
        self, channel: _Channel, tile: _Tile, at: Reg, taps: dict[int, int], sums: Sums
    ) -> Sums:
        """The sums with an input row that is there; ``taps`` has, for rows of windows, the row of
        taps that falls on it."""
        k, sums = self.k, dict(sums)
        parts = self.parts({
            n: k.load(self.x, at + n * self.step, self.lanes, tile.masks.get(n))
            for n in self.vectors_read()
        })  # fmt: skip
        for t, (part, n, lane) in enumerate(self.shifts()):
            taken: list[Reg] = []
            for v in range(n, n + self.vectors):
                x = parts.get((part, v), self.zero)
                if lane:
                    more = parts.get((part, v + 1), self.zero)
                    x = k.shuffle(x, more, range(lane, lane + self.step))
                taken.append(x)
            for r, line in taps.items():
                tap = line * self.config.kernel[2] + t
                factor = channel.held[tap] if channel.held else self.weight(channel.w + tap)
                for v, x in enumerate(taken):
                    sums[r, v] = k.fma(factor, x, sums[r, v])
        return sums

    def parts(self, read: dict[int, Reg]) -> dict[tuple[int, int], Reg]:
        """Vectors of the elements of one place in each stride, by that and their number."""
        step = self.config.stride[1]
        if step == 1 or not self.lanes:
            return {(n % step, n // step): x for n, x in read.items()}
        return {
            (part, n): self.k.shuffle(
                read.get(2 * n, self.zero), read.get(2 * n + 1, self.zero),
                range(part, 2 * self.lanes, 2),
            )
            for n in {n // 2 for n in read} for part in range(2)
        }  # fmt: skip

    def finish(self, channel: _Channel, tile: _Tile, total: Sums) -> None:
        """The results of a tile: the vectors of each row that is stored, and parts of them at an
        edge; of whole rows only the last one's."""
        k, lanes = self.k, self.lanes
        numbers = self.epilogue.numbers(channel.number)
        left = [self.out_x - (tile.column + v * self.step) for v in range(self.vectors)]
        counts = [k.minimum(k.maximum(n, k.index(0)), k.index(self.step)) for n in left]
        first_cut = 0 if not self.config.row else self.vectors - 1

        def part(v: int, value: Reg, to: Reg) -> None:
            if not tile.edge or v < first_cut:
                self.epilogue.part(value, numbers, to, lanes)
            elif k.target.masks:
                mask = k.first_lanes(counts[v], lanes)
                self.epilogue.part(value, numbers, to, lanes, mask)
            else:
                k.store(value, self.strip, 0, lanes)
                begin = k.index(0)
                self.epilogue.stretch(counts[v], self.strip, begin, to, channel.number, lanes)

        def row(r: int) -> None:
            c = channel.c + (tile.row + r) * self.out_x + tile.column
            for v in range(self.vectors):
                part(v, total[r, v], c + v * self.step)

        for r in range(self.rows):
            k.when(tile.row + r < self.out_y, lambda r=r: row(r))
