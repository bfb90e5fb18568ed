"""A function of values whose derivatives the user says: ``rlx.custom_fn``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rlx.errors import GraphError
from rlx.ir.op import Array, attr, variadic
from rlx.ir.value import Value
from rlx.ops.control.control import Control
from rlx.types import TensorType

if TYPE_CHECKING:
    from rlx.ir.graph import Graph

__all__ = ["CustomFn"]


class CustomFn(Control, name="control.custom_fn"):
    """What ``body`` gives for ``args``, with derivatives by rules that are graphs as well.

    ``vjp_rule`` takes the args, the results and a cotangent a float result, and gives a cotangent a
    float arg; ``jvp_rule`` takes the args and a tangent a float arg, and gives a tangent a float
    result. ``rules`` says which of them there are ("vjp", "jvp", "vjp,jvp" or ""); in the place of
    one that is missing stands the body, whose own derivative holds. Nothing is called at run time:
    a compile puts the body in the place of the op.
    """

    args: tuple[Value, ...] = variadic("what the function takes")
    body: Graph = attr(doc="the function")
    vjp_rule: Graph = attr(doc="its derivative in reverse mode")
    jvp_rule: Graph = attr(doc="its derivative in forward mode")
    rules: str = attr(doc="which rules there are")

    def has(self, rule: str) -> bool:
        """Whether there is the rule "vjp" or "jvp"."""
        return rule in self.rules.split(",")

    def infer(self) -> tuple[TensorType, ...]:
        args = [v.type for v in self.args]
        results = [v.type for v in self.body.outputs]
        self._takes(self.body, args, "its function")
        if self.rules not in ("", "vjp", "jvp", "vjp,jvp"):
            raise GraphError(f"custom_fn: rules is {self.rules!r}, expected vjp, jvp or both")
        if self.has("vjp"):
            self._takes(self.vjp_rule, [*args, *results, *floats(results)], "its vjp")
            self._gives(self.vjp_rule, floats(args), "its vjp")
        if self.has("jvp"):
            self._takes(self.jvp_rule, [*args, *floats(args)], "its jvp")
            self._gives(self.jvp_rule, floats(results), "its jvp")
        return tuple(results)

    def run(
        self, call: Callable[[Graph, Sequence[Array]], list[Array]], *args: Array
    ) -> tuple[Array, ...]:
        return tuple(call(self.body, args))

    def expand(self) -> tuple[Value, ...]:
        from rlx.ops.control.custom_fn_rules import expanded

        return expanded(self)

    def vjp(self, *cotangents: Value | None) -> list[Value | None]:
        from rlx.ops.control.custom_fn_rules import custom_vjp

        return custom_vjp(self, cotangents)

    def jvp(self, *tangents: Value | None) -> tuple[Value | None, ...]:
        from rlx.ops.control.custom_fn_rules import custom_jvp

        return custom_jvp(self, tangents)

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> tuple[Value, ...]:
        from rlx.ops.control.custom_fn_rules import custom_batch

        return custom_batch(self, operands, batched)


def floats(types: Sequence[TensorType]) -> list[TensorType]:
    """Those of float elements, which alone have derivatives."""
    return [t for t in types if t.dtype.is_float]
