"""Convolutions with a pointwise epilogue, on planes of input (see ``plan.py``).

A task is an image, a group, a slice of the first spatial axis, some blocks of output channels and
some panels of columns:

    for each block of output channels, for each panel of columns:
        for each input channel, for each tap:    sums in registers, vectors along the columns
        for each row of the panel that is stored, for each output channel:    epilogue to the result

The sums wait in the strip (scratch) for the epilogue, which reads operands and writes the result
once an element, so that the result may be the very buffer of a "full" operand. The last vector of
a panel is moved back to end with the columns, and computes some sums twice. A sum is one chain of
fused multiply-adds over channels and taps, whatever the tile, so its bits do not depend on the cut.
"""

from __future__ import annotations

from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.reg import Reg
from rlx.kernels.conv import (
    depthwise as conv_depthwise,
)
from rlx.kernels.conv import (
    depthwise_channels as conv_depthwise_across,
)
from rlx.kernels.conv.channels import ChannelsEmitter
from rlx.kernels.conv.channels_any_kernel import AnyChannelsEmitter
from rlx.kernels.conv.channels_plan import ConvChannelsConfig
from rlx.kernels.conv.depthwise_channels import ConvDepthwiseAcrossConfig
from rlx.kernels.conv.depthwise_plan import ConvDepthwiseConfig
from rlx.kernels.conv.epilogue import ConvEpilogue
from rlx.kernels.conv.plan import (
    ConvConfig,
    ConvShape,
    OperandKind,
    Planes,
    launch,
    packed_size,
    planes,
    tile_of,
)
from rlx.kernels.conv.taps import over_taps
from rlx.kernels.conv.words import held, multiply
from rlx.types import i32, i64

__all__ = [
    "AnyConvConfig",
    "ConvConfig",
    "ConvShape",
    "OperandKind",
    "Planes",
    "emit",
    "launch",
    "name",
    "packed_size",
    "planes",
]

name = "conv"

AHEAD = 8
"""Channels from a prefetch to its use, for windows of one tap: channels lie far apart, where the
hardware does not look for the next one."""


AnyConvConfig = ConvConfig | ConvChannelsConfig | ConvDepthwiseConfig | ConvDepthwiseAcrossConfig


