"""Products and convolutions of 8-bit integers that stand for numbers."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from rlx.errors import DTypeError, ShapeError
from rlx.ir.lift import lift
from rlx.ir.op import Array, Cost, attr, bad, operand, optional, sample
from rlx.ir.value import Value
from rlx.ops.conv.conv import Conv
from rlx.ops.conv.integer import along, conv_integer
from rlx.ops.conv.window import Numbers, Padding, each, padding_of
from rlx.ops.matmul.contraction import MatMul
from rlx.ops.matmul.quantized import matmul_integer
from rlx.ops.pointwise.cast import converted
from rlx.ops.quant.affine import rounded, rounded_array
from rlx.ops.quant.scales import Expanded, wide_of
from rlx.types import FLOATS, Dim, TensorType, f32, i8, i32, u8

__all__ = ["QConv2d", "QMatMul", "ScaledConv", "ScaledMatMul"]


class _Products(Expanded):
    """What products of 8-bit integers share."""

    narrow: ClassVar[tuple[Any, ...]] = (i8, u8)

    def check_codes(self, **values: Value) -> None:
        """DTypeError for what is no 8-bit integer."""
        for name, v in values.items():
            if v.dtype not in self.narrow:
                listed = " and ".join(map(str, self.narrow))
                raise DTypeError(f"{self.short} takes {listed}, found {name} of {v.dtype}")

    def check_zero(self, name: str, zero: Value | None, like: Value, count: Dim | None) -> None:
        """Raise unless a zero point is of the type of what it is of, and one number, or ``count``
        of them."""
        if zero is None:
            return
        if zero.dtype is not like.dtype:
            raise DTypeError(
                f"{self.short}: {name} is {zero.dtype}, and its operand {like.dtype}; they are"
                " alike"
            )
        self.check_count(name, zero, count)

    def check_count(self, name: str, v: Value, count: Dim | None) -> None:
        """ShapeError unless v is one number, or ``count`` of them."""
        if tuple(v.shape) not in ((), (1,)) and (count is None or tuple(v.shape) != (count,)):
            more = "" if count is None else f" or {count} of them"
            raise ShapeError(f"{self.short}: {name} must be one number{more}, found {v.type}")


def _product(x: Value, w: Value) -> MatMul:
    """The product in i32, of which shapes and costs are."""
    return MatMul(Value(x.type.with_dtype(i32)), Value(w.type.with_dtype(i32)))


def _sums(x: Array, w: Array, x_zero: Array | None, w_zero: Array | None) -> Array:
    a, b = x.astype(np.int32), w.astype(np.int32)
    a = a if x_zero is None else a - x_zero.astype(np.int32).reshape([])
    b = b if w_zero is None else b - w_zero.astype(np.int32).reshape(-1)
    return np.matmul(a, b)


class ScaledMatMul(_Products, name="mir.scaled_matmul"):
    """The product of the numbers that 8-bit integers stand for.

    It is ``((x - x_zero) * x_scale) @ ((w - w_zero) * w_scale)``. The sums are exact, in i32; they
    are multiplied by the product of the scales. The result has the type of ``x_scale``.
    """

    x: Value = operand("i8 or u8 [..., M, K]")
    w: Value = operand("i8 or u8 [..., K, N]")
    x_scale: Value = operand("floats: one number, or one a row, [..., M, 1]")
    w_scale: Value = operand("floats: one number, or one a column, [N]")
    x_zero: Value | None = optional("the zero point of x, one number")
    w_zero: Value | None = optional("the zero points of w, one number or [N]")

    dtypes = FLOATS
    samples = (
        sample("3x8xi8", "8x5xi8", "T", "5xT"),
        sample("2x3x6xu8", "6x4xi8", "1xT", "T", "1xu8", "4xi8"),
        sample("3x4xi8", "4x2xu8", "3x1xT", "2xT", None, "u8"),
        sample("2x3x4xu8", "2x4x3xu8", "2x3x1xT", "1xT", "u8", "3xu8"),
        sample("3x64xi8", "64x32xi8", "T", "32xT"),
        sample("0x4xi8", "4x3xi8", "T", "3xT"),
    )
    bads = (
        bad("3x8xi32", "8x5xi8", "f32", "f32", match="found x of i32", error=DTypeError),
        bad("3x8xi8", "7x5xi8", "f32", "f32", match="8 and 7", error=ShapeError),
        bad("8xi8", "8x5xi8", "f32", "f32", match="rank of at least 2", error=ShapeError),
        bad("3x8xi8", "8x5xi8", "i32", "f32", match="floats for x_scale", error=DTypeError),
        bad("3x8xi8", "8x5xi8", "f32", "i8", match="floats for w_scale", error=DTypeError),
        bad("3x8xi8", "8x5xi8", "3xf32", "f32", match="one a row", error=ShapeError),
        bad("3x8xi8", "8x5xi8", "f32", "4xf32", match="or 5 of them", error=ShapeError),
        bad("3x8xi8", "8x5xi8", "f32", "f32", "u8", match="x_zero is u8", error=DTypeError),
        bad("3x8xi8", "8x5xi8", "f32", "f32", "3xi8", match="x_zero must", error=ShapeError),
    )

    def infer(self) -> TensorType:
        x, w = self.x, self.w
        self.check_codes(x=x, w=w)
        for name, v in (("x_scale", self.x_scale), ("w_scale", self.w_scale)):
            if not v.dtype.is_float:
                raise DTypeError(f"scaled_matmul takes floats for {name}, found {v.dtype}")
        if min(x.rank, w.rank) < 2:
            raise ShapeError(f"scaled_matmul takes a rank of at least 2, found {x.type}, {w.type}")
        out = _product(x, w).out.type
        rows = (*x.shape[:-1], 1)
        if tuple(self.x_scale.shape) not in ((), (1,), rows):
            raise ShapeError(
                f"scaled_matmul: x_scale must be one number or one a row of {x.type}, found"
                f" {self.x_scale.type}"
            )
        self.check_count("w_scale", self.w_scale, w.shape[-1])
        self.check_zero("x_zero", self.x_zero, x, None)
        self.check_zero("w_zero", self.w_zero, w, w.shape[-1])
        return out.with_dtype(self.x_scale.dtype)

    def cost(self) -> Cost:
        return Cost(_product(self.x, self.w).cost().flops, super().cost().bytes)

    def reference(
        self,
        x: Array,
        w: Array,
        x_scale: Array,
        w_scale: Array,
        x_zero: Array | None = None,
        w_zero: Array | None = None,
    ) -> Array:
        kind = wide_of(self.out.dtype).numpy
        by = _array_scale(x_scale, kind) * _array_scale(w_scale, kind)
        return converted(_sums(x, w, x_zero, w_zero).astype(kind) * by, self.out.dtype)

    def expand(self) -> Value:
        sums = matmul_integer(self.x, self.w, self.x_zero, self.w_zero)
        kind = wide_of(self.out.dtype)
        by = _number(self.x_scale).cast(to=kind) * _number(self.w_scale).cast(to=kind)
        return (sums.cast(to=kind) * by).cast(to=self.out.dtype)


def _number(v: Value) -> Value:
    """One number as a scalar."""
    return v.reshape([]) if tuple(v.shape) == (1,) else v


def _array_scale(v: Array, kind: Any) -> Array:
    return v.astype(kind).reshape([]) if v.shape == (1,) else v.astype(kind)


class _Convs(_Products):
    """What convolutions of 8-bit integers share."""

    @property
    def geometry(self) -> tuple[Any, ...]:
        """Stride, padding, dilation and groups, as ``conv`` takes them."""
        return tuple(self.attrs[n] for n in ("stride", "low", "high", "dilation", "groups"))

    def wide(self) -> Conv:
        """The same in i32, of which shapes and costs are."""
        x, w = (Value(v.type.with_dtype(i32)) for v in self.present[:2])
        return Conv(x, w, *self.geometry)

    def cost(self) -> Cost:
        return Cost(self.wide().cost().flops, super().cost().bytes)

    def sums(self, x: Array, w: Array, x_zero: Array | None, w_zero: Array | None) -> Array:
        """The sums in i32; padding is 0 after the shift."""
        a, b = x.astype(np.int32), w.astype(np.int32)
        a = a if x_zero is None else a - x_zero.astype(np.int32).reshape([])
        b = b if w_zero is None else b - _channels(w_zero.astype(np.int32), w.ndim - 1)
        return self.wide().reference(a, b)


def _channels(v: Array, more: int) -> Array:
    return v.reshape([]) if v.size == 1 and v.ndim < 2 else v.reshape([-1, *[1] * more])


_ONE: dict[str, Any] = {"stride": (1,), "low": (0,), "high": (0,), "dilation": (1,)}
_TWO: dict[str, Any] = {k: v * 2 for k, v in _ONE.items()}
_SAME: dict[str, Any] = _TWO | {"low": (1, 1), "high": (1, 1)}


class ScaledConv(_Convs, name="mir.scaled_conv"):
    """The convolution of the numbers that 8-bit integers stand for.

    It is ``conv((x - x_zero) * x_scale, (w - w_zero) * w_scale)``, in the shapes of ``conv``. The
    sums are exact, in i32; they are multiplied by the product of the scales. The result has the
    type of ``x_scale``.
    """

    x: Value = operand("i8 or u8 [N, C, spatial axes]")
    w: Value = operand("i8 or u8 [Co, C / groups, kernel]")
    x_scale: Value = operand("floats: one number")
    w_scale: Value = operand("floats: one number, or one an output channel, [Co]")
    x_zero: Value | None = optional("the zero point of x, one number")
    w_zero: Value | None = optional("the zero points of w, one number or [Co]")
    stride: tuple[int, ...] = attr(doc="distance between two windows, along each spatial axis")
    low: tuple[int, ...] = attr(doc="places of padding before each axis; negative: dropped")
    high: tuple[int, ...] = attr(doc="places of padding after it; negative: dropped")
    dilation: tuple[int, ...] = attr(doc="distance between two taps of a window")
    groups: int = attr(1, "number of groups of channels, each with weights of its own")

    dtypes = FLOATS
    samples = (
        sample("2x3x5xi8", "4x3x2xi8", "T", "4xT", **_ONE),
        sample("1x2x5x4xu8", "3x2x3x3xi8", "1xT", "T", "1xu8", **_SAME),
        sample("1x4x4x4xu8", "4x1x3x3xu8", "T", "4xT", "u8", "4xu8", groups=4, **_SAME),
        sample("0x3x5xi8", "4x3x2xi8", "T", "4xT", **_ONE),
    )
    bads = (
        bad("2x3x5xf32", "4x3x2xi8", "f32", "f32", match="found x of f32", error=DTypeError,
            **_ONE),
        bad("2x3x5xi8", "4x3x2xi8", "i8", "f32", match="floats for x_scale", error=DTypeError,
            **_ONE),
        bad("2x3x5xi8", "4x3x2xi8", "f32", "3xf32", match="or 4 of them", error=ShapeError,
            **_ONE),
        bad("2x3x5xi8", "4x3x2xi8", "2xf32", "f32", match="x_scale must", error=ShapeError,
            **_ONE),
        bad("2x3x5xi8", "4x2x2xi8", "f32", "f32", match="3 channels a group", error=ShapeError,
            **_ONE),
        bad("2x3x5xi8", "4x3x2xi8", "f32", "f32", None, "u8", match="w_zero is u8",
            error=DTypeError, **_ONE),
    )  # fmt: skip

    def infer(self) -> TensorType:
        self.check_codes(x=self.x, w=self.w)
        for name, v in (("x_scale", self.x_scale), ("w_scale", self.w_scale)):
            if not v.dtype.is_float:
                raise DTypeError(f"scaled_conv takes floats for {name}, found {v.dtype}")
        out = self.wide().out.type
        self.check_count("x_scale", self.x_scale, None)
        self.check_count("w_scale", self.w_scale, self.w.shape[0])
        self.check_zero("x_zero", self.x_zero, self.x, None)
        self.check_zero("w_zero", self.w_zero, self.w, self.w.shape[0])
        return out.with_dtype(self.x_scale.dtype)

    def reference(
        self,
        x: Array,
        w: Array,
        x_scale: Array,
        w_scale: Array,
        x_zero: Array | None = None,
        w_zero: Array | None = None,
    ) -> Array:
        kind = wide_of(self.out.dtype).numpy
        by = x_scale.astype(kind).reshape([]) * _channels(w_scale.astype(kind), w.ndim - 2)
        return converted(self.sums(x, w, x_zero, w_zero).astype(kind) * by, self.out.dtype)

    def expand(self) -> Value:
        sums = conv_integer(self.x, self.w, self.x_zero, self.w_zero, *self.geometry)
        kind = wide_of(self.out.dtype)
        by = _number(self.x_scale).cast(to=kind) * _number(self.w_scale).cast(to=kind)
        return (sums.cast(to=kind) * along(by, self.w.rank - 2)).cast(to=self.out.dtype)


class _Requantized(_Products):
    """Products of i8 that are i8 again, by one f32 multiplier."""

    narrow = (i8,)

    def check(self, outputs: Dim) -> None:
        """Raise for zero points that are no i8 and for a bias that does not fit."""
        for name in ("x_zero", "w_zero", "out_zero"):
            if not -128 <= self.attrs[name] <= 127:
                raise DTypeError(f"{self.short}: {name} is {self.attrs[name]}, which is no i8")
        bias = self.operands[2]
        if bias is not None and bias.dtype is not i32:
            raise DTypeError(f"{self.short} takes a bias of i32, found {bias.dtype}")
        if bias is not None and bias.shape != (outputs,):
            raise ShapeError(f"{self.short}: the bias must be [{outputs}], found {bias.type}")

    def zero_arrays(self) -> list[Array]:
        """The zero points of x and w."""
        return [np.asarray(self.attrs[name], np.int8) for name in ("x_zero", "w_zero")]

    def zeros(self) -> list[Value | None]:
        """The same as Values, where they are not 0."""
        return [self._zero("x_zero"), self._zero("w_zero")]

    def _zero(self, name: str) -> Value | None:
        zero: int = self.attrs[name]
        return lift(np.array(zero, np.int8), self.present[0]) if zero else None

    def scaled_array(self, sums: Array) -> Array:
        """i8 of sums in i32."""
        ratio = sums.astype(np.float32) * np.float32(self.attrs["multiplier"])
        return rounded_array(ratio, np.asarray(self.attrs["out_zero"]), i8)

    def scaled(self, sums: Value) -> Value:
        """The same of Values."""
        multiplier: float = self.attrs["multiplier"]
        return rounded(sums.cast(to=f32) * multiplier, self._zero("out_zero"), i8)


_MORE: dict[str, Any] = {"x_zero": 3, "w_zero": -4, "out_zero": 7, "multiplier": 0.01}


class QMatMul(_Requantized, name="mir.q_matmul"):
    """A product of i8 that is i8 again, by one f32 multiplier.

    It is ``round((bias + sum((x - x_zero) * (w - w_zero))) * multiplier) + out_zero``, of two the
    even one, within -128 to 127. Sums are in i32.
    """

    x: Value = operand("i8 [..., M, K]")
    w: Value = operand("i8 [K, N]")
    bias: Value | None = optional("i32 [N]")
    x_zero: int = attr(0, "the zero point of x")
    w_zero: int = attr(0, "that of w")
    out_zero: int = attr(0, "that of the result")
    multiplier: float = attr(1.0, "the scale of a sum over that of the result")

    differentiable = False
    samples = (
        sample("3x8xi8", "8x5xi8", multiplier=0.01),
        sample("2x3x6xi8", "6x4xi8", "4xi32", **_MORE),
        sample("0x4xi8", "4x3xi8", "3xi32", multiplier=0.5),
    )
    bads = (
        bad("3x8xu8", "8x5xi8", match="takes i8, found x of u8", error=DTypeError),
        bad("3x8xi8", "8x5xi8", "5xf32", match="bias of i32, found f32", error=DTypeError),
        bad("3x8xi8", "8x5xi8", "4xi32", match=r"bias must be \[5\]", error=ShapeError),
        bad("3x8xi8", "8x5xi8", match="w_zero is 200, which is no i8", error=DTypeError,
            w_zero=200),
        bad("8xi8", "8x5xi8", match="rank of at least 2", error=ShapeError),
    )  # fmt: skip

    def infer(self) -> TensorType:
        self.check_codes(x=self.x, w=self.w)
        if min(self.x.rank, self.w.rank) < 2:
            raise ShapeError(
                f"q_matmul takes a rank of at least 2, found {self.x.type}, {self.w.type}"
            )
        out = _product(self.x, self.w).out.type
        self.check(out.shape[-1])
        return out.with_dtype(i8)

    def cost(self) -> Cost:
        return Cost(_product(self.x, self.w).cost().flops, super().cost().bytes)

    def reference(self, x: Array, w: Array, bias: Array | None = None) -> Array:
        sums = _sums(x, w, *self.zero_arrays())
        return self.scaled_array(sums if bias is None else sums + bias)

    def expand(self) -> Value:
        sums = matmul_integer(self.x, self.w, *self.zeros())
        return self.scaled(sums if self.bias is None else sums + self.bias)


class QConv2d(_Requantized, _Convs, name="mir.q_conv2d"):
    """A convolution of i8 that is i8 again, by one f32 multiplier.

    It is ``round((bias + sum((x - x_zero) * (w - w_zero))) * multiplier) + out_zero``, of two the
    even one, within -128 to 127. Sums are in i32, and padding is 0 after the shift.
    """

    x: Value = operand("i8 [N, C, H, W]")
    w: Value = operand("i8 [Co, C / groups, KH, KW]")
    bias: Value | None = optional("i32 [Co]")
    stride: tuple[int, ...] = attr((1, 1), "distance between two windows, along each axis")
    low: tuple[int, ...] = attr((0, 0), "places of padding before each axis; negative: dropped")
    high: tuple[int, ...] = attr((0, 0), "places of padding after it; negative: dropped")
    dilation: tuple[int, ...] = attr((1, 1), "distance between two taps of a window")
    groups: int = attr(1, "number of groups of channels, each with weights of its own")
    x_zero: int = attr(0, "the zero point of x")
    w_zero: int = attr(0, "that of w")
    out_zero: int = attr(0, "that of the result")
    multiplier: float = attr(1.0, "the scale of a sum over that of the result")

    differentiable = False
    samples = (
        sample("1x3x5x4xi8", "4x3x3x2xi8", multiplier=0.01),
        sample("2x2x5x5xi8", "4x1x3x3xi8", "4xi32", groups=2, stride=(2, 1), low=(1, 1),
               high=(1, 0), **_MORE),
        sample("0x2x3x3xi8", "2x2x1x1xi8"),
    )  # fmt: skip
    bads = (
        bad("1x3x5x4xu8", "4x3x3x2xi8", match="takes i8, found x of u8", error=DTypeError),
        bad("1x3x5xi8", "4x3x3xi8", match=r"x \[N, C, H, W\]", error=ShapeError),
        bad("1x3x5x4xi8", "4x3x3x2xi8", "4xf32", match="bias of i32", error=DTypeError),
        bad("1x3x5x4xi8", "4x3x3x2xi8", "3xi32", match=r"bias must be \[4\]", error=ShapeError),
        bad("1x3x5x4xi8", "4x3x3x2xi8", match="x_zero is -129", error=DTypeError, x_zero=-129),
    )

    @classmethod
    def build(
        cls,
        x: Value,
        w: Value,
        bias: Value | None = None,
        stride: Numbers = 1,
        padding: Padding | str = 0,
        dilation: Numbers = 1,
        groups: int = 1,
        x_zero: int = 0,
        w_zero: int = 0,
        out_zero: int = 0,
        multiplier: float = 1.0,
    ) -> Value:
        """A convolution of i8 that is i8 again, by one f32 multiplier. Strides, padding and
        dilation are those of ``conv2d``."""
        if x.rank != 4 or w.rank != 4:
            raise ShapeError(f"q_conv2d takes x [N, C, H, W] and w, found {x.type} and {w.type}")
        strides, dilations = each(stride, 2, "stride"), each(dilation, 2, "dilation")
        low, high = padding_of(padding, w.type.static_shape[2:], strides, dilations, "q_conv2d")
        return cls(
            x=x, w=w, bias=bias, stride=strides, low=low, high=high, dilation=dilations,
            groups=groups, x_zero=x_zero, w_zero=w_zero, out_zero=out_zero, multiplier=multiplier,
        ).out  # fmt: skip

    def infer(self) -> TensorType:
        self.check_codes(x=self.x, w=self.w)
        if self.x.rank != 4 or self.w.rank != 4:
            raise ShapeError(
                f"q_conv2d takes x [N, C, H, W] and w, found {self.x.type} and {self.w.type}"
            )
        out = self.wide().out.type
        _Requantized.check(self, out.shape[1])
        return out.with_dtype(i8)

    def reference(self, x: Array, w: Array, bias: Array | None = None) -> Array:
        sums = self.sums(x, w, *self.zero_arrays())
        return self.scaled_array(sums if bias is None else sums + bias.reshape(-1, 1, 1))

    def expand(self) -> Value:
        x_zero, w_zero = self.zeros()
        sums = conv_integer(self.x, self.w, x_zero, w_zero, *self.geometry)
        bias = None if self.bias is None else self.bias.reshape([*self.bias.shape, 1, 1])
        return self.scaled(sums if bias is None else sums + bias)
