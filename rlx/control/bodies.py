"""Making control ops and their bodies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlx.graph import Graph
from rlx.ops.base import Op
from rlx.ops.value import Value
from rlx.types import TensorType

__all__ = ["graph_of", "make", "types_of"]


def make(cls: type[Op], operands: Sequence[Value], **attrs: Any) -> Op:
    """The node of an op with any number of operands."""
    return cls(*operands, **attrs)


def graph_of(
    name: str, types: Sequence[TensorType], function: Callable[..., Sequence[Value]]
) -> Graph:
    """A body: the graph of a function of Values of these types, which uses nothing else."""
    graph = Graph(name)
    inputs = [graph.input(f"x{i}", t.shape, t.dtype) for i, t in enumerate(types)]
    graph.set_outputs(function(*inputs))
    return graph


def types_of(values: Sequence[Value]) -> list[TensorType]:
    """The types of values."""
    return [v.type for v in values]
