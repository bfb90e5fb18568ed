"""The gradient of a convolution with respect to its weights, as an op of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from rlx.base.dims import as_sizes, is_known, surely_differ
from rlx.errors import DTypeError, ShapeError
from rlx.ir.factors import Factor, Factors, Parts
from rlx.ir.op import Array, Cost, Op, attr, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.conv.common import check_operands, operations
from rlx.ops.conv.conv import Conv, ConvTranspose
from rlx.ops.conv.window import Windows, check_counts, extent, view_of_windows
from rlx.ops.matmul.contraction import MatMul
from rlx.ops.movement.movement import listed
from rlx.ops.movement.slicing import Concat, Pad, Slice
from rlx.ops.pointwise.base import NUMERIC
from rlx.ops.pointwise.cast import in_double, widened
from rlx.ops.reduction.reduce import ReduceSum
from rlx.types import Dim, TensorType

__all__ = ["ConvWeights"]

TAPS = 64
"""Taps of a kernel up to which its gradient is a product a tap."""
CHANNELS = 8
"""Channels of a group from which on it is: fewer make thin products."""


def by_taps(
    x: Value, g: Value, windows: Windows, groups: int, apart: tuple[Dim, Dim] | None = None
) -> Value:
    """The gradient as one product a tap, of which only N may be symbolic. The images may be those
    of examples that have gradients ``apart``: so many examples, with so many images each.

    x gets its padding, and g zeros behind its axes up to as many places; both as planes, in which a
    tap is a constant distance away, are multiplied along the places and summed over the images::

        dw[tap] = sum over images of  x[channels, places + distance] @ g[outputs, places]ᵀ
    """
    kernel, stride, _, dilation = windows
    images, outputs = g.shape[:2]
    channels = x.shape[1] // groups
    counts = _spatial(g)
    sizes = [
        n + (k - 1) * d // s for n, k, s, d in zip(counts, kernel, stride, dilation, strict=True)
    ]
    places = math.prod(sizes)
    dt, x, g = x.dtype, widened(x), widened(g)
    behind = [0, 0, *(q - n for q, n in zip(sizes, counts, strict=True))]
    planes = Pad.build(g, 0, behind).reshape((images, groups, outputs // groups, places))
    padded = _padded(x, sizes, windows)

    def phase(first: Sequence[int]) -> Value:
        steps = [1, 1, *stride]
        plane = Slice.build(padded, [0, 0, *first], [*padded.shape[:2], *sizes], steps)
        return plane.reshape((images, groups, channels, places))

    taps = [_place(tap, sizes, windows) for tap in product(*map(range, kernel))]
    phases = {first: phase(first) for first, _ in taps}
    length = places - taps[-1][1]
    right = planes.narrow(3, 0, length).transpose([0, 1, 3, 2])
    lead = apart[:1] if apart else ()
    parts: list[Value] = []
    for first, distance in taps:
        left = phases[first].narrow(3, distance, length)
        each = MatMul(left, right).out
        if apart:
            each = each.reshape((*apart, *each.shape[1:]))
        total = ReduceSum(each, (len(lead),), False).out
        order = [*range(total.rank - 2), total.rank - 1, total.rank - 2]
        parts.append(total.transpose(order).reshape((*lead, outputs, channels, 1)))
    return _joined(parts).reshape((*lead, outputs, channels, *kernel)).cast(to=dt)


def _spatial(v: Value) -> tuple[int, ...]:
    """The sizes of the spatial axes, which are numbers."""
    return tuple(d for d in v.shape[2:] if is_known(d))


def _place(
    tap: Sequence[int], sizes: Sequence[int], windows: Windows
) -> tuple[tuple[int, ...], int]:
    """The phase of the stride in which a tap lies, and how far it is from its window there."""
    places = [t * d for t, d in zip(tap, windows.dilation, strict=True)]
    distance = 0
    for place, stride, size in zip(places, windows.stride, sizes, strict=True):
        distance = distance * size + place // stride
    return tuple(p % s for p, s in zip(places, windows.stride, strict=True)), distance


def _padded(x: Value, sizes: Sequence[int], windows: Windows) -> Value:
    """x with its padding, and as much behind it as makes all phases of the stride whole."""
    low = [0, 0, *windows.low]
    high = [0, 0]
    for q, s, lo, n in zip(sizes, windows.stride, windows.low, _spatial(x), strict=True):
        high.append(q * s - lo - n)
    kept = [n + min(lo, 0) + min(hi, 0) for n, lo, hi in zip(x.shape, low, high, strict=True)]
    x = Slice.build(x, [max(-lo, 0) for lo in low], kept)
    return Pad.build(x, [max(lo, 0) for lo in low], [max(hi, 0) for hi in high])


def _joined(parts: Sequence[Value]) -> Value:
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return Concat(_joined(parts[:half]), _joined(parts[half:]), parts[0].rank - 1).out


def over_images(x: Value, g: Value, windows: Windows, high: tuple[Dim, ...], groups: int) -> Value:
    """It is a conv over the images: they are the channels, g is the kernel, and stride and dilation
    change places. The groups of x become groups of such channels."""
    from rlx.ops.conv.conv import Conv

    _, stride, low, dilation = windows
    n, c = x.shape[:2]
    rest = range(3, x.rank + 1)
    per = c // groups
    split = x.reshape((n, groups, per, *x.shape[2:])).transpose([2, 1, 0, *rest])
    rows = split.reshape((per, groups * n, *x.shape[2:]))
    kernel = g.transpose([1, 0, *range(2, g.rank)])
    found = Conv(rows, kernel, dilation, low, high, stride, groups).out
    return found.transpose([1, 0, *range(2, found.rank)])


_ONE: dict[str, Any] = {"taps": (2,), "stride": (1,), "low": (0,), "dilation": (1,)}
_POINT: dict[str, Any] = _ONE | {"taps": (1,)}
_TWO: dict[str, Any] = {k: v * 2 for k, v in _ONE.items()}


class ConvWeights(Op, name="mir.conv_weights"):
    """The sum over all windows of a tensor times what stands at each: a convolution's gradient.

    x is [N, C, spatial axes], g is [N, Co, windows], the result [Co, C / groups, taps]: the
    gradient of ``conv(x, w)`` with respect to w, for g that of its result. A tap outside the tensor
    counts as 0. 16-bit floats accumulate in f32 and round once; integers wrap in their own type.
    """

    x: Value = operand("[N, C, spatial axes]: one to three of them")
    g: Value = operand("[N, Co, windows], of the same element type")
    taps: tuple[int, ...] = attr(doc="taps of a window along each spatial axis")
    stride: tuple[int, ...] = attr(doc="distance between two windows")
    low: tuple[int, ...] = attr(doc="places of padding before each axis; negative: dropped")
    dilation: tuple[int, ...] = attr(doc="distance between two taps of a window")
    groups: int = attr(1, "number of groups of channels, each with weights of its own")

    linear = ((0,), (1,))
    dtypes = NUMERIC
    samples = (
        sample("2x3x5xT", "2x4x4xT", **_ONE),
        sample("1x4x5x4xT", "1x2x3x2xT", groups=2, taps=(3, 2), stride=(2, 2), low=(1, 0),
               dilation=(1, 1)),
        sample("2x8x4x3xT", "2x3x3x3xT", taps=(2, 3), stride=(1, 1), low=(0, 1), dilation=(1, 1)),
        sample("0x2x3xT", "0x2x3xT", **_POINT),
    )  # fmt: skip
    bads = (
        bad("2x3xf32", "2x3xf32", match="one to three", error=ShapeError, **_ONE),
        bad("2x3x5xf32", "3x4x4xf32", match="as many images", error=ShapeError, **_ONE),
        bad("2x3x5xf32", "2x4x4xf64", match="one type", error=DTypeError, **_ONE),
        bad("2x3x5xbool", "2x4x4xbool", match="found bool", error=DTypeError, **_ONE),
        bad("2x3x5xf32", "2x4x4xf32", match="do not divide", error=ShapeError, groups=2, **_ONE),
        bad("2x3x5xf32", "2x4x4xf32", match="groups must be", error=ShapeError, groups=0, **_ONE),
        bad("2x3x5xf32", "2x4x4xf32", match="1 spatial axes", error=ShapeError, **_TWO),
    )

    def infer(self) -> TensorType:
        x, g = self.x, self.g
        check_operands(self.short, "g", x, g, self.groups)
        geometry = {"taps": self.taps, "stride": self.stride, "low": self.low}
        check_counts(self.short, x.rank - 2, **geometry, dilation=self.dilation)
        if x.shape[0] != g.shape[0]:
            raise ShapeError(
                f"{self.short}: x and g have as many images, found {listed(x.shape)} and"
                f" {listed(g.shape)}"
            )
        for v in (x, g):
            channels = v.shape[1]
            if surely_differ(channels % self.groups, 0):
                raise ShapeError(
                    f"{self.short}: {self.groups} groups do not divide {channels} channels"
                )
        return x.type.with_shape((g.shape[1], x.shape[1] // self.groups, *self.taps))

    @property
    def windows(self) -> Windows:
        """Where the windows lie."""
        return Windows(self.taps, self.stride, self.low, self.dilation)

    @property
    def high(self) -> tuple[Dim, ...]:
        """The places after each axis up to the end of the last window; negative: dropped."""
        found: list[Dim] = []
        for axis, (k, s, lo, d) in enumerate(zip(*self.windows, strict=True)):
            size, count = self.x.shape[2 + axis], self.g.shape[2 + axis]
            found.append((count - 1) * s + extent(k, d) - lo - size)
        return tuple(found)

    def cost(self) -> Cost:
        """A multiplication and an addition for every window, tap and channel."""
        return Cost(operations(self.g, *self.out.shape[1:]), super().cost().bytes)

    def reference(self, x: Array, g: Array) -> Array:
        return in_double(self._sum, x, g) if self.x.dtype.is_float else self._sum(x, g)

    def _sum(self, x: Array, g: Array) -> Array:
        before = [max(lo, 0) for lo in self.low]
        after = [max(hi, 0) for hi in as_sizes(self.high)]
        x = np.pad(x, [(0, 0), (0, 0), *zip(before, after, strict=True)])
        x = x[:, :, *(slice(max(-lo, 0), None) for lo in self.low)]
        seen = view_of_windows(x, g.shape[2:], self.windows)
        n, groups = x.shape[0], self.groups
        seen = seen.reshape(n, groups, x.shape[1] // groups, *seen.shape[2:])
        many = g.reshape(n, groups, g.shape[1] // groups, *g.shape[2:])
        o, k = "opq"[: len(self.taps)], "xyz"[: len(self.taps)]
        total = np.einsum(f"ngc{o}{k},ngd{o}->gdc{k}", seen, many)
        return total.reshape(self.out.type.static_shape)

    def expand(self) -> Value:
        x, g, windows, groups = self.x, self.g, self.windows, self.groups
        channels = self.out.shape[1]
        few = self._planes_known() and math.prod(self.taps) <= TAPS
        if few and is_known(channels) and channels >= CHANNELS:
            return by_taps(x, g, windows, groups)
        return over_images(x, g, windows, self.high, groups)

    def _planes_known(self) -> bool:
        """Whether all sizes but the number of images are numbers."""
        return all(is_known(d) for v in (self.x, self.g) for d in v.shape[1:])

    def _geometry(self) -> tuple[Any, ...]:
        return self.stride, self.low, self.high, self.dilation, self.groups

    def factors(self) -> Factors:
        space = range(self.x.rank - 2)
        x, w, y = ([f"{s}{i}" for i in space] for s in "xwy")
        channels, outputs = (v.shape[1] // self.groups for v in (self.x, self.g))
        sizes: dict[Factor, Dim] = {"g": self.groups, "c": channels, "o": outputs}
        return Factors(
            self,
            [["n", ("g", "c"), *x], ["n", ("g", "o"), *y]],
            [[("g", "o"), "c", *w]],
            sums=["n"],
            whole=[*x, *w, *y],
            sizes=sizes,
        )

    def on_parts(self, operands: Sequence[Value | None], parts: Parts) -> Sequence[Value]:
        return self.with_operands(operands, groups=parts.length("g")).results

    def vjp(self, t: Value) -> tuple[Value, Value]:
        """The op is linear in either operand."""
        geometry = self._geometry()
        return ConvTranspose(self.g, t, *geometry).out, Conv(self.x, t, *geometry).out

    def jvp(self, tx: Value | None, tg: Value | None) -> Value:
        parts = [
            self.with_operands(pair).out
            for t, pair in ((tx, (tx, self.g)), (tg, (self.x, tg)))
            if t is not None
        ]
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        """The elements of the new axis become groups; images where their number is not known, as
        that of groups must be."""
        count = next(v.shape[0] for v, has in zip(operands, batched, strict=True) if has)
        if not is_known(count):
            if not self._planes_known():
                raise ShapeError(
                    f"{self.short}: there are {count} examples of {self.x.type}; one of both must"
                    " be known: give vmap a number as axis_size, or bind the dims of the images"
                )
            each = [
                v if has else v.expand((count, *v.shape))
                for v, has in zip(operands, batched, strict=True)
            ]
            x, g = (v.reshape((count * v.shape[1], *v.shape[2:])) for v in each)
            return by_taps(x, g, self.windows, self.groups, (count, self.x.shape[0]))

        def wide(v: Value, has: bool) -> Value:
            both = v if has else v.expand((count, *v.shape))
            rows = both.transpose([1, 0, *range(2, both.rank)])
            return rows.reshape((rows.shape[0], count * rows.shape[2], *rows.shape[3:]))

        pairs = [wide(v, has) for v, has in zip(operands, batched, strict=True)]
        out = self.with_operands(pairs, groups=count * self.groups).out
        return out.reshape((count, *self.out.shape))
