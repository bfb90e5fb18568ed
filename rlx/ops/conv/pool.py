"""Pooling over windows of one to three spatial axes, in the layout N, C, spatial axes.

The builders take PyTorch's arguments: padding is at most half a window, and with ``ceil_mode`` a
last window may go beyond the padding, if it begins inside the tensor or the padding before it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.base.dims import as_sizes, ceil_div, is_known, maximum, minimum, surely_less
from rlx.errors import DTypeError, ShapeError
from rlx.ir.factors import Factors, lines
from rlx.ir.op import Array, Cost, Op, attr, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.conv.conv import ConvTranspose
from rlx.ops.conv.window import (
    Numbers,
    Padding,
    Windows,
    check_counts,
    each,
    extent,
    fold_forward,
    padding_of,
    view_of_windows,
    window_count,
)
from rlx.ops.movement.constant import Constant, Iota
from rlx.ops.pointwise.cast import in_double, widened
from rlx.ops.reduction.reduce import as_value
from rlx.types import FLOATS, Dim, DType, Offset, TensorType, bf16, f16, f32, i64

__all__ = ["ONE", "THREE", "TWO", "MeanPool", "Pool", "but", "places"]

ONE: dict[str, Any] = {"taps": (2,), "stride": (2,), "low": (0,), "high": (0,)}
TWO: dict[str, Any] = {"taps": (3, 2), "stride": (2, 1), "low": (1, 0), "high": (1, 1)}
THREE: dict[str, Any] = {k: v * 3 for k, v in ONE.items()}


def but(base: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Attributes with changes."""
    return base | changes


class Pool(Op):
    """What the poolings share: their windows, and that each channel is pooled by itself."""

    x: Value = operand("[N, C, spatial axes]: one to three of them")
    taps: tuple[int, ...] = attr(doc="taps of a window along each spatial axis")
    stride: tuple[int, ...] = attr(doc="distance between two windows")
    low: tuple[int, ...] = attr(doc="places of padding before each axis")
    high: tuple[Offset, ...] = attr(doc="places of padding after it")

    bads = (
        bad("2x3xf32", match="one to three of them", error=ShapeError, **ONE),
        bad("2x3x5xf32", match="1 spatial axes", error=ShapeError, **TWO),
        bad("2x3x1xf32", match="does not fit", error=ShapeError, **ONE),
        bad("2x3x5xf32", match="not negative", error=ShapeError, **but(ONE, high=(-1,))),
        bad("2x3x5xf32", match="stride must be", error=ShapeError, **but(ONE, stride=(0,))),
        bad("2x3x5xbool", match="found bool", error=DTypeError, **ONE),
    )

    @property
    def windows(self) -> Windows:
        """Where the windows lie: their taps are neighbours, unless an op says otherwise."""
        return Windows(self.taps, self.stride, self.low, (1,) * len(self.taps))

    @property
    def end(self) -> tuple[Dim, ...]:
        """The places after each axis that windows may have."""
        return self.high

    def infer(self) -> TensorType:
        x, rank = self.x, self.x.rank - 2
        if not 1 <= rank <= 3:
            raise ShapeError(
                f"{self.short} takes x [N, C, spatial axes] with one to three of them, found"
                f" {x.type}"
            )
        if x.dtype not in self.dtypes:
            takes = ", ".join(d.name for d in self.dtypes)
            raise DTypeError(f"{self.short} takes {takes}; found {x.dtype}. Cast it first")
        check_counts(self.short, rank, **self.windows._asdict(), high=self.high)
        if any(surely_less(n, 0) for n in (*self.low, *self.high)):
            raise ShapeError(
                f"{self.short}: padding is not negative, found {self.low} and {self.high}"
            )
        sizes = zip(x.shape[2:], *self.windows, self.end, strict=True)
        counts = (window_count(self.short, n, k, s, d, lo + hi) for n, k, s, lo, d, hi in sizes)
        return x.type.with_shape((*x.shape[:2], *counts))

    def cost(self) -> Cost:
        """An operation for every tap of a window."""
        size = self.out.type.size
        taps = math.prod(self.taps)
        return Cost(size * taps if is_known(size) else 0, super().cost().bytes)

    def factors(self) -> Factors:
        return lines(self, *range(2, self.x.rank))

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        """The new axis is folded into N."""
        (x,) = operands
        out = self.with_operands([x.reshape((x.shape[0] * x.shape[1], *x.shape[2:]))]).out
        return out.reshape((x.shape[0], *self.out.shape))

    def seen(self, x: Array, fill: Any) -> Array:
        """The windows [N, C, counts, kernel] of an array, with ``fill`` around it."""
        counts = self.out.type.static_shape[2:]
        whole = [
            max(lo + n, (m - 1) * s + (k - 1) * d + 1)
            for n, m, k, s, lo, d in zip(x.shape[2:], counts, *self.windows, strict=True)
        ]
        wide = np.full((*x.shape[:2], *whole), fill, x.dtype)
        inner = (slice(lo, lo + n) for lo, n in zip(self.low, x.shape[2:], strict=True))
        wide[(slice(None), slice(None), *inner)] = x
        return view_of_windows(wide, counts, self.windows)


