"""Growth of fusion regions op by op, in time that is nearly linear in their length.

A family's claim is a fact of a whole region, so asking it after every op would take quadratic time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from rlx._mlir import ir
from rlx.dialects.bridge import signature

__all__ = ["LONGEST", "Group", "Growth", "extend"]

LONGEST = 512
"""Ops that a region has at most: for longer kernels LLVM's time grows faster than their length."""
Kind: TypeAlias = tuple[Any, ...]
Stack: TypeAlias = "tuple[ir.Value, Stack | None]"


class Group:
    """The ops of a region to be, each with one result, in the order in which they joined."""

    def __init__(self, root: ir.Operation) -> None:
        self.ops = [root]
        self.values = {root.results[0]}

    @property
    def last(self) -> ir.Operation:
        """The op that joined last."""
        return self.ops[-1]

    def add(self, op: ir.Operation) -> None:
        """Take in an op."""
        self.ops.append(op)
        self.values.add(op.results[0])

    def cut(self, size: int) -> None:
        """Let go of all but the first ``size`` ops."""
        self.values -= {op.results[0] for op in self.ops[size:]}
        del self.ops[size:]


@dataclass
class Growth:
    """What did not join a group: ops that were ``refused``, with the reasons, one of each kind, and
    one that was ``left`` since the group was full."""

    refused: list[tuple[ir.Operation, str]] = field(default_factory=list)
    left: ir.Operation | None = None


def extend(
    group: Group,
    start: Iterable[ir.Value],
    neighbour: Callable[[ir.Value], ir.Operation | None],
    onward: Callable[[ir.Operation], Iterable[ir.Value]],
    refusal: Callable[[Group], str | None],
) -> Growth:
    """Let the ops join that ``neighbour`` finds at the values of ``start``, and depth first at
    those to which each leads ``onward``, as long as ``refusal`` gives no reason against the group.

    Several join at once: twice as many after each success, half as many after a refusal, until it
    is known which one is refused. What is like it, and found at a value of the same type, is then
    refused without asking. So a group of n ops is looked at a few times, and not n times.

    It is presumed that a refused group stays refused as it grows. Where that is wrong other ops
    join than one by one, but never such as make a group that is refused.
    """
    growth, alike = Growth(), set[Kind]()
    todo, batch = _pushed(start, None), 1
    while todo is not None:
        begin, size, rest = todo, len(group.ops), todo
        taken: list[ir.Value] = []
        while todo is not None and len(taken) < batch:
            v, todo = todo
            op = neighbour(v)
            if op is None or (alike and _kind(op, v) in alike):
                continue
            if len(group.ops) == LONGEST:
                growth.left = op
                todo = (v, todo)
                break
            if not taken:
                rest = todo
            taken.append(v)
            group.add(op)
            todo = _pushed(onward(op), todo)
        if not taken:
            break
        reason = refusal(group)
        if reason is None:
            batch = 2 * len(taken)
            continue
        if len(taken) == 1:
            growth.refused.append((group.last, reason))
            alike.add(_kind(group.last, taken[0]))
            todo = rest
        else:
            todo, batch = begin, len(taken) // 2
        growth.left = None
        group.cut(size)
    return growth


def _kind(op: ir.Operation, found_at: ir.Value) -> Kind:
    return signature(op), found_at.type


def _pushed(values: Iterable[ir.Value], stack: Stack | None) -> Stack | None:
    for v in reversed(list(values)):
        stack = v, stack
    return stack
