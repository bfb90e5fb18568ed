"""Values that need no operand: literals and index sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import DTypeError, ShapeError
from rlx.ir.attrs import repeats
from rlx.ir.factors import Factors, Parts
from rlx.ir.op import Array, Op, attr, bad, sample
from rlx.ir.value import Value
from rlx.ops.pointwise.base import NUMERIC
from rlx.types import Dim, DType, TensorType, dtype

__all__ = ["Constant", "Iota", "check_count", "literal"]

MOST = 1 << 27
"""The most elements that a builder makes a literal of: 1 GiB of f64."""


def check_count(what: str, n: float) -> None:
    """ShapeError for more elements than a literal should have."""
    if not n <= MOST:
        raise ShapeError(f"{what}: a literal of {n:.0f} elements; give such a tensor as an input")


class Constant(Op, name="mir.constant"):
    """A literal tensor."""

    value: Array = attr(doc="the elements")

    flops_per_element = 0
    samples = (
        sample(value=np.arange(6, dtype=np.float32).reshape(2, 3)),
        sample(value=np.float64(2.5)),
    )
    differentiable = False

    def infer(self) -> TensorType:
        return TensorType(self.value.shape, dtype(self.value.dtype))

    def reference(self) -> Array:
        return self.value

    def factors(self) -> Factors:
        return Factors(self, [], [[None] * self.out.rank])


def literal(node: Op) -> complex | float | int | bool | None:
    """The number that a constant repeats, or None for any other node."""
    if not isinstance(node, Constant) or node.value.size == 0:
        return None
    return node.value.reshape(-1)[0].item() if repeats(node.value) else None


class Iota(Op, name="mir.iota"):
    """0, 1, 2, … along one axis, constant along the others."""

    shape: tuple[Dim, ...] = attr(doc="the result's shape")
    axis: int = attr(0, "the axis that counts")
    dtype: DType = attr(dtype("i64"), "the element type")

    flops_per_element = 0
    dtypes = NUMERIC
    differentiable = False
    samples = (sample(shape=(5,)), sample(shape=(2, 3, 4), axis=1, dtype="f32"))
    bads = (
        bad(match="axis 2", error=ShapeError, shape=(2, 3), axis=2),
        bad(match="bool", error=DTypeError, shape=(2,), dtype="bool"),
    )

    def infer(self) -> TensorType:
        if not 0 <= self.axis < len(self.shape):
            raise ShapeError(f"iota: axis {self.axis} is out of range for rank {len(self.shape)}")
        if self.dtype not in NUMERIC:
            raise DTypeError(f"iota counts in integers or floats, found {self.dtype}")
        return TensorType(self.shape, self.dtype)

    def reference(self) -> Array:
        shape = self.out.type.static_shape
        line = np.arange(shape[self.axis]).astype(self.dtype.numpy)
        return np.ascontiguousarray(
            np.broadcast_to(
                line.reshape([-1 if i == self.axis else 1 for i in range(len(shape))]), shape
            )
        )

    def loops(self, b: Any) -> None:
        def point(*at: Any) -> None:
            b.store(0, at, b.convert(at[self.axis], self.dtype))

        b.parallel(self.out.type.static_shape, point)

    def factors(self) -> Factors:
        return Factors(self, [], [range(self.out.rank)])

    def on_parts(self, operands: Sequence[Value | None], parts: Parts) -> Sequence[Value]:
        found = Iota(parts.shape(), self.axis, self.dtype).out
        moved = self.axis in parts.cut
        return [found + parts.start(self.axis).cast(to=self.dtype) if moved else found]

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> Value:
        raise AssertionError("iota has no operand that could be batched")
