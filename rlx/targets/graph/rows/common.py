"""What rows share: the types of results, and ends of element types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from rlx.ir.op import Op
from rlx.ops.reduction.reduce import bound
from rlx.targets.graph.tensor import Number, Tensor
from rlx.targets.graph.whole import Whole
from rlx.types import DType

__all__ = ["Row", "dtype_of", "kept", "least", "most", "shape_of"]

Row: TypeAlias = Callable[..., Any]
"""``row(k, node, *operands)`` -> a tensor, or one for each result."""


def shape_of(node: Op, result: int = 0) -> tuple[int, ...]:
    """The shape of a result."""
    return node.results[result].type.static_shape


def dtype_of(node: Op, result: int = 0) -> DType:
    """The element type of a result."""
    return node.results[result].dtype


def least(dt: DType) -> Number:
    """The least value of a type, -inf of floats."""
    return bound(dt, "min")


def most(dt: DType) -> Number:
    """The largest value of a type."""
    return bound(dt, "max")


def kept(k: Whole, node: Op, t: Tensor) -> Tensor:
    """A tensor that was computed wide, as the node's result."""
    return k.reshape(k.rounded(t, dtype_of(node)), shape_of(node))
