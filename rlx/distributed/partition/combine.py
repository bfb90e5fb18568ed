"""Reductions that do not wait for each other become one.

The start of a collective takes as long as a thousand bytes or more. Sums that nothing is exchanged
after, such as those of gradients, are one whatever they are computed from; small ones before them,
if as many stand between each and the results. The bits are the same: sums are of each element.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rlx.base.dims import is_known
from rlx.distributed.report import Exchange
from rlx.ir.graph import topological
from rlx.ir.op import Op, located
from rlx.ir.replay import cloned
from rlx.ir.value import Value
from rlx.ops.collective.all_reduce import AllReduce
from rlx.ops.sugar import concat

__all__ = ["combined"]

LAST, INNER = 4 << 20, 64 << 10
"""Bytes that are reduced together at most: where nothing is exchanged after, and elsewhere."""


def combined(
    outputs: Sequence[Value], made: dict[Op, Exchange]
) -> tuple[list[Value], list[Exchange]]:
    """The outputs with fewer reductions, and the collectives in the order in which they run."""
    groups = _groups(outputs, made)
    member = {op: group for group in groups for op in group}
    env: dict[Value, Value] = {}
    said: list[Exchange] = []
    for op in _order(outputs, member):
        if op in member:
            if op.out not in env:
                said.append(_reduce(member[op], env, made))
            continue
        operands = [None if v is None else env.get(v, v) for v in op.operands]
        same = all(a is b for a, b in zip(operands, op.operands, strict=True))
        results = op.results if same else cloned(op, operands)
        env.update(zip(op.results, results, strict=True))
        if op in made:
            said.append(made[op])
    return [env.get(v, v) for v in outputs], said


def _groups(outputs: Sequence[Value], made: dict[Op, Exchange]) -> list[list[Op]]:
    nodes = topological(outputs)
    after: dict[Op, int] = dict.fromkeys(nodes, 0)
    for op in reversed(nodes):
        here = after[op] + (op in made and not made[op].joins)
        for v in op.present:
            if v.op is not None:
                after[v.op] = max(after[v.op], here)
    buckets: dict[tuple[object, ...], list[list[Op]]] = defaultdict(list)
    for op in nodes:
        if op in made and isinstance(op, AllReduce) and is_known(op.x.size):
            key = (op.axis, op.op, op.x.dtype, after[op])
            _add(buckets[key], op, INNER if after[op] else LAST)
    return [group for many in buckets.values() for group in many if len(group) > 1]


def _add(groups: list[list[Op]], op: AllReduce, most: int) -> None:
    if groups and _bytes(groups[-1]) + _bytes([op]) <= most:
        groups[-1].append(op)
    else:
        groups.append([op])


def _bytes(group: Sequence[Op]) -> int:
    return sum(op.out.size * op.out.dtype.bytes for op in group)


def _order(outputs: Sequence[Value], member: dict[Op, list[Op]]) -> list[Op]:
    """The nodes, operands before users, where an op of a group stands after the operands of all of
    them."""
    order: list[Op] = []
    done: set[Op] = set()
    stack = [v.op for v in reversed(outputs) if v.op is not None]
    while stack:
        op = stack[-1]
        waits = [v.op for o in member.get(op, [op]) for v in o.present if v.op is not None]
        todo = [o for o in waits if o not in done] if op not in done else []
        if todo:
            stack.extend(reversed(todo))
            continue
        stack.pop()
        if op not in done:
            done.add(op)
            order.append(op)
    return order


def _reduce(group: Sequence[Op], env: dict[Value, Value], made: dict[Op, Exchange]) -> Exchange:
    """One collective for many; what stands for their results is put into ``env``."""
    first = group[0]
    assert isinstance(first, AllReduce)
    with located(first.location):
        flat = [env.get(v, v).reshape([-1]) for op in group for v in op.present]
        total = first.over(concat(flat), AllReduce, first.op, False)
        at = 0
        for op in group:
            env[op.out] = total.narrow(0, at, op.out.size).reshape(op.out.shape)
            at += op.out.size
    every = [made[op] for op in group]
    return every[0]._replace(
        values=tuple([n for e in every for n in e.values]), bytes=sum(e.bytes for e in every)
    )
