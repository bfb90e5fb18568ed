"""Depthwise convolutions: of one channel a group, where every input element meets few weights.

Vectors lie along the rows of the image. A register tile is some vectors of some rows of windows, so
that an element is loaded once for all taps of its column::

    for each group, for each output channel of it, for each tile:
        for each input row of the tile that is there:
            for each tap of a row: a vector of input, times a weight for each row of windows
        sums to the strip (scratch), and from there through the epilogue

With masks the input is read as it lies, and what is beyond it is zero; else it comes in planes with
their padding. A sum is one chain of fused multiply-adds over the taps, as in ``conv``, so its bits
depend on no cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx.kernels.builder import Kernel, KernelTarget, KernelText
from rlx.kernels.conv_depthwise_plan import ConvDepthwiseConfig, held_taps
from rlx.kernels.conv_epilogue import ConvEpilogue
from rlx.kernels.reg import Reg
from rlx.types import i32, u32

__all__ = ["emit"]
import os
DM=int(os.environ.get("DM","0"))
PF=int(os.environ.get("PF","0"))



def emit(name: str, config: ConvDepthwiseConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config; ``conv_depthwise_plan.launch`` gives its sizes."""
    return _Emitter(name, config, target).emit()


@dataclass(frozen=True)
class _Plane:
    """An output channel of an image, in one slice: where its input, its weights and its result
    begin, its number, and those of its weights that stay in registers."""

    x: Reg
    w: Reg
    c: Reg
    channel: Reg
    there: Sequence[Reg]
    held: Sequence[Reg]


