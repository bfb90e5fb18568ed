"""An ATen op as its row sees it: the types of its results, and operands cast to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeAlias

import numpy as np

from rlx.errors import UnsupportedError
from rlx.frontends.common.values import constant, size_value
from rlx.frontends.torch.memory import Memory
from rlx.ir.value import Value
from rlx.ops.random.distributions import fold_in
from rlx.types import Dim, DType, Shape, SymDim, TensorType

__all__ = ["Keys", "Node", "Number", "Operand", "Row", "Rows", "axes_of", "axis_of", "static"]

Number: TypeAlias = int | float | bool | complex
Operand: TypeAlias = Value | Number | SymDim
Row: TypeAlias = Callable[..., Any]
"""Takes a node and the arguments of its op, by the names and in the order of ATen's schema, and
gives a ``Value``, or a sequence of them for an op with several results. What a row takes no
parameter for must have the schema's default, else the node is refused."""
Rows: TypeAlias = dict[str, Row]
"""Ops by name: ``add`` for all overloads, ``max.dim`` for one."""


class Keys:
    """The keys of random numbers: each is made of a graph's one key, which is asked for when the
    first number is drawn, and of how many were drawn before."""

    def __init__(self, given: Callable[[], Value]) -> None:
        self._given, self._key, self._drawn = given, list[Value](), 0

    def __call__(self) -> Value:
        """A key that no other op has."""
        if not self._key:
            self._key.append(self._given())
        self._drawn += 1
        return fold_in(self._key[0], self._drawn - 1)

    @property
    def drawn(self) -> bool:
        """Whether any was asked for."""
        return self._drawn > 0


class Node:
    """A node of an op, with the types that torch says of its results, and the keys of what it
    draws."""

    def __init__(
        self,
        name: str,
        types: Sequence[TensorType | None],
        promoted: Callable[[], DType],
        memory: Callable[[], Memory] | None = None,
        keys: Keys | None = None,
    ) -> None:
        self.name, self.types, self._promoted = name, types, promoted
        self._memory, self._keys = memory, keys

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

    def key(self) -> Value:
        """A key for random numbers that are drawn by this op alone."""
        if self._keys is None:
            self.refuse(
                "it draws random numbers, and a graph has no state to draw from; name an input for"
                ' a key, from_torch(..., key="key"), or call .eval() on the module before'
            )
        return self._keys()

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
