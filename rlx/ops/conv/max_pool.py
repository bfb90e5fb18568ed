"""Max pooling, where its maxima are, and the way back to them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.base.dims import is_known
from rlx.errors import DTypeError, ShapeError
from rlx.ir.factors import Factors, lines
from rlx.ir.op import Array, Op, attr, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.conv.pool import ONE, THREE, TWO, Pool, but, places
from rlx.ops.conv.window import (
    Numbers,
    Padding,
    Windows,
    check_counts,
    each,
    fold_backward,
    fold_forward,
)
from rlx.ops.indexing.gather import Gather
from rlx.ops.movement.movement import listed
from rlx.ops.pointwise.base import NUMERIC
from rlx.ops.reduction.reduce import bound
from rlx.types import FLOATS, Dim, TensorType, bf16, f16, f32, i64

__all__ = ["MaxPool", "MaxPoolBackward", "MaxPoolIndices"]

_BACK: dict[str, Any] = {"taps": (2,), "stride": (2,), "low": (0,), "dilation": (1,)}


class MaxWindows(Pool):
    """The windows of max pooling, whose taps may lie apart."""

    dilation: tuple[int, ...] = attr(doc="distance between two taps of a window")

    dtypes = NUMERIC
    samples = (
        sample("2x3x5xT", dilation=(1,), **ONE),
        sample("1x2x5x4xT", dilation=(1, 1), **TWO),
        sample("1x2x7xT", dilation=(2,), **but(ONE, taps=(3,), low=(1,), high=(2,))),
        sample("1x2x3x2x4xT", dilation=(1, 1, 1), **THREE),
    )
    bads = (
        *(b._replace(attrs={"dilation": b.attrs["stride"], **b.attrs}) for b in Pool.bads),
        bad("2x3x5xf32", match="window 2 .* no elements", error=ShapeError, dilation=(1,),
            **but(ONE, high=(3,), stride=(3,))),
        bad("2x3x1xf32", match="window 0 .* no elements", error=ShapeError, dilation=(2,),
            **but(ONE, low=(1,), high=(1,))),
    )  # fmt: skip

    def infer(self) -> TensorType:
        out = super().infer()
        for axis, (size, count) in enumerate(zip(self.x.shape[2:], out.shape[2:], strict=True)):
            if is_known(size) and is_known(count):
                self._check_filled(axis, size, count)
        return out

    @property
    def windows(self) -> Windows:
        return super().windows._replace(dilation=self.dilation)

    def _check_filled(self, axis: int, size: int, count: int) -> None:
        """ShapeError if a window along an axis has nothing but padding."""
        low, stride, gap = self.low[axis], self.stride[axis], self.dilation[axis]
        for window in (*range(-(-low // stride)), count - 1):
            start = window * stride - low
            first = -(-max(-start, 0) // gap)  # the first tap that is not before the elements
            if first >= self.taps[axis] or start + first * gap >= size:
                raise ShapeError(
                    f"{self.short}: the window {window} along axis {2 + axis} of {self.x.type}"
                    " has no elements, which have no maximum"
                )

    @classmethod
    def build(
        cls,
        x: Value,
        kernel: Numbers,
        stride: Numbers | None = None,
        padding: Padding = 0,
        dilation: Numbers = 1,
        ceil_mode: bool = False,
    ) -> Value:
        """As ``torch.nn.functional.max_pool2d``, for one to three spatial axes; ``stride`` is the
        kernel's size unless given, ``padding`` may be a pair (low, high) an axis."""
        name, rank = cls.name.split(".")[1], x.rank - 2
        taps = each(kernel, rank, f"{name}: kernel")
        strides = taps if stride is None else each(stride, rank, f"{name}: stride")
        gaps = each(dilation, rank, f"{name}: dilation")
        low, high, more = places(name, x, padding, (taps, strides, gaps), ceil_mode)
        high = tuple(h + m for h, m in zip(high, more, strict=True))
        return cls(x, taps, strides, low, high, gaps).out

    def fold(self, b: Any, at: Sequence[Any], body: Any, init: Sequence[Any]) -> list[Any]:
        """Fold the elements of the window ``at`` of a channel."""
        sizes = self.x.type.static_shape[2:]
        return fold_forward(b, at, sizes, self.windows, body, init)


