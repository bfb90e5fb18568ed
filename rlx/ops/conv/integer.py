"""Convolutions of 8-bit integers in i32: the product of a matrix of weights with the windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import DTypeError, ShapeError
from rlx.ir.op import Array, Cost, Op, bad, sample
from rlx.ir.value import Value
from rlx.ops.conv.common import Correlation
from rlx.ops.conv.conv import Conv
from rlx.ops.conv.window import Numbers, Padding, each, padding_of
from rlx.ops.matmul.contraction import MatMul
from rlx.ops.movement.slicing import Pad, Slice
from rlx.ops.reduction.reduce import ReduceSum
from rlx.ops.sugar import concat
from rlx.types import TensorType, f32, i8, i32, u8

__all__ = ["ConvInteger", "conv_integer"]

_ONE: dict[str, Any] = {"stride": (1,), "low": (0,), "high": (0,), "dilation": (1,)}
_TWO: dict[str, Any] = {k: v * 2 for k, v in _ONE.items()}


def _but(base: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return base | changes


class ConvInteger(Correlation, name="mir.conv_integer"):
    """Convolution of 8-bit integers, signed or not, in i32: exact, but what leaves 32 bits wraps.

    The shapes are those of ``conv``. Both operands may have either sign.
    """

    differentiable = False
    dtypes = (i8, u8)
    samples = (
        sample("2x3x5xT", "4x3x2xi8", **_ONE),
        sample("1x2x5x4xT", "3x2x3x2xi8", **_but(_TWO, low=(1, 0), high=(1, 1))),
        sample("2x4x6x5xT", "6x2x3x3xu8", groups=2,
               **_but(_TWO, stride=(2, 2), low=(1, 1), high=(1, 0))),
        sample("1x3x7x7xT", "3x1x3x3xi8", groups=3,
               **_but(_TWO, stride=(2, 1), low=(1, 1), high=(1, 1))),
        sample("1x64x4x4xT", "16x64x1x1xi8", **_TWO),
        sample("1x2x6xT", "3x2x2xi8", **_but(_ONE, low=(-1,), high=(-2,), dilation=(2,))),
        sample("0x2x3xT", "2x2x1xi8", **_ONE),
    )  # fmt: skip
    bads = (
        bad("2x3x5xi32", "4x3x2xi8", match="takes i8 and u8", error=DTypeError, **_ONE),
        bad("2x3x5xi8", "4x3x2xf32", match="takes i8 and u8", error=DTypeError, **_ONE),
        bad("2x3x5xi8", "4x2x2xi8", match="takes 3 channels a group", error=ShapeError, **_ONE),
        bad("2x3x5xi8", "4x3x6xi8", match="does not fit", error=ShapeError, **_ONE),
    )

    @classmethod
    def build(
        cls,
        x: Value,
        w: Value,
        stride: Numbers = 1,
        padding: Padding | str = 0,
        dilation: Numbers = 1,
        groups: int = 1,
    ) -> Value:
        """A convolution of 8-bit integers in i32. Strides, padding and dilation are those of
        ``conv``."""
        rank, kernel = x.rank - 2, w.type.static_shape[2:]
        strides = each(stride, rank, "conv_integer: stride")
        dilations = each(dilation, rank, "conv_integer: dilation")
        if len(kernel) != rank:
            raise ShapeError(f"conv_integer takes w of the rank of x, found {w.type}, {x.type}")
        low, high = padding_of(padding, kernel, strides, dilations, "conv_integer")
        return cls(x, w, strides, low, high, dilations, groups).out

    def infer(self) -> TensorType:
        for v in self.present:
            if v.dtype not in (i8, u8):
                raise DTypeError(f"conv_integer takes i8 and u8, found {v.dtype}")
        return self._wide().out.type

    def _wide(self) -> Conv:
        """The same in i32."""
        x, w = (Value(v.type.with_dtype(i32)) for v in self.present)
        return Conv(x, w, **self.attrs)

    def cost(self) -> Cost:
        return Cost(self._wide().cost().flops, Op.cost(self).bytes)

    def reference(self, x: Array, w: Array) -> Array:
        return self._wide().reference(x.astype(np.int32), w.astype(np.int32))

    def expand(self) -> Value:
        if not self.x.type.is_static or 0 in (*self.x.shape, *self.out.shape):
            return Conv(self.x.cast(to=i32), self.w.cast(to=i32), **self.attrs).out
        if by_floats(self.x, self.w, self.groups):
            x, w = (v.cast(to=f32) for v in self.present)
            return Conv(x, w, **self.attrs).out.cast(to=i32)
        return self._product(self._padded())

    def _padded(self) -> Value:
        """x with its padding, and without what negative padding drops."""
        none = [0, 0]
        low, high = [*none, *self.low], [*none, *self.high]
        shape = self.x.type.static_shape
        x = self.x
        if min(*low, *high) < 0:
            starts = [max(-n, 0) for n in low]
            sizes = [d - a - max(-n, 0) for d, a, n in zip(shape, starts, high, strict=True)]
            x = Slice.build(x, starts, sizes)
        if max(*low, *high) > 0:
            x = Pad.build(x, [max(n, 0) for n in low], [max(n, 0) for n in high])
        return x

    def _taps(self, x: Value) -> list[Value]:
        """For each tap what it reads, ``[N, C, windows]``."""
        counts = self.out.type.static_shape[2:]
        found: list[Value] = []
        phases = self._phases(x) if max(self.stride) > 1 and max(self.windows.taps) > 1 else {}
        for tap in np.ndindex(*self.windows.taps):
            starts = [t * d for t, d in zip(tap, self.dilation, strict=True)]
            sizes = [*x.shape[:2], *counts]
            if not phases:
                found.append(Slice.build(x, [0, 0, *starts], sizes, [1, 1, *self.stride]))
                continue
            phase = tuple(s % step for s, step in zip(starts, self.stride, strict=True))
            starts = [s // step for s, step in zip(starts, self.stride, strict=True)]
            found.append(Slice.build(phases[phase], [0, 0, *starts], sizes))
        return found

    def _phases(self, x: Value) -> dict[tuple[int, ...], Value]:
        """x at every so many elements as the stride says, by the first ones. They are copied once:
        taps then read rows as they lie."""
        shape, each = x.type.static_shape, [*np.ndindex(*self.stride)]
        sizes = [-(-d // step) for d, step in zip(shape[2:], self.stride, strict=True)]
        whole = [s * step - d for s, step, d in zip(sizes, self.stride, shape[2:], strict=True)]
        even = Pad.build(x, 0, [0, 0, *whole]) if any(whole) else x
        parts = [
            Slice.build(even, [0, 0, *phase], [*shape[:2], *sizes], [1, 1, *self.stride])
            for phase in each
        ]
        both = concat(parts, axis=1)
        return {phase: both.narrow(1, n * shape[1], shape[1]) for n, phase in enumerate(each)}

    def _product(self, x: Value) -> Value:
        n, outputs, *counts = self.out.type.static_shape
        groups, channels = self.groups, self.w.type.static_shape[1]
        taps, places = int(np.prod(self.windows.taps)), int(np.prod(counts))
        seen = [t.reshape([n, groups, channels, 1, places]) for t in self._taps(x)]
        windows = seen[0] if taps == 1 else concat(seen, axis=3)
        windows = windows.reshape([n, groups, channels * taps, places])
        weights = self.w.reshape([groups, outputs // groups, channels * taps])
        if groups == 1:
            windows = windows.reshape([n, channels * taps, places])
            weights = weights.reshape([outputs, channels * taps])
        out = MatMul(weights.cast(to=i32), windows.cast(to=i32)).out
        return out.reshape(self.out.shape)


def conv_integer(
    x: Value,
    w: Value,
    x_zero: Value | None,
    w_zero: Value | None,
    stride: Sequence[int],
    low: Sequence[int],
    high: Sequence[int],
    dilation: Sequence[int],
    groups: int = 1,
    bias: Value | None = None,
) -> Value:
    """``conv(x - x_zero, w - w_zero)`` of 8-bit integers in i32, with padding of 0 after the
    shift. ``x_zero`` is one number, ``w_zero`` too or one an output channel. ``bias`` is added, i32
    [Co] as far as w says."""
    if bias is not None and (w_zero is not None or x_zero is None or by_floats(x, w, groups)):
        out = conv_integer(x, w, x_zero, w_zero, stride, low, high, dilation, groups)
        return out + along(bias, w.rank - 2)
    steps, apart = tuple(stride), tuple(dilation)
    if w_zero is not None:
        wide = w.cast(to=i32) - along(w_zero, w.rank - 1).cast(to=i32)
        moved = x.cast(to=i32)
        moved = moved if x_zero is None else moved - x_zero.reshape([]).cast(to=i32)
        return Conv(moved, wide, steps, tuple(low), tuple(high), apart, groups).out
    if by_floats(x, w, groups):
        moved = x.cast(to=f32)
        moved = moved if x_zero is None else moved - x_zero.reshape([]).cast(to=f32)
        floats = w.cast(to=f32)
        return Conv(moved, floats, steps, tuple(low), tuple(high), apart, groups).out.cast(to=i32)
    if x_zero is None:
        return ConvInteger(x, w, steps, tuple(low), tuple(high), apart, groups).out
    shift = x_zero.reshape([])
    before, after = ([max(n, 0) for n in side] for side in (low, high))
    padded = x
    if max(*before, *after) > 0:
        padded = Pad(x, shift, (0, 0, *before), (0, 0, *after), (0,) * x.rank).out
    first, last = (tuple(min(n, 0) for n in side) for side in (low, high))
    out = ConvInteger(padded, w, steps, first, last, apart, groups).out
    sums = ReduceSum.build(w.cast(to=i32), axes=list(range(1, w.rank)))
    more = sums * shift.cast(to=i32)  # numbers of the weights alone are one number a channel
    return (
        out + along(bias - more, w.rank - 2) if bias is not None else out - along(more, w.rank - 2)
    )


def by_floats(x: Value, w: Value, groups: int) -> bool:
    """Whether a convolution is depthwise, and f32 holds all its sums of integers of 8 bits less a
    zero point: then floats are as exact as integers of 32 bits, which are slow to multiply."""
    sizes = [d for d in w.shape[1:] if isinstance(d, int)]
    few = len(sizes) == w.rank - 1 and math.prod(sizes) * 255 * 255 <= 1 << 24
    return groups == x.shape[1] == w.shape[0] and few


def along(v: Value, more: int) -> Value:
    """One number as it is; ``[C]`` with so many axes behind it."""
    return v.reshape([]) if tuple(v.shape) in ((), (1,)) else v.reshape([*v.shape, *[1] * more])
