"""Products by the experts of a mixture whose weights are in packed blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.base.dims import is_known
from rlx.errors import DTypeError, FaultError, ShapeError, UnsupportedError
from rlx.ir.factors import Factors
from rlx.ir.lift import lift
from rlx.ir.op import Array, Cost, Op, attr, bad, operand, sample
from rlx.ir.value import Value
from rlx.ops.matmul.experts import GroupedMatMul
from rlx.ops.movement.movement import Transpose
from rlx.ops.pointwise.cast import Cast
from rlx.ops.quant.blocks import DequantizeBlocks, check_packed
from rlx.quant import dequantize
from rlx.types import FLOATS, TensorType

__all__ = ["DequantGroupedMatMul"]


class DequantGroupedMatMul(Op, name="mir.dequant_grouped_matmul"):
    """Every row times the matrix of its expert: ``out[i] = x[i] @ w[experts[i]].T``.

    Weights ``w`` [E, N, K] are packed blocks along K: ``packed`` has the bytes of a row of ``w`` in
    each of its rows, as ``dequant_matmul`` takes them. An expert outside 0 .. E - 1 is a fault of
    the run.
    """

    x: Value = operand("rows [M, K], floats")
    packed: Value = operand("u8 [E, N, bytes]")
    experts: Value = operand("[M], integers: the expert of each row")
    scheme: str = attr(doc='a scheme of blocks, such as "q4_k"')

    dtypes = FLOATS
    samples = (
        sample("3x64xT", "2x16x36xu8", "3xi64", scheme="q4_0", data={2: "index:2"}),
        sample("2x32xT", "3x5x34xu8", "2xu8", scheme="q8_0", data={2: "index:3"}),
        sample("5x256xT", "2x32x144xu8", "5xi32", scheme="q4_k", data={2: "index:2"}),
        sample("2x256xT", "1x3x84xu8", "2xi32", scheme="q2_k", data={2: "index:1"}),
        sample("0x32xT", "2x16x18xu8", "0xi32", scheme="q4_0", data={2: "index:2"}),
    )
    bads = (
        bad("3x32xi32", "2x4x18xu8", "3xi64", match="takes floats", error=DTypeError,
            scheme="q4_0"),
        bad("3x32xf32", "2x4x18xi8", "3xi64", match="takes u8", error=DTypeError, scheme="q4_0"),
        bad("3x32xf32", "4x18xu8", "3xi64", match="rank of 3", error=ShapeError, scheme="q4_0"),
        bad("32xf32", "2x4x18xu8", "3xi64", match="rank 2", error=ShapeError, scheme="q4_0"),
        bad("3x32xf32", "2x4x18xu8", "2xi64", match=r"experts must be \[3\]", error=ShapeError,
            scheme="q4_0"),
        bad("3x32xf32", "2x4x19xu8", "3xi64", match="rows of 18 bytes", error=ShapeError,
            scheme="q4_0"),
        bad("3x40xf32", "2x4x18xu8", "3xi64", match="blocks of 32", error=ShapeError,
            scheme="q4_0"),
        bad("3x32xf32", "0x4x18xu8", "3xi64", match="no expert", error=ShapeError, scheme="q4_0"),
        bad("3x32xf32", "2x4x18xu8", "3xi64", match="has several arrays", error=UnsupportedError,
            scheme="awq"),
    )  # fmt: skip

    @classmethod
    def build(cls, x: Value, packed: Value, experts: Any, scheme: str) -> Value:
        """Every row times the matrix of its expert, whose weights are in packed blocks. The experts
        may be an array or a list."""
        return cls(x, packed, lift(experts, x), scheme).out

    def infer(self) -> TensorType:
        x, packed = self.x, self.packed
        if not x.dtype.is_float:
            raise DTypeError(f"{self.short} takes floats for x, found {x.dtype}. Cast it first")
        check_packed(self, self.scheme, x, packed, 3)
        count, outputs, _ = packed.shape
        depth = x.shape[-1] if x.rank else 0
        weights = Value(TensorType((count, depth, outputs), x.dtype))
        return GroupedMatMul(Value(x.type), weights, Value(self.experts.type)).out.type

    @property
    def out_of_range(self) -> str:
        """What is said of an expert that is not there."""
        return f"{self.short}: an expert out of range for {self.packed.shape[0]} experts"

    def reference(self, x: Array, packed: Array, experts: Array) -> Array:
        if ((experts < 0) | (experts >= len(packed))).any():
            raise FaultError(self.out_of_range, self.location)
        shape = (*packed.shape[:-1], x.shape[-1])
        weight = dequantize(packed, self.scheme, shape).astype(x.dtype)
        wide = np.float32 if x.dtype.itemsize == 2 else x.dtype
        rows = [r.astype(wide) @ weight[e].T.astype(wide) for r, e in zip(x, experts, strict=True)]
        empty = np.zeros((0, packed.shape[1]), wide)
        return (np.stack(rows) if rows else empty).astype(x.dtype)

    def _weight(self) -> Value:
        return Cast.build(DequantizeBlocks.build(self.packed, self.scheme), self.x.dtype)

    def expand(self) -> Value:
        return GroupedMatMul.build(self.x, Transpose.build(self._weight(), (0, 2, 1)), self.experts)

    def cost(self) -> Cost:
        """Two operations for every element of a row and of the result."""
        size, depth = self.out.type.size, self.x.shape[-1]
        flops = 2 * size * depth if is_known(size) and is_known(depth) else 0
        return Cost(flops, super().cost().bytes)

    def factors(self) -> Factors:
        return Factors(self, ["mk", "enk", "m"], ["mn"], sums="k", whole="ek")

    def vjp(self, g: Value) -> tuple[Value, None, None]:
        return GroupedMatMul.build(g, self._weight(), self.experts), None, None

    def jvp(self, tx: Value | None, tpacked: Value | None, te: Value | None) -> Value:
        assert tx is not None
        return self.with_operands([tx, self.packed, self.experts]).out

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        """The batches one below the other; packed weights of their own are decoded first."""
        if batched[1]:
            weight = Cast.build(DequantizeBlocks.build(operands[1], self.scheme), self.x.dtype)
            node = GroupedMatMul(self.x, Transpose.build(self._weight(), (0, 2, 1)), self.experts)
            turned = Transpose.build(weight, (0, 1, 3, 2))
            return node.batch([operands[0], turned, operands[2]], batched)
        n = next(v.shape[0] for v, has in zip(operands, batched, strict=True) if has)
        x, packed, experts = operands
        x, experts = (
            v if has else v.expand((n, *v.shape))
            for v, has in ((x, batched[0]), (experts, batched[2]))
        )
        rows = n * self.x.shape[0]
        flat = [x.reshape((rows, x.shape[2])), packed, experts.reshape((rows,))]
        return self.with_operands(flat).out.reshape((n, *self.out.shape))
