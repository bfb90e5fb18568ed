"""Going through nodes once more, with something else for every value: other values, or arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from rlx.ir.op import Op
from rlx.ir.value import Value

__all__ = ["cloned", "replay"]

T = TypeVar("T")


def replay(
    nodes: Iterable[Op], env: dict[Value, T], results: Callable[[Op, list[T | None]], Sequence[T]]
) -> dict[Value, T]:
    """Add to ``env`` what stands for the results of ``nodes``, operands before users, and return
    it. ``results`` makes that of a node and of what stands for its operands, None for a missing
    one. KeyError if nothing stands for an operand."""
    for op in nodes:
        operands = [None if v is None else env[v] for v in op.operands]
        env.update(zip(op.results, results(op, operands), strict=True))
    return env


def cloned(op: Op, operands: Sequence[Value | None]) -> Sequence[Value]:
    """The results of the same op on other operands: what ``replay`` copies nodes with."""
    return op.with_operands(operands).results