class MaxPool(MaxWindows, name="mir.max_pool"):
    """The largest element of every window, without the padding; nan if there is one."""

    def reference(self, x: Array) -> Array:
        seen = self.seen(x, bound(self.x.dtype, "min"))
        return np.max(seen, axis=tuple(range(x.ndim, seen.ndim)))

    def loops(self, b: Any) -> None:
        def point(n: Any, c: Any, *at: Any) -> None:
            def tap(place: list[Any], _: list[Any], best: Any) -> list[Any]:
                return [b.k.maximum(best, b.load(0, [n, c, *place]))]

            start = b.const(bound(self.x.dtype, "min"), self.x.dtype)
            b.store(0, (n, c, *at), self.fold(b, at, tap, [start])[0])

        b.parallel(self.out.type.static_shape, point)

    def indices(self) -> Value:
        """Where the largest elements are."""
        return MaxPoolIndices(self.x, **self.attrs).out

    def vjp(self, g: Value) -> tuple[Value]:
        return (MaxPoolBackward(g, self.indices(), *self.windows, self.x.shape[2:]).out,)

    def jvp(self, t: Value) -> Value:
        return _taken(t, self.indices())


class MaxPoolIndices(MaxWindows, name="mir.max_pool_indices"):
    """Where the largest element of every window is: its place among those of its channel, as i64.

    Of equal ones it is the first, of nan the last one, as in PyTorch.
    """

    differentiable = False

    def infer(self) -> TensorType:
        return super().infer().with_dtype(i64)

    def reference(self, x: Array) -> Array:
        seen = self.seen(x, bound(self.x.dtype, "min"))
        places = np.arange(math.prod(x.shape[2:])).reshape(1, 1, *x.shape[2:])
        where = np.broadcast_to(self.seen(places, -1), seen.shape)
        flat = (*self.out.type.static_shape, math.prod(self.taps))
        best, found = np.zeros(flat[:-1], x.dtype), np.full(flat[:-1], -1, np.int64)
        for tap in range(flat[-1]):
            value, place = seen.reshape(flat)[..., tap], where.reshape(flat)[..., tap]
            nan = value != value  # noqa: PLR0124
            takes = (place >= 0) & ((found < 0) | (value > best) | nan)
            best, found = np.where(takes, value, best), np.where(takes, place, found)
        return found

    def loops(self, b: Any) -> None:
        sizes = self.x.type.static_shape[2:]

        def point(n: Any, c: Any, *at: Any) -> None:
            def tap(place: list[Any], _: list[Any], best: Any, found: Any) -> list[Any]:
                value = b.load(0, [n, c, *place])
                nan = b.k.compare("ne", value, value)
                takes = (found < 0) | (value > best) | nan
                here = b.k.cast(_flat(place, sizes), i64)
                return [b.k.select(takes, value, best), b.k.select(takes, here, found)]

            init = [b.const(0, self.x.dtype), b.const(-1, i64)]
            b.store(0, (n, c, *at), self.fold(b, at, tap, init)[1])

        b.parallel(self.out.type.static_shape, point)


