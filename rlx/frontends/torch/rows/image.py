"""Images in other sizes, at other places, and as columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.errors import DTypeError
from rlx.frontends.common.images import column_places, image_of_columns, sample_grid
from rlx.frontends.torch.node import Node, Row, Rows, static
from rlx.frontends.torch.rows.window import each
from rlx.ir.value import Value
from rlx.ops.conv.resize import Resize, mixed
from rlx.ops.indexing.gather import Gather
from rlx.ops.pointwise.cast import widened
from rlx.types import Dim, SymDim

__all__ = ["ROWS"]

Array = np.ndarray[Any, Any]
Ints = Sequence[int]


def shuffled(n: Node, x: Value, upscale_factor: int) -> Value:
    lead = x.shape[:-3]
    return (
        x.reshape([-1, *x.shape[-3:]]).pixel_shuffle(upscale_factor).reshape([*lead, *n.shape[-3:]])
    )


def unshuffled(n: Node, x: Value, downscale_factor: int) -> Value:
    lead = x.shape[:-3]
    return (
        x.reshape([-1, *x.shape[-3:]])
        .pixel_unshuffle(downscale_factor)
        .reshape([*lead, *n.shape[-3:]])
    )


# -- other sizes ---------------------------------------------------------------------------


def _agree(old: Dim, new: Dim, scale: float | None) -> bool:
    """Whether the quotient of the sizes is the scale that places are computed with."""
    if scale is None or isinstance(old, SymDim) or isinstance(new, SymDim):
        return True
    return abs(old * scale - new) < 1e-6


def nearest(coordinates: str) -> Row:
    """The nearest element: torch's "nearest", or its "nearest-exact"."""

    def row(n: Node, x: Value, output_size: Any, *scales: float | None) -> Value:
        sizes, given = n.shape[2:], _scales(scales, len(n.shape) - 2)
        if all(map(_agree, x.shape[2:], sizes, given)):
            return Resize.build(x, sizes, "nearest", coordinates)
        shift = 0.5 if coordinates == "half_pixel" else 0.0
        for axis, (new, scale) in enumerate(zip(sizes, given, strict=True), 2):
            old, count = static(n, x.shape[axis], "a size"), static(n, new, "a new size")
            step = 1 / scale if scale is not None else old / count
            places = np.floor((np.arange(count, dtype=np.float32) + shift) * np.float32(step))
            x = Gather.build(x, np.clip(places, 0, old - 1).astype(np.int64), axis, "clip")
        return x

    return row


def _scales(given: Sequence[Any], rank: int) -> list[float | None]:
    """A scale for each axis: they are given one by one, or in a list."""
    flat = given[0] if given and isinstance(given[0], list | tuple) else given
    return list(flat) if len(flat) == rank else [None] * rank


def interpolated(mode: str) -> Row:
    """Linear or cubic interpolation."""

    def row(
        n: Node, x: Value, output_size: Any, align_corners: bool, *scales: float | None
    ) -> Value:
        sizes, given = n.shape[2:], _scales(scales, len(n.shape) - 2)
        if align_corners or all(map(_agree, x.shape[2:], sizes, given)):
            coordinates = "align_corners" if align_corners else "half_pixel"
            return Resize.build(x, sizes, mode, coordinates)
        taps = _linear if mode == "linear" else _cubic(-0.75)
        return _weighted(n, x, given, align_corners, taps, antialias=False)

    return row


def antialiased(mode: str) -> Row:
    """Interpolation that smooths where it shrinks, as Pillow has it."""

    def row(
        n: Node, x: Value, output_size: Any, align_corners: bool, *scales: float | None
    ) -> Value:
        given = _scales(scales, len(n.shape) - 2)
        taps = _linear if mode == "linear" else _cubic(-0.5)
        return _weighted(n, x, given, align_corners, taps, antialias=True)

    return row


def _linear(d: Array) -> Array:
    return np.maximum(1 - d, 0)


def _cubic(slope: float) -> Callable[[Array], Array]:
    def weights(d: Array) -> Array:
        near = ((slope + 2) * d - (slope + 3)) * d * d + 1
        far = ((slope * d - 5 * slope) * d + 8 * slope) * d - 4 * slope
        return np.where(d < 1, near, np.where(d < 2, far, 0))

    return weights


