"""The gradient of a convolution with respect to its weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

from rlx.base.dims import is_known
from rlx.ir.value import Value
from rlx.ops.conv.window import Windows
from rlx.ops.matmul.contraction import MatMul
from rlx.ops.movement.slicing import Concat, Pad, Slice
from rlx.ops.pointwise.cast import widened
from rlx.ops.reduction.reduce import ReduceSum
from rlx.types import Dim

__all__ = ["CHANNELS", "TAPS", "by_taps", "over_images"]

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
