"""The ways to make a graph smaller, each a generator of candidates, the boldest first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from rlx.ir.graph import topological
from rlx.ir.op import REQUIRED, Op, placeholders
from rlx.ops.control.control import Cond, Control, WhileLoop
from rlx.ops.movement.constant import Constant
from rlx.tools.reduce.change import Change, Subject
from rlx.types import f32

__all__ = ["EDITS", "cost"]

Edit = Callable[[Subject], Iterator[Change]]


def cost(subject: Subject) -> tuple[int, ...]:
    """What a reduction makes smaller, in this order: the work that nodes stand for, outputs, blocks
    that could be expanded, params, inputs, elements, element types, attributes."""
    graph = subject.graph
    nodes, leaves = graph.nodes(), [*graph.inputs, *graph.params]
    values = [*leaves, *(v for op in nodes for v in op.results)]
    return (
        sum(_weight(op) for op in nodes),
        len(graph.outputs),
        sum(op.dialect == "hir" for op in nodes),
        len(graph.params),
        len(leaves),
        sum(int(str(v.type.size)) + v.rank for v in values),
        sum(v.dtype is not f32 for v in values),
        sum(not _is_simple(a) for op in nodes for a in _attributes(op)),
    )


def _weight(op: Op) -> int:
    """The primitives that a block stands for, or bodies hold. Expanding it costs nothing, and then
    parts can go."""
    if isinstance(op, Control):
        bodies = [op.attrs[a.name] for a in op.body_fields()]
        return 1 + sum(_weight(inner) for body in bodies for inner in body.nodes())
    if op.dialect != "hir":
        return 1
    leaves = placeholders([None if v is None else v.type for v in op.operands])
    outs = op.with_operands(leaves).expansion()
    return max(1, sum(_weight(inner) for inner in topological(outs)))


def _outputs(s: Subject) -> Iterator[Change]:
    """One output alone; all but one."""
    outs = s.graph.outputs
    if len(outs) > 1:
        yield from (Change(outputs=[v]) for v in outs)
        yield from (Change(outputs=[*outs[:i], *outs[i + 1 :]]) for i in range(len(outs)))


def _earlier(s: Subject) -> Iterator[Change]:
    """The end moved back: an operand in the place of an output."""
    outs = s.graph.outputs
    for i, v in enumerate(outs):
        if v.op is not None:
            yield from (Change(outputs=[*outs[:i], x, *outs[i + 1 :]]) for x in v.op.present)


def _cut(s: Subject) -> Iterator[Change]:
    """Values given as inputs: those of the first half of the nodes, of quarters, of one node."""
    nodes = s.graph.nodes()
    size = len(nodes) // 2
    while size >= 1:
        for start in range(0, len(nodes), size):
            part = {v for op in nodes[start : start + size] for v in op.results}
            yield Change(cut=frozenset(part))
        size //= 2


def _bypass(s: Subject) -> Iterator[Change]:
    """An operand of the same type in the place of a node's result."""
    for op in reversed(s.graph.nodes()):
        yield from (Change(swap={op.out: x}) for x in op.present if x.type == op.out.type)


def _expand(s: Subject) -> Iterator[Change]:
    """A block's own expansion in its place."""
    yield from (Change(expand=op) for op in s.graph.nodes() if op.dialect == "hir")


def _inline(s: Subject) -> Iterator[Change]:
    """A branch of a cond, or one round of a loop, in its place."""
    for op in s.graph.nodes():
        for key in _INLINE.get(type(op), ()):
            yield Change(inline={op: key})


_INLINE: dict[type[Op], tuple[str, ...]] = {Cond: ("then", "otherwise"), WhileLoop: ("body",)}


def _merge(s: Subject) -> Iterator[Change]:
    """One leaf in the place of another of its type."""
    leaves = [*s.graph.inputs, *s.graph.params]
    for i, v in enumerate(leaves):
        same = next((x for x in leaves[:i] if x.type == v.type), None)
        if same is not None:
            yield Change(swap={v: same})


def _drop(s: Subject) -> Iterator[Change]:
    """An optional operand left out."""
    for op in s.graph.nodes():
        for f in op.operand_fields:
            if f.optional and op.operands[f.index] is not None:
                yield Change(drop={op: f.index})


def _inputs(s: Subject) -> Iterator[Change]:
    """Params as inputs, which no prologue prepares."""
    if s.graph.params:
        yield Change(as_inputs=frozenset(s.graph.params))
        yield from (Change(as_inputs=frozenset([v])) for v in s.graph.params)


def _sizes(s: Subject) -> Iterator[Change]:
    """Smaller dims, a size wherever it occurs; then an axis of one leaf."""
    values = [*s.graph.inputs, *s.graph.params, *(v for op in s.graph.nodes() for v in op.results)]
    found = Counter(d for v in values for d in v.type.static_shape if d > 1)
    for d in sorted(found, reverse=True):
        yield from (Change(sizes={d: n}, tail=t) for n in _smaller(d) for t in (False, True))
    for v in (*s.graph.inputs, *s.graph.params):
        shape = v.type.static_shape
        for axis, d in enumerate(shape):
            for n in _smaller(d):
                t = v.type.with_shape((*shape[:axis], n, *shape[axis + 1 :]))
                yield from (Change(axes={v: t}, tail=tail) for tail in (False, True))


def _smaller(d: int) -> list[int]:
    return sorted({n for n in (1, 2, 4, 8, d // 2, d - 1) if 0 < n < d})


def _dtypes(s: Subject) -> Iterator[Change]:
    """f32 in the place of another float."""
    values = [*s.graph.inputs, *s.graph.params, *(v for op in s.graph.nodes() for v in op.results)]
    for dt in sorted({v.dtype for v in values if v.dtype.is_float}, key=lambda d: d.name):
        if dt is not f32:
            yield Change(dtypes={dt: f32})


def _attrs(s: Subject) -> Iterator[Change]:
    """An attribute at its default, or at 0 or 1; a literal of equal elements."""
    for op in s.graph.nodes():
        for a in op.attr_fields:
            value = op.attrs[a.name]
            for simple in _simple(op, a.kind, a.default, value):
                yield Change(attrs={op: {a.name: simple}})


def _simple(op: Op, kind: str, default: Any, value: Any) -> list[Any]:
    if isinstance(op, Constant):
        return [] if _is_simple(value) else [np.full_like(value, n) for n in (0, 1)]
    options = [] if default is REQUIRED else [default]
    if kind in ("int", "float", "bool"):
        options += [type(value)(0), type(value)(1)]
    return [] if _is_simple(value) else [v for v in options if v != value]


def _attributes(op: Op) -> list[Any]:
    return [op.attrs[a.name] for a in op.attr_fields if op.attrs[a.name] is not a.default]


def _is_simple(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return bool((value == 0).all() or (value == 1).all())
    return isinstance(value, int | float) and value in (0, 1)


EDITS: tuple[Edit, ...] = (
    _outputs, _cut, _earlier, _bypass, _inline, _expand, _drop, _inputs, _merge, _sizes, _dtypes,
    _attrs,
)  # fmt: skip
"""All edits in the order in which they are tried."""
