"""Walking a graph, and building it by the names of ops: what tools do that know no op by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlx.errors import GraphError, ShapeError, shown
from rlx.ir.builders import public
from rlx.ir.location import caller
from rlx.ir.op import Op, op_class
from rlx.ir.value import Value
from rlx.types import TensorType

__all__ = ["Walking"]


@public
class Walking:
    """The methods of ``Graph`` that see it as nodes.

    A node is known by its number in ``nodes()``, which another ``set_outputs`` may change, or by
    any of its results. Nodes never change: ``op.with_operands`` makes one of other operands.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def symbols(self) -> frozenset[str]:
            """Names of the dims that are not numbers."""
            ...

        def nodes(self) -> list[Op]:
            """The nodes that the outputs need, operands before users."""
            ...

    def node(self, which: int | Value) -> Op:
        """The node of a number, or the one that computes a value; GraphError for a number that
        there is not, and for an input or a param, which no node computes."""
        if isinstance(which, Value):
            if which.op is None:
                raise GraphError(f"no node computes {which!r}: it is a leaf of the graph", caller())
            return which.op
        nodes = self.nodes()
        if isinstance(which, bool) or not isinstance(which, int) or not 0 <= which < len(nodes):
            raise GraphError(
                f"a node is a number from 0 to {len(nodes) - 1}, or a Value; found {shown(which)}",
                caller(),
            )
        return nodes[which]

    def shape_of(self, which: int | Value) -> TensorType:
        """The type of a value, or of the first result of the node of a number."""
        return which.type if isinstance(which, Value) else self.node(which).out.type

    def users(self, value: Value) -> list[Op]:
        """The nodes that take a value, each once, in order. That it is an output is no use."""
        if not isinstance(value, Value):
            raise GraphError(f"users takes a Value, found {shown(value)}", caller())
        return [op for op in self.nodes() if any(v is value for v in op.present)]

    def use_count(self, value: Value) -> int:
        """How often nodes take a value; ``x * x`` takes x twice."""
        return sum(sum(v is value for v in op.present) for op in self.users(value))

    def topo_order(self) -> list[Op]:
        """``nodes()``: operands before users."""
        return self.nodes()

    def reverse_topo(self) -> list[Op]:
        """The nodes, users before operands."""
        return self.nodes()[::-1]

    def add_node(
        self,
        op: str | type[Op],
        inputs: Sequence[Value | None],
        shape: TensorType | None = None,
        **attrs: Any,
    ) -> Value | tuple[Value, ...]:
        """Make a node by the class of its op, its full name ("mir.add"), or the name of its builder
        ("add"), and return its result or results; a missing optional operand is None.

        The type is inferred; ShapeError unless the first result is of the one that ``shape`` says.
        Raises what the builder method raises.
        """
        from rlx.ops import BUILDERS

        cls = op_class(BUILDERS.get(op, op)) if isinstance(op, str) else op
        if not (isinstance(cls, type) and issubclass(cls, Op)):
            raise GraphError(f"an op is a class or a name, found {shown(op)}", caller())
        made = cls(*inputs, **attrs)
        if any(v.graph is not None and v.graph is not self for v in made.present):
            raise GraphError(f"{made.short}: its operands belong to another graph", caller())
        if shape is not None and made.out.type != shape:
            raise ShapeError(f"{made.short} gives {made.out.type}, expected {shape}", caller())
        return made.out if len(made.results) == 1 else made.results

    append_node = add_node

    def has_dynamic_dims(self) -> bool:
        """Whether an input or a param has symbolic dims."""
        return bool(self.symbols)

    def dynamic_symbols(self) -> tuple[str, ...]:
        """The names of the symbolic dims, sorted."""
        return tuple(sorted(self.symbols))