def _weighted(
    n: Node, x: Value, scales: Sequence[float | None], align: bool,
    taps: Callable[[Array], Array], *, antialias: bool,
) -> Value:  # fmt: skip
    """Axis by axis, with the weights of the old elements in the new ones; of 16-bit floats in f32,
    rounded once, as torch does."""
    if not x.dtype.is_float:
        raise DTypeError(f"interpolation takes floats, found {x.dtype}; convert it by x.float()")
    out = widened(x)
    for axis, (size, scale) in enumerate(zip(n.shape[2:], scales, strict=True), 2):
        old, new = static(n, x.shape[axis], "a size"), static(n, size, "a new size")
        step = (old - 1) / max(new - 1, 1) if align else old / new if scale is None else 1 / scale
        weights = _weights(old, new, step, taps, antialias)
        out = mixed(out, axis, weights)
    return out.cast(x.dtype)


def _weights(
    old: int, new: int, step: float, taps: Callable[[Array], Array], antialias: bool
) -> Array:
    """[new, old]; what would lie beyond the border counts for the element at it."""
    reach = 2 if taps is not _linear else 1
    if antialias:
        wide = max(step, 1.0)
        centre = (np.arange(new) + 0.5) * step
        first = np.maximum(np.trunc(centre - reach * wide + 0.5), 0)
        last = np.minimum(np.trunc(centre + reach * wide + 0.5), old)
        at = np.arange(old)
        found = taps(np.abs(at - centre[:, None] + 0.5) / wide)
        found = np.where((at >= first[:, None]) & (at < last[:, None]), found, 0)
        return found / found.sum(1, keepdims=True)
    place = (np.arange(new) + 0.5) * step - 0.5
    place = np.clip(place, 0, old - 1) if taps is _linear else place
    found = np.zeros((new, old))
    base = np.floor(place)
    for offset in range(1 - reach, reach + 1):
        index = np.clip(base + offset, 0, old - 1).astype(int)
        np.add.at(found, (np.arange(new), index), taps(np.abs(base + offset - place)))
    return found


# -- other places, and columns -------------------------------------------------------------

MODES = ("linear", "nearest", "cubic")
PADDINGS = ("zeros", "border", "reflection")


def sampled(
    n: Node, x: Value, grid: Value, interpolation_mode: int, padding_mode: int,
    align_corners: bool,
) -> Value:  # fmt: skip
    mode, padding = MODES[interpolation_mode], PADDINGS[padding_mode]
    return sample_grid(x, grid, mode, padding, align_corners)


def to_columns(
    n: Node, x: Value, kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints
) -> Value:
    """The elements of each block as a column: [N, C * block, blocks]."""
    block, spread, around, steps = (each(v, 2) for v in (kernel_size, dilation, padding, stride))
    batch = x if x.rank == 4 else x.unsqueeze(0)
    wide = batch.pad([0, 0, *around], [0, 0, *around])
    sizes = [static(n, d, "a size") for d in wide.shape[2:]]
    places = column_places(sizes, block, steps, spread)
    flat = wide.reshape([*wide.shape[:2], int(np.prod(sizes))])
    return Gather.build(flat, places, 2, "clip").reshape(n.shape)


def from_columns(
    n: Node, x: Value, output_size: Ints, kernel_size: Ints, dilation: Ints, padding: Ints,
    stride: Ints,
) -> Value:  # fmt: skip
    block, spread, around, steps = (each(v, 2) for v in (kernel_size, dilation, padding, stride))
    batch = x if x.rank == 3 else x.unsqueeze(0)
    image = [static(n, d, "a size of the image") for d in output_size]
    out = image_of_columns(batch, image, block, steps, spread, around, around)
    return out.reshape(n.shape)


ROWS: Rows = {
    "pixel_shuffle": shuffled, "pixel_unshuffle": unshuffled,
    **{f"upsample_nearest{d}d": nearest("asymmetric") for d in (1, 2, 3)},
    **{f"_upsample_nearest_exact{d}d": nearest("half_pixel") for d in (1, 2, 3)},
    "upsample_linear1d": interpolated("linear"), "upsample_bilinear2d": interpolated("linear"),
    "upsample_trilinear3d": interpolated("linear"), "upsample_bicubic2d": interpolated("cubic"),
    "_upsample_bilinear2d_aa": antialiased("linear"),
    "_upsample_bicubic2d_aa": antialiased("cubic"),
    "grid_sampler_2d": sampled, "grid_sampler_3d": sampled,
    "im2col": to_columns, "col2im": from_columns,
}  # fmt: skip
