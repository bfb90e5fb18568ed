"""Convolutions and pooling: what slides a window over spatial axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rlx.base.dims import ceil_div, maximum, minimum
from rlx.base.frozen import frozen
from rlx.errors import UnsupportedError
from rlx.frontends.common.values import constant, scalar
from rlx.frontends.onnx.node import Node, Result, Rows
from rlx.frontends.onnx.rows.quantization import rounded
from rlx.ir.value import Value
from rlx.ops.conv.conv import Conv, ConvTranspose
from rlx.ops.conv.integer import conv_integer as integers
from rlx.ops.conv.max_pool import MaxPool, MaxPoolIndices
from rlx.ops.conv.pool import MeanPool
from rlx.ops.indexing.scatter import Scatter
from rlx.ops.movement.constant import Iota
from rlx.ops.movement.slicing import Pad
from rlx.ops.pointwise.unary import Abs
from rlx.ops.reduction.reduce import ReduceMax, ReduceMean, ReduceSum, as_value
from rlx.types import Offset, f32, i32, i64

__all__ = ["ROWS"]

Ints = tuple[int, ...]
Offsets = tuple[Offset, ...]


@frozen
class Window:
    """A window that slides, with a number for each spatial axis; behind ``high`` lie the places
    that ``ceil_mode`` adds, ``beyond``."""

    kernel: Ints
    stride: Ints
    dilation: Ints
    low: Offsets
    high: Offsets
    beyond: Offsets

    def begins(self) -> Ints:
        """``low`` as numbers; UnsupportedError if it depends on a symbolic size."""
        return _numbers(self.low)


def _window(n: Node, kernel: Sequence[int]) -> Window:
    """The window of a node with such a kernel."""
    rank = len(kernel)
    stride = tuple(n.attr("strides", (1,) * rank))
    dilation = tuple(n.attr("dilations", (1,) * rank))
    pads: Ints = tuple(n.attr("pads", (0,) * (2 * rank)))
    low: list[Offset] = list(pads[:rank])
    high: list[Offset] = list(pads[rank:])
    kind = n.attr("auto_pad", "NOTSET")
    beyond: list[Offset] = [0] * rank
    ceil = bool(n.attr("ceil_mode", 0))
    sizes = n[0].shape[2:]
    for i, size in enumerate(sizes):
        reach = (kernel[i] - 1) * dilation[i] + 1
        if kind == "VALID":
            low[i], high[i] = 0, 0
        elif kind in ("SAME_UPPER", "SAME_LOWER"):
            count = ceil_div(size, stride[i])
            total = maximum((count - 1) * stride[i] + reach - size, 0)
            less, more = total // 2, total - total // 2
            low[i], high[i] = (less, more) if kind == "SAME_UPPER" else (more, less)
        if ceil:
            room = size + low[i] + high[i] - reach
            # No window starts in the padding behind.
            last = minimum(ceil_div(room, stride[i]), ceil_div(size + low[i], stride[i]) - 1)
            beyond[i] = maximum(last * stride[i] - room, 0)
    return Window(tuple(kernel), stride, dilation, tuple(low), tuple(high), tuple(beyond))


def _numbers(places: Sequence[Offset]) -> Ints:
    found: list[int] = []
    for d in places:
        if not isinstance(d, int):
            raise UnsupportedError(
                f"where its windows begin depends on {' and '.join(sorted(d.symbols))}; bind it"
                " with dims={...}"
            )
        found.append(d)
    return tuple(found)


def _biased(x: Value, bias: Value | None) -> Value:
    return x if bias is None else x + bias.reshape([*bias.shape, *[1] * (x.rank - 2)])


def conv(n: Node) -> Value:
    x, w = n[0], n[1]
    n.ignore("kernel_shape")  # the weights say it
    return _biased(_conv(n, x, w), n.optional(2))


def _conv(n: Node, x: Value, w: Value) -> Value:
    v = _window(n, w.type.static_shape[2:])
    low, high = v.low, v.high
    if not all(isinstance(d, int) for d in low):
        x, low, high = x.pad([0, 0, *low], [0, 0, *high]), (0,) * len(low), (0,) * len(low)
    return Conv(x, w, v.stride, _numbers(low), high, v.dilation, n.attr("group", 1)).out


def conv_integer(n: Node) -> Value:
    """8-bit integers, less their zero points, convolved in i32."""
    n.ignore("kernel_shape")
    return _integers(n, n[0], n[1], n.zero_point(2), n.zero_point(3))


def conv_quantized(n: Node) -> Value:
    """The same, with a bias in i32, scaled and rounded once."""
    n.ignore("kernel_shape")
    total = _integers(n, n[0], n[3], n.zero_point(2), n.zero_point(5), n.optional(8))
    scale = _by_channel(n[1] * n[4], n[3]).cast(f32) / n[6].cast(f32)
    scale = scale.reshape(scale.shape[:1] + scale.shape[2:]) if scale.rank > 1 else scale
    return rounded(total.cast(f32) * scale, n[7], n[7].dtype)


def _integers(
    n: Node, x: Value, w: Value, x_zero: Value | None, w_zero: Value | None,
    bias: Value | None = None,
) -> Value:  # fmt: skip
    """The convolution of 8-bit integers less their zero points, in i32, and a bias."""
    v = _window(n, w.type.static_shape[2:])
    groups = n.attr("group", 1)
    if all(isinstance(d, int) for d in (*v.low, *v.high)):
        low, high = _numbers(v.low), _numbers(v.high)
        return integers(x, w, x_zero, w_zero, v.stride, low, high, v.dilation, groups, bias)
    wide = x.cast(i32)
    wide = wide if x_zero is None else wide - x_zero.cast(i32)
    weights = w.cast(i32)
    weights = weights if w_zero is None else weights - _by_channel(w_zero, w).cast(i32)
    return _biased(_conv(n, wide, weights), bias)


def _by_channel(v: Value, w: Value) -> Value:
    """A number for each output channel, as it meets the weights."""
    return v.reshape([*v.shape, *[1] * (w.rank - 1)]) if v.rank and v.shape != (1,) else v


def conv_transpose(n: Node) -> Value:
    x, w = n[0], n[1]
    n.ignore("kernel_shape")
    kernel = w.type.static_shape[2:]
    rank = len(kernel)
    more: Ints = tuple(n.attr("output_padding", (0,) * rank))
    stride = tuple(n.attr("strides", (1,) * rank))
    dilation = tuple(n.attr("dilations", (1,) * rank))
    kind = n.attr("auto_pad", "NOTSET")
    pads: Ints = tuple(n.attr("pads", (0,) * (2 * rank)))
    wanted = list(n.attr("output_shape", ()))[-rank:]
    if not wanted and kind in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [d * s for d, s in zip(x.shape[2:], stride, strict=True)]
    low: list[Offset] = list(pads[:rank])
    high: list[Offset] = list(pads[rank:])
    for i in range(rank):
        if kind == "VALID":
            low[i], high[i] = 0, 0
        if wanted:
            reach = (kernel[i] - 1) * dilation[i] + 1
            size = x.shape[2 + i]
            total = (size - 1) * stride[i] + more[i] + reach - wanted[i]
            half = total // 2
            upper = kind == "SAME_UPPER"
            low[i], high[i] = (half, total - half) if upper else (total - half, half)
        high[i] -= more[i]
    geometry = (stride, _numbers(low), tuple(high), dilation, n.attr("group", 1))
    out = ConvTranspose(x, w, *geometry).out
    return _biased(out, n.optional(2))


# -- pooling -------------------------------------------------------------------------------


def _end(v: Window) -> Offsets:
    return tuple(h + b for h, b in zip(v.high, v.beyond, strict=True))


def max_pool(n: Node) -> list[Result]:
    x, v = n[0], _window(n, n.need("kernel_shape"))
    how = (v.kernel, v.stride, v.begins(), _end(v), v.dilation)
    results: list[Result] = [MaxPool(x, *how).out]
    column_major = bool(n.attr("storage_order", 0))
    if n.wants(1):
        places = MaxPoolIndices(x, *how).out
        results.append(_over_all(places, x, column_major))
    return results


def _over_all(places: Value, x: Value, column_major: bool) -> Value:
    """Places within a channel as places within the whole tensor."""
    sizes = x.shape[2:]
    whole = as_value(x.type.with_shape(sizes).size)
    if column_major:
        left, turned, step = places, constant(0, i64), whole
        for size in map(as_value, reversed(sizes)):
            step = step / size
            rest = left / size
            turned, left = turned + (left - rest * size) * step, rest
        places = turned
    batch, channels = x.shape[:2]
    number = Iota((batch, channels), 0, i64).out * as_value(channels)
    number = number + Iota((batch, channels), 1, i64).out
    return places + number.reshape([batch, channels, *[1] * len(sizes)]) * whole


def mean_pool(n: Node) -> Value:
    x, v = n[0], _window(n, n.need("kernel_shape"))
    whole = bool(n.attr("count_include_pad", 0))
    if set(v.dilation) <= {1}:
        return MeanPool(x, v.kernel, v.stride, v.begins(), v.high, v.beyond, whole).out
    counted = constant(1, x.dtype).expand([1, 1, *x.shape[2:]])
    if whole:
        counted = counted.pad([0, 0, *v.low], [0, 0, *v.high], 1)
        counts = _sums(n, counted, Window(v.kernel, v.stride, v.dilation, (0,) * len(v.low),
                                       (0,) * len(v.low), v.beyond))  # fmt: skip
    else:
        counts = _sums(n, counted, v)
    return _sums(n, x, v) / counts


def _sums(n: Node, x: Value, v: Window) -> Value:
    """The sum of every window of every channel."""
    batch, channels = x.shape[:2]
    n.spend(math.prod(v.kernel))
    ones = constant(1, x.dtype).expand([1, 1, *v.kernel])
    flat = x.reshape([batch * channels, 1, *x.shape[2:]])
    out = Conv(flat, ones, v.stride, v.begins(), _end(v), v.dilation, 1).out
    return out.reshape([batch, channels, *out.shape[2:]])


def lp_pool(n: Node) -> Value:
    x, p = n[0], n.attr("p", 2)
    sums = _sums(n, Abs.build(x) ** scalar(p, x), _window(n, n.need("kernel_shape")))
    return sums ** scalar(1 / p, x)


def _spatial(n: Node) -> list[int]:
    return list(range(2, n[0].rank))


def global_lp(n: Node) -> Value:
    x, p = n[0], n.attr("p", 2)
    return ReduceSum.build(Abs.build(x) ** scalar(p, x), _spatial(n), True) ** scalar(1 / p, x)


def max_unpool(n: Node) -> Value:
    """Zeros, and at the places that max pooling has found its maxima."""
    x, indices = n[0], n[1]
    kernel = n.need("kernel_shape")
    rank = len(kernel)
    strides, pads = n.attr("strides", (1,) * rank), n.attr("pads", (0,) * (2 * rank))
    sizes = [
        (d - 1) * s + k - lo - hi
        for d, s, k, lo, hi in zip(
            x.shape[2:], strides, kernel, pads[:rank], pads[rank:], strict=True
        )
    ]
    shape = [*x.shape[:2], *sizes]
    total = x.type.with_shape(shape).size
    zeros = constant(0, x.dtype).expand([total])
    flat = [v.reshape([v.type.size]) for v in (indices, x)]
    out = Scatter.build(zeros, flat[0], flat[1]).reshape(shape)
    if not n.has(2):
        return out
    more = [want - d for want, d in zip(n.dims(2), shape, strict=True)]
    return Pad.build(out, [0] * out.rank, more)


ROWS: Rows = {
    "AveragePool": mean_pool,
    "Conv": conv,
    "ConvInteger": conv_integer,
    "ConvTranspose": conv_transpose,
    "GlobalAveragePool": lambda n: ReduceMean.build(n[0], _spatial(n), True),
    "GlobalLpPool": global_lp,
    "GlobalMaxPool": lambda n: ReduceMax.build(n[0], _spatial(n), True),
    "LpPool": lp_pool,
    "MaxPool": max_pool,
    "MaxUnpool": max_unpool,
    "QLinearConv": conv_quantized,
}
