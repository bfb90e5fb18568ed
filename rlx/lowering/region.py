"""Reading mir as nodes: an op or a fused region, with the outer values that it uses.

Kernel choice works on graph nodes, not on MLIR: a family sees op classes with their attributes and
rules, and expands a composite by calling its ``expand``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from rlx._mlir import ir
from rlx.dialects.bridge import node_of, operands_of, place_of
from rlx.dialects.convert import from_type
from rlx.ir.op import Op
from rlx.ir.value import Value

__all__ = [
    "Body", "Look", "Region", "Regions", "iter_users", "look", "producer", "reads", "sole_user",
    "users",
]  # fmt: skip

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
    _facts: dict[Hashable, Any] = field(default_factory=dict["Hashable", Any])

    @property
    def joint(self) -> bool:
        """Whether several ops give results, and not one op all of them."""
        return len(self.outs) > 1 and any(v.op is not self.nodes[-1] for v in self.outs)

    def fact(self, name: Hashable, find: Callable[[], T]) -> T:
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

        def listed() -> str:
            several = f" ({len(self.outs)} results)" if self.body.joint else ""
            return "+".join([n.short for n in self.nodes]) + several

        return self.body.fact("label", listed)


class Look(NamedTuple):
    """An op as bodies are compared by: its name and attributes, what it reads, and what it makes.

    Attributes and types are unique within a context, so they compare by identity.
    """

    form: tuple[Any, ...]
    operands: list[ir.Value]
    types: list[ir.Type]
    results: list[ir.Value]


def look(op: ir.Operation) -> Look:
    """What an op is in a body."""
    attributes, operands = op.attributes, list(op.operands)
    form = (op.name, *[(n, attributes[n]) for n in attributes])
    return Look(form, operands, [v.type for v in operands], list(op.results))


class Regions:
    """Makes regions of ops, and keeps the bodies that it has met, and their nodes: the bodies of a
    region that grows have most of them in common."""

    def __init__(self) -> None:
        self._bodies: dict[tuple[Any, ...], Body] = {}
        self._leaves: dict[tuple[ir.Type, int], Value] = {}
        self._nodes: dict[tuple[Any, ...], Op] = {}

    def of(self, op: ir.Operation) -> Region:
        """The region of a mir op: the body of a ``mir.fused``, else the op alone."""
        if op.name != "mir.fused":
            return self.of_ops([op], op)
        body = [view.operation for view in op.regions[0].blocks[0].operations]
        region = self.of_ops(body[:-1], op, list(body[-1].operands))
        region.kind = ir.StringAttr(op.attributes["kind"]).value
        return region

    def of_ops(
        self,
        ops: list[ir.Operation],
        op: ir.Operation,
        outs: list[ir.Value] | None = None,
        looks: Callable[[ir.Operation], Look] = look,
    ) -> Region:
        """Ops in program order as one region; ``outs`` defaults to the last op's results. ``looks``
        may know what it has seen of them."""
        seen = [looks(o) for o in ops]
        if outs == seen[-1].results:
            outs = None
        number: dict[ir.Value, int] = {}
        outer: list[ir.Value] = []
        key: list[Any] = []
        for form, operands, types, results in seen:
            for v in operands:
                if v not in number:
                    number[v] = len(number)
                    outer.append(v)
            key += form, tuple([number[v] for v in operands]), *types
            for r in results:
                number[r] = len(number)
        key.append(None if outs is None else tuple([number[v] for v in outs]))
        body = self._bodies.get(tuple(key))
        if body is None:
            body = self._bodies[tuple(key)] = self._body(ops, seen, outer, outs)
        return Region(op, body.nodes[-1].short, body, dict(zip(body.leaves, outer, strict=True)))

    def _body(
        self,
        ops: list[ir.Operation],
        seen: list[Look],
        outer: list[ir.Value],
        outs: list[ir.Value] | None,
    ) -> Body:
        types = Counter[ir.Type]()
        env: dict[ir.Value, Value] = {}
        for v in outer:
            which = v.type, types[v.type]
            types[v.type] += 1
            if which not in self._leaves:
                self._leaves[which] = Value(from_type(v.type))
            env[v] = self._leaves[which]
        leaves, nodes = list(env.values()), list[Op]()
        for o, known in zip(ops, seen, strict=True):
            # Values are known by their identity; the nodes in the table keep them.
            key = (known.form, *[id(env[v]) for v in known.operands])
            node = self._nodes.get(key)
            if node is None:
                operands = [None if v is None else env[v] for v in operands_of(o)]
                node = self._nodes[key] = node_of(o, operands)
            env.update(zip(known.results, node.results, strict=True))
            nodes.append(node)
        ends = nodes[-1].results if outs is None else tuple([env[v] for v in outs])
        return Body(nodes, leaves, ends)


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
    """As ``users``, lazily: a value may have thousands, of which the first few often decide."""
    return (use.owner.operation for use in v.uses)


def sole_user(v: ir.Value) -> ir.Operation | None:
    """The op that alone uses a value, however often; None if there are several or none."""
    found = iter_users(v)
    first = next(found, None)
    return first if all(u == first for u in found) else None
