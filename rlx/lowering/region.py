"""Reading mir as nodes: an op or a fused region, with the outer values that it uses.

Kernel choice works on graph nodes, not on MLIR: a family sees op classes with their attributes and
rules, and expands a composite by calling its ``expand``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rlx._mlir import ir
from rlx.dialects.bridge import node_of, operands_of, place_of
from rlx.dialects.convert import from_type
from rlx.ir.op import Op
from rlx.ir.value import Value

__all__ = ["Body", "Region", "Regions", "iter_users", "producer", "reads", "sole_user", "users"]

T = TypeVar("T")


@dataclass(eq=False)
class Body:
    """What a region computes: nodes in order over ``leaves``; ``outs`` are its results.

    Regions of equal structure share one body, as equal layers have, so that what holds of a body
    is found out once: ``fact``.
    """

    nodes: list[Op]
    leaves: list[Value]
    outs: tuple[Value, ...]
    _facts: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def joint(self) -> bool:
        """Whether several ops give results, and not one op all of them."""
        return len(self.outs) > 1 and any(v.op is not self.nodes[-1] for v in self.outs)

    def fact(self, name: str, find: Callable[[], T]) -> T:
        """What ``find`` gives, which must depend on the body alone."""
        if name not in self._facts:
            self._facts[name] = find()
        return self._facts[name]


@dataclass
class Region:
    """A body in a place: ``leaves`` maps its leaves to the outer values there, and ``op`` is the op
    in the module."""

    op: ir.Operation
    kind: str
    body: Body
    leaves: dict[Value, ir.Value]

    @property
    def nodes(self) -> list[Op]:
        """The body's nodes, in order."""
        return self.body.nodes

    @property
    def outs(self) -> tuple[Value, ...]:
        """The values that the body gives."""
        return self.body.outs

    @property
    def location(self) -> tuple[str, int]:
        """The user's file and line."""
        return place_of(self.op)

    @property
    def flops(self) -> int:
        """The arithmetic of the ops, by their own account."""
        return self.body.fact("flops", lambda: sum(n.cost().flops for n in self.nodes))

    @property
    def label(self) -> str:
        """The ops by their short names: "matmul+add+gelu"; "add+rms_norm (2 results)"."""
        several = f" ({len(self.outs)} results)" if self.body.joint else ""
        return "+".join(n.short for n in self.nodes) + several


class Regions:
    """Makes regions of ops, and keeps the bodies that it has met."""

    def __init__(self) -> None:
        self._bodies: dict[tuple[Any, ...], Body] = {}

    def of(self, op: ir.Operation) -> Region:
        """The region of a mir op: the body of a ``mir.fused``, else the op alone."""
        if op.name != "mir.fused":
            return self.of_ops([op], op)
        body = [view.operation for view in op.regions[0].blocks[0].operations]
        region = self.of_ops(body[:-1], op, list(body[-1].operands))
        region.kind = ir.StringAttr(op.attributes["kind"]).value
        return region

    def of_ops(
        self, ops: list[ir.Operation], op: ir.Operation, outs: list[ir.Value] | None = None
    ) -> Region:
        """Ops in program order as one region; ``outs`` defaults to the last op's results."""
        if outs is not None and list(ops[-1].results) == outs:
            outs = None
        number: dict[ir.Value, int] = {}
        outer: list[ir.Value] = []
        rows: list[tuple[Any, ...]] = []
        for o in ops:
            operands = list(o.operands)
            for v in operands:
                if v not in number:
                    number[v] = len(number)
                    outer.append(v)
            # Attributes and types are unique within a context, so they compare by identity.
            attributes = tuple((n, o.attributes[n]) for n in o.attributes)
            rows.append((o.name, attributes, tuple((number[v], v.type) for v in operands)))
            for r in o.results:
                number[r] = len(number)
        key = (tuple(rows), None if outs is None else tuple(number[v] for v in outs))
        if key not in self._bodies:
            self._bodies[key] = _body(ops, outer, outs)
        body = self._bodies[key]
        return Region(op, body.nodes[-1].short, body, dict(zip(body.leaves, outer, strict=True)))


def _body(ops: list[ir.Operation], outer: list[ir.Value], outs: list[ir.Value] | None) -> Body:
    env = {v: Value(from_type(v.type)) for v in outer}
    leaves = list(env.values())
    nodes: list[Op] = []
    for o in ops:
        node = node_of(o, [None if v is None else env[v] for v in operands_of(o)])
        env.update(zip(o.results, node.results, strict=True))
        nodes.append(node)
    return Body(nodes, leaves, nodes[-1].results if outs is None else tuple(env[v] for v in outs))


def producer(v: ir.Value) -> ir.Operation | None:
    """The op that defines a value; None for a block argument."""
    owner = v.owner
    return None if isinstance(owner, ir.Block) else owner.operation


def reads(op: ir.Operation) -> list[ir.Value]:
    """What an op, or the body of a region, reads."""
    inner = [
        v for r in op.regions for b in r.blocks for o in b.operations for v in o.operation.operands
    ]
    return [*op.operands, *inner]


def users(v: ir.Value) -> list[ir.Operation]:
    """The ops that use a value, once for each use."""
    return list(iter_users(v))


def iter_users(v: ir.Value) -> Iterator[ir.Operation]:
    """As ``users``, one by one: a value may have thousands, where the first few often tell."""
    return (use.owner.operation for use in v.uses)


def sole_user(v: ir.Value) -> ir.Operation | None:
    """The op that alone uses a value, however often; None if there are several or none."""
    found = iter_users(v)
    first = next(found, None)
    return first if all(u == first for u in found) else None
