"""Pooling: the largest element of every window, where it is, and the way back; the mean.

A task is a channel of an image, a plane of up to three axes:

    for each row of windows:
        windows that reach beyond the row: one by one, by the taps that are there
        the others: by vectors along the row
    with masks, of windows of neighbouring elements:
        for each vector of columns:    for each tap of a row, where it is in the row: a mask
            for each row of windows:   all of them, by vectors
    the way back: zeros, then each window's value is added where its index says, in order

Indices are 32-bit inside, and the way back is summed in f32 for 16-bit floats.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import product
from typing import Literal

from rlx.base.dims import maximum, minimum
from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.family import Launch
from rlx.codegen.lanes import every
from rlx.codegen.program import Program
from rlx.codegen.reg import Reg
from rlx.codegen.strides import ceil_div
from rlx.kernels.conv.epilogue import ConvEpilogue
from rlx.kernels.conv.plan import OperandKind
from rlx.ops.reduction.reduce import bound
from rlx.types import DType, bf16, f16, f32, i32, i64

__all__ = [
    "MOST_TAPS",
    "PoolBackConfig",
    "PoolConfig",
    "PoolShape",
    "back_launch",
    "emit",
    "launch",
]

name = "pool"

Triple = tuple[int, int, int]

MOST_TAPS = 32
"""Taps of a window at most: each is code of its own."""
SHARE = 1 << 15
"""Taps that are worth a thread of their own."""


@frozen
class PoolConfig:
    """What the code depends on: the largest element, its place, or the mean, the element type, the
    taps along three axes, and the distance of neighbouring windows along the last (1, 2, or 0 for
    any). ``epilogue`` takes the result, rounded to its input type 0, and the operands."""

    what: Literal["max", "indices", "mean"]
    dtype: DType
    taps: Triple
    step: Literal[0, 1, 2]
    epilogue: Program
    operands: tuple[OperandKind, ...]


@frozen
class PoolBackConfig:
    """The way back for an element type."""

    dtype: DType

    @property
    def accumulator(self) -> DType:
        """The type in which values are added."""
        return f32 if self.dtype in (f16, bf16) else self.dtype


@frozen
class PoolShape:
    """Planes, a channel of an image each, and windows along three axes (missing ones have size 1).

    A mean counts the places from ``begin`` to ``end`` of each axis, of which the elements begin at
    ``low``.
    """

    planes: int
    channels: int
    size: Triple
    out: Triple
    taps: Triple
    stride: Triple
    low: Triple
    dilation: Triple
    begin: Triple = (0, 0, 0)
    end: Triple = (0, 0, 0)

    def whole(self) -> tuple[int, int]:
        """The windows [begin, end) of a row that do not reach beyond it."""
        n, count, k, s, lo, d = (
            t[2] for t in (self.size, self.out, self.taps, self.stride, self.low, self.dilation)
        )
        begin = minimum(count, ceil_div(lo, s))
        return begin, maximum(begin, minimum(count, (n - 1 + lo - (k - 1) * d) // s + 1))


def config_of(
    what: Literal["max", "indices", "mean"],
    dtype: DType,
    shape: PoolShape,
    epilogue: Program,
    operands: tuple[OperandKind, ...],
) -> PoolConfig:
    """The config for a shape."""
    step = shape.stride[2]
    return PoolConfig(what, dtype, shape.taps, step if step in (1, 2) else 0, epilogue, operands)


def launch(config: PoolConfig, shape: PoolShape) -> Launch:
    """The launch of a pooling; the kernel's buffers are the planes, the operands of the
    epilogue and the result, all dense."""
    work = math.prod(shape.out) * math.prod(shape.taps)
    sizes = (*shape.size, *shape.out, *shape.stride, *shape.low, *shape.dilation, *shape.whole())
    if config.what == "mean":
        sizes = (*sizes, *shape.begin, *shape.end)
    if "channel" in config.operands:
        sizes = (*sizes, shape.channels)
    return Launch(shape.planes, maximum(1, SHARE // maximum(1, work)), sizes)


def back_launch(config: PoolBackConfig, planes: int, size: int, windows: int) -> Launch:
    """The launch of the way back; its buffers are the values, the indices (i64), the result."""
    wide = config.accumulator
    scratch = 0 if wide is config.dtype else size * wide.bytes
    grain = maximum(1, SHARE // maximum(1, size + 4 * windows))
    return Launch(planes, grain, (size, windows), scratch=scratch)


def emit(name: str, config: PoolConfig | PoolBackConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config; ``launch`` or ``back_launch`` gives its sizes."""
    if isinstance(config, PoolBackConfig):
        return _emit_back(name, config, target)
    return _Emitter(name, config, target).emit()


