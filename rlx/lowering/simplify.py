"""simplify: broadcasts made explicit, constants folded, algebraic rules applied.

What is left of dead and repeated ops is removed by the upstream passes canonicalize and cse.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rlx._mlir import ir, run_pipeline
from rlx.dialects.bridge import attributes_of, create, node_of, operands_of
from rlx.dialects.convert import from_attr, from_type, to_attr, to_type
from rlx.errors import RlxError
from rlx.interpreter import evaluate
from rlx.lowering.base import Compilation, Pass, functions
from rlx.lowering.region import producer
from rlx.lowering.rules import RULES, Call, Pattern, constant_of, splat_of
from rlx.ops.base import op_class
from rlx.ops.cast import Cast
from rlx.ops.constant import Constant
from rlx.ops.movement import Expand, Reshape, Transpose
from rlx.ops.slicing import Slice
from rlx.types import TensorType

__all__ = ["Simplify"]

FOLD_LIMIT = 1 << 16
"""Largest constant, in elements, that folding may make (a splat may be of any size)."""


class Simplify(Pass):
    """Make broadcasts explicit, fold constants and apply the algebraic rules."""

    name = "simplify"

    def run(self, module: ir.Module, compilation: Compilation) -> ir.Module:
        for f in functions(module).values():
            for block in f.regions[0].blocks:
                while _sweep(block):
                    pass
        run_pipeline(module, "builtin.module(canonicalize,cse)")
        return module


def _sweep(block: ir.Block) -> bool:
    changed = False
    for view in list(block.operations):
        op = view.operation
        if not op.name.startswith("mir.") or op.name in ("mir.fused", "mir.yield", "mir.constant"):
            continue
        changed |= _explicit(op)
        value = _fold(op) or _algebra(op) or _movement(op)
        if value is not None:
            op.results[0].replace_all_uses_with(value)
            op.erase()
            changed = True
    return changed


def _make(
    op: ir.Operation,
    name: str,
    t: TensorType,
    operands: list[ir.Value],
    source: ir.Operation | None = None,
    **attrs: ir.Attribute,
) -> ir.Value:
    """A new op before ``op``, in the place of it and of ``source``, which it merges with."""
    loc = op.location if source is None else ir.Location.fused([source.location, op.location])
    made = create(name, [to_type(t)], operands, attrs, loc=loc, ip=ir.InsertionPoint(op))
    return made.results[0]


def _constant(op: ir.Operation, value: np.ndarray, t: TensorType) -> ir.Value:
    return _make(op, Constant.name, t, [], value=to_attr(value, "Array"))


def _explicit(op: ir.Operation) -> bool:
    """An operand of a pointwise op that broadcasts becomes a mir.expand of it."""
    if not op_class(op.name).pointwise:
        return False
    shape, changed = from_type(op.results[0].type).shape, False
    for i, v in enumerate(op.operands):
        t = from_type(v.type)
        if t.shape != shape:
            to = t.with_shape(shape)
            op.operands[i] = _make(
                op, Expand.name, to, [v], shape=to_attr(shape, "tuple[Dim, ...]")
            )
            changed = True
    return changed


def _fold(op: ir.Operation) -> ir.Value | None:
    """An op on constants alone is evaluated by its reference."""
    if (
        len(op.results) != 1
        or not len(op.operands)
        or any(not _is_constant(v) for v in op.operands)
    ):
        return None
    t = from_type(op.results[0].type)
    if not t.is_static:
        return None
    cls = op_class(op.name)
    splats = [splat_of(v) for v in op.operands]
    whole = all(s is not None for s in splats)
    if whole and (cls.pointwise or cls in (Expand, Reshape, Transpose)):
        one = np.asarray(splats[0])
        if cls.pointwise:
            scalar = create_scalar(op, [np.asarray(s) for s in splats])
            one = scalar
        return _constant(op, np.broadcast_to(one, t.static_shape), t)
    if t.size > FOLD_LIMIT:  # type: ignore[operator]
        return None
    try:
        arrays = [None if v is None else constant_of(v) for v in operands_of(op)]
        out = evaluate(node_of(op), arrays)[0]
    except RlxError:
        return None  # a fault is raised when the graph runs, with the op's place
    return _constant(op, np.ascontiguousarray(out).reshape(t.static_shape), t)


def create_scalar(op: ir.Operation, splats: list[np.ndarray]) -> np.ndarray:
    """A pointwise op evaluated on one element of each operand."""
    node = node_of(op)
    from rlx.ops.base import placeholders

    scalars = placeholders([v.type.with_shape(()) for v in node.present])
    return evaluate(node.with_operands(scalars), list(splats))[0]


def _is_constant(v: ir.Value) -> bool:
    source = producer(v)
    return source is not None and source.name == Constant.name


def _algebra(op: ir.Operation) -> ir.Value | None:
    t = from_type(op.results[0].type)
    for rule in _RULES_BY_ROOT.get(op.name, ()):
        found = rule.match(op, t.dtype)
        if found is not None:
            return _build(op, rule.after, t, found)
    return None


_RULES_BY_ROOT = {
    f"mir.{r.before.op}": [s for s in RULES if s.before.op == r.before.op] for r in RULES
}


def _build(op: ir.Operation, after: Pattern, t: TensorType, found: dict[str, ir.Value]) -> ir.Value:
    if isinstance(after, str):
        return found[after]
    if isinstance(after, Call):
        return _make(op, f"mir.{after.op}", t, [_build(op, a, t, found) for a in after.args])
    return _constant(
        op, np.broadcast_to(np.asarray(after).astype(t.dtype.numpy), t.static_shape), t
    )


def _movement(op: ir.Operation) -> ir.Value | None:
    """A movement op that moves nothing goes; two of a kind become one."""
    rule = _MOVEMENT.get(op.name)
    return rule(op) if rule else None


def _reshape(op: ir.Operation) -> ir.Value | None:
    source = producer(op.operands[0])
    if op.operands[0].type == op.results[0].type:
        return op.operands[0]
    if source is not None and source.name == Reshape.name:
        t = from_type(op.results[0].type)
        return _make(
            op, Reshape.name, t, [source.operands[0]], source, shape=op.attributes["shape"]
        )
    return None


def _transpose(op: ir.Operation) -> ir.Value | None:
    perm = from_attr(op.attributes["perm"], "tuple[int, ...]")
    if perm == tuple(range(len(perm))):
        return op.operands[0]
    source = producer(op.operands[0])
    if source is None or source.name != Transpose.name:
        return None
    first = from_attr(source.attributes["perm"], "tuple[int, ...]")
    both = Transpose(node_of(source).present[0], tuple(first[p] for p in perm))
    return _make(
        op, Transpose.name, both.out.type, [source.operands[0]], source, **attributes_of(both)
    )


def _same(op: ir.Operation) -> ir.Value | None:
    return op.operands[0] if op.operands[0].type == op.results[0].type else None


_MOVEMENT: dict[str, Callable[[ir.Operation], ir.Value | None]] = {
    Reshape.name: _reshape,
    Transpose.name: _transpose,
    Expand.name: _same,
    Cast.name: _same,
    Slice.name: _same,
}
