"""An ATen op as its row sees it: the types of its results, and operands cast to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeAlias

import numpy as np

from rlx.errors import UnsupportedError
from rlx.frontends.common.values import constant, size_value
from rlx.frontends.torch.memory import Memory
from rlx.ir.value import Value
from rlx.types import Dim, DType, Shape, SymDim, TensorType

__all__ = ["Node", "Number", "Operand", "Row", "Rows", "axes_of", "axis_of", "static"]

Number: TypeAlias = int | float | bool | complex
Operand: TypeAlias = Value | Number | SymDim
Row: TypeAlias = Callable[..., Any]
"""Takes a node and the arguments of its op, by the names and in the order of ATen's schema, and
gives a ``Value``, or a sequence of them for an op with several results. What a row takes no
parameter for must have the schema's default, else the node is refused."""
Rows: TypeAlias = dict[str, Row]
"""Ops by name: ``add`` for all overloads, ``max.dim`` for one."""


class Node:
    """A node of an op, with the types that torch says of its results."""

    def __init__(
        self,
        name: str,
        types: Sequence[TensorType | None],
        promoted: Callable[[], DType],
        memory: Callable[[], Memory] | None = None,
    ) -> None:
        self.name, self.types, self._promoted, self._memory = name, types, promoted, memory

    @property
    def packet(self) -> str:
        """The name without its overload."""
        return self.name.split(".")[0]

    @property
    def type(self) -> TensorType:
        """The type of the first result."""
        found = self.types[0]
        assert found is not None, "an op with a row has a result"
        return found

    @property
    def dtype(self) -> DType:
        """The element type of the first result."""
        return self.type.dtype

    @property
    def shape(self) -> Shape:
        """The dims of the first result."""
        return self.type.shape

    @property
    def promoted(self) -> DType:
        """The element type in which torch computes on the operands."""
        return self._promoted()

    @property
    def memory(self) -> Memory:
        """Where the first operand lies."""
        assert self._memory is not None, "a node of a program knows it"
        return self._memory()

    def cast(self, x: Operand, to: DType | None = None) -> Value:
        """An operand as a value, of the element type of the result unless ``to`` says another."""
        to = self.dtype if to is None else to
        if isinstance(x, SymDim):
            x = size_value(x)
        if isinstance(x, Value):
            return _cast(x, to)
        return constant(np.asarray(x).astype(to.numpy))

    def full(self, number: Operand) -> Value:
        """The result if all its elements are one number."""
        return self.cast(number).expand(self.shape)

    def refuse(self, what: str) -> NoReturn:
        """UnsupportedError for a form of the op that has no counterpart here."""
        raise UnsupportedError(what)


def _cast(x: Value, to: DType) -> Value:
    """As torch casts: a float that becomes an integer beyond its range is undefined there. What an
    8-bit float cannot hold becomes inf, or in e4m3fn, which has none, the greatest number."""
    if x.dtype is to:
        return x
    if x.dtype.is_complex and not to.is_complex and to.name != "bool":
        x = x.real()
    return x.cast(to, saturate=to.name == "f8e4m3fn")


def axis_of(dim: int, rank: int) -> int:
    """An axis from the front; a scalar has one axis in ATen."""
    return dim % max(rank, 1)


def axes_of(dims: Sequence[int] | int | None, x: Value) -> list[int]:
    """Axes from the front; all of them where none is named."""
    if not x.rank:
        return []
    if dims is None or (not isinstance(dims, int) and not len(dims)):
        return list(range(x.rank))
    return [d % x.rank for d in ([dims] if isinstance(dims, int) else dims)]


def static(n: Node, d: Dim, what: str) -> int:
    """A dim as an int; UnsupportedError naming ``what`` if it is symbolic."""
    if isinstance(d, SymDim):
        n.refuse(f"{what} is the symbolic dim {d}; export the module with this dim fixed")
    return d