def _emit_back(name: str, config: PoolBackConfig, target: KernelTarget) -> KernelText:
    k, wide = Kernel(name, target), config.accumulator
    lanes = target.lanes(wide)
    values, indices = k.buffer("values", config.dtype), k.buffer("indices", i64)
    out = k.buffer("out", config.dtype)
    size, windows = k.size("size"), k.size("windows")

    def plane(p: Reg) -> None:
        direct = wide is config.dtype
        total = out if direct else k.scratch(wide)
        base = p * size if direct else k.index(0)
        k.halving_loop(size, lanes, lambda j, n: k.store(0, total, base + j, n))

        def window(w: Reg) -> None:
            at = k.cast(k.load(indices, p * windows + w), size.dtype)

            def add() -> None:
                k.store(
                    k.load(total, base + at) + k.load(values, p * windows + w), total, base + at
                )

            k.when((at >= 0) & (at < size), add)

        k.loop(0, windows, 1, window)
        if not direct:
            k.halving_loop(
                size, lanes, lambda j, n: k.store(k.load(total, j, n), out, p * size + j)
            )

    k.parallel(plane)
    return k.text()


@frozen
class _Masks:
    """Of a vector of windows: for each tap of a row those for which it is in the row, and those
    that are stored."""

    taps: tuple[Reg, ...]
    stored: Reg