class MaxPoolBackward(Op, name="mir.max_pool_backward"):
    """Zeros to which the value of every window is added where ``indices`` says.

    It is the adjoint of taking the elements there. An index lies in its window, as those of
    max_pool_indices do; any other is not seen.
    """

    g: Value = operand("[N, C, windows]: one to three axes of them")
    indices: Value = operand("of the same shape, i64: what max_pool_indices gives")
    taps: tuple[int, ...] = attr(doc="taps of a window along each spatial axis")
    stride: tuple[int, ...] = attr(doc="distance between two windows")
    low: tuple[int, ...] = attr(doc="places of padding before each axis")
    dilation: tuple[int, ...] = attr(doc="distance between two taps of a window")
    size: tuple[Dim, ...] = attr(doc="the spatial axes of the result")

    dtypes = FLOATS
    samples = (
        sample("2x1x2xT", "2x1x2xi64", taps=(3,), stride=(1,), low=(1,), dilation=(1,),
               size=(2,), data={1: "index:2"}),
        sample("1x2x2x1xT", "1x2x2x1xi64", taps=(3, 2), stride=(1, 2), low=(1, 0),
               dilation=(1, 1), size=(2, 2), data={1: "index:4"}),
    )  # fmt: skip
    bads = (
        bad("1x2xf32", "1x2xi64", match="one to three", error=ShapeError, size=(4,), **_BACK),
        bad("1x2x2xf32", "1x2x3xi64", match="one shape", error=ShapeError, size=(4,), **_BACK),
        bad("1x2x2xf32", "1x2x2xi32", match="i64", error=DTypeError, size=(4,), **_BACK),
        bad("1x2x2xi32", "1x2x2xi64", match="adds floats", error=DTypeError, size=(4,), **_BACK),
        bad("1x2x2xf32", "1x2x2xi64", match="1 spatial axes", error=ShapeError, size=(), **_BACK),
    )

    def infer(self) -> TensorType:
        g, indices = self.g, self.indices
        if not 3 <= g.rank <= 5:
            raise ShapeError(f"{self.short} takes [N, C, one to three axes], found {g.type}")
        if g.dtype not in FLOATS or indices.dtype is not i64:
            raise DTypeError(
                f"{self.short} adds floats where i64 says, found {g.dtype} and {indices.dtype}"
            )
        if g.shape != indices.shape:
            raise ShapeError(
                f"{self.short} takes values and indices of one shape, found {listed(g.shape)} and"
                f" {listed(indices.shape)}"
            )
        geometry = {"taps": self.taps, "stride": self.stride, "low": self.low}
        rank = g.rank - 2
        check_counts(self.short, rank, **geometry, dilation=self.dilation)
        if len(self.size) != rank:
            raise ShapeError(f"{self.short}: size has {rank} spatial axes, found {self.size}")
        return g.type.with_shape((*g.shape[:2], *self.size))

    def reference(self, g: Array, indices: Array) -> Array:
        shape = self.out.type.static_shape
        total = np.zeros((math.prod(shape[:2]), math.prod(shape[2:])))
        rows = g.reshape(len(total), math.prod(g.shape[2:])).astype(np.float64)
        for row, where, out in zip(rows, indices.reshape(rows.shape), total, strict=True):
            np.add.at(out, where[where >= 0], row[where >= 0])
        return total.reshape(shape).astype(g.dtype)

    def loops(self, b: Any) -> None:
        counts, sizes = self.g.type.static_shape[2:], self.out.type.static_shape[2:]
        windows = Windows(self.taps, self.stride, self.low, self.dilation)
        wide = f32 if self.g.dtype in (f16, bf16) else self.g.dtype

        def point(n: Any, c: Any, *at: Any) -> None:
            here = b.k.cast(_flat(at, sizes), i64)

            def window(place: list[Any], _: list[Any], total: Any) -> list[Any]:
                meant = b.k.compare("eq", b.load(1, [n, c, *place]), here)
                more = total + b.load(0, [n, c, *place])
                return [b.k.select(meant, more, total)]

            start = b.const(0, wide)
            total = fold_backward(b, at, counts, windows, window, [start])[0]
            b.store(0, (n, c, *at), total)

        b.parallel(self.out.type.static_shape, point)

    def factors(self) -> Factors:
        return lines(self, *range(2, self.g.rank))

    def vjp(self, g: Value) -> tuple[Value, None]:
        return _taken(g, self.indices), None

    def jvp(self, tg: Value | None, ti: Value | None) -> Value:
        assert tg is not None, "indices have no tangent"
        return self.with_operands([tg, self.indices]).out

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        """The new axis is folded into N."""
        count = next(v.shape[0] for v, has in zip(operands, batched, strict=True) if has)
        both = [
            v if has else v.expand((count, *v.shape))
            for v, has in zip(operands, batched, strict=True)
        ]
        rows = [v.reshape((count * v.shape[1], *v.shape[2:])) for v in both]
        return self.with_operands(rows).out.reshape((count, *self.out.shape))


def _taken(x: Value, indices: Value) -> Value:
    """The elements of every channel at the places that ``indices`` says."""
    flat = x.reshape((*x.shape[:2], -1))
    places = indices.reshape((*indices.shape[:2], -1))
    return Gather(flat, places, 2, "clip", 2).out.reshape(indices.shape)


def _flat(place: Sequence[Any], sizes: Sequence[int]) -> Any:
    """The number of a place among those of a channel."""
    total = place[0]
    for i, size in zip(place[1:], sizes[1:], strict=True):
        total = total * size + i
    return total
