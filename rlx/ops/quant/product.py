"""Products by weights in packed blocks, which kernels read as they are stored."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx.base.dims import is_known
from rlx.errors import DTypeError, ShapeError, UnsupportedError
from rlx.ir.factors import Factors
from rlx.ir.op import Array, Cost, Op, attr, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.matmul.contraction import MatMul
from rlx.ops.movement.movement import Transpose
from rlx.ops.pointwise.cast import Cast
from rlx.ops.quant.blocks import DequantizeBlocks, check_packed
from rlx.quant import dequantize
from rlx.types import FLOATS, Dim, TensorType

__all__ = ["DequantMatMul", "decoded_product"]


class DequantMatMul(Op, name="mir.dequant_matmul"):
    """``x @ w.T`` for a weight ``w`` [N, K] of packed blocks along K, such as GGUF files have.

    ``packed`` has the bytes of a row of ``w`` in each of its rows, as ``rlx.quant.quantize`` gives
    them. The numbers are those of ``rlx.quant.dequantize``, rounded to the type of ``x``. Rows stay
    as they are, but by a session of ``precision="q8"``, which rounds those of f32 to 8 bits
    (``quantize_rows``) and multiplies integers (``dequant_matmul_rows``): a row with nan or an
    infinity is nan then.
    """

    x: Value = operand("floats [..., K]")
    packed: Value = operand("u8 [N, bytes]")
    scheme: str = attr(doc='a scheme of blocks, such as "q4_k"')

    linear = ((0,),)
    dtypes = FLOATS
    samples = (
        sample("3x64xT", "5x36xu8", scheme="q4_0"),
        sample("32xT", "20x20xu8", scheme="q4_1"),
        sample("2x2x32xT", "17x34xu8", scheme="q8_0"),
        sample("9x256xT", "3x144xu8", scheme="q4_k"),
        sample("1x512xT", "16x420xu8", scheme="q6_k"),
        sample("2x256xT", "2x84xu8", scheme="q2_k"),
        sample("3x64xT", "5x72xu8", scheme="fp8_e4m3_f32"),
        sample("0x32xT", "2x18xu8", scheme="q4_0"),
        sample("2x32xT", "0x18xu8", scheme="q4_0"),
        sample("2x0xT", "3x0xu8", scheme="q4_0"),
    )
    bads = (
        bad("2x32xi32", "4x18xu8", match="takes floats", error=DTypeError, scheme="q4_0"),
        bad("2x32xf32", "4x18xi8", match="takes u8", error=DTypeError, scheme="q4_0"),
        bad("2x32xf32", "18xu8", match="rank of 2", error=ShapeError, scheme="q4_0"),
        bad("f32", "4x18xu8", match="rank of at least 1", error=ShapeError, scheme="q4_0"),
        bad("2x32xf32", "4x19xu8", match="rows of 18 bytes", error=ShapeError, scheme="q4_0"),
        bad("2x40xf32", "4x18xu8", match="blocks of 32", error=ShapeError, scheme="q4_0"),
        bad("2x32xf32", "4x18xu8", match="has several arrays", error=UnsupportedError,
            scheme="awq"),
    )  # fmt: skip

    def infer(self) -> TensorType:
        x, packed = self.x, self.packed
        if not x.dtype.is_float:
            raise DTypeError(f"dequant_matmul takes floats for x, found {x.dtype}. Cast it first")
        if x.rank == 0:
            raise ShapeError("dequant_matmul takes an x of a rank of at least 1, found 0")
        check_packed(self, self.scheme, x, packed, 2)
        return x.type.with_shape((*x.shape[:-1], packed.shape[0]))

    @property
    def elements(self) -> tuple[Dim, Dim]:
        """The shape of the weight, ``[N, K]``."""
        return self.packed.shape[0], self.x.shape[-1]

    def reference(self, x: Array, packed: Array) -> Array:
        weight = dequantize(packed, self.scheme, (packed.shape[0], x.shape[-1])).astype(x.dtype)
        wide = np.float32 if x.dtype.itemsize == 2 else x.dtype
        return np.matmul(x.astype(wide), weight.T.astype(wide)).astype(x.dtype)

    def _weight(self, packed: Value) -> Value:
        return Cast.build(DequantizeBlocks.build(packed, self.scheme), self.x.dtype)

    def expand(self) -> Value:
        return MatMul.build(self.x, Transpose.build(self._weight(self.packed), (1, 0)))

    def cost(self) -> Cost:
        """2 operations for each row and element of the weight; 0 for a symbolic size."""
        rows, depth = self.out.type.size, self.x.shape[-1]
        flops = 2 * rows * depth if is_known(rows) and is_known(depth) else 0
        return Cost(flops, super().cost().bytes)

    def factors(self) -> Factors:
        # The depth k is whole: a row of packed blocks is not cut.
        lead = range(self.x.rank - 1)
        return Factors(self, [[*lead, "k"], "nk"], [[*lead, "n"]], sums="k", whole="k")

    def vjp(self, g: Value) -> tuple[Value, None]:
        return MatMul.build(g, self._weight(self.packed)), None

    def jvp(self, tx: Value | None, tpacked: Value | None) -> Value:
        assert tx is not None
        return self.with_operands([tx, self.packed]).out

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        x, packed = operands
        if not batched[1]:
            return self.with_operands([x, packed]).out
        weight = Transpose.build(self._weight(packed), (0, 2, 1))
        count = packed.shape[0]
        if not batched[0]:
            return MatMul.build(x, self._beside(weight))
        rows = x if x.rank > 2 else x.reshape((count, 1, x.shape[-1]))
        found = MatMul.build(rows, self._beside(weight))
        return found.reshape((*x.shape[:-1], packed.shape[1]))

    def _beside(self, weight: Value) -> Value:
        """Weights [B, K, N] with axes for those of x between."""
        between = [1] * max(0, self.x.rank - 2)
        return weight.reshape((weight.shape[0], *between, *weight.shape[1:]))


def decoded_product(op: MatMul) -> DequantMatMul | None:
    """``x @ w.dequantize_blocks(scheme).transpose()`` as the one op; None for another product."""
    turned = op.b.op
    if not isinstance(turned, Transpose):
        return None
    decoded = turned.x.op
    if not isinstance(decoded, DequantizeBlocks) or decoded.packed.rank != 2:
        return None
    return DequantMatMul(op.a, decoded.packed, decoded.scheme)
