"""Derivatives and batches of functions that have rules of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx.ir.graph import Graph
from rlx.ir.value import Value
from rlx.ops.control.bodies import graph_of, make, types_of
from rlx.ops.control.custom_fn import CustomFn
from rlx.ops.movement.movement import zeros
from rlx.ops.rules import batch, inline, jvp, vjp_of_operands

__all__ = ["custom_batch", "custom_jvp", "custom_vjp", "expanded"]


def expanded(node: CustomFn) -> tuple[Value, ...]:
    """What the body gives, without the rules."""
    return tuple(inline(node.body, node.args))


def custom_vjp(node: CustomFn, cotangents: Sequence[Value | None]) -> list[Value | None]:
    """By the rule, or through the body where there is none."""
    if not node.has("vjp"):
        return vjp_of_operands(expanded(node), node.args, cotangents)
    given = _filled(node.results, cotangents)
    found = iter(inline(node.vjp_rule, [*node.args, *node.results, *given]))
    return [next(found) if v.dtype.is_float else None for v in node.args]


def custom_jvp(node: CustomFn, tangents: Sequence[Value | None]) -> tuple[Value | None, ...]:
    """By the rule, or through the body where there is none."""
    if not node.has("jvp"):
        return tuple(jvp(expanded(node), node.args, tangents))
    found = iter(inline(node.jvp_rule, [*node.args, *_filled(node.args, tangents)]))
    return tuple(next(found) if v.dtype.is_float else None for v in node.results)


def custom_batch(
    node: CustomFn, operands: Sequence[Value], flags: Sequence[bool]
) -> tuple[Value, ...]:
    """The body and the rules in batches, so that they still are its rules."""
    size = next(v for v, flag in zip(operands, flags, strict=True) if flag).shape[0]

    def whole(v: Value, flag: bool) -> Value:
        return v if flag else v.unsqueeze(0).expand([size, *v.shape])

    def in_batches(graph: Graph) -> Callable[..., list[Value]]:
        def function(*values: Value) -> list[Value]:
            leaves = {v: (x, True) for v, x in zip(graph.inputs, values, strict=True)}
            return [whole(v, flag) for v, flag in batch(graph.outputs, leaves)]

        return function

    def rule(graph: Graph) -> Graph:
        types = [t.with_shape((size, *t.shape)) for t in types_of(graph.inputs)]
        return graph_of(graph.name, types, in_batches(graph))

    args = [whole(v, flag) for v, flag in zip(operands, flags, strict=True)]
    return make(
        CustomFn, args, body=rule(node.body), vjp_rule=rule(node.vjp_rule),
        jvp_rule=rule(node.jvp_rule), rules=node.rules,
    ).results  # fmt: skip


def _filled(values: Sequence[Value], given: Sequence[Value | None]) -> list[Value]:
    """Tangents or cotangents of the float values, with zeros for those that are None."""
    pairs = zip(values, given, strict=True)
    return [zeros(v.shape, v.dtype) if t is None else t for v, t in pairs if v.dtype.is_float]
