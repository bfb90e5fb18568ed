"""Integers of few bits that stand for numbers, by a scale and a zero point."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.errors import DTypeError, ShapeError
from rlx.ir.factors import Factors
from rlx.ir.op import Array, attr, bad, operand, optional, sample
from rlx.ir.value import Value
from rlx.ops.pointwise.cast import converted
from rlx.ops.pointwise.unary import Round
from rlx.ops.quant.scales import Scaled, axis_from, operand_of, wide_of
from rlx.types import FLOATS, DType, TensorType, f32, i8, i16, i32, u8, u16

__all__ = ["CODES", "Dequantize", "Quantize", "QuantizeRows", "rounded"]

CODES = (i8, u8, i16, u16)
"""The types that numbers are rounded to."""


def rounded(x: Value, zero: Value | None, to: DType) -> Value:
    """Numbers as integers of a type: the nearest whole ones, of two the even one, moved by a zero
    point, and within the type. nan is 0."""
    whole = Round.build(x)
    whole = whole if zero is None else whole + zero.cast(to=x.dtype)
    return whole.cast(to=to)  # which cuts off what is beyond the type


def rounded_array(x: Array, zero: Array | None, to: DType) -> Array:
    """The same of arrays."""
    whole = np.round(x)
    whole = whole if zero is None else whole + zero.astype(x.dtype)
    ends = np.iinfo(to.numpy)
    return converted(np.clip(whole, ends.min, ends.max).astype(x.dtype), to)


class Quantize(Scaled, name="mir.quantize"):
    """Numbers as integers: ``round(x / scale) + zero``, of two the even one, within the type.

    It is computed in f32, of f64 in f64. The result is of integers, by which nothing has a
    derivative; ``fake_quantize`` is for training.
    """

    x: Value = operand("any float tensor")
    scale: Value = operand("floats: one number, or [C] along the axis")
    zero: Value | None = optional("the zero points, of the type of the result")
    axis: tuple[int, ...] = attr((), "the axis that has a scale for each place, if one has")
    to: DType = attr(i8, "i8, u8, i16 or u16")

    differentiable = False
    dtypes = FLOATS
    flops_per_element = 4
    samples = (
        sample("2x3xT", "f32", data={1: "positive"}),
        sample("2x3xT", "3xf32", "3xi8", axis=(1,), data={1: "positive"}),
        sample("2x3x4xT", "2xT", "2xu8", axis=(0,), to="u8", data={1: "positive"}),
        sample("5xT", "1xf32", "i16", to="i16", data={1: "positive"}),
        sample("0x3xT", "3xf32", axis=(1,), data={1: "positive"}),
    )
    bads = (
        bad("2x3xi32", "f32", match="takes floats for x, found i32", error=DTypeError),
        bad("2x3xf32", "i8", match="takes floats for scale", error=DTypeError),
        bad("2x3xf32", "f32", match="rounds to i8, u8, i16, u16", error=DTypeError, to="i32"),
        bad("2x3xf32", "f32", "u8", match="zero is u8, and the result i8", error=DTypeError),
        bad("2x3xf32", "3xf32", match="say which by axis", error=ShapeError),
        bad("2x3xf32", "2xf32", match="each of the 3 places", error=ShapeError, axis=(1,)),
        bad("2x3xf32", "3xf32", "2xi8", match="zero must have", error=ShapeError, axis=(1,)),
        bad("2x3xf32", "3xf32", match="out of range", error=ShapeError, axis=(2,)),
        bad("2x3xf32", "3xf32", match="one axis at most", error=ShapeError, axis=(0, 1)),
    )

    @classmethod
    def build(
        cls,
        x: Value,
        scales: Any,
        zero_points: Any = None,
        axis: int | None = None,
        to: DType | str = i8,
    ) -> Value:
        """Numbers as integers of 8 or 16 bits: ``round(x / scale) + zero_point``, of two the even
        one, within the type.

        Scales and zero points are one number, or one for each place along ``axis``.
        """
        from rlx.types import dtype

        kind = dtype(to)
        zero = None if zero_points is None else operand_of("zero_points", zero_points, kind)
        scale = operand_of("scales", scales, f32)
        return cls(x, scale, zero, axis_from(axis, x.rank), kind).out

    def infer(self) -> TensorType:
        self.check_floats(x=self.x, scale=self.scale)
        if self.to not in CODES:
            listed = ", ".join(map(str, CODES))
            raise DTypeError(f"quantize rounds to {listed}, found {self.to}")
        if self.zero is not None and self.zero.dtype is not self.to:
            raise DTypeError(
                f"quantize: zero is {self.zero.dtype}, and the result {self.to}; they are alike"
            )
        self.check_scale("scale", self.scale, self.x)
        self.check_scale("zero", self.zero, self.x)
        return self.x.type.with_dtype(self.to)

    def reference(self, x: Array, scale: Array, zero: Array | None = None) -> Array:
        kind = wide_of(self.x.dtype).numpy
        with np.errstate(all="ignore"):
            ratio = x.astype(kind) / self.spread_array(scale.astype(kind), x)
        return rounded_array(ratio, None if zero is None else self.spread_array(zero, x), self.to)

    def expand(self) -> Value:
        x, kind = self.x, wide_of(self.x.dtype)
        scale = self.spread(self.scale.cast(to=kind), x)
        zero = None if self.zero is None else self.spread(self.zero, x)
        return rounded(x.cast(to=kind) / scale, zero, self.to)


class Dequantize(Scaled, name="mir.dequantize"):
    """The numbers of integers: ``(q - zero) * scale``, in the type of the scale.

    The difference is exact (in i32), and the product is in f32, of f64 in f64.
    """

    q: Value = operand("i8, u8, i16, u16 or i32")
    scale: Value = operand("floats: one number, or [C] along the axis")
    zero: Value | None = optional("the zero points, of the type of q")
    axis: tuple[int, ...] = attr((), "the axis that has a scale for each place, if one has")

    dtypes = FLOATS
    flops_per_element = 2
    samples = (
        sample("2x3xi8", "T"),
        sample("2x3xi8", "3xT", "3xi8", axis=(1,)),
        sample("2x3x4xu8", "2xT", "2xu8", axis=(0,)),
        sample("5xi32", "1xT"),
        sample("0x3xi16", "3xT", "3xi16", axis=(1,)),
    )
    bads = (
        bad("2x3xf32", "f32", match="takes i8, u8, i16, u16, i32", error=DTypeError),
        bad("2x3xi8", "i32", match="takes floats for scale", error=DTypeError),
        bad("2x3xi8", "f32", "u8", match="zero is u8, and q i8", error=DTypeError),
        bad("2x3xi8", "3xf32", match="say which by axis", error=ShapeError),
        bad("2x3xi8", "2xf32", match="each of the 3 places", error=ShapeError, axis=(1,)),
    )

    @classmethod
    def build(
        cls, q: Value, scales: Any, zero_points: Any = None, axis: int | None = None
    ) -> Value:
        """The numbers of integers: ``(q - zero_point) * scale``, in the type of the scales, which
        is f32 if they are numbers.

        Scales and zero points are one number, or one for each place along ``axis``.
        """
        zero = None if zero_points is None else operand_of("zero_points", zero_points, q.dtype)
        return cls(q, operand_of("scales", scales, f32), zero, axis_from(axis, q.rank)).out

    def infer(self) -> TensorType:
        if self.q.dtype not in (*CODES, i32):
            raise DTypeError(f"dequantize takes i8, u8, i16, u16, i32, found {self.q.dtype}")
        self.check_floats(scale=self.scale)
        if self.zero is not None and self.zero.dtype is not self.q.dtype:
            raise DTypeError(
                f"dequantize: zero is {self.zero.dtype}, and q {self.q.dtype}; they are alike"
            )
        self.check_scale("scale", self.scale, self.q)
        self.check_scale("zero", self.zero, self.q)
        return self.q.type.with_dtype(self.scale.dtype)

    def reference(self, q: Array, scale: Array, zero: Array | None = None) -> Array:
        whole = q.astype(np.int32)
        if zero is not None:
            whole = whole - self.spread_array(zero, q).astype(np.int32)
        kind = wide_of(self.scale.dtype).numpy
        with np.errstate(all="ignore"):
            found = whole.astype(kind) * self.spread_array(scale.astype(kind), q)
        return converted(found, self.scale.dtype)

    def expand(self) -> Value:
        whole, kind = self.q.cast(to=i32), wide_of(self.scale.dtype)
        if self.zero is not None:
            whole = whole - self.spread(self.zero, self.q).cast(to=i32)
        found = whole.cast(to=kind) * self.spread(self.scale.cast(to=kind), self.q)
        return found.cast(to=self.scale.dtype)


class QuantizeRows(Scaled, name="mir.quantize_rows"):
    """Rows as i8, each block of them by the scale ``max|x| / 127``: the codes, and the f32 scales.

    The codes are ``round(x / scale)``, of two the even one; 0 where all of a block is 0. An element
    is off by at most half a scale. A block with nan or an infinity has that for a scale and codes
    of 0: all its elements stand for nan.
    """

    x: Value = operand("floats [..., K]")
    block: int = attr(0, "elements that share a scale; 0: the whole row")

    result_count = 2
    dtypes = FLOATS
    flops_per_element = 5
    samples = (
        sample("2x6xT"),
        sample("2x3x8xT", block=4),
        sample("5xT"),
        sample("0x4xT", block=2),
    )
    bads = (
        bad("2x3xi32", match="takes floats for x", error=DTypeError),
        bad("f32", match="rank of at least 1", error=ShapeError),
        bad("2x6xf32", match="no whole number of blocks of 4", error=ShapeError, block=4),
        bad("2x6xf32", match="no whole number of blocks of -1", error=ShapeError, block=-1),
        bad("2x0xf32", match="no elements", error=ShapeError),
    )

    @property
    def _counts(self) -> tuple[Any, Any]:
        """Blocks of a row, and elements of a block."""
        size = self.x.shape[-1]
        return (1, size) if self.block == 0 else (size // self.block, self.block)

    def infer(self) -> tuple[TensorType, TensorType]:
        self.check_floats(x=self.x)
        if self.x.rank == 0:
            raise ShapeError("quantize_rows takes a rank of at least 1, found 0")
        size = self.x.shape[-1]
        if size == 0:
            raise ShapeError(f"quantize_rows: the rows of {self.x.type} have no elements")
        if self.block and (not isinstance(size, int) or self.block < 0 or size % self.block):
            raise ShapeError(
                f"quantize_rows: the rows of {self.x.type} are no whole number of blocks of"
                f" {self.block}"
            )
        scales = TensorType((*self.x.shape[:-1], self._counts[0]), f32)
        return self.x.type.with_dtype(i8), scales

    def reference(self, x: Array) -> tuple[Array, Array]:
        wide = x.astype(np.float32)
        count, size = self._counts
        blocks = wide.reshape(*wide.shape[:-1], count, size)
        with np.errstate(all="ignore"):
            scale = np.max(np.abs(blocks), -1) / np.float32(127)
            ratio = blocks / np.where(scale > 0, scale, np.float32(1))[..., None]
        return rounded_array(ratio, None, i8).reshape(x.shape), scale

    def expand(self) -> tuple[Value, Value]:
        wide, lead = self.x.cast(to=f32), self.x.shape[:-1]
        count, size = self._counts
        blocks = wide.reshape([*lead, count, size])
        scale = abs(blocks).reduce_max(axes=-1) / 127.0
        divisor = scale.gt(0.0).where(scale, 1.0).reshape([*lead, count, 1])
        return rounded(blocks / divisor, None, i8).reshape(self.x.shape), scale

    def factors(self) -> Factors:
        rows = [*range(self.x.rank - 1), None]
        return Factors(self, [rows], [rows, rows])
