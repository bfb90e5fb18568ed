"""Depthwise convolutions of small images: vectors lie across the channels.

A row of a small image fills few lanes of a vector (``depthwise.py`` has them along the rows). So
the images of as many channels as a vector has lanes are transposed; then a window and a tap are one
multiply-add for all of them, and taps beside the image are left out::

    for each vector of channels:
        their images to scratch, transposed: [rows, columns, channels]
        for each tile, some whole rows of windows:
            for each row of taps that is there, for each column of the image: load it once
                for each window and tap it meets:    sums in registers
        the sums, transposed back, through the epilogue to the result

Rows above and below the image are zeros in scratch. A sum is one chain of fused multiply-adds over
the taps, as in ``conv``, so its bits depend on no cut.
"""

from __future__ import annotations

from rlx.base.frozen import frozen
from rlx.codegen.builder import Kernel, KernelTarget, KernelText
from rlx.codegen.family import Launch
from rlx.codegen.lanes import transposed
from rlx.codegen.program import Program
from rlx.codegen.reg import Reg
from rlx.codegen.strides import ceil_div
from rlx.kernels.conv.depthwise_plan import Pair
from rlx.kernels.conv.depthwise_plan import cycles as cycles_along
from rlx.kernels.conv.epilogue import ConvEpilogue
from rlx.kernels.conv.plan import ConvShape, OperandKind
from rlx.types import DType

__all__ = ["ConvDepthwiseAcrossConfig", "config_of", "emit", "launch", "suits"]


@frozen
class ConvDepthwiseAcrossConfig:
    """What the code depends on: as in ``ConvDepthwiseConfig``, with a window's taps and distances
    along rows and columns. ``columns`` are those of the image, ``windows`` those of a row, and
    ``rows`` the rows of windows of a tile, and of the last one."""

    dtype: DType
    source: DType
    kernel: Pair
    stride: Pair
    dilation: Pair
    low: int
    columns: int
    windows: int
    rows: Pair
    epilogue: Program
    operands: tuple[OperandKind, ...] = ()

    def met(self, column: int) -> list[Pair]:
        """The windows of a row and their taps that meet a column of the image."""
        return [
            (q, t) for q in range(self.windows) for t in range(self.kernel[1])
            if q * self.stride[1] + t * self.dilation[1] - self.low == column
        ]  # fmt: skip


MOST_WINDOWS = 24
"""Windows of a row at most: all have sums in registers."""
SUMS = 16
"""Sums of a tile wanted: enough for the latency of a multiply-add."""
MOST_BYTES = 48 * 1024
"""The images and sums of a vector of channels at most: they stay in the L1 cache."""
SQUARE_CYCLES = 4
"""What transposing a vector of a square costs."""
END_CYCLES = 3
"""The end of a vector of results."""
ROW_CYCLES = 4
"""What a row of taps costs a tile besides its multiply-adds."""


def suits(target: KernelTarget, shape: ConvShape, dt: DType) -> bool:
    """Whether the kernel does a depthwise convolution, and has less work than the one with vectors
    along the rows."""
    flat = shape.size[0] == shape.out[0] == shape.kernel[0] == 1 and shape.low[0] == 0
    if not target.masks or not flat or shape.outputs > 1 or shape.low[1] < 0:
        return False
    lanes, _, y, x = target.lanes(dt), *shape.size
    small = shape.out[2] <= MOST_WINDOWS and _scratch(shape, lanes) * dt.bytes <= MOST_BYTES
    if not small or y * x < lanes:
        return False
    vectors = ceil_div(shape.groups, lanes)
    return vectors * _cycles(shape, lanes) < shape.groups * cycles_along(target, shape, dt)


def _cycles(shape: ConvShape, lanes: int) -> float:
    """About the cycles of a vector of channels."""
    _, y, x = shape.size
    _, oy, ox = shape.out

    def meetings(axis: int) -> int:
        """Windows times taps along an axis that lie in the image."""
        n, s, k, d, low = (
            v[axis] for v in (shape.out, shape.stride, shape.kernel, shape.dilation, shape.low)
        )
        places = (q * s + t * d - low for q in range(n) for t in range(k))
        return sum(0 <= place < shape.size[axis] for place in places)

    squares = ceil_div(y * x, lanes) + ceil_div(oy * ox, lanes)
    ends = ceil_div(oy * ox, lanes) * END_CYCLES
    rows = meetings(1)
    return squares * lanes * SQUARE_CYCLES + ends * lanes + rows * (meetings(2) / 2 + ROW_CYCLES)


