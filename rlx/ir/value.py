"""Values: the typed edges of a graph, with operators and NumPy-like methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

from rlx.base.dims import is_known
from rlx.errors import GraphError, ShapeError
from rlx.ir.builders import ValueOps, located
from rlx.ir.location import caller
from rlx.ir.pure import Pure
from rlx.types import DType, Shape, TensorType

if TYPE_CHECKING:
    from rlx.ir.graph import Graph
    from rlx.ir.op import Op

__all__ = ["Keys", "Value", "bytes_of"]


class Value(Pure, ValueOps):
    """A tensor in a graph: the result of a node, or an input or param of a graph. ``graph`` is None
    for what depends on no leaf, such as a constant.

    ``+ - * / // % @ **``, ``& | ^ ~ << >>`` and ``== != < <= > >=``, indexing with slices and every
    op of the library as a method (``x.gelu()``, ``x.sum(axes=0)``) make new nodes; ``x += y`` gives
    the name ``x`` to another Value. Whether two names are one Value says ``x is y``, by which sets
    and dictionaries hold Values. A copy of a Value is itself.

    A Python number, a list of them, and a NumPy scalar of one of NumPy's default types
    (``np.float64(2)``) take the value's element type; two element types meet by
    ``rlx.types.promote``.
    """

    __slots__ = ("graph", "index", "name", "op", "type")

    def __init__(
        self,
        type: TensorType,
        op: Op | None = None,
        index: int = 0,
        graph: Graph | None = None,
        name: str | None = None,
    ) -> None:
        self.type, self.op, self.index, self.graph, self.name = type, op, index, graph, name

    @property
    def shape(self) -> Shape:
        """The dims, each an int or a SymDim."""
        return self.type.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.type.dtype

    @property
    def rank(self) -> int:
        """Number of dims."""
        return len(self.type.shape)

    @property
    def ndim(self) -> int:
        """Number of dims, by NumPy's name."""
        return len(self.type.shape)

    @property
    def size(self) -> Any:
        """Number of elements, an int or a SymDim."""
        return self.type.size

    @property
    def mT(self) -> Value:
        """The value with its last two axes swapped; ShapeError for a vector."""
        return self.swapaxes(-1, -2)

    @property
    def T(self) -> Value:
        """The transpose of a matrix; a vector is as it was. ShapeError for a value of higher rank,
        for which libraries differ: NumPy reverses all axes."""
        if self.rank > 2:
            raise ShapeError(
                f"x.T is for matrices, found {self!r}; x.mT swaps the last two axes, and"
                f" x.transpose() reverses all",
                caller(),
            )
        return self if self.rank < 2 else self.mT

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        return f"Value{name}: {self.type}" + (f" = {self.op.name}" if self.op else "")

    def _repr_html_(self) -> str:
        from rlx.view.notebook import value_html

        return value_html(self)

    def __len__(self) -> int:
        n = self.shape[0] if self.shape else None
        if not is_known(n):
            raise ShapeError(f"{self!r} has no length; its first dim is no number", caller())
        return n

    def astype(self, dt: DType | str | Any) -> Value:
        """The value cast to an element type, by NumPy's name."""
        return self.cast(to=dt)

    def __getitem__(self, key: Any) -> Value:
        from rlx.ops.indexing.indexing import index

        return index(self, key)

    def __add__(self, o: Any) -> Value:
        return self.add(o)

    def __radd__(self, o: Any) -> Value:
        return self._lift(o).add(self)

    def __sub__(self, o: Any) -> Value:
        return self.sub(o)

    def __rsub__(self, o: Any) -> Value:
        return self._lift(o).sub(self)

    def __mul__(self, o: Any) -> Value:
        return self.mul(o)

    def __rmul__(self, o: Any) -> Value:
        return self._lift(o).mul(self)

    def __truediv__(self, o: Any) -> Value:
        return self.div(o)

    def __rtruediv__(self, o: Any) -> Value:
        return self._lift(o).div(self)

    def __floordiv__(self, o: Any) -> Value:
        return self.floor_divide(o)

    def __rfloordiv__(self, o: Any) -> Value:
        return self._lift(o).floor_divide(self)

    def __mod__(self, o: Any) -> Value:
        return self.remainder(o)

    def __rmod__(self, o: Any) -> Value:
        return self._lift(o).remainder(self)

    def __and__(self, o: Any) -> Value:
        return self.bitwise_and(o)

    def __rand__(self, o: Any) -> Value:
        return self._lift(o).bitwise_and(self)

    def __or__(self, o: Any) -> Value:
        return self.bitwise_or(o)

    def __ror__(self, o: Any) -> Value:
        return self._lift(o).bitwise_or(self)

    def __xor__(self, o: Any) -> Value:
        return self.bitwise_xor(o)

    def __rxor__(self, o: Any) -> Value:
        return self._lift(o).bitwise_xor(self)

    def __lshift__(self, o: Any) -> Value:
        return self.left_shift(o)

    def __rlshift__(self, o: Any) -> Value:
        return self._lift(o).left_shift(self)

    def __rshift__(self, o: Any) -> Value:
        return self.right_shift(o)

    def __rrshift__(self, o: Any) -> Value:
        return self._lift(o).right_shift(self)

    def __divmod__(self, o: Any) -> tuple[Value, Value]:
        return self // o, self % o

    def __rdivmod__(self, o: Any) -> tuple[Value, Value]:
        return o // self, o % self

    def __pow__(self, o: Any, modulus: Any = None) -> Value:
        if modulus is not None:
            raise GraphError("pow takes no modulus; write x ** y % modulus", caller())
        return self.pow(o)

    def __rpow__(self, o: Any) -> Value:
        return self._lift(o).pow(self)

    def __matmul__(self, o: Any) -> Value:
        return self.matmul(o)

    def __rmatmul__(self, o: Any) -> Value:
        return self._lift(o).matmul(self)

    def __neg__(self) -> Value:
        return self.neg()

    def __abs__(self) -> Value:
        return self.abs()

    def __round__(self, digits: int | None = None) -> Value:
        if digits:
            raise GraphError(
                f"round to {digits} digits by (x * {10.0**digits:g}).round() / {10.0**digits:g}",
                caller(),
            )
        return self.round()

    def __invert__(self) -> Value:
        return self.bitwise_not()

    def __lt__(self, o: Any) -> Value:
        return self.lt(o)

    def __le__(self, o: Any) -> Value:
        return self.le(o)

    def __gt__(self, o: Any) -> Value:
        return self.gt(o)

    def __ge__(self, o: Any) -> Value:
        return self.ge(o)

    def __eq__(self, o: Any) -> Value:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.eq(self._compared(o, "=="))

    def __ne__(self, o: Any) -> Value:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.ne(self._compared(o, "!="))

    def _compared(self, o: Any, operator: str) -> Value:
        if o is None or isinstance(o, str | bytes):
            raise GraphError(
                f"{operator} compares element by element, and {o!r} has none; whether x is None,"
                " or one certain Value, says `x is None`",
                caller(),
            )
        return self._lift(o)

    # Sets and dictionaries hold Values by identity.
    __hash__ = object.__hash__

    def _lift(self, o: Any) -> Value:
        from rlx.ir.lift import operand

        return located(operand)(o, self)


Keys = AbstractSet[Value] | Mapping[Value, Any]
"""Values among which one is looked for: by identity, where a list would compare elements."""


def bytes_of(values: Sequence[Value]) -> int:
    """The bytes of tensors in memory; one of symbolic size counts as 0."""
    sizes = ((v.type.size, v.dtype.bytes) for v in values)
    return sum(size * each for size, each in sizes if is_known(size))
