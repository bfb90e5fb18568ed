"""Collectives of a kind that do not wait for each other become one.

The start of a collective takes as long as a thousand bytes or more. Sums that nothing is exchanged
after, such as those of gradients, are one whatever they are computed from; small ones before them,
if as many stand between each and the results. The bits are the same: sums are of each element.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rlx.base.dims import is_known
from rlx.distributed.report import Exchange
from rlx.ir.graph import post_order, topological
from rlx.ir.op import Op, located
from rlx.ir.replay import cloned
from rlx.ir.value import Value
from rlx.ops.collective.all_reduce import AllReduce, ReduceScatter
from rlx.ops.collective.base import Moving
from rlx.ops.collective.exchange import AllGather, in_blocks, in_one
from rlx.ops.sugar import concat

__all__ = ["combined"]

LAST, INNER = 4 << 20, 256 << 10
"""Bytes that are moved together at most: where nothing is exchanged after, and elsewhere."""

TOGETHER = (AllReduce, ReduceScatter, AllGather)
"""What is combined."""


def combined(
    outputs: Sequence[Value], made: dict[Op, Exchange]
) -> tuple[list[Value], list[Exchange]]:
    """The outputs with fewer reductions, and the collectives in the order in which they run."""
    groups = _groups(outputs, made)
    member: dict[Op, list[Moving]] = {op: group for group in groups for op in group}
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


def _groups(outputs: Sequence[Value], made: dict[Op, Exchange]) -> list[list[Moving]]:
    nodes = topological(outputs)
    after: dict[Op, int] = dict.fromkeys(nodes, 0)
    for op in reversed(nodes):
        # A gather at the end takes no part: what it gathers may be reduced with all that ends.
        here = after[op] + (op in made and (after[op] > 0 or not isinstance(op, AllGather)))
        for v in op.present:
            if v.op is not None:
                after[v.op] = max(after[v.op], here)
    buckets: dict[tuple[object, ...], list[list[Moving]]] = defaultdict(list)
    for op in nodes:
        ends = isinstance(op, AllGather) and not after[op]
        if op in made and isinstance(op, TOGETHER) and is_known(op.x.size) and not ends:
            how = op.op if isinstance(op, AllReduce) else ""
            key = (op.kind, op.axis, how, op.x.dtype, after[op])
            _add(buckets[key], op, INNER if after[op] else LAST)
    return [group for many in buckets.values() for group in many if len(group) > 1]


def _add(groups: list[list[Moving]], op: Moving, most: int) -> None:
    if groups and sum(map(_bytes, groups[-1])) + _bytes(op) <= most:
        groups[-1].append(op)
    else:
        groups.append([op])


def _bytes(op: Moving) -> int:
    return max(_count(op.x), _count(op.out)) * op.x.dtype.bytes


def _count(v: Value) -> int:
    assert is_known(v.type.size)
    return v.type.size


def _order(outputs: Sequence[Value], member: dict[Op, list[Moving]]) -> list[Op]:
    """The nodes, operands before users, where an op of a group stands after the operands of all of
    them."""

    def needs(op: Op) -> list[Op]:
        return [v.op for o in member.get(op, (op,)) for v in o.present if v.op is not None]

    return post_order([v.op for v in outputs if v.op is not None], needs)


def _reduce(group: Sequence[Moving], env: dict[Value, Value], made: dict[Op, Exchange]) -> Exchange:
    """One collective for many; what stands for their results is put into ``env``."""
    first = group[0]
    with located(first.location):
        flat = [_flat(op, env.get(op.x, op.x)) for op in group]
        joined = concat(flat, 1)
        if isinstance(first, AllReduce):
            total = first.over(joined, AllReduce, first.op, False)
        else:
            total = first.over(joined, type(first), 0)
        at = 0
        for op, each in zip(group, flat, strict=True):
            size = _count(each) // each.type.static_shape[0]
            env[op.out] = _unpacked(op, total.narrow(1, at, size))
            at += size
    every = [made[op] for op in group]
    return every[0]._replace(
        values=tuple([n for e in every for n in e.values]), bytes=sum(e.bytes for e in every)
    )


def _flat(op: Moving, x: Value) -> Value:
    """An operand in rows: of a scatter the blocks, else one."""
    if isinstance(op, ReduceScatter):
        return in_blocks(x, op.dim, op.ranks).reshape((op.ranks, -1))
    return x.reshape((1, -1))


def _unpacked(op: Moving, rows: Value) -> Value:
    """A result from its part of the rows."""
    if isinstance(op, AllGather):
        return in_one(rows.reshape((op.ranks, *op.x.shape)), op.dim)
    return rows.reshape(op.out.shape)
