"""Convolutions and pooling. A tensor without a batch axis gets one for the op."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.base.dims import ceil_div
from rlx.frontends.common.values import constant
from rlx.frontends.torch.node import Node, Row, Rows, static
from rlx.ir.value import Value
from rlx.ops.conv.conv import Conv, ConvTranspose
from rlx.ops.conv.max_pool import MaxPool, MaxPoolIndices
from rlx.ops.conv.pool import MeanPool
from rlx.ops.conv.window import Padding
from rlx.ops.indexing.along import take_along_axis
from rlx.ops.indexing.gather import Gather
from rlx.ops.movement.constant import Iota
from rlx.ops.sugar import concat
from rlx.types import Dim, i64

__all__ = ["ROWS", "each"]

Ints = Sequence[int]


def each(numbers: Ints | int, rank: int) -> list[int]:
    """A number for each spatial axis."""
    listed = [numbers] if isinstance(numbers, int) else list(numbers)
    return listed if len(listed) == rank else listed * rank


def batched(x: Value, rank: int, run: Callable[[Value], Value]) -> Value:
    """A function of [N, C, *spatial] on a tensor that may lack N."""
    return run(x) if x.rank == rank + 2 else run(x.unsqueeze(0)).squeeze(0)


# -- convolutions --------------------------------------------------------------------------


def conv(
    n: Node, x: Value, weight: Value, bias: Value | None = None, stride: Ints = (1,),
    padding: Ints | str = (0,), dilation: Ints = (1,), groups: int = 1,
) -> Value:  # fmt: skip
    rank = weight.rank - 2
    steps, spread = each(stride, rank), each(dilation, rank)
    if isinstance(padding, str):
        taps = [static(n, d, "a size of its kernel") for d in weight.shape[2:]]
        total = [(k - 1) * d if padding == "same" else 0 for k, d in zip(taps, spread, strict=True)]
        around: Padding = [(t // 2, t - t // 2) for t in total]
    else:
        around = each(padding, rank)

    def run(v: Value) -> Value:
        return Conv.build(v, weight, bias, steps, around, spread, groups)

    return batched(x, rank, run)


def conv_transpose(
    n: Node, x: Value, weight: Value, bias: Value | None = None, stride: Ints = (1,),
    padding: Ints = (0,), output_padding: Ints = (0,), groups: int = 1, dilation: Ints = (1,),
) -> Value:  # fmt: skip
    rank = weight.rank - 2
    steps, around, more, spread = (
        each(v, rank) for v in (stride, padding, output_padding, dilation)
    )

    def run(v: Value) -> Value:
        return ConvTranspose.build(v, weight, bias, steps, around, more, groups, spread)

    return batched(x, rank, run)


def convolution(
    n: Node, x: Value, weight: Value, bias: Value | None, stride: Ints, padding: Ints,
    dilation: Ints, transposed: bool, output_padding: Ints, groups: int,
) -> Value:  # fmt: skip
    """The core op, which is either of them."""
    if transposed:
        return conv_transpose(n, x, weight, bias, stride, padding, output_padding, groups, dilation)
    return conv(n, x, weight, bias, stride, padding, dilation, groups)


# -- pooling -------------------------------------------------------------------------------


def max_pool(rank: int) -> Row:
    """The greatest element of each window."""

    def row(
        n: Node, x: Value, kernel_size: Ints, stride: Ints = (), padding: Ints = (0,),
        dilation: Ints = (1,), ceil_mode: bool = False,
    ) -> Value:  # fmt: skip
        taps, steps, around, spread = _windows(rank, kernel_size, stride, padding, dilation)

        def run(v: Value) -> Value:
            return MaxPool.build(v, taps, steps, around, spread, ceil_mode)

        return batched(x, rank, run)

    return row


def _windows(
    rank: int, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints
) -> tuple[list[int], list[int], list[int], list[int]]:
    taps = each(kernel, rank)
    steps = each(stride, rank) if stride or isinstance(stride, int) else taps
    return taps, steps, each(padding, rank), each(dilation, rank)


def max_pool_with_indices(rank: int) -> Row:
    """The greatest element of each window, and its place in the plane."""

    def row(
        n: Node, x: Value, kernel_size: Ints, stride: Ints = (), padding: Ints = (0,),
        dilation: Ints = (1,), ceil_mode: bool = False,
    ) -> tuple[Value, Value]:  # fmt: skip
        taps, steps, around, spread = _windows(rank, kernel_size, stride, padding, dilation)

        def values(v: Value) -> Value:
            return MaxPool.build(v, taps, steps, around, spread, ceil_mode)

        def places(v: Value) -> Value:
            return MaxPoolIndices.build(v, taps, steps, around, spread, ceil_mode)

        return batched(x, rank, values), batched(x, rank, places)

    return row


def mean_pool(rank: int) -> Row:
    """The mean of each window."""

    def row(
        n: Node, x: Value, kernel_size: Ints, stride: Ints = (), padding: Ints = (0,),
        ceil_mode: bool = False, count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Value:  # fmt: skip
        taps, steps, around, _ = _windows(rank, kernel_size, stride, padding, (1,))
        if divisor_override is not None and ceil_mode:
            n.refuse("it has a divisor of its own together with ceil_mode")
        if ceil_mode:  # windows count what they have of a tensor that is smaller than they are
            sizes = zip(taps, x.shape[-rank:], around, strict=True)
            taps = [min(t, d + 2 * p) if isinstance(d, int) else t for t, d, p in sizes]
        counts_padding = count_include_pad or divisor_override is not None

        def run(v: Value) -> Value:
            return MeanPool.build(v, taps, steps, around, ceil_mode, counts_padding)

        out = batched(x, rank, run)
        return out if divisor_override is None else out * (math.prod(taps) / divisor_override)

    return row


def adaptive_mean_pool(rank: int) -> Row:
    """The means of as many windows as the result has places, of equal sizes where these divide
    the tensor's."""

    def row(n: Node, x: Value, output_size: Ints) -> Value:
        out = x
        for axis in range(x.rank - rank, x.rank):
            out = _means_along(n, out, axis)
        return out

    return row