class MeanPool(Pool, name="mir.mean_pool"):
    """The mean of every window.

    Padding counts as zeros, or with ``count_include_pad=False`` not at all; places beyond the
    padding never count. 16-bit floats accumulate in f32.
    """

    beyond: tuple[Offset, ...] = attr(doc="places after the padding, which no mean counts")
    count_include_pad: bool = attr(True, "whether padding counts as elements")

    dtypes = FLOATS
    samples = (
        sample("2x3x5xT", beyond=(1,), **ONE),
        sample("1x2x5x4xT", beyond=(1, 0), **TWO),
        sample("1x2x5x4xT", beyond=(1, 0), count_include_pad=False, **TWO),
        sample("1x2x3x2x4xT", beyond=(0, 0, 0), **THREE),
    )
    bads = (
        *(b._replace(attrs={"beyond": b.attrs["low"], **b.attrs}) for b in Pool.bads),
        bad("2x3x5xi32", match="found i32", error=DTypeError, beyond=(0,), **ONE),
        bad("2x3x5xf32", match="beyond", error=ShapeError, beyond=(-1,), **ONE),
    )

    @classmethod
    def build(
        cls,
        x: Value,
        kernel: Numbers,
        stride: Numbers | None = None,
        padding: Padding = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> Value:
        """As ``torch.nn.functional.avg_pool2d``, for one to three spatial axes; ``stride`` is the
        kernel's size unless given, ``padding`` may be a pair (low, high) an axis."""
        rank = x.rank - 2
        taps = each(kernel, rank, "mean_pool: kernel")
        strides = taps if stride is None else each(stride, rank, "mean_pool: stride")
        geometry = (taps, strides, (1,) * rank)
        low, high, more = places("mean_pool", x, padding, geometry, ceil_mode)
        return cls(x, taps, strides, low, high, more, count_include_pad).out

    @property
    def end(self) -> tuple[Dim, ...]:
        return tuple(h + b for h, b in zip(self.high, self.beyond, strict=True))

    def infer(self) -> TensorType:
        if len(self.beyond) != len(self.high) or any(surely_less(n, 0) for n in self.beyond):
            raise ShapeError(
                f"mean_pool: beyond has a number of at least 0 an axis, found {self.beyond}"
            )
        return super().infer()

    @property
    def counted(self) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
        """Where the places that count begin and end along each axis; elements begin at ``low``."""
        sizes = zip(self.x.shape[2:], self.low, self.high, strict=True)
        if self.count_include_pad:
            return (0,) * len(self.low), tuple(lo + n + hi for n, lo, hi in sizes)
        return self.low, tuple(lo + n for n, lo, _ in sizes)

    def counts(self) -> Array:
        """The elements of every window, [windows]."""
        total = np.ones((), np.float64)
        windows = self.out.type.static_shape[2:]
        first, last = map(as_sizes, self.counted)
        for count, stride, taps, low, end in zip(
            windows, self.stride, self.taps, first, last, strict=True
        ):
            start = np.arange(count) * stride
            total = np.multiply.outer(total, np.minimum(start + taps, end) - np.maximum(start, low))
        return total

    def counts_of(self, wide: DType) -> Value:
        """The same as a value of a float type: of symbolic sizes it is computed."""
        if is_known(self.out.type.size):
            return Constant(self.counts().astype(wide.numpy)).out
        total = Constant(np.ones((), np.int64)).out
        windows = self.out.shape[2:]
        for axis, (stride, taps, low, end) in enumerate(
            zip(self.stride, self.taps, *self.counted, strict=True)
        ):
            start = Iota(windows, axis, i64).out * stride
            total = total * ((start + taps).minimum(as_value(end)) - start.maximum(as_value(low)))
        return total.cast(to=wide)

    def reference(self, x: Array) -> Array:
        def mean(v: Array) -> Array:
            seen = self.seen(v, 0)
            return np.sum(seen, axis=tuple(range(v.ndim, seen.ndim))) / self.counts()

        return in_double(mean, x)

    def loops(self, b: Any) -> None:
        sizes = self.x.type.static_shape[2:]
        wide = f32 if self.x.dtype in (f16, bf16) else self.x.dtype

        def elements(at: Sequence[Any]) -> Any:
            total = b.k.index(1)
            for axis, size in enumerate(sizes):
                # The same sizes with the padding before the axis as its beginning.
                low, high = self.low[axis], as_sizes(self.high)[axis]
                first, last = at[axis] * self.stride[axis], size + low + high
                end = b.k.minimum(first + self.taps[axis], last)
                if not self.count_include_pad:
                    first, end = b.k.maximum(first, low), b.k.minimum(end, size + low)
                total = total * (end - first)
            return b.k.cast(total, wide)

        def point(n: Any, c: Any, *at: Any) -> None:
            def tap(place: list[Any], _: list[Any], total: Any) -> list[Any]:
                return [total + b.load(0, [n, c, *place])]

            start = b.const(0, wide)
            total = fold_forward(b, at, sizes, self.windows, tap, [start])[0]
            b.store(0, (n, c, *at), total / elements(at))

        b.parallel(self.out.type.static_shape, point)

    def vjp(self, g: Value) -> tuple[Value]:
        """Every window's share is spread over it: a conv_transpose by ones, channel by channel."""
        wide = widened(g)
        share = wide / self.counts_of(wide.dtype)
        planes = share.reshape((-1, 1, *g.shape[2:]))
        ones = Constant(np.ones((), wide.dtype.numpy)).out.expand((1, 1, *self.taps))
        sizes = zip(g.shape[2:], self.x.shape[2:], strict=True)
        high = tuple(
            (n - 1) * s + k - lo - size
            for (n, size), k, s, lo, _ in zip(sizes, *self.windows, strict=True)
        )
        spread = ConvTranspose(planes, ones, self.stride, self.low, high, (1,) * len(high), 1).out
        return (spread.reshape(self.x.shape).cast(to=g.dtype),)

    def jvp(self, t: Value) -> Value:
        return self.with_operands([t]).out


def places(
    what: str,
    x: Value,
    padding: Padding,
    geometry: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
    ceil_mode: bool,
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[Dim, ...]]:
    """The padding before and after each axis, and the places that ``ceil_mode`` adds to it."""
    kernel, stride, dilation = geometry
    low, high = padding_of(padding, kernel, stride, dilation, what)
    more: list[Dim] = []
    sizes = x.shape[2:] if ceil_mode else (0,) * len(kernel)
    for n, k, s, d, lo, hi in zip(sizes, kernel, stride, dilation, low, high, strict=True):
        if s < 1:
            raise ShapeError(f"{what}: a stride is 1 or more, found {s}")
        half = extent(k, d) // 2
        if max(lo, hi) > half:
            raise ShapeError(
                f"{what}: padding is at most half a window, here {half}; found {lo} and {hi}"
            )
        room = n + lo + hi - extent(k, d)
        # Of the windows none may begin behind the elements.
        last = minimum(ceil_div(room, s), ceil_div(n + lo, s) - 1)
        more.append(maximum(0, last * s - room) if ceil_mode else 0)
    return low, high, tuple(more)
