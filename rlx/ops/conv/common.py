"""Common base of convolution and its adjoint: operands, checks, derivatives by linearity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from rlx.base.dims import is_known, surely_differ
from rlx.errors import DTypeError, ShapeError
from rlx.ir.factors import Factor, Factors, Parts
from rlx.ir.lift import promoted
from rlx.ir.op import Array, Op, attr, operand
from rlx.ir.value import Value
from rlx.ops.conv.window import Windows, check_counts
from rlx.ops.movement.movement import listed
from rlx.ops.pointwise.base import NUMERIC
from rlx.types import Dim, DType, Offset, bf16, check_one_type, f16, f32

__all__ = ["Correlation", "add_bias", "check_operands", "operations"]


def check_operands(op: str, name: str, x: Value, other: Value, groups: int) -> None:
    """ShapeError or DTypeError unless x and the operand ``name`` can be those of a convolution of
    one to three spatial axes in as many groups."""
    if not 3 <= x.rank <= 5 or other.rank != x.rank:
        raise ShapeError(
            f"{op} takes x [N, C, spatial axes] with one to three of them, and {name} of the same"
            f" rank; found {x.type} and {other.type}"
        )
    for v in (x, other):
        if v.dtype not in NUMERIC:
            raise DTypeError(f"{op} multiplies floats or integers, found {v.dtype}. Cast it first")
    check_one_type(op, x.dtype, other.dtype)
    if groups < 1:
        raise ShapeError(f"{op}: groups must be at least 1, found {groups}")


class Correlation(Op):
    """An op that is linear in a tensor and in weights that slide over its spatial axes."""

    x: Value = operand("[N, C, spatial axes]: one to three of them")
    w: Value = operand("the weights, of the same element type")
    stride: tuple[int, ...] = attr(doc="distance between two windows, along each spatial axis")
    low: tuple[int, ...] = attr(doc="places of padding before each axis; negative: dropped")
    high: tuple[Offset, ...] = attr(doc="places of padding after it; negative: dropped")
    dilation: tuple[int, ...] = attr(doc="distance between two taps of a window")
    groups: int = attr(1, "number of groups of channels, each with weights of its own")

    linear = ((0,), (1,))
    dtypes = NUMERIC
    outputs_axis: ClassVar[int] = 0
    """Which axis of w counts outputs: of all groups if it is the first."""

    @property
    def taps(self) -> tuple[Dim, ...]:
        """The taps along each spatial axis."""
        return self.w.shape[2:]

    @property
    def windows(self) -> Windows:
        """Where the windows lie, of static sizes."""
        kernel = self.w.type.static_shape[2:]
        return Windows(kernel, self.stride, self.low, self.dilation)

    def check(self) -> None:
        """Raise for operands of wrong ranks or types and for attributes that do not fit them."""
        check_operands(self.short, "w", self.x, self.w, self.groups)
        geometry = {"stride": self.stride, "low": self.low, "high": self.high}
        check_counts(self.short, self.x.rank - 2, **geometry, dilation=self.dilation)
        if any(k == 0 for k in self.taps):
            raise ShapeError(f"{self.short}: the kernel {listed(self.taps)} has no taps")

    def per_group(self, count: Dim, what: str) -> Dim:
        """The channels of a group; ShapeError if the groups do not divide them."""
        if surely_differ(count % self.groups, 0):
            raise ShapeError(f"{self.short}: {self.groups} groups do not divide {count} {what}")
        return count // self.groups

    def accumulator(self) -> DType:
        """The type of sums: f32 for 16-bit floats; integers wrap in their own."""
        return f32 if self.x.dtype in (f16, bf16) else self.x.dtype

    def factors(self) -> Factors:
        space = range(self.x.rank - 2)
        x, w = [f"x{i}" for i in space], [f"w{i}" for i in space]
        y = [f"y{i}" for i in space]
        own: list[Any] = [("g", "o"), "c"] if self.outputs_axis == 0 else [("g", "c"), "o"]
        channels = self.x.shape[1] // self.groups
        sizes: dict[Factor, Dim] = {
            "g": self.groups, "c": channels, "o": self.out.shape[1] // self.groups,
        }  # fmt: skip
        return Factors(
            self,
            [["n", ("g", "c"), *x], [*own, *w]],
            [["n", ("g", "o"), *y]],
            sums=["c"],
            whole=[*x, *w, *y],
            sizes=sizes,
        )

    def on_parts(self, operands: Sequence[Value | None], parts: Parts) -> Sequence[Value]:
        return self.with_operands(operands, groups=parts.length("g")).results

    def jvp(self, tx: Value | None, tw: Value | None) -> Value:
        parts = [
            self.with_operands(pair).out
            for t, pair in ((tx, (tx, self.w)), (tw, (self.x, tw)))
            if t is not None
        ]
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]

    def into_groups(self, x: Value, w: Value) -> Value:
        """Operands that both have a new leading axis: its elements become groups."""
        count, n, c = x.shape[:3]
        if not is_known(count):
            raise ShapeError(
                f"{self.short}: images and weights that both differ from example to example become"
                f" groups, whose number is not known ({count}); give vmap a number as axis_size"
            )
        wide = x.transpose([1, 0, *range(2, x.rank)]).reshape((n, count * c, *x.shape[3:]))
        many = w.reshape((count * w.shape[1], *w.shape[2:]))
        out = self.with_operands([wide, many], groups=count * self.groups).out
        split = out.reshape((n, count, self.out.shape[1], *self.out.shape[2:]))
        return split.transpose([1, 0, *range(2, split.rank)])

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        """A new axis of x is folded into N, of w into the channels of the result; of both, into the
        groups."""
        x, w = operands
        if not batched[1]:
            count = x.shape[0]
            rows = x.reshape((count * x.shape[1], *x.shape[2:]))
            out = self.with_operands([rows, w]).out
            return out.reshape((count, *self.out.shape))
        return self.into_groups(x, w) if batched[0] else self.into_channels(x, w)

    def into_channels(self, x: Value, w: Value) -> Value:
        """Weights that have a new leading axis: its elements become outputs within the groups."""
        count, axis = w.shape[0], self.outputs_axis
        outputs, groups = self.w.shape[axis], self.groups if axis == 0 else 1
        split = (*w.shape[1 : 1 + axis], groups, outputs // groups, *w.shape[2 + axis :])
        order = [*range(1, 2 + axis), 0, *range(2 + axis, 1 + len(split))]
        many = w.reshape((count, *split)).transpose(order)
        shape = (*self.w.shape[:axis], count * outputs, *self.w.shape[axis + 1 :])
        out = self.with_operands([x, many.reshape(shape)]).out
        n, channels, *rest = self.out.shape
        apart = out.reshape((n, self.groups, count, channels // self.groups, *rest))
        order = [2, 0, 1, *range(3, apart.rank)]
        return apart.transpose(order).reshape((count, *self.out.shape))


def add_bias(y: Value, bias: Value | Array | None) -> Value:
    """A result [N, C, spatial axes] plus one number a channel."""
    if bias is None:
        return y
    _, b = promoted(y, bias)
    if b.shape != (y.shape[1],):
        raise ShapeError(f"the bias must be [{y.shape[1]}], found {b.type}")
    return y + b.reshape((y.shape[1], *[1] * (y.rank - 2)))


def operations(v: Value, *dims: Dim) -> int:
    """Two operations for every element of a value and index of ``dims``; 0 if one is symbolic."""
    sizes = [v.type.size, *dims]
    return 2 * math.prod(n for n in sizes if is_known(n)) if _known(sizes) else 0


def _known(sizes: Sequence[Dim]) -> bool:
    return all(is_known(n) for n in sizes)
