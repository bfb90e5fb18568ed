"""Weights of few bits in blocks: MatMulNBits and GatherBlockQuantized of com.microsoft.

Codes of a row lie in bytes, the first one lowest, and each block of a row has a scale and a zero
point. Where the file has all of them, and blocks are whole ones of 32 elements, the weight becomes
one in packed blocks of ``rlx.quant``, which kernels read; else it is decoded by ops of the graph.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.errors import ShapeError, UnsupportedError
from rlx.frontends.common.values import constant, scalar
from rlx.frontends.onnx.node import Node
from rlx.ir.value import Value
from rlx.ops.indexing.gather import Gather
from rlx.ops.matmul.contraction import MatMul
from rlx.ops.quant.blocks import DequantizeBlocks
from rlx.ops.quant.product import DequantMatMul
from rlx.ops.sugar import concat
from rlx.quant.bits import from_planes, planes
from rlx.quant.scheme import BlockScheme
from rlx.quant.table import scheme_named
from rlx.types import f32, u8

__all__ = ["gather_of_blocks", "matmul_of_blocks"]

Array = np.ndarray[Any, Any]


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
        if self.bits == 2 or self.block % 32 or self.size % 32 or (asked and self.bits == 8):
            return None
        kept = self.n.importer.packed_weights
        key = id(codes), id(scales), id(zero)
        if key not in kept:
            packed, scheme = self._blocks(codes, scales, zero)
            name = f"{self.n.proto.input[self._at[0]]}.{scheme}"
            graph = self.n.importer.graph
            taken = {str(v.name) for v in graph.params}
            while name in taken:
                name += "_"
            kept[key] = graph.param(name, value=packed), scheme, [codes, scales, zero]
        return kept[key][:2]

    def _blocks(self, codes: Array, scales: Array, zero: Array | None) -> tuple[Array, str]:
        """The bytes of its blocks of 32, and their scheme."""
        each = self.size // 32
        d = np.repeat(scales.reshape(self.rows, self.blocks), self.block // 32, 1)[:, :each]
        fields: dict[str, Array] = {"d": d.astype(np.float32).reshape(-1)}
        if self.bits == 8:
            raw = codes.reshape(self.rows, -1)[:, : self.size].reshape(-1, 32)
            fields["qs"] = (raw ^ 128).view(np.int8)
        else:
            numbers = planes(codes.reshape(self.rows, -1), 1, 4)[:, : self.size]
            fields["qs"] = from_planes(numbers.reshape(-1, 32), 16, 4)
        name = "q4_0" if self.bits == 4 else "q8_0"
        if zero is not None:
            zeros = np.repeat(self._zeros(zero), self.block // 32, 1)[:, :each]
            name, fields["m"] = "q4_1_f32", -zeros.reshape(-1) * fields["d"]
        elif not np.array_equal(_half(fields["d"]), fields["d"]):
            name += "_f32"
        scheme = scheme_named(name)
        assert isinstance(scheme, BlockScheme)
        out = np.empty(self.rows * each, scheme.fields)
        for field, values in fields.items():
            out[field] = values
        return out.view(np.uint8).reshape(self.rows, each * scheme.bytes), name

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


def _half(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(np.float32)


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


def gather_of_blocks(n: Node) -> Value:
    """Rows of a weight ``[rows, bytes]`` of few bits."""
    codes, scales, bits = n.edge(0), n.edge(2), int(n.attr("bits", 4))
    block, quantized = int(n.attr("block_size", 128)), int(n.attr("quantize_axis", 1))
    plain = n.attr("gather_axis", 0) == 0 and codes.type.rank == 2 and quantized in (1, -1)
    if not plain or codes.dtype is not u8 or bits not in (2, 4, 8) or block < 16:
        raise UnsupportedError(
            f"it gathers along axis {n.attr('gather_axis', 0)} of {codes.type}, with {bits} bits"
            f" and scales along axis {quantized}; rows of a weight of u8 with two axes, of 2, 4 or"
            " 8 bits in blocks of 16 and more along the second, are there"
        )
    rows, size = (int(d) for d in codes.type.static_shape)
    weight = _Weight(n, 0, 2, 3, (bits, rows, size * 8 // bits, block))
    if scales.type.size != rows * weight.blocks:
        raise ShapeError(
            f"its weight {codes.type} and scales {scales.type} do not fit; expected"
            f" {rows * weight.blocks} scales"
        )
    packed = weight.packed()
    if packed is None:
        return Gather.build(weight.decoded(), n[1], 0)
    return Gather.build(DequantizeBlocks.build(*packed), n[1], 0).cast(scales.dtype)