def _rows(shape: ConvShape) -> int:
    """Rows of the image in scratch, with those of zeros."""
    read = (shape.out[1] - 1) * shape.stride[1] + (shape.kernel[1] - 1) * shape.dilation[1] + 1
    return max(read, shape.low[1] + shape.size[1])


def _scratch(shape: ConvShape, lanes: int) -> int:
    """Elements of scratch: the images, and the sums up to whole squares."""
    sums = ceil_div(shape.out[1] * shape.out[2], lanes) * lanes
    return (_rows(shape) * shape.size[2] + sums) * lanes


def config_of(
    shape: ConvShape, dt: DType, source: DType, epilogue: Program,
    operands: tuple[OperandKind, ...],
) -> ConvDepthwiseAcrossConfig:  # fmt: skip
    """The config for a convolution whose input has the type ``source``."""
    oy, ox = shape.out[1:]
    rows = min(oy, max(1, SUMS // ox))
    return ConvDepthwiseAcrossConfig(
        dt, source, shape.kernel[1:], shape.stride[1:], shape.dilation[1:], shape.low[2],
        shape.size[2], ox, (rows, (oy - 1) % rows + 1), epilogue, operands,
    )  # fmt: skip


TASKS = 64
"""Tasks that keep some threads busy, and even out their speeds."""
GRAIN_FLOPS = 200_000
"""Work of the smallest share worth handing to another thread."""


def launch(
    config: ConvDepthwiseAcrossConfig,
    target: KernelTarget,
    shape: ConvShape,
    image: int,
    channel: int,
) -> Launch:
    """``image`` and ``channel`` are strides of the input in elements; a channel's rows lie side by
    side.

    The kernel's buffers are the input, the weights [vectors of channels, taps, lanes], the
    operands, and the result [images, channels, out].
    """
    lanes, (_, y, _), (_, oy, _) = target.lanes(config.dtype), shape.size, shape.out
    vectors = ceil_div(shape.groups, lanes)
    each = ceil_div(vectors, min(vectors, ceil_div(TASKS, shape.images)))
    tasks = ceil_div(vectors, each)
    work = 2 * shape.taps * oy * config.windows * each * lanes
    rows = _rows(shape)
    sizes = (
        image, channel, y, shape.low[1], rows, oy, ceil_div(oy, config.rows[0]), shape.groups,
        vectors, each, tasks,
    )  # fmt: skip
    return Launch(
        shape.images * tasks,
        max(1, GRAIN_FLOPS // max(1, work)),
        sizes,
        scratch=_scratch(shape, lanes) * config.dtype.bytes,
    )


def emit(name: str, config: ConvDepthwiseAcrossConfig, target: KernelTarget) -> KernelText:
    """The kernel of a config; ``launch`` gives its sizes."""
    return _Emitter(name, config, target).emit()


class _Emitter:
    """Emits one kernel: a method a loop level."""

    def __init__(self, name: str, config: ConvDepthwiseAcrossConfig, target: KernelTarget) -> None:
        self.k = k = Kernel(name, target)
        self.config, self.lanes = config, target.lanes(config.dtype)
        self.line = config.columns * self.lanes
        self.taps = config.kernel[0] * config.kernel[1]
        self.zero = k.const(0.0, config.dtype, self.lanes)
        self.x, self.w = k.buffer("x", config.source), k.buffer("w", config.dtype)
        self.epilogue = ConvEpilogue(k, config.epilogue, config.operands)
        names = (
            "x_image", "x_channel", "height", "low_y", "rows", "out_y", "tiles", "channels",
            "vectors", "task_vectors", "vector_tasks",
        )  # fmt: skip
        (
            self.x_image, self.x_channel, self.height, self.low_y, self.rows, self.out_y,
            self.tiles, self.channels, self.vectors, self.task_vectors, self.vector_tasks,
        ) = map(k.size, names)  # fmt: skip

    def emit(self) -> KernelText:
        self.k.parallel(self.task)
        return self.k.text()

    def task(self, index: Reg) -> None:
        """One (image, vectors of channels); the vectors vary fastest."""
        k = self.k
        self.scratch = k.scratch(self.config.dtype)
        self.sums_at = self.rows * self.line
        self.windows = self.out_y * self.config.windows
        vector_task, image = index % self.vector_tasks, index / self.vector_tasks
        first = vector_task * self.task_vectors
        last = k.minimum(first + self.task_vectors, self.vectors)

        def zeros(begin: Reg | int, end: Reg) -> None:
            step = self.lanes
            k.loop(begin, end, step, lambda at: k.store(self.zero, self.scratch, at, self.lanes))

        zeros(0, self.low_y * self.line)
        zeros((self.low_y + self.height) * self.line, self.sums_at)

        def vector(v: Reg) -> None:
            channel = v * self.lanes
            self.fill(image * self.x_image, channel)
            w, last = v * (self.taps * self.lanes), self.tiles - 1
            main, rest = self.config.rows
            k.loop(0, last, 1, lambda t: self.tile(w, t * main, main))
            self.tile(w, last * main, rest)
            self.finish(image, channel)

        k.loop(first, last, 1, vector)

    def fill(self, x: Reg, channel: Reg) -> None:
        """The images of a vector of channels to scratch; beyond the last channel, that one's."""
        k, lanes, size = self.k, self.lanes, self.height * self.config.columns
        each = [k.minimum(channel + n, self.channels - 1) for n in range(lanes)]
        starts = [x + c * self.x_channel for c in each]
        to = self.low_y * self.line

        def square(j: Reg) -> None:
            at = k.minimum(j, size - lanes)  # the last one overlaps
            found = [k.load(self.x, start + at, lanes) for start in starts]
            for n, value in enumerate(transposed(k, found)):
                k.store(value, self.scratch, to + at * lanes + n * lanes, lanes)

        k.loop(0, size, lanes, square)

    def tile(self, w: Reg, row: Reg, rows: int) -> None:
        """The sums of ``rows`` rows of windows."""
        k, config, lanes = self.k, self.config, self.lanes
        count = config.windows
        y0 = row * config.stride[0]

        def line(b: Reg, *acc: Reg) -> list[Reg]:
            y = y0 + b * config.dilation[0]
            end = y + (rows - 1) * config.stride[0]
            there = (end >= self.low_y) & (y < self.low_y + self.height)
            weights = w + b * (config.kernel[1] * lanes)
            return k.when(there, lambda: self.add(y, weights, acc), lambda: acc, acc)

        sums = k.loop(0, config.kernel[0], 1, line, [self.zero] * (rows * count))
        to = self.sums_at + row * (count * lanes)
        for n, value in enumerate(sums):
            k.store(value, self.scratch, to + n * lanes, lanes)

    def add(self, y: Reg, w: Reg, acc: tuple[Reg, ...]) -> list[Reg]:
        """Add a row of taps, which for the first row of windows is at row ``y`` of scratch."""
        k, config, lanes, sums = self.k, self.config, self.lanes, list(acc)
        weights = [k.load(self.w, w + t * lanes, lanes) for t in range(config.kernel[1])]
        rows, at = len(acc) // config.windows, y * self.line
        for column in range(config.columns):
            met = config.met(column)
            for r in range(rows if met else 0):
                place = r * config.stride[0] * self.line + column * lanes
                x = k.load(self.scratch, at + place, lanes)
                for q, t in met:
                    n = r * config.windows + q
                    sums[n] = k.fma(weights[t], x, sums[n])
        return sums

    def finish(self, image: Reg, channel: Reg) -> None:
        """The results of a vector of channels."""
        k, lanes = self.k, self.lanes
        c = (image * self.channels + channel) * self.windows

        def square(j: Reg) -> None:
            at = self.sums_at + j * lanes
            found = [k.load(self.scratch, at + n * lanes, lanes) for n in range(lanes)]
            mask = k.first_lanes(self.windows - j, lanes)

            def row(n: int, value: Reg) -> None:
                numbers = self.epilogue.numbers(channel + n)
                self.epilogue.part(value, numbers, c + n * self.windows + j, lanes, mask)

            for n, value in enumerate(transposed(k, found)):
                k.when(channel + n < self.channels, lambda n=n, value=value: row(n, value))

        k.loop(0, self.windows, lanes, square)
