"""Floats as small numbers and back: a scale and a zero point for a tensor, an axis or a block."""

from __future__ import annotations

from rlx.errors import ShapeError
from rlx.frontends.onnx.node import Node, Rows
from rlx.frontends.onnx.tensors import dtype_of
from rlx.ir.value import Value
from rlx.ops.matmul.quantized import matmul_integer
from rlx.ops.movement.movement import axis_of
from rlx.ops.quant.affine import CODES, Dequantize, Quantize
from rlx.ops.quant.affine import rounded as whole
from rlx.types import DType, f32, i32, u8

__all__ = ["ROWS", "rounded"]


def _spread(n: Node, v: Value, x: Value) -> Value:
    """A scale or zero point as it meets the tensor: one for all, for each place along an axis, or
    for each block of some places."""
    axis, block = n.attr("axis", 1), n.attr("block_size", 0)
    if not v.rank or v.shape == (1,):
        return v.reshape([])
    axis = axis_of(axis, x.rank, "axis")
    if v.rank == 1:
        return v.reshape([*v.shape, *[1] * (x.rank - axis - 1)])
    size, count = x.type.static_shape[axis], v.type.static_shape[axis]
    if v.rank != x.rank or block * count < size or block * (count - 1) >= size:
        raise ShapeError(f"{v.type} has no scale for each block of {block} of {x.type}")
    wide = v.reshape([*v.shape[: axis + 1], 1, *v.shape[axis + 1 :]])
    wide = wide.expand([*v.shape[: axis + 1], block, *v.shape[axis + 1 :]])
    whole = wide.reshape([*v.shape[:axis], count * block, *v.shape[axis + 1 :]])
    return whole.narrow(axis, 0, size)


def rounded(x: Value, zero: Value | None, to: DType) -> Value:
    """Whole numbers of a type, the nearest ones that it has; of two the even one."""
    if zero is not None and zero.shape == (1,):
        zero = zero.reshape([])
    return whole(x, zero, to)


def _axis(n: Node, scale: Value, x: Value) -> tuple[int, ...] | None:
    """The axis of scales, as ops have it; None for blocks, which they have not."""
    axis = n.attr("axis", 1)
    n.ignore("block_size")
    if not scale.rank or scale.shape == (1,):
        return ()
    return (axis_of(axis, x.rank, "axis"),) if scale.rank == 1 else None


def quantize(n: Node) -> Value:
    x, scale, zero = n[0], n[1], n.optional(2)
    n.ignore("precision")  # what is computed in is f32
    saturate = bool(n.attr("saturate", 1))
    said = n.attr("output_dtype", 0)
    to = zero.dtype if zero is not None else dtype_of(said, "its result") if said else u8
    axis, zero = _axis(n, scale, x), n.zero_point(2)
    if axis is not None and to in CODES:
        return Quantize(x, scale, zero, axis, to).out
    wide = x.cast(f32) / _spread(n, scale, x).cast(f32)
    if to.is_float8:
        wide = wide if zero is None else wide + _spread(n, zero, x).cast(f32)
        return wide.cast(to, saturate=saturate)
    return rounded(wide, None if zero is None else _spread(n, zero, x), to)


def dequantize(n: Node) -> Value:
    x, scale, zero = n[0], n[1], n.zero_point(2)
    said = n.attr("output_dtype", 0)
    to = dtype_of(said, "its result") if said else scale.dtype
    axis = _axis(n, scale, x)
    if axis is not None and x.dtype in (*CODES, i32):
        return Dequantize(x, scale, zero, axis).out.cast(to)
    wide = x.cast(f32 if x.dtype.is_float8 else i32)
    if zero is not None:
        wide = wide - _spread(n, zero, x).cast(wide.dtype)
    return (wide.cast(f32) * _spread(n, scale, x).cast(f32)).cast(to)


def matmul(n: Node) -> Value:
    """A product in i32 of what is left without zero points, scaled and rounded once."""
    product = matmul_integer(n[0], n[3], n.zero_point(2), n.zero_point(5))
    scale = _by_row(n[1]).cast(f32) * n[4].cast(f32) / n[6].cast(f32)
    return rounded(product.cast(f32) * scale, n[7], n[7].dtype)


def _by_row(v: Value) -> Value:
    """A number for each row, as it meets matrices."""
    return v.reshape([*v.shape, 1]) if v.rank == 1 and v.shape != (1,) else v


ROWS: Rows = {
    "DequantizeLinear": dequantize,
    "QLinearMatMul": matmul,
    "QuantizeLinear": quantize,
}