def _means_along(n: Node, x: Value, axis: int) -> Value:
    size, count = x.shape[axis], n.shape[axis]
    if count == 1:
        return x.mean([axis], True)
    if size == count:
        return x
    whole, parts = static(n, size, "a size that it pools"), static(n, count, "its result's size")
    if whole % parts == 0:
        split = [*x.shape[:axis], parts, whole // parts, *x.shape[axis + 1 :]]
        return x.reshape(split).mean([axis + 1])
    ends = [(i * whole // parts, ceil_div((i + 1) * whole, parts)) for i in range(parts)]
    return concat([x.narrow(axis, a, b - a).mean([axis], True) for a, b in ends], axis)


def adaptive_max_pool(rank: int) -> Row:
    """The greatest elements of such windows, and their places in the plane."""

    def row(n: Node, x: Value, output_size: Ints) -> tuple[Value, Value]:
        sizes = [static(n, d, "a size that it pools") for d in x.shape[-rank:]]
        counts = [static(n, d, "its result's size") for d in n.shape[-rank:]]
        places = _window_places(sizes, counts)
        flat = x.reshape([*x.shape[: x.rank - rank], math.prod(sizes)])
        taken = Gather.build(flat, places, flat.rank - 1, "clip")
        which = taken.argmax(taken.rank - 1)
        table = constant(places).expand(taken.shape)
        at = take_along_axis(table, which.unsqueeze(-1), table.rank - 1).squeeze(-1)
        values = taken.reduce_max([taken.rank - 1])
        return values.reshape(n.shape), at.reshape(n.shape)

    return row


def fractional_max_pool(rank: int) -> Row:
    """The greatest elements of windows of one size, and their places in the plane; where the
    windows lie along an axis follows from a number that was drawn for it in each plane."""

    def row(
        n: Node, x: Value, kernel_size: Ints, output_size: Ints, random_samples: Value
    ) -> tuple[Value, Value]:
        counts = [static(n, d, "its result's size") for d in n.shape[-rank:]]
        drawn = random_samples.flip([2]) if rank == 2 else random_samples  # of 2D, columns first
        planes = drawn.shape[:2]
        windows = list(zip(x.shape[-rank:], counts, each(kernel_size, rank), strict=True))
        at: Value = constant(0, i64).expand([*planes, 1, 1])
        for axis, (size, count, taps) in enumerate(windows):
            begin = _drawn(n, drawn.narrow(2, axis, 1), size, count, taps)
            along = begin.reshape([*planes, 1, count, 1, 1]) + Iota((taps,), 0, i64).out
            at = at.unsqueeze(3).unsqueeze(-1) * n.cast(size, i64) + along
            at = at.reshape([*planes, at.shape[2] * count, at.shape[4] * taps])
        flat = x.reshape([*planes, -1])
        taken = take_along_axis(flat, at.reshape([*planes, -1]), 2).reshape(at.shape)
        values, which = taken.reduce_max([3]), taken.argmax(3).unsqueeze(-1)
        places = take_along_axis(at, which, 3)
        return values.reshape(n.shape), places.reshape(n.shape)

    return row


def _drawn(n: Node, drawn: Value, size: Dim, count: int, taps: int) -> Value:
    """Where the windows along an axis begin, of which the last one ends with it."""
    last = n.cast(size, i64) - taps
    line = Iota((count,), 0, i64).out
    step = last.cast(drawn.dtype) / max(count - 1, 1)
    found = ((line.cast(drawn.dtype) + drawn) * step).cast(i64) - (drawn * step).cast(i64)
    return line.eq(count - 1).where(last, found)


def _window_places(sizes: Ints, counts: Ints) -> np.ndarray[Any, Any]:
    """The places in a flat plane of the elements of each window: [windows, elements], of which the
    first is there again where a window has fewer than others."""
    rows = [
        [range(i * s // c, -(-(i + 1) * s // c)) for i in range(c)]
        for s, c in zip(sizes, counts, strict=True)
    ]
    windows: list[list[int]] = []
    for window in itertools.product(*rows):
        places = [0]
        for s, along in zip(sizes, window, strict=True):
            places = [p * s + i for p in places for i in along]
        windows.append(places)
    longest = max(map(len, windows), default=0)
    return np.array([[*w, *w[:1] * (longest - len(w))] for w in windows], np.int64)


ROWS: Rows = {
    "convolution": convolution,
    **{f"conv{d}d{padding}": conv for d in (1, 2, 3) for padding in ("", ".padding")},
    "conv_transpose1d": conv_transpose, "conv_transpose2d.input": conv_transpose,
    "conv_transpose3d.input": conv_transpose,
    **{f"max_pool{d}d": max_pool(d) for d in (1, 2, 3)},
    **{f"max_pool{d}d_with_indices": max_pool_with_indices(d) for d in (2, 3)},
    **{f"avg_pool{d}d": mean_pool(d) for d in (2, 3)},
    "avg_pool1d": mean_pool(1),
    **{f"{lead}adaptive_avg_pool{d}d": adaptive_mean_pool(d)
       for d in (1, 2, 3) for lead in ("", "_")},
    **{f"adaptive_max_pool{d}d": adaptive_max_pool(d) for d in (1, 2, 3)},
    **{f"fractional_max_pool{d}d": fractional_max_pool(d) for d in (2, 3)},
}  # fmt: skip
