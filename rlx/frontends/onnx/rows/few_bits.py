"""Weights of few bits in blocks: MatMulNBits and GatherBlockQuantized of com.microsoft.

Codes of a row lie in bytes, the first one lowest, and each block of a row has a scale and a zero
point. Where the file has all of them, and blocks are whole ones of 32 elements, the weight becomes
one in packed blocks of ``rlx.quant``, which kernels read; else it is decoded by ops of the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.errors import ShapeError, UnsupportedError
from rlx.frontends.common.values import constant, scalar
from rlx.frontends.onnx.node import Node
from rlx.ir.value import Value
from rlx.ops.indexing.gather import Gather
from rlx.ops.matmul.contraction import MatMul
from rlx.ops.movement.movement import axis_of
from rlx.ops.quant.blocks import DequantizeBlocks
from rlx.ops.quant.product import DequantMatMul
from rlx.ops.sugar import concat
from rlx.quant.bits import planes
from rlx.quant.codes import Codes
from rlx.types import f32, u8

__all__ = ["gather_of_blocks", "matmul_of_blocks", "packed_param", "spread"]

Array = np.ndarray[Any, Any]


def packed_param(
    n: Node, name: str, arrays: tuple[Array | None, ...], codes: Callable[[], Codes]
) -> tuple[Value, str]:
    """A param of packed blocks and its scheme, for a weight that the file holds in some arrays,
    once for all nodes that read it."""
    kept, key = n.importer.packed_weights, tuple(map(id, arrays))
    if key not in kept:
        packed, scheme = codes().packed()
        name, graph = f"{name}.{scheme}", n.importer.graph
        taken = {str(v.name) for v in graph.params}
        while name in taken:
            name += "_"
        kept[key] = graph.param(name, value=packed), scheme, [*arrays]
    return kept[key][:2]


class _Weight:
    """A weight ``[rows, size]``; its codes, scales and zero points are the node's inputs of these
    numbers. ShapeError for operands that do not fit."""

    def __init__(self, n: Node, codes: int, scales: int, zero: int, sizes: tuple[int, ...]) -> None:
        self.n, self._at = n, (codes, scales, zero)
        self.bits, self.rows, self.size, self.block = sizes
        self.blocks = -(-self.size // self.block)

    def packed(self) -> tuple[Value, str] | None:
        """It in blocks of a scheme; None where no scheme has such blocks, or a part of it is
        computed."""
        given = [self.n.optional_edge(i) for i in self._at]
        codes, scales, zero = (None if e is None else e.known for e in given)
        asked = given[2] is not None
        if codes is None or scales is None or (asked and zero is None):
            return None
        if self.block % 32 or self.size % 32:
            return None
        name, arrays = self.n.proto.input[self._at[0]], (codes, scales, zero)
        return packed_param(self.n, name, arrays, lambda: self._numbers(codes, scales, zero))

    def _numbers(self, codes: Array, scales: Array, zero: Array | None) -> Codes:
        """Its codes, scales and zero points apart."""
        numbers = planes(codes.reshape(self.rows, -1), 1, self.bits)[:, : self.size]
        d = scales.reshape(self.rows, self.blocks).astype(np.float32)
        least = None if zero is None else -self._zeros(zero) * d
        return Codes(numbers, self.bits, d, least, self.block)

    def _zeros(self, zero: Array) -> Array:
        """A zero point for each block, as f32."""
        if zero.dtype != np.uint8:
            return zero.astype(np.float32).reshape(self.rows, self.blocks)
        found = planes(zero.reshape(self.rows, -1), 1, self.bits)[:, : self.blocks]
        return found.astype(np.float32)

    def decoded(self) -> Value:
        """It as numbers of the type of its scales."""
        codes, scales, zeros = self._at
        each = -(-self.blocks * self.bits // 8)
        raw = self.n[codes].reshape([self.rows, -1])
        scale = self.n[scales].reshape([self.rows, self.blocks, 1])
        zero = self.n.optional(zeros)
        if zero is None:
            zero = scalar(2.0 ** (self.bits - 1), scale)
        elif zero.dtype is u8:
            zero = _unpacked(zero.reshape([self.rows, each]), self.bits, self.blocks).unsqueeze(-1)
        else:
            zero = zero.reshape([self.rows, self.blocks, 1])
        size = self.blocks * self.block
        numbers = _unpacked(raw, self.bits, raw.type.static_shape[-1] * 8 // self.bits)
        missing = size - numbers.type.static_shape[-1]
        if missing:  # of the last block of a row
            numbers = concat([numbers, constant(np.zeros((self.rows, missing)), u8)], -1)
        wide = numbers.reshape([self.rows, self.blocks, self.block]).cast(scale.dtype)
        whole = ((wide - zero.cast(scale.dtype)) * scale).reshape([self.rows, size])
        return whole[:, : self.size]


def _unpacked(codes: Value, bits: int, count: int) -> Value:
    """Codes that share bytes along the last axis, the lowest bits first."""
    parts = [codes.right_shift(constant(at, u8)).bitwise_and(constant(2**bits - 1, u8))
             for at in range(0, 8, bits)]  # fmt: skip
    apart = concat([p.unsqueeze(-1) for p in parts], -1)
    size = codes.type.static_shape[-1] * len(parts)
    return apart.reshape([*codes.shape[:-1], size])[..., :count]


def _refused(bits: int, block: int, more: str = "") -> UnsupportedError:
    return UnsupportedError(
        f"its weight has {bits} bits in blocks of {block}{more}; blocks of 16 and more elements of"
        " 2, 4 or 8 bits in their order are there"
    )


def matmul_of_blocks(n: Node) -> Value:
    """By a weight ``[N, blocks, bytes of a block]`` of few bits."""
    n.ignore("accuracy_level", "weight_prepacked")
    x, codes, bits = n[0], n.edge(1), int(n.attr("bits", 4))
    size, outputs, block = (int(n.need(name)) for name in ("K", "N", "block_size"))
    if n.has(4) or bits not in (2, 4, 8) or block < 16:
        raise _refused(bits, block, ", in another order" * n.has(4))
    weight = _Weight(n, 1, 2, 3, (bits, outputs, size, block))
    wanted = (outputs, weight.blocks, block * bits // 8)
    if tuple(codes.shape) != wanted or n.edge(2).type.size != outputs * weight.blocks:
        raise ShapeError(
            f"its weight {codes.type} and scales {n.edge(2).type} do not fit; expected"
            f" {list(wanted)} and {outputs * weight.blocks} scales"
        )
    packed, bias = weight.packed(), n.optional(5)
    if packed is None:
        found = MatMul.build(x, weight.decoded().T.cast(x.dtype))
    else:
        found = DequantMatMul.build(x.cast(f32), *packed).cast(x.dtype)
    return found if bias is None else found + bias


def spread(v: Value, axis: int, block: int, size: int) -> Value:
    """Scales or zero points of blocks of ``block`` places along an axis, one for each of ``size``
    places."""
    wide = v.reshape([*v.shape[: axis + 1], 1, *v.shape[axis + 1 :]])
    wide = wide.expand([*v.shape[: axis + 1], block, *v.shape[axis + 1 :]])
    count = v.type.static_shape[axis]
    whole = wide.reshape([*v.shape[:axis], count * block, *v.shape[axis + 1 :]])
    return whole.narrow(axis, 0, size)


def gather_of_blocks(n: Node) -> Value:
    """Some places along an axis of a weight of few bits: of elements of 4 bits, or of such that
    share bytes along the last axis."""
    codes, scales, bits = n.edge(0), n.edge(2), int(n.attr("bits", 4))
    block, rank = int(n.attr("block_size", 128)), codes.type.rank
    axis = axis_of(int(n.attr("quantize_axis", 1)), rank, "quantize_axis")
    along = axis_of(int(n.attr("gather_axis", 0)), rank, "gather_axis")
    if not codes.narrow and (along != 0 or axis != rank - 1 or codes.dtype is not u8):
        raise UnsupportedError(
            f"it gathers along axis {along} of {codes.type}, with scales along axis {axis}; of"
            " elements that share bytes of u8, rows with scales along the last axis are there"
        )
    if bits not in (2, 4, 8) or block < 16:
        raise _refused(bits, block)
    each = 1 if codes.narrow else 8 // bits
    sizes = [*codes.type.static_shape[:-1], codes.type.static_shape[-1] * each]
    wanted = [-(-size // block) if i == axis else size for i, size in enumerate(sizes)]
    if list(scales.shape) != wanted:
        raise ShapeError(
            f"its weight {codes.type} and scales {scales.type} do not fit; expected scales of the"
            f" shape {wanted}"
        )
    if rank == 2 and not codes.narrow:
        packed = _Weight(n, 0, 2, 3, (bits, *sizes, block)).packed()
        if packed is not None:
            return Gather.build(DequantizeBlocks.build(*packed), n[1], 0).cast(scales.dtype)
    wide, zero, scale = n[0], n.optional(3), n[2]
    if not codes.narrow:
        wide = _unpacked(wide, bits, sizes[-1])
        zero = None if zero is None else _unpacked(zero, bits, wanted[-1])
        zero = scalar(2.0 ** (bits - 1), scale) if zero is None else zero
    wide = wide.cast(scale.dtype)
    if zero is not None:
        zero = zero.cast(scale.dtype)
        wide = wide - (spread(zero, axis, block, sizes[axis]) if zero.rank else zero)
    return Gather.build(wide * spread(scale, axis, block, sizes[axis]), n[1], along)
