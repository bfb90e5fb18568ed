"""The identity that no derivative passes."""

from __future__ import annotations

from collections.abc import Sequence

from rlx.ir.op import Array, Op, operand, sample
from rlx.ir.value import Value
from rlx.ops.pointwise.base import ANY
from rlx.types import TensorType

__all__ = ["StopGradient"]


class StopGradient(Op, name="hir.stop_gradient"):
    """Its operand, through which no derivative passes: tangents and cotangents are zero."""

    x: Value = operand("any tensor")

    flops_per_element = 0
    differentiable = False
    dtypes = ANY
    samples = (sample("2x3xT"), sample("0x2xT"))

    def infer(self) -> TensorType:
        return self.x.type

    def reference(self, x: Array) -> Array:
        return x

    def expand(self) -> Value:
        return self.x

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        return self.with_operands(operands).out
