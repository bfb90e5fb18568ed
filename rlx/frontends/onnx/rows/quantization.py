"""Floats as small numbers and back: a scale and a zero point for a tensor, an axis or a block."""

from __future__ import annotations

import numpy as np

from rlx.errors import ShapeError
from rlx.frontends.onnx.node import Node, Rows
from rlx.frontends.onnx.rows.few_bits import packed_param, spread
from rlx.frontends.onnx.tensors import FOUR_BITS, dtype_of
from rlx.ir.value import Value
from rlx.ops.matmul.quantized import matmul_integer
from rlx.ops.movement.movement import axis_of
from rlx.ops.quant.affine import CODES, Dequantize, Quantize
from rlx.ops.quant.affine import rounded as whole
from rlx.ops.quant.blocks import DequantizeBlocks
from rlx.quant.codes import Codes
from rlx.types import DType, f32, i8, i32, u8

__all__ = ["ROWS", "rounded"]


def _spread(n: Node, v: Value, x: Value) -> Value:
    """A scale or zero point as it meets the tensor: one for all, for each place along an axis, or
    for each block of some places."""
    axis, block = n.attr("axis", 1), n.attr("block_size", 0)
    if not v.rank or v.shape == (1,):
        return v.reshape([])
    axis = axis_of(axis, x.rank, "axis")
    if v.rank == 1 and not block:
        return v.reshape([*v.shape, *[1] * (x.rank - axis - 1)])
    size = x.type.static_shape[axis]
    count = v.type.static_shape[axis] if v.rank == x.rank else 0
    if not block * (count - 1) < size <= block * count:
        raise ShapeError(f"{v.type} has no scale for each block of {block} of {x.type}")
    return spread(v, axis, block, size)


def rounded(x: Value, zero: Value | None, to: DType) -> Value:
    """Whole numbers of a type, the nearest ones that it has; of two the even one."""
    if zero is not None and zero.shape == (1,):
        zero = zero.reshape([])
    return whole(x, zero, to)


def _axis(n: Node, scale: Value, x: Value) -> tuple[int, ...] | None:
    """The axis of scales, as ops have it; None for blocks, which they have not."""
    axis, block = n.attr("axis", 1), n.attr("block_size", 0)
    if not scale.rank or scale.shape == (1,):
        return ()
    return (axis_of(axis, x.rank, "axis"),) if scale.rank == 1 and not block else None


def quantize(n: Node) -> Value:
    x, scale, zero = n[0], n[1], n.optional(2)
    n.ignore("precision")  # what is computed in is f32
    saturate = bool(n.attr("saturate", 1))
    said = n.attr("output_dtype", 0)
    if said in FOUR_BITS or (zero is not None and n.edge(2).narrow):
        return _in_4_bits(n, FOUR_BITS[said] if said in FOUR_BITS else n.edge(2).dtype)
    to = zero.dtype if zero is not None else dtype_of(said, "its result") if said else u8
    axis, zero = _axis(n, scale, x), n.zero_point(2)
    if axis is not None and to in CODES:
        return Quantize(x, scale, zero, axis, to).out
    wide = x.cast(f32) / _spread(n, scale, x).cast(f32)
    if to.is_float8:
        wide = wide if zero is None else wide + _spread(n, zero, x).cast(f32)
        return wide.cast(to, saturate=saturate)
    return rounded(wide, None if zero is None else _spread(n, zero, x), to)


def _in_4_bits(n: Node, to: DType) -> Value:
    """Whole numbers of 4 bits, in bytes."""
    x, scale, zero = n[0], n[1], n.optional(2)
    zero = None if zero is None else _spread(n, zero, x)
    codes = rounded(x.cast(f32) / _spread(n, scale, x).cast(f32), zero, to)
    low, high = (-8, 7) if to is i8 else (0, 15)
    return codes.maximum(low).minimum(high)


def _packed(n: Node) -> Value | None:
    """A matrix in blocks of the first or the last axis as packed blocks, which products read; None
    if a part of it is computed, or no scheme has such blocks."""
    edges = [n.optional_edge(i) for i in range(3)]
    w, scales, zeros = (None if e is None else e.known for e in edges)
    block, axis = n.attr("block_size", 0), n.attr("axis", 1)
    if w is None or scales is None or (edges[2] is not None and zeros is None):
        return None
    plain = w.dtype in (np.int8, np.uint8) and scales.dtype == np.float32
    if not block or block % 32 or w.ndim != 2 or scales.ndim != 2 or not plain:
        return None
    turned = axis in (0, -2)
    codes, scale = (w.T, scales.T) if turned else (w, scales)
    zero = zeros.T if turned and zeros is not None else zeros
    size = codes.shape[1]
    if not size or size % 32 or scale.shape != (len(codes), -(-size // block)):
        return None
    bits = 4 if n.edge(0).narrow else 8
    middle = 1 << (bits - 1)
    signed = w.dtype == np.int8

    def apart() -> Codes:
        wide = codes.astype(np.int16) + middle * signed
        points = 0.0 if zero is None else zero.astype(np.float32)
        plain = zero is None and signed
        least = None if plain else -(points + np.float32(middle * signed)) * scale
        return Codes(wide.astype(np.uint8), bits, scale, least, block)

    packed, scheme = packed_param(n, n.proto.input[0], (w, scales, zeros), apart)
    found = DequantizeBlocks.build(packed, scheme)
    return found.T if turned else found


def dequantize(n: Node) -> Value:
    said = n.attr("output_dtype", 0)
    packed = None if said else _packed(n)
    if packed is not None:
        return packed
    x, scale, zero = n[0], n[1], n.zero_point(2)
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
