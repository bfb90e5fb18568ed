"""Images at places that are data, and images of columns: what ONNX and torch have alike."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.errors import UnsupportedError
from rlx.frontends.common.values import constant, scalar
from rlx.ir.value import Value
from rlx.ops.indexing.gather import Gather
from rlx.ops.movement.slicing import Slice
from rlx.ops.pointwise.unary import Abs, Floor, Round
from rlx.types import f32, i64

__all__ = ["column_places", "image_of_columns", "sample_grid"]

Ints = Sequence[int]


# -- samples at coordinates ----------------------------------------------------------------


def _reflected(at: Value, low: float, high: float) -> Value:
    """A coordinate mirrored at both ends until it lies between them."""
    span = high - low
    if span <= 0:
        return at * 0 + low
    d = Abs.build(at - low)
    turns = Floor.build(d / span)
    rest = d - turns * span
    odd = (turns - Floor.build(turns / 2) * 2).gt(0.5)
    return odd.where(high - rest, low + rest)


class _Grid:
    """Samples of images ``[N, C, *S]`` at places ``[N, P, axes]``."""

    def __init__(self, x: Value, padding: str, align: bool) -> None:
        self.x, self.padding, self.align = x, padding, align
        self.sizes = x.type.static_shape[2:]
        self.flat = x.reshape([*x.shape[:2], int(np.prod(self.sizes))])

    def bounded(self, at: Value, size: int) -> Value:
        """A place as the padding has it; one that is outside stays so if that is zeros."""
        if self.padding == "reflection":
            low, high = (0, size - 1) if self.align else (-0.5, size - 0.5)
            at = _reflected(at, low, high)
        return at if self.padding == "zeros" else at.maximum(0).minimum(size - 1)

    def at(self, places: Sequence[Value]) -> Value:
        """The elements at whole places, one an axis: [N, C, P]."""
        index: Value | None = None
        inside: Value | None = None
        for place, size in zip(places, self.sizes, strict=True):
            here = place.ge(0).logical_and(place.le(size - 1))
            inside = here if inside is None else inside.logical_and(here)
            step = place.maximum(0).minimum(size - 1).cast(i64)
            index = step if index is None else index * size + step
        assert index is not None and inside is not None, "an image has an axis"
        found = Gather.build(self.flat, index, 2, "clip", batch_dims=1)
        kept = inside.reshape([inside.shape[0], 1, inside.shape[1]])
        return kept.where(found, constant(0, found.dtype))

    def nearest(self, places: Sequence[Value]) -> Value:
        return self.at([Round.build(p) for p in places])

    def mixed(
        self, places: Sequence[Value], taps: Sequence[int], weight: Callable[..., Any]
    ) -> Value:
        """Sums over the elements around a place, weighted along each axis by their distance."""
        firsts = [Floor.build(p) for p in places]
        total: Value | None = None
        for offsets in itertools.product(taps, repeat=len(places)):
            at = [f + o for f, o in zip(firsts, offsets, strict=True)]
            factor = None
            for a, p in zip(at, places, strict=True):
                w = weight(Abs.build(a - p))
                factor = w if factor is None else factor * w
            assert factor is not None, "an image has an axis"
            bounded = [self.bounded(a, s) for a, s in zip(at, self.sizes, strict=True)]
            part = self.at(bounded) * factor.cast(self.x.dtype).reshape(
                [factor.shape[0], 1, factor.shape[1]]
            )
            total = part if total is None else total + part
        assert total is not None, "there are taps"
        return total


def _cubic_weight(d: Value) -> Value:
    """The weights of the elements at distances below 2."""
    near = (d * 1.25 - 2.25) * d * d + 1
    far = ((d * -0.75 + 3.75) * d - 6) * d + 3
    return d.le(1).where(near, far)


def sample_grid(x: Value, grid: Value, mode: str, padding: str, align: bool) -> Value:
    """Images ``[N, C, *S]`` at places ``[N, *P, axes]`` between -1 and 1, whose last axis has the
    coordinate of the first spatial one last.

    ``mode`` is "nearest", "linear" or "cubic", ``padding`` "zeros", "border" or "reflection"; with
    ``align`` -1 and 1 are the centres of the outermost elements, else their outer edges.
    """
    g = _Grid(x, padding, align)
    rank, points = len(g.sizes), grid.shape[1:-1]
    flat = grid.cast(f32 if grid.dtype.bits < 32 else grid.dtype)
    flat = flat.reshape([grid.shape[0], grid.type.with_shape(points).size, rank])
    places: list[Value] = []
    for axis, size in enumerate(g.sizes):
        u = flat.narrow(2, rank - 1 - axis, 1).reshape(flat.shape[:2])
        at = (u + 1) / 2 * (size - 1) if align else ((u + 1) * size - 1) / 2
        places.append(at if mode == "cubic" else g.bounded(at, size))
    if mode == "nearest":
        out = g.nearest(places)
    elif mode == "linear":
        out = g.mixed(places, (0, 1), lambda d: scalar(1, d) - d)
    elif mode == "cubic":
        out = g.mixed(places, (-1, 0, 1, 2), _cubic_weight)
    else:
        raise UnsupportedError(f"its mode is {mode!r}; there are nearest, linear and cubic")
    return out.reshape([*x.shape[:2], *points])


# -- columns -------------------------------------------------------------------------------


def column_places(whole: Ints, block: Ints, strides: Ints, dilations: Ints) -> Any:
    """The places in a flat image of the elements of each block: [elements of a block, blocks]."""
    flat = np.zeros((1, 1), np.int64)
    for size, taps, stride, dilation in zip(whole, block, strides, dilations, strict=True):
        count = (size - (taps - 1) * dilation - 1) // stride + 1
        at = np.add.outer(np.arange(taps) * dilation, np.arange(count) * stride)
        flat = (flat[:, None, :, None] * size + at[None, :, None, :]).reshape(
            flat.shape[0] * taps, flat.shape[1] * count
        )
    return flat


def image_of_columns(
    x: Value, image: Ints, block: Ints, strides: Ints, dilations: Ints, low: Ints, high: Ints
) -> Value:
    """Columns ``[N, C * block, blocks]`` added up into the images ``[N, C, *image]`` that they are
    from."""
    whole = [d + lo + hi for d, lo, hi in zip(image, low, high, strict=True)]
    flat = column_places(whole, block, strides, dilations)
    batch, channels = x.shape[0], x.shape[1] // int(np.prod(block))
    columns = x.reshape([batch, channels, flat.size])
    out = columns.scatter_add(constant(flat.reshape(-1)), int(np.prod(whole)), 2)
    out = out.reshape([batch, channels, *whole])
    return Slice.build(out, [0, 0, *low], [batch, channels, *image])
