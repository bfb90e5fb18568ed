"""Ops that take a part of a tensor, join two, or add elements around one: slice, concat, pad.

Every loop nest is in pull form: a point of the result says which operand element it is. All
element types are taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rlx.errors import DTypeError, ShapeError
from rlx.ir.factors import Factors, Parts
from rlx.ir.lift import lift
from rlx.ir.op import Array, Op, attr, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.movement.constant import Constant
from rlx.ops.movement.movement import DimLike, axis_of, is_negative, listed, zeros
from rlx.ops.pointwise.base import ANY
from rlx.types import Dim, TensorType, bool_

__all__ = ["Concat", "Pad", "Slice", "shifted"]


class Slice(Op, name="mir.slice"):
    """A box of the tensor: along each axis ``sizes`` elements from ``starts``, ``steps`` apart."""

    x: Value = operand("any tensor")
    starts: tuple[Dim, ...] = attr(doc="first index along each axis")
    sizes: tuple[Dim, ...] = attr(doc="number of elements taken along each axis")
    steps: tuple[int, ...] = attr(doc="distance between them, at least 1")

    linear = ((0,),)
    flops_per_element = 0
    dtypes = ANY
    samples = (
        sample("5xT", starts=(1,), sizes=(3,), steps=(1,)),
        sample("5x4xT", starts=(0, 1), sizes=(3, 2), steps=(2, 2)),
        sample("2x3x4xT", starts=(1, 0, 3), sizes=(1, 3, 1), steps=(1, 1, 1)),
        sample("6x2xT", starts=(1, 0), sizes=(2, 2), steps=(3, 1)),
        sample("T", starts=(), sizes=(), steps=()),
        sample("3x2xT", starts=(3, 0), sizes=(0, 2), steps=(1, 1)),
    )
    bads = (
        bad("4xf32", match="one number an axis", error=ShapeError,
            starts=(0, 0), sizes=(1, 1), steps=(1, 1)),
        bad("4xf32", match="steps must be at least 1", error=ShapeError,
            starts=(3,), sizes=(4,), steps=(-1,)),
        bad("4xf32", match="starts and sizes", error=ShapeError,
            starts=(-1,), sizes=(1,), steps=(1,)),
        bad("4xf32", match="up to index 4", error=ShapeError,
            starts=(2,), sizes=(2,), steps=(2,)),
    )  # fmt: skip

    @classmethod
    def build(
        cls,
        x: Value,
        starts: Iterable[DimLike],
        sizes: Iterable[DimLike],
        steps: Iterable[int] | None = None,
    ) -> Value:
        """``steps`` are 1 unless given."""
        first: tuple[Any, ...] = tuple(starts)
        count: tuple[Any, ...] = tuple(sizes)
        return cls(x, first, count, (1,) * x.rank if steps is None else tuple(steps)).out

    def infer(self) -> TensorType:
        if any(len(given) != self.x.rank for given in (self.starts, self.sizes, self.steps)):
            raise ShapeError(
                f"slice: starts, sizes and steps need one number an axis; the tensor has rank"
                f" {self.x.rank}, found {len(self.starts)}, {len(self.sizes)}, {len(self.steps)}"
            )
        if any(s < 1 for s in self.steps):
            raise ShapeError(f"slice: steps must be at least 1, found {self.steps}")
        if any(is_negative(d) for d in (*self.starts, *self.sizes)):
            raise ShapeError(
                f"slice: starts and sizes are counted from the front and cannot be negative, found"
                f" {listed(self.starts)} and {listed(self.sizes)}"
            )
        for axis, (room, dim) in enumerate(zip(self.ends(), self.x.shape, strict=True)):
            if is_negative(dim - room):
                raise ShapeError(
                    f"slice: axis {axis} of {listed(self.x.shape)} has {dim} elements,"
                    f" the slice reads up to index {room - 1}"
                )
        return self.x.type.with_shape(self.sizes)

    def ends(self) -> tuple[Dim, ...]:
        """One past the last index read, along each axis."""
        return tuple(
            start if size == 0 else start + (size - 1) * step + 1
            for start, size, step in zip(self.starts, self.sizes, self.steps, strict=True)
        )

    def reference(self, x: Array) -> Array:
        box = zip(self.starts, self.ends(), self.steps, strict=True)
        return x[tuple(slice(*b) for b in box)].copy()

    def loops(self, b: Any) -> None:
        def point(*at: Any) -> None:
            box = zip(at, self.starts, self.steps, strict=True)
            b.store(0, at, b.load(0, [i * step + start for i, start, step in box]))

        b.parallel(self.out.type.static_shape, point)

    def factors(self) -> Factors:
        dims = enumerate(zip(self.x.shape, self.sizes, strict=True))
        kept = [i if d == n else None for i, (d, n) in dims]
        return Factors(self, [kept], [kept])

    def on_parts(self, operands: Sequence[Value | None], parts: Parts) -> Sequence[Value]:
        return self.with_operands(operands, sizes=parts.shape()).results

    def vjp(self, g: Value) -> tuple[Value]:
        high = [dim - end for dim, end in zip(self.x.shape, self.ends(), strict=True)]
        return (Pad.build(g, self.starts, high, 0, [s - 1 for s in self.steps]),)

    def jvp(self, t: Value) -> Value:
        return self.with_operands([t]).out

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        starts, sizes = (0, *self.starts), (operands[0].shape[0], *self.sizes)
        return self.with_operands(operands, starts=starts, sizes=sizes, steps=(1, *self.steps)).out


class Concat(Op, name="mir.concat"):
    """Two tensors joined along an axis; their other dims are equal."""

    a: Value = operand("the first part")
    b: Value = operand("the second part, of the same rank and element type")
    axis: int = attr(0, "the axis to join along")

    linear = ((0, 1),)
    flops_per_element = 0
    dtypes = ANY
    samples = (
        sample("2xT", "3xT", axis=0),
        sample("2x3xT", "2x1xT", axis=1),
        sample("2x3x2xT", "2x1x2xT", axis=1),
        sample("0x2xT", "3x2xT", axis=0),
        sample("3x2xT", "0x2xT", axis=0),
    )
    bads = (
        bad("2xf32", "2x1xf32", match="one rank", error=ShapeError, axis=0),
        bad("f32", "f32", match="axis 0", error=ShapeError, axis=0),
        bad("2x3xf32", "2x4xf32", match="differ along axis 1", error=ShapeError, axis=0),
        bad("2xf32", "2xi32", match="one type", error=DTypeError, axis=0),
    )

    def infer(self) -> TensorType:
        if self.a.rank != self.b.rank:
            shapes = f"{listed(self.a.shape)} and {listed(self.b.shape)}"
            raise ShapeError(f"concat takes tensors of one rank, found {shapes}")
        axis_of(self.axis, self.a.rank, "concat")
        if self.a.dtype is not self.b.dtype:
            raise DTypeError(
                f"concat takes tensors of one type, found {self.a.dtype} and {self.b.dtype}"
            )
        dims = list(self.a.shape)
        for i, other in enumerate(self.b.shape):
            if i == self.axis:
                dims[i] = dims[i] + other
            elif dims[i] != other:
                raise ShapeError(
                    f"concat: {listed(self.a.shape)} and {listed(self.b.shape)} differ along axis"
                    f" {i}; only axis {self.axis} may"
                )
        return self.a.type.with_shape(dims)

    def reference(self, a: Array, b: Array) -> Array:
        return np.concatenate([a, b], self.axis)

    def loops(self, b: Any) -> None:
        first = self.a.type.static_shape[self.axis]

        def point(*at: Any) -> None:
            def second() -> Any:
                return b.load(1, [i - first if n == self.axis else i for n, i in enumerate(at)])

            value = b.when(
                at[self.axis] < first,
                lambda: b.load(0, at),
                second,
                results=(b.const(0, self.a.dtype),),
            )
            b.store(0, at, value[0])

        b.parallel(self.out.type.static_shape, point)

    def factors(self) -> Factors:
        kept = [None if i == self.axis else i for i in range(self.a.rank)]
        return Factors(self, [kept, kept], [kept])

    def vjp(self, g: Value) -> tuple[Value, Value]:
        starts: list[Dim] = [0] * g.rank
        first = Slice.build(g, starts, self.a.shape)
        starts[self.axis] = self.a.shape[self.axis]
        return first, Slice.build(g, starts, self.b.shape)

    def jvp(self, ta: Value | None, tb: Value | None) -> Value:
        parts = zip((ta, tb), (self.a, self.b), strict=True)
        return self.with_operands(
            [zeros(v.shape, v.dtype) if t is None else t for t, v in parts]
        ).out

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        count = next(v.shape[0] for v, has in zip(operands, batched, strict=True) if has)
        ready = [
            v if has else v.expand((count, *v.shape))
            for v, has in zip(operands, batched, strict=True)
        ]
        return self.with_operands(ready, axis=self.axis + 1).out


class Pad(Op, name="mir.pad"):
    """The tensor with a fill value before, after and between its elements along each axis."""

    x: Value = operand("any tensor")
    fill: Value = operand("what the new places hold: a scalar of the same element type")
    low: tuple[Dim, ...] = attr(doc="places before the first element of each axis")
    high: tuple[Dim, ...] = attr(doc="places after the last")
    interior: tuple[int, ...] = attr(doc="places between two neighbours")

    flops_per_element = 0
    dtypes = ANY
    samples = (
        sample("3xT", "T", low=(1,), high=(2,), interior=(0,)),
        sample("2x3xT", "T", low=(0, 1), high=(1, 0), interior=(2, 1)),
        sample("2x1xT", "T", low=(0, 2), high=(0, 2), interior=(0, 3)),
        sample("0x2xT", "T", low=(2, 0), high=(1, 1), interior=(1, 0)),
        sample("T", "T", low=(), high=(), interior=()),
    )
    bads = (
        bad("3xf32", "f32", match="one number an axis", error=ShapeError,
            low=(1, 1), high=(1, 1), interior=(0, 0)),
        bad("3xf32", "f32", match="negative", error=ShapeError,
            low=(-1,), high=(0,), interior=(0,)),
        bad("3xf32", "f32", match="negative", error=ShapeError,
            low=(0,), high=(0,), interior=(-1,)),
        bad("3xf32", "1xf32", match="scalar", error=ShapeError,
            low=(0,), high=(0,), interior=(0,)),
        bad("3xf32", "i32", match="fill", error=DTypeError,
            low=(0,), high=(0,), interior=(0,)),
    )  # fmt: skip

    @classmethod
    def build(
        cls,
        x: Value,
        low: Sequence[DimLike] | int,
        high: Sequence[DimLike] | int,
        value: Value | float | int | bool = 0,
        interior: Sequence[int] | int = 0,
    ) -> Value:
        """One number stands for every axis; ``value`` takes the tensor's element type."""

        def each(n: Any) -> tuple[Any, ...]:
            return tuple(n) if isinstance(n, Iterable) else (n,) * x.rank

        places = each(low), each(high), each(interior)
        _refuse_negative(*places)
        return cls(x, lift(value, x), *places).out

    def infer(self) -> TensorType:
        given = (self.low, self.high, self.interior)
        if any(len(n) != self.x.rank for n in given):
            raise ShapeError(
                f"pad: low, high and interior need one number an axis; the tensor has rank"
                f" {self.x.rank}, found {len(self.low)}, {len(self.high)}, {len(self.interior)}"
            )
        _refuse_negative(*given)
        if self.fill.rank:
            raise ShapeError(f"pad: the fill must be a scalar, found {self.fill.type}")
        if self.fill.dtype is not self.x.dtype:
            raise DTypeError(f"pad: the fill is {self.fill.dtype}, the tensor {self.x.dtype}")
        return self.x.type.with_shape(
            low + high + (d if not between or d == 0 else d + (d - 1) * between)
            for d, low, high, between in zip(self.x.shape, *given, strict=True)
        )

    def reference(self, x: Array, fill: Array) -> Array:
        out = np.full(self.out.type.static_shape, fill, x.dtype)
        spread = zip(self.low, x.shape, self.interior, strict=True)
        out[tuple(slice(lo, lo + n * (gap + 1), gap + 1) for lo, n, gap in spread)] = x
        return out

    def loops(self, b: Any) -> None:
        sizes, low = self.x.type.static_shape, self.low

        def point(*at: Any) -> None:
            inside, source = b.const(True, bool_), []
            for i, lo, gap, n in zip(at, low, self.interior, sizes, strict=True):
                place = i - lo
                inside = inside & (place >= 0)
                if gap:
                    # The remainder is of an unsigned division; a negative place is out already.
                    inside = inside & b.k.compare("eq", place % (gap + 1), 0)
                    place = place // (gap + 1)
                inside = inside & (place < n)
                source.append(place)
            fill = b.load(1, ())
            b.store(
                0, at, b.when(inside, lambda: b.load(0, source), lambda: fill, results=(fill,))[0]
            )

        b.parallel(self.out.type.static_shape, point)

    def inner(self, v: Value) -> Value:
        """The places of a padded tensor where the operand's elements are."""
        return Slice.build(v, self.low, self.x.shape, [gap + 1 for gap in self.interior])

    def factors(self) -> Factors:
        dims = enumerate(zip(self.x.shape, self.out.shape, self.low, strict=True))
        kept = [i if d == n and low == 0 else None for i, (d, n, low) in dims]
        return Factors(self, [kept, []], [kept])

    def vjp(self, g: Value) -> tuple[Value, Value]:
        inside = self.mask()
        return self.inner(g), inside.where(zeros(g.shape, g.dtype), g).sum(axes=range(g.rank))

    def mask(self) -> Value:
        """Bool, of the result's shape: true where the operand's elements are."""
        true = Constant(np.asarray(True)).out.expand(self.x.shape)
        return Pad.build(true, self.low, self.high, False, self.interior)

    def jvp(self, tx: Value | None, tf: Value | None) -> Value:
        tx = zeros(self.x.shape, self.x.dtype) if tx is None else tx
        tf = zeros((), self.x.dtype) if tf is None else tf
        return self.with_operands([tx, tf]).out

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        x, fill = operands
        count = (x if batched[0] else fill).shape[0]
        x = x if batched[0] else x.expand((count, *x.shape))
        wider = {"low": (0, *self.low), "high": (0, *self.high), "interior": (0, *self.interior)}
        if not batched[1]:
            return self.with_operands([x, fill], **wider).out
        padded = self.with_operands([x, zeros((), x.dtype)], **wider).out
        fills = fill.reshape((count, *([1] * self.out.rank))).expand(padded.shape)
        return self.mask().expand(padded.shape).where(padded, fills)


def _refuse_negative(low: Sequence[Any], high: Sequence[Any], interior: Sequence[Any]) -> None:
    if any(is_negative(n) for n in (*low, *high, *interior) if not isinstance(n, str)):
        raise ShapeError(
            f"pad: negative padding (low {listed(low)}, high {listed(high)}, interior"
            f" {listed(interior)}); take a slice to drop elements"
        )


def shifted(x: Value, axis: int, by: int, fill: float) -> Value:
    """``x`` moved along an axis by that many places toward its end, or its start if ``by`` is
    negative; ``fill`` comes after it."""
    if x.shape[axis] == 0:
        return x
    front = [abs(by) if i == axis else 0 for i in range(x.rank)]
    none = [0] * x.rank
    wide = Pad.build(x, none, front, fill) if by < 0 else Pad.build(x, front, none, fill)
    return Slice.build(wide, front if by < 0 else none, x.shape)
