"""Derivatives and batches of an op by a formula in other ops, chained from their own rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from rlx.ir.op import Op
from rlx.ir.value import Value
from rlx.ops.movement.movement import Reshape
from rlx.ops.rules import batch, jvp, vjp

__all__ = ["ByFormula"]


class ByFormula(Op):
    """An op with a loop nest of its own, whose derivatives and batches are those of ``formula``."""

    formula: ClassVar[Callable[..., Any]]
    """``formula(self, *operands)`` -> the results (a Value or a tuple), by ops that have rules."""

    def vjp(self, *cotangents: Value | None) -> list[Value | None]:
        leaves, outputs = self._opened()
        there = [v for v in leaves if v is not None]
        found = iter(vjp(outputs, there, cotangents))
        return [None if v is None else next(found) for v in leaves]

    def jvp(self, *tangents: Value | None) -> Value | tuple[Value | None, ...] | None:
        leaves, outputs = self._opened()
        pairs = [(v, t) for v, t in zip(leaves, tangents, strict=True) if v is not None]
        moved = jvp(outputs, [v for v, _ in pairs], [t for _, t in pairs])
        return moved[0] if len(moved) == 1 else tuple(moved)

    def batch(self, operands: Sequence[Value | None], batched: Sequence[bool]) -> tuple[Value, ...]:
        pairs = list(zip(self.operands, operands, batched, strict=True))
        size = next(v.shape[0] for _, v, has in pairs if v is not None and has)
        # One element of what has the axis is stood for by a value that nothing gives.
        leaves = [Value(own.type) if own is not None and has else v for own, v, has in pairs]
        given = {
            leaf: (v, has)
            for leaf, (_, v, has) in zip(leaves, pairs, strict=True)
            if leaf is not None and v is not None
        }
        found = batch(self._results(leaves), given)
        return tuple(v if has else v.expand((size, *v.shape)) for v, has in found)

    def _opened(self) -> tuple[list[Value | None], list[Value]]:
        """Stand-ins for the operands, and the results by the formula on them. A value that is two
        operands has two stand-ins."""
        leaves = [None if v is None else Reshape(v, v.shape).out for v in self.operands]
        return leaves, self._results(leaves)

    def _results(self, leaves: Sequence[Value | None]) -> list[Value]:
        out = self.formula(*leaves)
        return list(out) if isinstance(out, tuple) else [out]
