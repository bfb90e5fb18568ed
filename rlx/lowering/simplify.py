"""simplify: broadcasts made explicit, constants folded, algebraic rules applied.

What is left of dead and repeated ops is removed by the upstream passes canonicalize and cse.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import numpy as np

from rlx._mlir import ir, run_pipeline
from rlx.dialects.bridge import attributes_of, create, is_mir, node_of, operands_of
from rlx.dialects.convert import from_attr, from_type, to_attr, to_type
from rlx.errors import RlxError
from rlx.interpreter import evaluate
from rlx.lowering.base import Compilation, RulePass, functions
from rlx.lowering.region import producer
from rlx.lowering.rules import RULES, Call, Pattern, Rule, constant_of, splat_of
from rlx.ops.base import op_class
from rlx.ops.cast import Cast
from rlx.ops.constant import Constant
from rlx.ops.movement import Expand, Reshape, Transpose
from rlx.ops.slicing import Slice
from rlx.types import TensorType

__all__ = ["Simplify"]

FOLD_LIMIT = 1 << 16
"""Largest constant, in elements, that folding may make."""

SPLAT_LIMIT = 1 << 26
"""The same for one that repeats an element. Whoever reads it has them all in memory: beyond this
the literal and its expand stay apart, which kernels read as well."""


class Simplify(RulePass):
    """Make broadcasts explicit, fold constants and apply the algebraic rules."""

    name = "simplify"

    def run(self, module: ir.Module, compilation: Compilation) -> ir.Module:
        for f in functions(module).values():
            for block in f.regions[0].blocks:
                while self._sweep(block, compilation):
                    pass
        run_pipeline(module, "builtin.module(canonicalize,cse)")
        return module

    def _sweep(self, block: ir.Block, compilation: Compilation) -> bool:
        changed = False
        for view in list(block.operations):
            op = view.operation
            if not is_mir(op) or op.name in _KEPT:
                continue
            changed |= _explicit(op)
            for rule, apply in _rules_for(op.name):
                value = apply(op) if self.applies(rule) else None
                if value is not None:
                    op.results[0].replace_all_uses_with(value)
                    op.erase()
                    compilation.hit(self.name, rule)
                    changed = True
                    break
        return changed


_KEPT = ("mir.fused", "mir.yield", "mir.constant")


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
    whole = all(s is not None for s in splats) and t.size <= SPLAT_LIMIT  # type: ignore[operator]
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


def _algebra(rule: Rule, op: ir.Operation) -> ir.Value | None:
    t = from_type(op.results[0].type)
    found = rule.match(op, t.dtype)
    return None if found is None else _build(op, rule.after, t, found)


def _build(op: ir.Operation, after: Pattern, t: TensorType, found: dict[str, ir.Value]) -> ir.Value:
    if isinstance(after, str):
        return found[after]
    if isinstance(after, Call):
        return _make(op, f"mir.{after.op}", t, [_build(op, a, t, found) for a in after.args])
    return _constant(
        op, np.broadcast_to(np.asarray(after).astype(t.dtype.numpy), t.static_shape), t
    )


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


Rewrite = Callable[[ir.Operation], ir.Value | None]
"""The value that replaces an op's result, or None where the rule does not apply."""

_MOVEMENT: dict[str, tuple[str, Rewrite]] = {
    Reshape.name: ("merge-reshapes", _reshape),
    Transpose.name: ("merge-transposes", _transpose),
    Expand.name: ("same-expand", _same),
    Cast.name: ("same-cast", _same),
    Slice.name: ("same-slice", _same),
}
"""A movement op that moves nothing goes; two of a kind become one."""


@cache
def _rules_for(name: str) -> tuple[tuple[str, Rewrite], ...]:
    """The rules whose root is an op, by name, in the order in which they are tried."""
    algebra = [(r.name, partial(_algebra, r)) for r in RULES if f"mir.{r.before.op}" == name]
    movement = [_MOVEMENT[name]] if name in _MOVEMENT else []
    return (("fold", _fold), *algebra, *movement)


Simplify.rules = ("fold", *(r.name for r in RULES), *(rule for rule, _ in _MOVEMENT.values()))
