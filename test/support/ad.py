"""Derivatives of graphs by chaining the rules of the ops, for tests of these rules."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx.graph import topological
from rlx.ops.base import Op
from rlx.ops.constant import Constant
from rlx.ops.movement import zeros
from rlx.ops.value import Value

__all__ = ["grad", "jvp", "vjp"]


def grad(y: Value, wrt: Sequence[Value]) -> list[Value]:
    """The gradients of a scalar; zeros where it does not depend on an operand."""
    one = Constant(np.ones((), y.dtype.numpy)).out
    found = vjp([y], wrt, [one])
    return [zeros(x.shape, x.dtype) if g is None else g for x, g in zip(wrt, found, strict=True)]


def vjp(
    outputs: Sequence[Value], wrt: Sequence[Value], cotangents: Sequence[Value | None]
) -> list[Value | None]:
    """Cotangents of ``wrt`` from those of ``outputs`` (reverse mode); None is zero."""
    grads: dict[Value, Value] = {}
    for v, g in zip(outputs, cotangents, strict=True):
        _add(grads, v, g)
    for op in reversed(topological(outputs)):
        gs = [grads.get(r) for r in op.results]
        if not op.differentiable or all(g is None for g in gs) or set(op.results) & set(wrt):
            continue
        parts = op.vjp(*gs) if hasattr(op, "vjp") else vjp(_expanded(op), op.present, gs)
        operands = op.operands if hasattr(op, "vjp") else op.present
        for v, g in zip(operands, parts, strict=True):
            _add(grads, v, g)
    return [grads.get(v) for v in wrt]


def jvp(
    outputs: Sequence[Value], wrt: Sequence[Value], tangents: Sequence[Value | None]
) -> list[Value | None]:
    """Tangents of ``outputs`` from those of ``wrt`` (forward mode); None is zero."""
    found = {v: t for v, t in zip(wrt, tangents, strict=True) if t is not None}
    for op in topological(outputs):
        ts = [None if v is None else found.get(v) for v in op.operands]
        if not op.differentiable or all(t is None for t in ts) or set(op.results) & set(wrt):
            continue
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


def _expanded(op: Op) -> list[Value]:
    out = op.expand()
    return list(out) if isinstance(out, tuple) else [out]


def _add(grads: dict[Value, Value], v: Value | None, g: Value | None) -> None:
    if v is None or g is None:
        return
    assert g.type == v.type, f"the cotangent of {v!r} has type {g.type}"
    grads[v] = grads[v] + g if v in grads else g
