"""Bit by bit: and, or, xor, not and shifts of integers. Of bools they are the logical ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from rlx.errors import DTypeError, ShapeError
from rlx.ir.lift import promoted
from rlx.ir.op import Array, Bad, Op, bad, sample
from rlx.ir.value import Value
from rlx.ops.pointwise.base import Binary, Unary
from rlx.ops.pointwise.compare import LogicalAnd, LogicalNot, LogicalOr, LogicalXor
from rlx.ops.pointwise.elementary import two_samples
from rlx.types import INTS, bool_, dtype

__all__ = [
    "BitwiseAnd",
    "BitwiseNot",
    "BitwiseOr",
    "BitwiseXor",
    "LeftShift",
    "Popcount",
    "RightShift",
]

INTEGERS_ONLY: tuple[Bad, ...] = (
    bad("2xf32", "2xf32", match="found f32. Cast the operand", error=DTypeError),
    bad("2xi32", "2xi16", match="one type", error=DTypeError),
    bad("2x3xi32", "4xi32", match="do not broadcast", error=ShapeError),
)


class Bitwise(Binary):
    """A connective of the bits of two integers."""

    commutes = True
    dtypes = INTS
    differentiable = False
    samples = (sample("2x3xT", "2x3xT"), sample("4x1xT", "3xT"), sample("T", "T"))
    bads = INTEGERS_ONLY
    ufunc: ClassVar[Callable[..., Any]]
    logical: ClassVar[type[Op]]

    @classmethod
    def build(cls, lhs: Any, rhs: Any) -> Value:
        """Of bools it is the logical op; numbers take the other operand's type."""
        lhs, rhs = promoted(lhs, rhs)
        return (cls.logical if lhs.dtype is bool_ else cls)(lhs, rhs).out

    def reference(self, lhs: Array, rhs: Array) -> Array:
        return type(self).ufunc(lhs, rhs)


class BitwiseAnd(Bitwise, name="mir.bitwise_and"):
    """The bits that both integers have."""

    ufunc, logical = np.bitwise_and, LogicalAnd

    def scalar(self, k: Any, lhs: Any, rhs: Any) -> Any:
        return lhs & rhs


class BitwiseOr(Bitwise, name="mir.bitwise_or"):
    """The bits that at least one of two integers has."""

    ufunc, logical = np.bitwise_or, LogicalOr

    def scalar(self, k: Any, lhs: Any, rhs: Any) -> Any:
        return lhs | rhs


class BitwiseXor(Bitwise, name="mir.bitwise_xor"):
    """The bits that one of two integers has and the other lacks."""

    ufunc, logical = np.bitwise_xor, LogicalXor

    def scalar(self, k: Any, lhs: Any, rhs: Any) -> Any:
        return lhs ^ rhs


class BitwiseNot(Unary, name="mir.bitwise_not"):
    """The bits that an integer lacks."""

    dtypes = INTS
    differentiable = False
    samples = two_samples()
    bads = (bad("2xf32", match="found f32. Cast the operand", error=DTypeError),)

    @classmethod
    def build(cls, x: Value) -> Value:
        """Of a bool it is ``logical_not``."""
        return LogicalNot.build(x) if x.dtype is bool_ else super().build(x)

    def reference(self, x: Array) -> Array:
        return np.bitwise_not(x)

    def scalar(self, k: Any, x: Any) -> Any:
        return x ^ (-1 if x.dtype.kind == "int" else (1 << x.dtype.bits) - 1)


class Popcount(Unary, name="mir.popcount"):
    """How many bits of an integer are set, in its own type."""

    dtypes = INTS
    differentiable = False
    samples = two_samples()
    bads = (bad("2xf32", match="found f32. Cast the operand", error=DTypeError),)

    def reference(self, x: Array) -> Array:
        bits = np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}").reshape(np.shape(x))
        return np.bitwise_count(bits).astype(x.dtype)  # of a negative number it counts the size's

    def scalar(self, k: Any, x: Any) -> Any:
        width = x.dtype.bits
        ones = (1 << width) - 1
        bits = k.bitcast(x, dtype(f"u{width}"))
        # Sums of neighbours: of one bit, of two, of four, and then of whole bytes.
        bits = bits - ((bits >> 1) & (ones // 3))
        bits = (bits & (ones // 5)) + ((bits >> 2) & (ones // 5))
        bits = (bits + (bits >> 4)) & (ones // 17)
        for shift in (8, 16, 32):
            if shift < width:
                bits = bits + (bits >> shift)
        return k.bitcast(bits & 0x7F, x.dtype)


class Shift(Binary):
    """A shift of the left integer's bits by the right one. A count below 0, or of the type's width
    and more, shifts all of them out, as in XLA."""

    dtypes = INTS
    differentiable = False
    samples = (
        sample("2x3xT", "2x3xT", data={1: "positive"}),
        sample("4x1xT", "3xT"),
        sample("T", "T", data={1: "positive"}),
    )
    bads = INTEGERS_ONLY

    def in_range(self, rhs: Array) -> Array:
        """Which counts leave bits."""
        return (rhs >= 0) & (rhs < self.lhs.dtype.bits)

    def counted(self, k: Any, lhs: Any, rhs: Any) -> tuple[Any, Any]:
        """Whether all bits go out, and a count that an instruction is defined for."""
        out = (rhs < 0) | (rhs >= lhs.dtype.bits)
        return out, k.select(out, 0, rhs)


class LeftShift(Shift, name="mir.left_shift"):
    """The bits moved up, zeros behind them. A count outside 0 .. width - 1 gives 0."""

    def reference(self, lhs: Array, rhs: Array) -> Array:
        inside = self.in_range(rhs)
        zero = np.zeros((), lhs.dtype)
        return np.where(inside, np.left_shift(lhs, np.where(inside, rhs, zero)), zero)

    def scalar(self, k: Any, lhs: Any, rhs: Any) -> Any:
        out, count = self.counted(k, lhs, rhs)
        return k.select(out, 0, lhs << count)


class RightShift(Shift, name="mir.right_shift"):
    """The bits moved down; the sign follows those of a signed integer, zeros those of others.

    A count outside 0 .. width - 1 leaves nothing but that: -1 for a negative integer, else 0.
    """

    def reference(self, lhs: Array, rhs: Array) -> Array:
        inside = self.in_range(rhs)
        zero = np.zeros((), lhs.dtype)
        sign = np.where(lhs < 0, np.bitwise_not(zero), zero)
        return np.where(inside, np.right_shift(lhs, np.where(inside, rhs, zero)), sign)

    def scalar(self, k: Any, lhs: Any, rhs: Any) -> Any:
        out, count = self.counted(k, lhs, rhs)
        sign = lhs >> (lhs.dtype.bits - 1) if lhs.dtype.kind == "int" else 0
        return k.select(out, sign, lhs >> count)