class _Emitter:
    """Emits one kernel: a method a loop level."""

    def __init__(self, name: str, config: ConvDepthwiseConfig, target: KernelTarget) -> None:
        self.k = k = Kernel(name, target)
        self.config, self.tile = config, config.tile
        self.step = target.lanes(config.dtype)
        self.lanes = self.step if self.step > 1 else 0
        self.masked = target.masks
        self.taps = config.kernel[0] * config.kernel[1] * config.kernel[2]
        self.x, self.w = k.buffer("x", config.source), k.buffer("w", config.dtype)
        self.epilogue = ConvEpilogue(k, config.epilogue, config.operands)
        names = (
            "x_image", "x_channel", "x_z", "x_y", "depth", "height", "width", "low_z", "low_y",
            "stride_z", "dilation_z", "out_z", "out_y", "out_x", "groups", "outputs",
            "tiles", "panels", "task_groups", "group_tasks", "task_tiles", "tile_tasks",
            "task_panels", "panel_tasks",
        )  # fmt: skip
        (
            self.x_image, self.x_channel, self.x_z, self.x_y, self.depth, self.height, self.width,
            self.low_z, self.low_y, self.stride_z, self.dilation_z, self.out_z,
            self.out_y, self.out_x, self.groups, self.outputs, self.tiles, self.panels,
            self.task_groups, self.group_tasks, self.task_tiles, self.tile_tasks, self.task_panels,
            self.panel_tasks,
        ) = map(k.size, names)  # fmt: skip

    def emit(self) -> KernelText:
        self.k.parallel(self.task)
        return self.k.text()

    def task(self, index: Reg) -> None:
        """One (image, groups, slice, rows, columns); columns vary fastest."""
        k = self.k
        self.strip = k.scratch(self.config.dtype)
        panel_task, rest = index % self.panel_tasks, index / self.panel_tasks
        tile_task, rest = rest % self.tile_tasks, rest / self.tile_tasks
        slice_, rest = rest % self.out_z, rest / self.out_z
        group_task, image = rest % self.group_tasks, rest / self.group_tasks
        first, tile0 = group_task * self.task_groups, tile_task * self.task_tiles
        panel0 = panel_task * self.task_panels
        last = k.minimum(first + self.task_groups, self.groups)
        tile_end = k.minimum(tile0 + self.task_tiles, self.tiles)
        panel_end = k.minimum(panel0 + self.task_panels, self.panels)
        z0 = slice_ * self.stride_z - self.low_z
        depths = [z0 + self.dilation_z * a if a else z0 for a in range(self.config.kernel[0])]
        there = [(z >= 0) & (z < self.depth) for z in depths]
        plane = self.out_y * self.out_x

        def channel(group: Reg, m: Reg) -> None:
            number = group * self.outputs + m
            x = image * self.x_image + group * self.x_channel + z0 * self.x_z
            c = (image * self.groups * self.outputs + number) * self.out_z + slice_
            w = number * self.taps
            few = self.taps <= held_taps(k.target)
            held = [self.weight(w + t) for t in range(self.taps)] if few else ()
            found = _Plane(x, w, c * plane, number, there, held)
            k.loop(
                tile0, tile_end, 1,
                lambda t: k.loop(panel0, panel_end, 1, lambda p: self.sums(found, t, p)) and None,
            )  # fmt: skip

        def group(g: Reg) -> None:
            k.loop(0, self.outputs, 1, lambda m: channel(g, m))

        k.loop(first, last, 1, group)

    def weight(self, at: Reg) -> Reg:
        x = self.k.load(self.w, at)
        return self.k.splat(x, self.lanes) if self.lanes else x

    def sums(self, plane: _Plane, t: Reg, p: Reg) -> None:
        """The sums of a tile, and its results."""
        k, config, (rows, vectors) = self.k, self.config, (self.tile.rows, self.tile.vectors)
        row0, column0 = t * rows, p * (vectors * self.step)
        y0, x0 = row0 * config.stride[0] - self.low_y, column0 * config.stride[1]
        masks = self.masks(x0)
        zero = k.const(0.0, config.dtype, self.lanes)
        total = {(r, v): zero for r in range(rows) for v in range(vectors)}
        for a in range(config.kernel[0]):
            for i in config.rows_read():
                y = y0 + i
                there = plane.there[a] & (y >= 0) & (y < self.height)
                at = plane.x + y * self.x_y + x0
                if a:
                    at = at + self.x_z * self.dilation_z * a
                uses = [
                    (r, b) for r in range(rows) for b in range(config.kernel[1])
                    if r * config.stride[0] + b * config.dilation[0] == i
                ]  # fmt: skip
                keys = [(r, v) for r, _ in uses for v in range(vectors)]
                own = [total[key] for key in keys]

                def row(
                    at: Reg = at, a: int = a, uses: list[tuple[int, int]] = uses,
                    own: list[Reg] = own,
                ) -> list[Reg]:  # fmt: skip
                    return self.row(plane, at, a, uses, own, masks)

                found = k.when(there, row, lambda own=own: own, results=own)
                total.update(zip(keys, found, strict=True))
        self.finish(plane, row0, column0, total)

    def masks(self, x0: Reg) -> dict[int, Reg]:
        """Which elements of the vectors of input from a column on are there, by the vectors'
        numbers; of a whole row all are but those behind its end."""
        if not self.masked:
            return {}
        k, width = self.k, self.k.cast(self.width, u32)
        numbers = k.lane_numbers(i32, self.step)
        found: dict[int, Reg] = {}
        for n in self.vectors_read():
            if not self.config.row or n == self.config.row - 1:
                places = numbers + k.cast(x0 + n * self.step, i32)
                found[n] = k.compare("lt", k.bitcast(places, u32), width)
        return found

    def shifts(self) -> list[tuple[int, int, int]]:
        """For each tap of a row: its place in a stride, and how many vectors and lanes on its
        elements begin."""
        config = self.config
        places = (divmod(t * config.dilation[1] - config.low, config.stride[1])
                  for t in range(config.kernel[2]))
        return [(part, *divmod(shift, self.step)) for shift, part in places]

    def vectors_read(self) -> list[int]:
        """The numbers of the vectors of input that a row of a tile needs."""
        step, row = self.config.stride[1], self.config.row
        wanted = {
            (v + n + more) * step + part
            for _, n, lane in self.shifts() for v in range(self.tile.vectors)
            for more in range(2 if lane else 1) for part in range(step)
        }  # fmt: skip
        return sorted(n for n in wanted if not row or 0 <= n < row)

    def row(
        self, plane: _Plane, at: Reg, a: int, uses: list[tuple[int, int]], own: list[Reg],
        masks: dict[int, Reg],
    ) -> list[Reg]:  # fmt: skip
        """The sums with an input row that is there added: each of ``uses`` is a row of windows and
        the row of taps that falls on it."""
        k, vectors, sums = self.k, self.tile.vectors, list(own)
        columns = self.config.kernel[2]
        read = {
            n: k.load(self.x, at + n * self.step, self.lanes, masks.get(n))
            for n in self.vectors_read()
        }
        if PF:
            for n in range(self.config.row):
                k.prefetch(self.x, at + (n * self.step + PF))
        parts, zero = self.parts(read), k.const(0.0, self.config.dtype, self.lanes)
        for t, (part, n, lane) in enumerate(self.shifts()):
            taken: list[Reg] = []
            for v in range(vectors):
                x = parts.get((part, v + n), zero)
                if lane:
                    lanes = range(lane, lane + self.step)
                    x = k.shuffle(x, parts.get((part, v + n + 1), zero), lanes)
                taken.append(x)
            for u, (_, b) in enumerate(uses):
                tap = (a * self.config.kernel[1] + b) * columns + t
                factor = plane.held[tap] if plane.held else self.weight(plane.w + tap)
                for v in range(vectors):
                    sums[u * vectors + v] = k.fma(factor, taken[v], sums[u * vectors + v])
        return sums

    def parts(self, read: dict[int, Reg]) -> dict[tuple[int, int], Reg]:
        """Vectors of the elements of one place in each stride, by that and their number."""
        step = self.config.stride[1]
        if step == 1 or not self.lanes:
            return {(n % step, n // step): x for n, x in read.items()}
        zero = self.k.const(0.0, self.config.dtype, self.lanes)
        return {
            (part, n): self.k.shuffle(
                read.get(2 * n, zero), read.get(2 * n + 1, zero), range(part, 2 * self.lanes, 2)
            )
            for n in {n // 2 for n in read} for part in range(2)
        }  # fmt: skip

    def finish(
        self, plane: _Plane, row0: Reg, column0: Reg, total: dict[tuple[int, int], Reg]
    ) -> None:
        """The results of a tile: of each row that is stored, the vectors and the part of one."""
        k, vectors, lanes = self.k, self.tile.vectors, self.lanes
        left = [self.out_x - (column0 + v * self.step) for v in range(vectors)]
        masks = [k.first_lanes(n, lanes) for n in left] if self.masked else None
        c = plane.c + row0 * self.out_x + column0
        numbers = self.epilogue.numbers(plane.channel)

        def row(r: int) -> None:
            for v in range(vectors):
                to, value = c + (r * self.out_x + v * self.step), total[r, v]
                last = v == vectors - 1
                if not last and (self.config.row or DM):
                    self.epilogue.part(value, numbers, to, lanes)
                elif masks is None:
                    count = k.minimum(k.maximum(left[v], k.index(0)), k.index(self.step))
                    k.store(value, self.strip, 0, lanes)
                    self.epilogue.stretch(count, self.strip, k.index(0), to, plane.channel, lanes)
                else:
                    self.epilogue.part(value, numbers, to, lanes, masks[v])

        for r in range(self.tile.rows):
            k.when(row0 + r < self.out_y, lambda r=r: row(r))
