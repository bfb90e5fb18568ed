"""Convolutions and pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rlx.errors import UnsupportedError
from rlx.frontends.onnx.export import sizes
from rlx.frontends.onnx.export.writer import Name, Rows, Writer
from rlx.types import DType, Offset, i64

__all__ = ["ROWS"]


def _apart(w: Writer, x: Name, low: Sequence[Offset], high: Sequence[Offset], fill: Name) -> Name:
    """A tensor with places around its spatial axes, or without some."""
    less = [(-d if isinstance(d, int) and d < 0 else 0) for d in (*low, *high)]
    more = [(0 if isinstance(d, int) and d < 0 else d) for d in (*low, *high)]
    rank = len(low)
    if any(less):
        ends = [-d if d else 2**62 for d in less[rank:]]
        x = w.node("Slice", x, w.ints(less[:rank]), w.ints(ends), w.ints(range(2, 2 + rank)))
    if not any(more):
        return x
    return w.node("Pad", x, sizes.line(w, [0, 0, *more[:rank], 0, 0, *more[rank:]]), fill)


def _plain(*places: Offset) -> bool:
    """Whether padding is of numbers that are not negative, as ONNX's op types have it."""
    return all(isinstance(p, int) and p >= 0 for p in places)


def _floats(op: Any, dt: DType) -> None:
    if not dt.is_float:
        raise UnsupportedError(f"ONNX has windows of floats alone, found {dt}; cast it to f32")


def convolved(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
    _floats(op, op.x.dtype)
    x, low, high = xs[0], op.low, op.high
    if not _plain(*low, *high):
        x = _apart(w, x, low, high, w.constant(0, op.x.dtype))
        low = high = (0,) * len(low)
    return w.node("Conv", x, xs[1], strides=list(op.stride), pads=[*low, *high],
                  dilations=list(op.dilation), group=op.groups)  # fmt: skip


def convolved_back(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
    """What padding drops of the result is cut off, and what it adds is 0."""
    _floats(op, op.x.dtype)
    rank = len(op.stride)
    found = w.node("ConvTranspose", xs[0], xs[1], strides=list(op.stride), pads=[0] * (2 * rank),
                   dilations=list(op.dilation), group=op.groups)  # fmt: skip
    low, high = [0 - d for d in op.low], [0 - d for d in op.high]
    return _apart(w, found, low, high, w.constant(0, op.x.dtype))


def mean(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
    """Where the padding is not counted it is by the mean of ones."""
    zero, one = w.constant(0, op.x.dtype), w.constant(1, op.x.dtype)
    beyond = [0] * len(op.taps)
    taps, none = list(op.taps), [0] * (2 * len(op.taps))
    high = [h + b for h, b in zip(op.high, op.beyond, strict=True)]
    x = _apart(w, xs[0], op.low, high, zero)
    found = w.node("AveragePool", x, kernel_shape=taps, strides=list(op.stride), pads=none)
    inner = op.high if op.count_include_pad else beyond
    outer = op.beyond if op.count_include_pad else high
    if not any((*outer, *(() if op.count_include_pad else op.low))):
        return found
    ones = w.node("Expand", one, sizes.line(w, [1, 1, *op.x.shape[2:]]))
    ones = _apart(w, ones, op.low, inner, one if op.count_include_pad else zero)
    ones = _apart(w, ones, beyond, outer, zero)
    share = w.node("AveragePool", ones, kernel_shape=taps, strides=list(op.stride), pads=none)
    return w.node("Div", found, share)


def greatest(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
    return _greatest(w, op, xs[0], 1)[0]


def places(w: Writer, op: Any, xs: Sequence[Name]) -> Name:
    """Where the greatest is within its channel; ONNX counts over the whole tensor."""
    if not _direct(op):
        raise UnsupportedError("where the greatest is has no form in ONNX with this padding")
    at = _greatest(w, op, xs[0], 2)[1]
    size = op.x.type.with_shape(op.x.shape[2:]).size
    found = w.node("Mod", at, sizes.scalar(w, size))
    return found if op.out.dtype is i64 else w.cast(found, op.out.dtype)


def _direct(op: Any) -> bool:
    pairs = zip((*op.low, *op.high), (*op.taps, *op.taps), strict=True)
    return _plain(*op.low, *op.high) and all(p < t for p, t in pairs)


def _greatest(w: Writer, op: Any, x: Name, results: int) -> list[Name]:
    _floats(op, op.x.dtype)
    pads = [*op.low, *op.high]
    if not _direct(op):
        x = _apart(w, x, op.low, op.high, w.constant(-math.inf, op.x.dtype))
        pads = [0] * len(pads)
    return w.nodes_of("MaxPool", [x], results, kernel_shape=list(op.taps), pads=pads,
                      strides=list(op.stride), dilations=list(op.dilation))  # fmt: skip


ROWS: Rows = {
    "mir.conv": convolved, "mir.conv_transpose": convolved_back, "mir.mean_pool": mean,
    "mir.max_pool": greatest, "mir.max_pool_indices": places,
}  # fmt: skip
