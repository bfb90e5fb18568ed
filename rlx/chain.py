"""Derivatives and batches of Values, by chaining the rules of the ops between them.

A missing tangent or cotangent is None and means zero. What is made stands at the line of the op
that it is made for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlx.graph import Graph, topological
from rlx.ops.base import Op, located
from rlx.ops.value import Value

__all__ = ["batch", "inline", "jvp", "vjp"]


def vjp(
    outputs: Sequence[Value], wrt: Sequence[Value], cotangents: Sequence[Value | None]
) -> list[Value | None]:
    """Cotangents of ``wrt`` from those of ``outputs`` (reverse mode)."""
    grads: dict[Value, Value] = {}
    for v, g in zip(outputs, cotangents, strict=True):
        _add(grads, v, g)
    nodes = topological(outputs)
    moving = set(wrt)
    for op in nodes:
        if moving.intersection(op.present):
            moving.update(op.results)
    for op in reversed(nodes):
        gs = [grads.get(r) for r in op.results]
        if not op.differentiable or all(g is None for g in gs) or moving.isdisjoint(op.present):
            continue
        if set(op.results) & set(wrt):
            continue
        with located(op.location):
            if hasattr(op, "vjp"):
                operands, parts = op.operands, op.vjp(*gs)
            else:
                operands, parts = op.present, vjp(_expanded(op), op.present, gs)
            for v, g in zip(operands, parts, strict=True):
                if v in moving:
                    _add(grads, v, g)
    return [grads.get(v) for v in wrt]


def jvp(
    outputs: Sequence[Value], wrt: Sequence[Value], tangents: Sequence[Value | None]
) -> list[Value | None]:
    """Tangents of ``outputs`` from those of ``wrt`` (forward mode)."""
    found = {v: t for v, t in zip(wrt, tangents, strict=True) if t is not None}
    for op in topological(outputs):
        ts = [None if v is None else found.get(v) for v in op.operands]
        if not op.differentiable or all(t is None for t in ts) or set(op.results) & set(wrt):
            continue
        with located(op.location):
            if hasattr(op, "jvp"):
                out = op.jvp(*ts)
                many = out if isinstance(out, tuple) else (out,)
            else:
                there = [t for v, t in zip(op.operands, ts, strict=True) if v is not None]
                many = jvp(_expanded(op), op.present, there)
        for r, t in zip(op.results, many, strict=True):
            if t is not None:
                found[r] = t
    return [found.get(v) for v in outputs]


def batch(
    outputs: Sequence[Value], leaves: Mapping[Value, tuple[Value, bool]]
) -> list[tuple[Value, bool]]:
    """``outputs`` computed from what stands for the ``leaves``: a Value, and whether it has a new
    leading axis. Each is again a Value, and whether it has the axis."""
    found = dict(leaves)
    for op in topological(outputs, stop=leaves):
        given = [None if v is None else found[v] for v in op.operands]
        values = [None if pair is None else pair[0] for pair in given]
        flags = [pair is not None and pair[1] for pair in given]
        with located(op.location):
            if not any(flags):
                results = [(r, False) for r in op.with_operands(values).results]
            elif hasattr(op, "batch"):
                out = op.batch(values, flags)
                results = [(r, True) for r in (out if isinstance(out, tuple) else (out,))]
            else:
                there = [pair for pair in given if pair is not None]
                inner = dict(zip(op.present, there, strict=True))
                results = batch(_expanded(op), inner)
        found.update(zip(op.results, results, strict=True))
    return [found[v] for v in outputs]


def inline(graph: Graph, values: Sequence[Value]) -> list[Value]:
    """The outputs of a graph on other values as its inputs."""
    env = dict(zip(graph.inputs, values, strict=True))
    for op in topological(graph.outputs):
        node = op.with_operands([None if v is None else env[v] for v in op.operands])
        env.update(zip(op.results, node.results, strict=True))
    return [env[v] for v in graph.outputs]


def _expanded(op: Op) -> list[Value]:
    out = op.expand()
    return list(out) if isinstance(out, tuple) else [out]


def _add(grads: dict[Value, Value], v: Value | None, g: Value | None) -> None:
    if v is None or g is None:
        return
    assert g.type == v.type, f"the cotangent of {v!r} has type {g.type}"
    grads[v] = grads[v] + g if v in grads else g
