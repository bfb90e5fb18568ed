"""Products of rows in 8 bits (``quantize_rows``) by weights in packed blocks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx.base.dims import is_known
from rlx.errors import DTypeError, ShapeError, UnsupportedError
from rlx.ir.factors import Factors
from rlx.ir.op import Array, Cost, attr, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.matmul.contraction import MatMul
from rlx.ops.movement.movement import Expand, Reshape, Transpose
from rlx.ops.nn.inference import ForInference
from rlx.ops.pointwise.cast import Cast
from rlx.ops.quant.blocks import DequantizeBlocks, blocks_of, check_packed
from rlx.quant import dequantize
from rlx.quant.scheme import BlockScheme
from rlx.types import TensorType, f32, i8

__all__ = ["ROW_BLOCK", "DequantMatMulRows", "takes_rows"]

ROW_BLOCK = 32
"""Elements of a row that have a scale together."""


class DequantMatMulRows(ForInference, name="mir.dequant_matmul_rows"):
    """``(q * scales) @ w.T`` in f32, for rows that ``quantize_rows(block=32)`` gives.

    Kernels multiply integers within each sub-block of the weight. It is what ``dequant_matmul``
    becomes by ``precision="q8"``. An element has the same bits in any number of rows. What a scale
    that is not finite makes is not finite either; nan if the codes are those of ``quantize_rows``.
    """

    q: Value = operand("i8 [..., K]")
    scales: Value = operand("f32 [..., K / 32]")
    packed: Value = operand("u8 [N, bytes]")
    scheme: str = attr(doc='a scheme of blocks, such as "q4_k"')

    instead = "dequant_matmul"
    samples = (
        sample("3x64xi8", "3x2xf32", "5x36xu8", scheme="q4_0"),
        sample("32xi8", "1xf32", "20x20xu8", scheme="q4_1"),
        sample("2x2x32xi8", "2x2x1xf32", "17x34xu8", scheme="q8_0"),
        sample("9x256xi8", "9x8xf32", "3x144xu8", scheme="q4_k"),
        sample("1x512xi8", "1x16xf32", "16x420xu8", scheme="q6_k"),
        sample("2x256xi8", "2x8xf32", "2x84xu8", scheme="q2_k"),
        sample("0x32xi8", "0x1xf32", "2x18xu8", scheme="q4_0"),
        sample("2x32xi8", "2x1xf32", "0x18xu8", scheme="q4_0"),
        sample("2x0xi8", "2x0xf32", "3x0xu8", scheme="q4_0"),
    )  # fmt: skip
    bads = (
        bad("2x32xf32", "2x1xf32", "4x18xu8", match="takes i8", error=DTypeError,
            scheme="q4_0"),
        bad("2x32xi8", "2x1xf16", "4x18xu8", match="takes f32", error=DTypeError,
            scheme="q4_0"),
        bad("2x32xi8", "2x1xf32", "4x18xi8", match="takes u8", error=DTypeError,
            scheme="q4_0"),
        bad("i8", "2x1xf32", "4x18xu8", match="rank of at least 1", error=ShapeError,
            scheme="q4_0"),
        bad("2x32xi8", "2x1xf32", "18xu8", match="rank of 2", error=ShapeError,
            scheme="q4_0"),
        bad("2x40xi8", "2x1xf32", "4x18xu8", match="blocks of 32", error=ShapeError,
            scheme="q4_0"),
        bad("2x64xi8", "2x1xf32", "4x36xu8", match="scales of .2, 2.", error=ShapeError,
            scheme="q4_0"),
        bad("2x32xi8", "2x1xf32", "4x19xu8", match="rows of 18 bytes",
            error=ShapeError, scheme="q4_0"),
        bad("2x32xi8", "2x1xf32", "4x18xu8", match="blocks of a multiple of 32",
            error=UnsupportedError, scheme="f16"),
        bad("2x32xi8", "2x1xf32", "4x36xu8", match="multiple of 32 whole numbers",
            error=UnsupportedError, scheme="fp8_e4m3_f32"),
        bad("2x32xi8", "2x1xf32", "4x18xu8", match="has several arrays",
            error=UnsupportedError, scheme="awq"),
    )  # fmt: skip

    def infer(self) -> TensorType:
        row, q, packed = blocks_of(self, self.scheme), self.q, self.packed
        if not takes_rows(row):
            raise UnsupportedError(
                f"{self.short} takes blocks of a multiple of 32 whole numbers, which {row} has not"
            )
        for what, v, dt in (("q", q, i8), ("scales", self.scales, f32)):
            if v.dtype is not dt:
                raise DTypeError(f"{self.short} takes {dt} for {what}, found {v.dtype}")
        if q.rank == 0:
            raise ShapeError(f"{self.short} takes a q of a rank of at least 1, found 0")
        check_packed(self, self.scheme, q, packed, 2)
        *lead, depth = q.shape
        wanted = (*lead, depth // ROW_BLOCK)
        if self.scales.shape != wanted:
            raise ShapeError(
                f"{self.short}: {q.type} has scales of {wanted}, found {self.scales.type}"
            )
        return TensorType((*lead, packed.shape[0]), f32)

    def reference(self, q: Array, scales: Array, packed: Array) -> Array:
        depth = q.shape[-1]
        weight = dequantize(packed, self.scheme, (packed.shape[0], depth))
        rows = q.astype(np.float32) * np.repeat(scales, ROW_BLOCK, -1)
        return np.matmul(rows, weight.T)

    def expand(self) -> Value:
        weight = DequantizeBlocks.build(self.packed, self.scheme)
        return MatMul.build(self._rows(self.q, self.scales), Transpose.build(weight, (1, 0)))

    def _rows(self, q: Value, scales: Value) -> Value:
        """The numbers that the rows stand for."""
        *lead, depth = q.shape
        blocks = Reshape.build(Cast.build(q, f32), [*lead, depth // ROW_BLOCK, ROW_BLOCK])
        return Reshape.build(blocks * Reshape.build(scales, [*scales.shape, 1]), q.shape)

    def factors(self) -> Factors:
        lead = range(self.q.rank - 1)
        given = [[*lead, "k"], [*lead, None], "nk"]
        return Factors(self, given, [[*lead, "n"]], sums="k", whole="k")

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        q, scales, packed = operands
        count = next(v.shape[0] for v, b in zip(operands, batched, strict=True) if b)
        if batched[0] != batched[1]:
            q, scales = (
                v if b else Expand.build(v.reshape([1, *v.shape]), [count, *v.shape])
                for v, b in zip((q, scales), batched, strict=False)
            )
        if not batched[2]:
            return self.with_operands([q, scales, packed]).out
        rows = self._rows(q, scales)
        weight = Transpose.build(DequantizeBlocks.build(packed, self.scheme), (0, 2, 1))
        if not batched[0] and not batched[1]:
            return MatMul.build(rows, self._beside(weight))
        wide = rows if rows.rank > 2 else rows.reshape((count, 1, rows.shape[-1]))
        found = MatMul.build(wide, self._beside(weight))
        return found.reshape((*rows.shape[:-1], packed.shape[1]))

    def _beside(self, weight: Value) -> Value:
        """Weights [B, K, N] with axes for those of q between."""
        between = [1] * max(0, self.q.rank - 2)
        return weight.reshape((weight.shape[0], *between, *weight.shape[1:]))

    def cost(self) -> Cost:
        """2 operations for each row and element of the weight; 0 for a symbolic size."""
        rows, depth = self.out.type.size, self.q.shape[-1]
        flops = 2 * rows * depth if is_known(rows) and is_known(depth) else 0
        return Cost(flops, super().cost().bytes)


def takes_rows(scheme: BlockScheme) -> bool:
    """Whether rows in 8 bits go by blocks of a scheme."""
    return scheme.whole and scheme.block % ROW_BLOCK == 0
