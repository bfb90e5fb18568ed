"""Tiles and tasks of convolutions along the channels for images of any size.

``channels_plan.py`` makes the tiles of a line whose length is known. A kernel for any length holds
the code of every tile that a line may be made of, finds the tiles of a call, and cuts the tasks
itself. Of images it has code for the windows in the middle of a row, and for those at its ends,
which leave out the taps on the padding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

from rlx.base.dims import maximum, minimum
from rlx.base.frozen import frozen
from rlx.base.guards import within
from rlx.codegen.family import Launch
from rlx.codegen.strides import ceil_div
from rlx.kernels.conv.plan import ConvShape, Planes, Triple

__all__ = [
    "PART_BYTES", "TASKS", "TASK_SUMS", "AnyTiles", "Ends", "RowTile", "Span", "launch",
    "on_images", "tiles_of",
]  # fmt: skip

Span = tuple[int, int]
"""Neighbouring numbers: the first one, and that behind the last."""

PART_BYTES = 512 * 1024
"""Input and weights of a part that are in use together: they stay in the L2 cache."""
TASKS = 16
"""Tasks that keep some threads busy, and even out their speeds."""
TASK_SUMS = 64
"""Tiles times blocks of a task at most: their sums wait in the L2 cache."""
MOST_ENDS = 3
"""Taps of a row, and amounts of padding at its end: each is code of its own."""


@frozen
class Ends:
    """The ends of rows of an image: how many ``taps`` a row of a window has, ``step`` and ``gap``,
    the elements from a window to the next and from a tap to the next, the elements of padding that
    the first window begins with (``low``), and how many the last one may end with (``high``)."""

    taps: int
    step: int
    gap: int
    low: int
    high: Span

    def across(self, windows: int, first: bool, high: int) -> tuple[Span, ...]:
        """For each tap, the windows of a tile for which it is in the image; ``first`` says that the
        tile begins a row, and ``high`` with how many elements of padding it ends."""

        def span(tap: int) -> Span:
            at, reach = tap * self.gap, (self.taps - 1) * self.gap
            begin = max(0, ceil_div(self.low - at, self.step)) if first else 0
            beyond = max(0, ceil_div(at + high - reach, self.step))
            return (begin, windows - beyond) if begin < windows - beyond else (0, 0)

        return tuple(span(tap) for tap in range(self.taps))


@frozen
class RowTile:
    """A tile of which a kernel has code: ``rows`` of so many ``columns`` of windows, and where it
    is in a row of an image: at its beginning (``first``), at its end, with ``high`` elements of
    padding behind."""

    rows: int
    columns: int
    first: bool = False
    high: int = 0


@frozen
class AnyTiles:
    """The tiles that a line may be made of: of ``line`` windows of a row, or of whole rows of
    ``row`` windows, together no more than ``most``, and no more than ``rows`` of them. On images
    rows have ``ends``."""

    most: int
    line: Span
    row: Span
    rows: int
    ends: Ends | None = None

    def in_lines(self) -> Iterator[RowTile]:
        """The tiles of windows of a row."""
        high = sorted({0, *range(*self.ends.high)}) if self.ends else [0]
        for first, n in product((False, True) if self.ends else (False,), high):
            yield from (RowTile(1, count, first, n) for count in range(*self.line))

    def in_rows(self) -> Iterator[RowTile]:
        """The tiles of whole rows."""
        high = self.ends.high if self.ends else (0, 1)
        for columns in range(*self.row):
            for rows in range(1, min(self.most // columns, self.rows) + 1):
                yield from (RowTile(rows, columns, bool(self.ends), n) for n in range(*high))


def tiles_of(shape: ConvShape, most: int, flat: bool, images: bool) -> AnyTiles:
    """The tiles of up to ``most`` windows on images or on planes; ``flat`` says that all windows
    of an image are one line."""
    if flat:
        return AnyTiles(most, (1, most + 1), (1, 1), 0)
    longest, rows = (within(n)[1] for n in (shape.out[2], shape.out[1]))
    row = most // 2
    line = (row, most + 1) if longest > row else (1, 1)
    few = within(shape.out[2])[0] <= row
    whole = (1, int(min(longest, row)) + 1) if few else (1, 1)
    return AnyTiles(most, line, whole, int(min(rows, most)), _ends(shape) if images else None)


def on_images(shape: ConvShape, most: int) -> bool:
    """Whether rows of images of any size have few different ends, each in one tile."""
    ends = _ends(shape)
    return ends is not None and max(ends.low, ends.high[1] - 1) <= most // 2 * ends.step


def _ends(shape: ConvShape) -> Ends | None:
    """The ends of rows of images; None if they are too different."""
    taps, step, gap = shape.kernel[2], shape.stride[2], shape.dilation[2]
    low, high = within(_padding(shape))
    if taps > MOST_ENDS or high - low >= MOST_ENDS:
        return None
    return Ends(taps, step, gap, shape.low[2], (int(low), int(high) + 1))


def _padding(shape: ConvShape) -> int:
    """The elements of padding that the last window of a row ends with."""
    reach = (shape.kernel[2] - 1) * shape.dilation[2]
    last = (shape.out[2] - 1) * shape.stride[2] - shape.low[2]
    return maximum(0, last + reach + 1 - shape.size[2])


def launch(
    tiles: AnyTiles, shape: ConvShape, layout: Planes, group: int, steps: Triple,
    width: int, strip_rows: int, lanes: int, bytes_each: int,
) -> Launch:  # fmt: skip
    """The launch as in ``channels_plan.py``: ``steps`` are how far apart windows are in what is
    read, and blocks have ``width`` channels. Its range may have more tasks than the kernel cuts."""
    oz, oy, ox = shape.out
    _, qy, qx = layout.size
    windows, outputs = oz * oy * ox, shape.groups * shape.outputs
    flat = tiles.row == (1, 1) and tiles.line[0] == 1
    slices, rows, length = (1, 1, windows) if flat else (oz, oy, ox)
    blocks = ceil_div(shape.outputs, width)
    sizes = (
        layout.image, steps[0] * qy * qx, steps[1] * qx, group, layout.channel,
        outputs * windows, oy * ox, ox, windows, shape.images, slices, rows, length,
        shape.groups, shape.channels, shape.taps, shape.outputs,
        shape.images * math.prod(layout.size),
    )  # fmt: skip
    if tiles.ends is not None:
        edges = (
            shape.low[1] * qx + shape.low[2], shape.dilation[1] * qx, shape.stride[1],
            shape.dilation[1], shape.low[1], shape.size[1], shape.kernel[1],
        )  # fmt: skip
        sizes = (*sizes, _padding(shape), *edges)
    # As many tiles as there may be, and as many tasks of these as `cut` of the kernel may make.
    most = shape.images * slices * rows * ceil_div(length, tiles.most)
    wanted = minimum(blocks, TASKS)
    cuts = 2 * TASKS + wanted + ceil_div(most * (blocks + wanted), TASK_SUMS)
    tasks = minimum(most * blocks, cuts)
    strip = strip_rows * (lanes + width * (TASK_SUMS + blocks))
    return Launch(shape.groups * tasks, 1, sizes, scratch=strip * bytes_each)
