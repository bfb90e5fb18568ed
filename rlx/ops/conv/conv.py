"""Convolutions over one to three spatial axes, in the layout N, C, spatial axes, and their adjoint.

What neural networks call a convolution is a correlation: the kernel is not mirrored. Along each
spatial axis ``low`` and ``high`` are the places of padding before and after it; a negative number
drops elements.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.base.dims import as_sizes, surely_less
from rlx.errors import DTypeError, ShapeError
from rlx.ir.lift import promoted
from rlx.ir.op import Array, Cost, bad, sample
from rlx.ir.value import Value
from rlx.ops.conv.common import Correlation, add_bias, operations
from rlx.ops.conv.window import (
    Numbers,
    Padding,
    each,
    extent,
    fold_backward,
    fold_forward,
    padding_of,
    view_of_windows,
    window_count,
)
from rlx.ops.movement.movement import listed
from rlx.ops.pointwise.cast import in_double
from rlx.types import Dim, TensorType

__all__ = ["Conv", "ConvTranspose"]

_ONE: dict[str, Any] = {"stride": (1,), "low": (0,), "high": (0,), "dilation": (1,)}
_TWO: dict[str, Any] = {k: v * 2 for k, v in _ONE.items()}
_THREE: dict[str, Any] = {k: v * 3 for k, v in _ONE.items()}


def _but(base: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return base | changes


class Conv(Correlation, name="mir.conv"):
    """Convolution: every result is a weighted sum over a window of all channels of its group.

    x is [N, C, spatial axes], w is [Co, C / groups, kernel], the result [N, Co, windows]. 16-bit
    floats accumulate in f32 and round once; integers accumulate in their own type and wrap.
    """

    samples = (
        sample("2x3x5xT", "4x3x2xT", **_ONE),
        sample("1x2x5x4xT", "3x2x3x2xT", **_but(_TWO, low=(1, 0), high=(1, 1))),
        sample("2x4x6x5xT", "6x2x3x3xT", groups=2,
               **_but(_TWO, stride=(2, 2), low=(1, 1), high=(1, 0))),
        sample("1x2x7xT", "2x1x3xT", groups=2, **_but(_ONE, dilation=(2,), stride=(2,))),
        sample("1x1x3x4x3xT", "2x1x2x2x2xT", **_but(_THREE, low=(1, 0, 0), stride=(1, 2, 1))),
        sample("2x16x4xT", "2x8x2xT", groups=2, **_but(_ONE, stride=(2,), low=(1,))),
        sample("1x2x6xT", "3x2x2xT", **_but(_ONE, low=(-1,), high=(-2,))),
        sample("0x2x3xT", "2x2x1xT", **_ONE),
    )  # fmt: skip
    bads = (
        bad("2x3xf32", "4x3xf32", match="one to three of them", error=ShapeError, **_ONE),
        bad("2x3x5xf32", "4x2x2xf32", match="takes 3 channels a group", error=ShapeError, **_ONE),
        bad("2x3x5xf32", "4x3x6xf32", match="does not fit", error=ShapeError, **_ONE),
        bad("2x3x5xf32", "4x3x0xf32", match="no taps", error=ShapeError, **_ONE),
        bad("2x3x5xf32", "4x3x2xf64", match="one type", error=DTypeError, **_ONE),
        bad("2x3x5xbool", "4x3x2xbool", match="found bool", error=DTypeError, **_ONE),
        bad("2x3x5xf32", "4x3x2xf32", match="do not divide 3", error=ShapeError, groups=2, **_ONE),
        bad("2x3x5xf32", "4x3x2xf32", match="groups must be", error=ShapeError, groups=0, **_ONE),
        bad("2x4x5xf32", "3x2x2xf32", match="divide 3 output", error=ShapeError, groups=2, **_ONE),
        bad("2x3x5xf32", "4x3x2xf32", match="1 spatial axes", error=ShapeError, **_TWO),
        bad("2x3x5xf32", "4x3x2xf32", match="stride must be at least 1", error=ShapeError,
            **_but(_ONE, stride=(0,))),
    )  # fmt: skip

    @classmethod
    def build(
        cls,
        x: Value | Array,
        w: Value | Array,
        bias: Value | Array | None = None,
        stride: Numbers = 1,
        padding: Padding | str = 0,
        dilation: Numbers = 1,
        groups: int = 1,
    ) -> Value:
        """As ``torch.nn.functional.conv2d``, for one to three spatial axes.

        ``padding`` is "same", "valid", an int, one an axis, or a pair (low, high) an axis;
        ``bias`` is [Co].
        """
        x, w = promoted(x, w)
        rank, kernel = x.rank - 2, w.type.static_shape[2:]
        strides = each(stride, rank, "conv: stride")
        dilations = each(dilation, rank, "conv: dilation")
        if len(kernel) != rank:
            raise ShapeError(f"conv takes w of the rank of x, found {w.type} and {x.type}")
        low, high = padding_of(padding, kernel, strides, dilations, "conv")
        return add_bias(cls(x, w, strides, low, high, dilations, groups).out, bias)

    def infer(self) -> TensorType:
        self.check()
        x, w = self.x, self.w
        if self.per_group(x.shape[1], "channels") != w.shape[1]:
            raise ShapeError(
                f"conv: {listed(x.shape)} in {self.groups} groups takes"
                f" {x.shape[1] // self.groups} channels a group, w {listed(w.shape)} has"
                f" {w.shape[1]}"
            )
        self.per_group(w.shape[0], "output channels")
        geometry = zip(
            x.shape[2:], self.taps, self.stride, self.dilation, self.low, self.high, strict=True
        )
        counts = (window_count("conv", n, k, s, d, lo + hi) for n, k, s, d, lo, hi in geometry)
        return x.type.with_shape((x.shape[0], w.shape[0], *counts))

    def cost(self) -> Cost:
        """A multiplication and an addition for every tap and channel of a window."""
        return Cost(operations(self.out, *self.w.shape[1:]), super().cost().bytes)

    def reference(self, x: Array, w: Array) -> Array:
        return in_double(self._sum, x, w) if self.x.dtype.is_float else self._sum(x, w)

    def _sum(self, x: Array, w: Array) -> Array:
        out, kernel = self.out.type.static_shape, w.shape[2:]
        places = list(zip(self.low, as_sizes(self.high), strict=True))
        x = np.pad(x, [(0, 0), (0, 0), *((max(lo, 0), max(hi, 0)) for lo, hi in places)])
        ends = (n + min(hi, 0) for n, (_, hi) in zip(x.shape[2:], places, strict=True))
        starts = (max(-lo, 0) for lo in self.low)
        x = x[:, :, *(slice(a, e) for a, e in zip(starts, ends, strict=True))]
        seen = view_of_windows(x, out[2:], self.windows)
        seen = seen.reshape(out[0], self.groups, w.shape[1], *seen.shape[2:])
        many = w.reshape(self.groups, w.shape[0] // self.groups, *w.shape[1:])
        o, k = "opq"[: len(kernel)], "xyz"[: len(kernel)]
        return np.einsum(f"ngc{o}{k},gdc{k}->ngd{o}", seen, many).reshape(out)

    def loops(self, b: Any) -> None:
        shape, out = self.x.type.static_shape, self.out.type.static_shape
        channels = self.w.type.static_shape[1]
        outputs = out[1] // self.groups

        def point(n: Any, co: Any, *at: Any) -> None:
            first = co // outputs * channels if self.groups > 1 else b.k.index(0)

            def tap(place: list[Any], tap: list[Any], total: Any) -> Any:
                def channel(c: Any, total: Any) -> Any:
                    x = b.load(0, [n, first + c, *place])
                    return total + x * b.load(1, [co, c, *tap])

                return b.loop(channels, channel, [total])

            zero = b.const(0, self.accumulator())
            total = fold_forward(b, at, shape[2:], self.windows, tap, [zero])[0]
            b.store(0, (n, co, *at), total)

        b.parallel(out, point)

    def unused(self) -> tuple[Dim, ...]:
        """The places after the last window, along each axis."""
        found: list[Dim] = []
        for axis, n in enumerate(self.x.shape[2:]):
            places = self.low[axis] + self.high[axis] - extent(self.taps[axis], self.dilation[axis])
            found.append(n + places - (self.out.shape[2 + axis] - 1) * self.stride[axis])
        return tuple(found)

    def vjp(self, g: Value) -> tuple[Value, Value]:
        high = tuple(h - r for h, r in zip(self.high, self.unused(), strict=True))
        geometry = (self.stride, self.low, high, self.dilation, self.groups)
        return ConvTranspose(g, self.w, *geometry).out, _by_weights(self.x, g, self)


class ConvTranspose(Correlation, name="mir.conv_transpose"):
    """The adjoint of conv: every element is spread over a window, weighted.

    x is [N, C, spatial axes], w is [C, Co / groups, kernel], the result [N, Co, places]. Along each
    axis these are (size - 1) stride + (kernel - 1) dilation + 1, less ``low`` before them and
    ``high`` after them.
    """

    outputs_axis = 1
    samples = (
        sample("2x3x4xT", "3x2x3xT", **_ONE),
        sample("1x4x3x2xT", "4x1x2x3xT", groups=2,
               **_but(_TWO, stride=(2, 2), low=(1, 0), high=(0, 1))),
        sample("1x2x3x2xT", "2x2x2x2xT", **_but(_TWO, dilation=(2, 1), high=(-1, 0))),
        sample("1x1x2x2x2xT", "1x2x2x1x2xT", **_but(_THREE, stride=(1, 2, 3))),
        sample("0x2x3xT", "2x2x1xT", **_ONE),
    )  # fmt: skip
    bads = (
        bad("2x3xf32", "3x3xf32", match="one to three of them", error=ShapeError, **_ONE),
        bad("2x3x5xf32", "4x2x2xf32", match="3 channels.*w.*has 4", error=ShapeError, **_ONE),
        bad("2x3x5xf32", "3x2x2xf32", match="do not divide 3", error=ShapeError, groups=2, **_ONE),
        bad("2x3x2xf32", "3x2x2xf32", match="leaves -1", error=ShapeError,
            **_but(_ONE, low=(4,))),
        bad("2x3x5xf32", "3x2x2xf64", match="one type", error=DTypeError, **_ONE),
    )  # fmt: skip

    @classmethod
    def build(
        cls,
        x: Value | Array,
        w: Value | Array,
        bias: Value | Array | None = None,
        stride: Numbers = 1,
        padding: Padding = 0,
        output_padding: Numbers = 0,
        groups: int = 1,
        dilation: Numbers = 1,
    ) -> Value:
        """As ``torch.nn.functional.conv_transpose2d``, for one to three spatial axes."""
        x, w = promoted(x, w)
        rank, kernel = x.rank - 2, w.type.static_shape[2:]
        strides = each(stride, rank, "conv_transpose: stride")
        dilations = each(dilation, rank, "conv_transpose: dilation")
        more = each(output_padding, rank, "conv_transpose: output_padding")
        if len(kernel) != rank:
            raise ShapeError(f"conv_transpose takes w of the rank of x, found {w.type}, {x.type}")
        if isinstance(padding, str):
            raise ShapeError(f"conv_transpose: padding is a number, found {padding!r}")
        low, high = padding_of(padding, kernel, strides, dilations, "conv_transpose")
        for p, s, d in zip(more, strides, dilations, strict=True):
            if not 0 <= p < max(s, d):
                raise ShapeError(
                    "conv_transpose: output_padding is not negative, and less than stride or"
                    f" dilation; found {p} with stride {s} and dilation {d}"
                )
        high = tuple(h - p for h, p in zip(high, more, strict=True))
        return add_bias(cls(x, w, strides, low, high, dilations, groups).out, bias)

    def infer(self) -> TensorType:
        self.check()
        x, w = self.x, self.w
        self.per_group(x.shape[1], "channels")
        if x.shape[1] != w.shape[0]:
            raise ShapeError(
                f"conv_transpose: x {listed(x.shape)} has {x.shape[1]} channels, w"
                f" {listed(w.shape)} has {w.shape[0]}; w is [C, Co / groups, kernel]"
            )
        geometry = zip(
            x.shape[2:], self.taps, self.stride, self.dilation, self.low, self.high, strict=True
        )
        places: list[Dim] = []
        for n, k, s, d, lo, hi in geometry:
            places.append((n - 1) * s + extent(k, d) - lo - hi)
            if n == 0 or surely_less(places[-1], 0):
                raise ShapeError(
                    f"conv_transpose: padding of {lo + hi} places leaves {places[-1]} of"
                    f" {places[-1] + lo + hi}"
                )
        return x.type.with_shape((x.shape[0], w.shape[1] * self.groups, *places))

    def cost(self) -> Cost:
        """A multiplication and an addition for every tap and output channel of an element."""
        return Cost(operations(self.x, *self.w.shape[1:]), super().cost().bytes)

    def reference(self, x: Array, w: Array) -> Array:
        return in_double(self._spread, x, w) if self.x.dtype.is_float else self._spread(x, w)

    def _spread(self, x: Array, w: Array) -> Array:
        n, g, out, kernel = x.shape[0], self.groups, self.out.type.static_shape, w.shape[2:]
        whole = [
            max((m - 1) * s + (k - 1) * d + 1, lo + m_out, 0)
            for m, s, k, d, lo, m_out in zip(
                x.shape[2:], self.stride, kernel, self.dilation, self.low, out[2:], strict=True
            )
        ]
        total = np.zeros((n, g, w.shape[1], *whole), x.dtype)
        groups = x.reshape(n, g, x.shape[1] // g, *x.shape[2:])
        many = w.reshape(g, w.shape[0] // g, *w.shape[1:])
        for tap in np.ndindex(*kernel):
            box = (
                slice(t * d, t * d + (m - 1) * s + 1 if m else t * d, s)
                for t, d, m, s in zip(tap, self.dilation, x.shape[2:], self.stride, strict=True)
            )
            part = np.einsum("ngc...,gcd->ngd...", groups, many[(..., *tap)])
            total[(slice(None),) * 3 + tuple(box)] += part
        before = [(max(-lo, 0), 0) for lo in self.low]
        total = np.pad(total, [(0, 0), (0, 0), (0, 0), *before])
        starts = (max(lo, 0) for lo in self.low)
        keep = (slice(a, a + m) for a, m in zip(starts, out[2:], strict=True))
        return total[(slice(None),) * 3 + tuple(keep)].reshape(out)

    def loops(self, b: Any) -> None:
        shape, out = self.x.type.static_shape, self.out.type.static_shape
        outputs = self.w.type.static_shape[1]
        channels = shape[1] // self.groups

        def point(n: Any, co: Any, *at: Any) -> None:
            first = co // max(outputs, 1) * channels if self.groups > 1 else b.k.index(0)
            own = co % max(outputs, 1) if self.groups > 1 else co

            def tap(place: list[Any], tap: list[Any], total: Any) -> Any:
                def channel(c: Any, total: Any) -> Any:
                    x = b.load(0, [n, first + c, *place])
                    return total + x * b.load(1, [first + c, own, *tap])

                return b.loop(channels, channel, [total])

            zero = b.const(0, self.accumulator())
            total = fold_backward(b, at, shape[2:], self.windows, tap, [zero])[0]
            b.store(0, (n, co, *at), total)

        b.parallel(out, point)

    def vjp(self, g: Value) -> tuple[Value, Value]:
        geometry = (self.stride, self.low, self.high, self.dilation, self.groups)
        return Conv(g, self.w, *geometry).out, _by_weights(g, self.x, self)


def _by_weights(x: Value, g: Value, op: Correlation) -> Value:
    """The gradient with respect to the weights, for a tensor x and its windows g."""
    from rlx.ops.conv.weights_grad import ConvWeights

    return ConvWeights(x, g, *op.windows, groups=op.groups).out