class _Emitter:
    """Emits a pooling: a method a loop level."""

    def __init__(self, name: str, config: PoolConfig, target: KernelTarget) -> None:
        self.k = k = Kernel(name, target)
        self.config = config
        self.indices = config.what == "indices"
        self.wide = f32 if config.dtype in (f16, bf16) else config.dtype
        self.lanes = min(target.lanes(self.wide), target.lanes(i32))
        self.x = k.buffer("x", config.dtype)
        self.epilogue = ConvEpilogue(k, config.epilogue, config.operands)

        def axes(what: str) -> tuple[Reg, Reg, Reg]:
            return k.size(f"{what}_z"), k.size(f"{what}_y"), k.size(f"{what}_x")

        self.size, self.count, self.stride = axes("size"), axes("count"), axes("stride")
        self.low, self.dilation = axes("low"), axes("dilation")
        self.begin, self.end = k.size("whole_begin"), k.size("whole_end")
        self.counted = (axes("first"), axes("last")) if config.what == "mean" else None
        self.channels = k.size("channels") if "channel" in config.operands else None

    def emit(self) -> KernelText:
        self.k.parallel(self.plane)
        return self.k.text()

    def plane(self, p: Reg) -> None:
        k = self.k
        base = p * (self.size[0] * self.size[1] * self.size[2])
        out = p * (self.count[0] * self.count[1] * self.count[2])
        channel = k.index(0) if self.channels is None else p % self.channels
        self.numbers = self.epilogue.numbers(channel)
        rows = self.masked_rows if k.target.masks and self.config.step == 1 else self.rows
        k.loop(0, self.count[0], 1, lambda z: rows(z, base, out))

    def rows(self, z: Reg, base: Reg, out: Reg) -> None:
        """The windows (z, ...), row by row."""
        self.k.loop(0, self.count[1], 1, lambda y: self.row(z, y, base, out))

    def masked_rows(self, z: Reg, base: Reg, out: Reg) -> None:
        """The windows (z, ...), a vector of columns of all rows at a time."""
        k, lanes, (_, rows, count) = self.k, self.lanes, self.count

        def columns(first: Reg) -> None:
            k.loop(0, rows, 1, partial(row, first, self.masks(first)))

        def row(first: Reg, masks: _Masks, y: Reg) -> None:
            starts = self.starts(z, y)
            self.windows(starts, first, lanes, masks, base, out + (z * rows + y) * count)

        k.loop(0, count, lanes, columns)

    def masks(self, first: Reg) -> _Masks:
        """Those of the vector of windows from ``first`` on."""
        k, lanes = self.k, self.lanes

        def tap(n: int) -> Reg:
            place = first - self.low[2] + self.dilation[2] * n
            number = k.lane_numbers(i32, lanes)
            there = k.compare("ge", number, k.cast(k.index(0) - place, i32))
            return there & k.first_lanes(self.size[2] - place, lanes)

        stored = k.first_lanes(self.count[2] - first, lanes)
        return _Masks(tuple(tap(n) for n in range(self.config.taps[2])), stored)

    def row(self, z: Reg, y: Reg, base: Reg, out: Reg) -> None:
        """The windows (z, y, ...)."""
        k, count = self.k, self.count[2]
        to = out + (z * self.count[1] + y) * count
        starts = self.starts(z, y)

        def some(first: Reg, lanes: int, whole: bool) -> None:
            self.windows(starts, first, lanes, whole, base, to)

        k.loop(0, self.begin, 1, lambda j: some(j, 0, False))
        k.halving_loop(
            self.end - self.begin, self.lanes, lambda j, n: some(self.begin + j, n, True)
        )
        k.loop(self.end, count, 1, lambda j: some(j, 0, False))

    def starts(self, z: Reg, y: Reg) -> list[Reg]:
        """The first place of the windows (z, y, ...) along these axes."""
        return [i * s - lo for i, s, lo in zip((z, y), self.stride, self.low, strict=False)]

    def elements(self, starts: list[Reg], x0: Reg, whole: bool | _Masks) -> Reg:
        """How many places the mean of a window counts."""
        assert self.counted is not None
        k = self.k
        total = k.index(1)
        for axis, (at, low, taps) in enumerate(
            zip((*starts, x0), self.low, self.config.taps, strict=True)
        ):
            begin, end = (ends[axis] for ends in self.counted)
            first = at + low
            # Of windows that do not reach beyond the row all places count.
            if whole is True and axis == len(starts):
                total = total * taps
            elif whole and axis == len(starts):
                one = k.cast(first, i32) + k.lane_numbers(i32, self.lanes)
                last = k.minimum(one + taps, k.splat(k.cast(end, i32), self.lanes))
                own = last - k.maximum(one, k.splat(k.cast(begin, i32), self.lanes))
                total = k.cast(total, i32) * own
            else:
                total = total * (k.minimum(first + taps, end) - k.maximum(first, begin))
        return k.cast(total, self.wide)

    def windows(
        self, starts: list[Reg], first: Reg, lanes: int, whole: bool | _Masks, base: Reg, to: Reg
    ) -> None:
        """``lanes`` windows from ``first`` on; ``whole`` says that none reaches beyond the row, or
        has the masks of those that may."""
        k = self.k
        x0 = first * self.stride[2] - self.low[2]
        mean = self.config.what == "mean"
        acc = [k.const(0 if mean else bound(self.config.dtype, "min"), self.wide, lanes)]
        if self.indices:
            acc.append(k.const(-1, i32, lanes))
        masks = None if isinstance(whole, bool) else whole
        for tap in product(*(range(n) for n in self.config.taps)):
            mask = None if masks is None else masks.taps[tap[2]]
            places = [s + t * d for s, t, d in zip((*starts, x0), tap, self.dilation, strict=True)]
            inside = [
                (p >= 0) & (p < n)
                for p, n in zip(places[: 2 if whole else 3], self.size, strict=False)
            ]
            there = inside[0] & inside[1] if whole else inside[0] & inside[1] & inside[2]
            at = (places[0] * self.size[1] + places[1]) * self.size[2] + places[2]
            acc = k.when(
                there,
                lambda at=at, acc=acc, mask=mask: self.tap(base, at, lanes, acc, mask),
                lambda acc=acc: acc,
                results=acc,
            )
        result = k.cast(acc[1], i64) if self.indices else acc[0]
        if mean:
            result = result / self.elements(starts, x0, whole)
        stored = None if masks is None else masks.stored
        self.epilogue.part(result, self.numbers, to + first, lanes, stored)

    def tap(self, base: Reg, at: Reg, lanes: int, acc: list[Reg], mask: Reg | None) -> list[Reg]:
        """One tap of each window, the first one's at ``at`` of the plane; or of those in the
        mask."""
        k = self.k
        if mask is None:
            value = every(k, self.x, base + at, self.config.step, self.stride[2], lanes)
        else:
            value = k.load(self.x, base + at, lanes, mask)
        if self.config.what == "mean":
            return [acc[0] + value]
        if not self.indices:
            best = k.maximum(acc[0], value)
            return [best if mask is None else k.select(mask, best, acc[0])]
        here = k.cast(at, i32)
        if lanes:
            stride = k.cast(self.stride[2], i32)
            here = k.splat(here, lanes) + k.lane_numbers(i32, lanes) * k.splat(stride, lanes)
        best, found = acc
        takes = (found < 0) | (value > best)
        if self.wide.is_float:
            takes = takes | k.compare("ne", value, value)
        if mask is not None:
            takes = takes & mask
        return [k.select(takes, value, best), k.select(takes, here, found)]
