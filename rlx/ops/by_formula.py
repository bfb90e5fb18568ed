"""Derivatives and batches of an op by a formula in other ops, chained from their own rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlx.ir.op import Op
from rlx.ir.value import Value
from rlx.ops.movement.movement import Reshape

__all__ = ["ByFormula"]


class ByFormula(Op):
    """An op with a loop nest of its own, whose derivatives and batches are those of ``formula``."""

    formula: Callable[..., Any]
    """``formula(self, *operands)`` -> the results (a Value or a tuple), by ops that have rules."""

    def vjp(self, *cotangents: Value | None) -> list[Value | None]:
        leaves, outputs = self._opened()
        there = [v for v in leaves if v is not None]
        found = iter(_pullback(outputs, there, cotangents))
        return [None if v is None else next(found) for v in leaves]

    def jvp(self, *tangents: Value | None) -> Value | tuple[Value | None, ...] | None:
        leaves, outputs = self._opened()
        given = {
            v: t for v, t in zip(leaves, tangents, strict=True) if v is not None and t is not None
        }
        moved = _pushforward(outputs, given, [v for v in leaves if v is not None])
        return moved[0] if len(moved) == 1 else tuple(moved)

    def batch(self, operands: Sequence[Value | None], batched: Sequence[bool]) -> tuple[Value, ...]:
        pairs = list(zip(self.operands, operands, batched, strict=True))
        size = next(v.shape[0] for _, v, has in pairs if v is not None and has)
        # One element of what has the axis is stood for by a value that nothing gives.
        leaves = [Value(own.type) if own is not None and has else v for own, v, has in pairs]
        given = {
            leaf: v
            for leaf, (_, v, has) in zip(leaves, pairs, strict=True)
            if leaf is not None and v is not None and has
        }
        outputs = self._results(leaves)
        found = _batched(outputs, given, [v for v in leaves if v is not None])
        return tuple(found[v] if v in found else v.expand((size, *v.shape)) for v in outputs)

    def _opened(self) -> tuple[list[Value | None], list[Value]]:
        """Stand-ins for the operands, and the results by the formula on them. A value that is two
        operands has two stand-ins."""
        leaves = [None if v is None else Reshape(v, v.shape).out for v in self.operands]
        return leaves, self._results(leaves)

    def _results(self, leaves: Sequence[Value | None]) -> list[Value]:
        out = self.formula(*leaves)
        return list(out) if isinstance(out, tuple) else [out]


def _between(outputs: Sequence[Value], leaves: Sequence[Value]) -> list[Op]:
    """The ops from the leaves to the outputs, operands before users."""
    found, ends = set[Op](), set(leaves)
    todo = list(outputs)
    while todo:
        v = todo.pop()
        if v.op is not None and v not in ends and v.op not in found:
            found.add(v.op)
            todo += v.op.present
    return sorted(found, key=lambda op: op.serial)


def _batched(
    outputs: Sequence[Value], given: dict[Value, Value], leaves: Sequence[Value]
) -> dict[Value, Value]:
    """What has the new axis, by what stands for one element of it."""
    found = dict(given)
    for op in _between(outputs, leaves):
        has = [v is not None and v in found for v in op.operands]
        if any(has):
            out = op.batch([v if v is None else found.get(v, v) for v in op.operands], has)
            many = out if isinstance(out, tuple) else (out,)
            found.update(zip(op.results, many, strict=True))
    return found


def _pullback(
    outputs: Sequence[Value], leaves: Sequence[Value], cotangents: Sequence[Value | None]
) -> list[Value | None]:
    found: dict[Value, Value] = {}

    def add(v: Value | None, g: Value | None) -> None:
        if v is not None and g is not None:
            found[v] = found[v] + g if v in found else g

    for v, g in zip(outputs, cotangents, strict=True):
        add(v, g)
    for op in reversed(_between(outputs, leaves)):
        gs = [found.get(r) for r in op.results]
        if op.differentiable and any(g is not None for g in gs):
            for v, g in zip(op.operands, op.vjp(*gs), strict=True):
                add(v, g)
    return [found.get(v) for v in leaves]


def _pushforward(
    outputs: Sequence[Value], given: dict[Value, Value], leaves: Sequence[Value]
) -> list[Value | None]:
    found = dict(given)
    for op in _between(outputs, leaves):
        ts = [None if v is None else found.get(v) for v in op.operands]
        if op.differentiable and any(t is not None for t in ts):
            out = op.jvp(*ts)
            for r, t in zip(op.results, out if isinstance(out, tuple) else (out,), strict=True):
                if t is not None:
                    found[r] = t
    return [found.get(v) for v in outputs]
