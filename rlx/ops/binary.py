"""Arithmetic of two operands."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.errors import DTypeError, ShapeError
from rlx.ops.base import Array, bad, sample
from rlx.ops.elementwise import Binary, sum_to
from rlx.ops.value import Value

__all__ = ["Add"]

SAMPLES = (sample("2x3xT", "2x3xT"), sample("4x1x5xT", "3x1xT"), sample("T", "2xT"))
BADS = (
    bad("2x3xf32", "4xf32", match="do not broadcast", error=ShapeError),
    bad("2xf32", "2xi32", match="one type", error=DTypeError),
)


class Add(Binary, name="mir.add"):
    """Sum, element by element. Integers wrap."""

    samples = SAMPLES
    bads = BADS

    def reference(self, lhs: Array, rhs: Array) -> Array:
        return np.add(lhs, rhs)

    def scalar(self, k: Any, lhs: Any, rhs: Any) -> Any:
        return lhs + rhs

    def vjp(self, g: Value) -> tuple[Value, Value]:
        return sum_to(g, self.lhs), sum_to(g, self.rhs)

    def jvp(self, tl: Value | None, tr: Value | None) -> Value:
        parts = [t for t in (tl, tr) if t is not None]
        total = parts[0] if len(parts) == 1 else parts[0] + parts[1]
        return total.expand(self.out.shape)
