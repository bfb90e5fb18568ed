"""A function of values whose derivatives the user says: ``rlx.custom_fn``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rlx.errors import GraphError
from rlx.ops.base import Array, attr, variadic
from rlx.ops.control import Control
from rlx.ops.movement import zeros
from rlx.ops.value import Value
from rlx.types import TensorType

if TYPE_CHECKING:
    from rlx.graph import Graph

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
        from rlx.chain import inline

        return tuple(inline(self.body, self.args))

    def vjp(self, *cotangents: Value | None) -> list[Value | None]:
        from rlx.chain import inline, vjp

        if not self.has("vjp"):
            return vjp(self.expand(), self.args, cotangents)
        given = _filled(self.results, cotangents)
        found = iter(inline(self.vjp_rule, [*self.args, *self.results, *given]))
        return [next(found) if v.dtype.is_float else None for v in self.args]

    def jvp(self, *tangents: Value | None) -> tuple[Value | None, ...]:
        from rlx.chain import inline, jvp

        if not self.has("jvp"):
            return tuple(jvp(self.expand(), self.args, tangents))
        given = _filled(self.args, tangents)
        found = iter(inline(self.jvp_rule, [*self.args, *given]))
        return tuple(next(found) if v.dtype.is_float else None for v in self.results)

    def batch(self, operands: Sequence[Value], batched: Sequence[bool]) -> tuple[Value, ...]:
        from rlx.custom import batched_fn

        return batched_fn(self, operands, batched)


def floats(types: Sequence[TensorType]) -> list[TensorType]:
    """Those of float elements, which alone have derivatives."""
    return [t for t in types if t.dtype.is_float]


def _filled(values: Sequence[Value], given: Sequence[Value | None]) -> list[Value]:
    """Tangents or cotangents of the float values, with zeros for those that are None."""
    pairs = zip(values, given, strict=True)
    return [zeros(v.shape, v.dtype) if t is None else t for v, t in pairs if v.dtype.is_float]