def emit(name: str, config: AnyConvConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config; the ``launch`` of its plan gives its sizes."""
    if isinstance(config, ConvChannelsConfig):
        made = ChannelsEmitter if config.any is None else AnyChannelsEmitter
        return made(name, config, target).emit()
    if isinstance(config, ConvDepthwiseConfig):
        return conv_depthwise.emit(name, config, target)
    if isinstance(config, ConvDepthwiseAcrossConfig):
        return conv_depthwise_across.emit(name, config, target)
    return _Emitter(name, config, target).emit()


@frozen
class _Task:
    """Where a task's planes, packed weights and results begin; ``channel`` is its first output
    channel among all, which is where the epilogue's numbers a channel begin, and ``row`` the first
    row of its blocks of weights."""

    x: Reg
    w: Reg
    c: Reg
    channel: Reg
    row: Reg


@frozen
class _Panel:
    """The columns [begin, end) and ``rows`` output channels from ``row0`` on, of a task."""

    task: _Task
    row0: Reg
    rows: Reg
    begin: Reg
    end: Reg
    vectors: Reg


class _Emitter:
    """Emits one kernel: a method a loop level."""

    def __init__(self, name: str, config: ConvConfig, target: KernelTarget) -> None:
        self.k = k = Kernel(name, target)
        self.config = config
        self.tile = tile_of(target, config.dtype)
        self.lanes = self.tile.lanes if self.tile.lanes > 1 else 0
        self.strip_row = (self.tile.vectors + 2) * self.tile.lanes
        elements = held(config)
        self.x, self.w = k.buffer("x", elements), k.buffer("w", elements)
        self.offsets = None if config.single else k.buffer("taps", i64)
        self.first = k.buffer("first", i32) if config.words and config.words.flipped else None
        self.epilogue = ConvEpilogue(k, config.epilogue, config.operands)
        self.x_image, self.x_slice = k.size("x_image"), k.size("x_slice")
        self.x_group, self.x_channel = k.size("x_group"), k.size("x_channel")
        self.c_image, self.c_slice = k.size("c_image"), k.size("c_slice")
        self.c_channel, self.segment = k.size("c_channel"), k.size("segment")
        self.slices, self.groups = k.size("slices"), k.size("groups")
        self.columns, self.pitch, self.valid = k.size("columns"), k.size("pitch"), k.size("valid")
        self.channels, self.taps = k.size("channels"), k.size("taps_count")
        self.outputs, self.column_tasks = k.size("outputs"), k.size("column_tasks")
        self.task_panels, self.row_tasks = k.size("task_panels"), k.size("row_tasks")
        self.task_blocks = k.size("task_blocks")

    def emit(self) -> KernelText:
        self.k.parallel(self.task)
        return self.k.text()

    def task(self, index: Reg) -> None:
        """One (image, group, slice, columns, rows); rows vary fastest."""
        k, tile = self.k, self.tile
        self.strip = k.scratch(self.config.dtype)
        self.vectors = (self.columns + (tile.lanes - 1)) / tile.lanes
        most = (self.vectors + 1) / tile.vectors
        self.panels = k.select(most > 0, most, 1)
        row_task, rest = index % self.row_tasks, index / self.row_tasks
        column_task, rest = rest % self.column_tasks, rest / self.column_tasks
        slice_, rest = rest % self.slices, rest / self.slices
        group, image = rest % self.groups, rest / self.groups
        blocks = (self.outputs + (tile.rows - 1)) / tile.rows
        self.block_size = self.channels * self.taps * tile.rows
        channel = group * self.outputs
        c = image * self.c_image + slice_ * self.c_slice + channel * self.c_channel
        x = image * self.x_image + slice_ * self.x_slice + group * self.x_group
        row = group * blocks * tile.rows
        t = _Task(x, group * blocks * self.block_size, c, channel, row)

        first, panel0 = row_task * self.task_blocks, column_task * self.task_panels
        end = _least(k, first + self.task_blocks, blocks)
        panel_end = _least(k, panel0 + self.task_panels, self.panels)

        def block(b: Reg) -> None:
            k.loop(panel0, panel_end, 1, lambda p: self.panel(t, b, p))

        k.loop(first, end, 1, block)

    def panel(self, t: _Task, block: Reg, p: Reg) -> None:
        """The sums of a panel by the smallest tile that holds it, then its results."""
        k, tile = self.k, self.tile
        row0, first = block * tile.rows, p * tile.vectors
        rows = _least(k, tile.rows, self.outputs - row0)
        vectors = k.select(p + 1 < self.panels, tile.vectors, self.vectors - first)
        begin = first * tile.lanes
        end = _least(k, begin + vectors * tile.lanes, self.columns)
        panel = _Panel(t, row0, rows, begin, end, vectors)
        w = t.w + block * self.block_size
        widths = [tile.vectors, *(n for n in range(tile.vectors + 1, 0, -1) if n != tile.vectors)]

        def by_width(rows: int, widths: list[int]) -> None:
            n, *others = widths
            if others:
                k.when(
                    k.compare("eq", vectors, n),
                    lambda: self.sums(panel, w, rows, n),
                    lambda: by_width(rows, others),
                )
            else:
                self.sums(panel, w, rows, n)

        k.when(rows > 1, lambda: by_width(tile.rows, widths), lambda: by_width(1, widths))
        self.finish(panel)

    def sums(self, panel: _Panel, w: Reg, rows: int, vectors: int) -> None:
        """The sums of ``rows`` output channels times ``vectors`` vectors, into the strip."""
        k, tile = self.k, self.tile
        last = k.select(self.columns > tile.lanes, self.columns - tile.lanes, 0)
        starts = [_least(k, panel.begin + v * tile.lanes, last) for v in range(vectors)]
        step = rows if vectors <= tile.vectors else max(1, rows // 2)

        def some(row: Reg) -> None:
            first = panel.task.row + panel.row0 + row
            sums = self.reduce(panel, w + row, first, range(step), starts)
            at = [s - panel.begin + row * self.strip_row + tile.lanes for s in starts]
            for i, value in enumerate(sums):
                place = at[i % vectors] + i // vectors * self.strip_row
                k.store(value, self.strip, place, self.lanes)

        if step < rows:
            k.loop(0, rows, step, some)
        else:
            some(k.index(0))

    def reduce(self, panel: _Panel, w: Reg, row: Reg, rows: range, starts: list[Reg]) -> list[Reg]:
        """The sums in registers, in the order row, vector; ``row`` is the first of all blocks."""
        k, x, tile = self.k, panel.task.x, self.tile
        places = [x + s for s in starts]

        def step(at: Reg, weight: Reg, acc: tuple[Reg, ...]) -> list[Reg]:
            columns = [k.load(self.x, p + at, self.lanes) for p in places]
            sums: list[Reg] = []
            for r in rows:
                factor = k.load(self.w, weight + r if r else weight)
                factor = k.splat(factor, self.lanes) if self.lanes else factor
                sums += [
                    multiply(k, self.config, y, factor, acc[len(sums) + n])
                    for n, y in enumerate(columns)
                ]
            return sums

        # Of several taps the next panel finds all but the last row of its windows in a cache.
        row_ahead = tile.vectors * tile.lanes
        if self.offsets is not None:
            row_ahead = k.cast(k.load(self.offsets, self.taps - 1), x.dtype) + row_ahead

        # Outside of the loop: else LLVM has sums in memory.
        out = panel.task.c + panel.row0 * self.c_channel + panel.begin

        def channel(c: Reg, *acc: Reg) -> list[Reg]:
            at = c * self.x_channel
            if self.offsets is not None:
                for p in places if self.lanes else ():
                    k.prefetch(self.x, p + at + row_ahead)
            if self.offsets is None:
                ahead = at + self.x_channel * AHEAD
                for p in places if self.lanes else ():
                    k.prefetch(self.x, p + ahead)
                self.request(out, c)
                return step(at, w + c * tile.rows, acc)
            width = tile.rows
            begin = at, w + c * self.taps * width
            return over_taps(k, self.offsets, self.taps, width, step, begin, acc)

        zero = k.const(0, self.config.dtype, self.lanes)
        start = [zero] * (len(rows) * len(starts))
        if self.first is not None:
            each = [k.splat(k.load(self.first, row + r), self.lanes) for r in rows]
            start = [x for x in each for _ in starts]
        return k.loop(0, self.channels, 1, channel, start)

    def request(self, c: Reg, step: Reg) -> None:
        """Ask for some of a panel's results, which begin at ``c``: in each step for a line, as a
        store waits for its line."""
        if self.lanes:
            row, line = step % self.tile.rows, step / self.tile.rows % (self.tile.vectors + 1)
            self.epilogue.request(c + row * self.c_channel + line * self.tile.lanes, 1)

    def finish(self, panel: _Panel) -> None:
        """The epilogue of a panel: the stretch of each of its rows that is stored."""
        t = panel.task
        given = (
            panel.begin, panel.end, t.c + panel.row0 * self.c_channel, t.channel + panel.row0,
            panel.rows, self.pitch, self.valid, self.segment, self.c_channel,
        )  # fmt: skip
        self.epilogue.apart([self.strip], given, self.results)

    def results(
        self, begin: Reg, end: Reg, c: Reg, channel: Reg, rows: Reg, pitch: Reg, valid: Reg,
        segment: Reg, c_channel: Reg,
    ) -> None:  # fmt: skip
        """The results of the columns [begin, end) of ``rows`` output channels from ``channel`` on,
        whose images begin at ``c``."""
        k = self.k

        def stored(s: Reg) -> None:
            first = s * pitch
            start = k.select(first > begin, first, begin)
            stop = _least(k, first + valid, end)
            to = c + s * segment + (start - first)
            sums = start - begin + self.tile.lanes

            def row(r: Reg) -> None:
                at, own = sums + r * self.strip_row, to + r * c_channel
                self.epilogue.stretch(stop - start, self.strip, at, own, channel + r, self.lanes)

            k.when(stop > start, lambda: k.loop(0, rows, 1, row) and None)

        k.loop(begin / pitch, (end - 1) / pitch + 1, 1, stored)


def _least(k: Kernel, a: Reg | int, b: Reg | int) -> Reg:
    if isinstance(a, int):
        a = k.index(a)
    return k.select(a < b, a, b)
