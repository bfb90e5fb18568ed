"""Reading mir as nodes: an op or a fused region, with the outer values that it uses.

Kernel choice works on graph nodes, not on MLIR: a family sees op classes with their attributes and
rules, and expands a composite by calling its ``expand``.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlx._mlir import ir
from rlx.dialects.bridge import node_of, operands_of, place_of
from rlx.dialects.convert import from_type
from rlx.ops.base import Op
from rlx.ops.value import Value

__all__ = ["Region", "producer", "region_of", "region_of_ops", "sole_user", "users"]


@dataclass
class Region:
    """Nodes in order over ``leaves``; ``outs`` are its results. ``op`` is the op in the module."""

    op: ir.Operation
    kind: str
    nodes: list[Op]
    leaves: dict[Value, ir.Value]
    outs: tuple[Value, ...]

    @property
    def location(self) -> tuple[str, int]:
        return place_of(self.op)

    @property
    def label(self) -> str:
        """The ops by their short names: "matmul+add+gelu"."""
        return "+".join(n.short for n in self.nodes)


def region_of(op: ir.Operation) -> Region:
    """The region of a mir op: the body of a ``mir.fused``, else the op alone."""
    if op.name != "mir.fused":
        return region_of_ops([op], op)
    body = [view.operation for view in op.regions[0].blocks[0].operations]
    region = region_of_ops(body[:-1], op, body[-1].operands[0])
    region.kind = ir.StringAttr(op.attributes["kind"]).value
    return region


def region_of_ops(ops: list[ir.Operation], op: ir.Operation, out: ir.Value | None = None) -> Region:
    """Ops in program order as one region; ``out`` defaults to the last op's results."""
    leaves: dict[Value, ir.Value] = {}
    env: dict[ir.Value, Value] = {}

    def value(v: ir.Value | None) -> Value | None:
        if v is None:
            return None
        if v not in env:
            env[v] = Value(from_type(v.type))
            leaves[env[v]] = v
        return env[v]

    nodes: list[Op] = []
    for o in ops:
        node = node_of(o, [value(v) for v in operands_of(o)])
        env.update(zip(o.results, node.results, strict=True))
        nodes.append(node)
    outs = nodes[-1].results if out is None else (env[out],)
    return Region(op, nodes[-1].short, nodes, leaves, outs)


def producer(v: ir.Value) -> ir.Operation | None:
    """The op that defines a value; None for a block argument."""
    owner = v.owner
    return None if isinstance(owner, ir.Block) else owner.operation


def users(v: ir.Value) -> list[ir.Operation]:
    """The ops that use a value, once for each use."""
    return [use.owner.operation for use in v.uses]


def sole_user(v: ir.Value) -> ir.Operation | None:
    """The op that alone uses a value, however often; None if there are several or none."""
    found = users(v)
    return found[0] if found and all(u == found[0] for u in found) else None
