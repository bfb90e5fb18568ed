"""simplify: broadcasts made explicit, constants folded, algebraic rules applied.

What is left of dead and repeated ops is removed by the upstream passes canonicalize and cse.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np

from rlx._mlir import ir, kept_pipeline
from rlx.base.dims import same_shape
from rlx.dialects.bridge import attributes_of, create, is_mir, node_of, operands_of, place_of
from rlx.dialects.convert import from_attr, from_type, to_attr, to_type
from rlx.errors import PassError, RlxError
from rlx.ir.interpreter import evaluate
from rlx.ir.op import op_class
from rlx.lowering.compilation import Compilation
from rlx.lowering.functions import functions
from rlx.lowering.pass_base import RulePass
from rlx.lowering.region import producer, users
from rlx.lowering.rules import RULES, Call, Match, Pattern, Rule, constant_of, depth, splat_of
from rlx.ops.movement.constant import Constant
from rlx.ops.movement.movement import Expand, Reshape, Transpose
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
        def hit(rule: str) -> None:
            compilation.hit(self.name, rule)

        def applies(rule: str) -> bool:
            return self.applies(rule) and (rule != "fold" or compilation.options.constant_folding)

        for f in functions(module).values():
            for block in f.regions[0].blocks:
                _Driver(block, applies, hit).run()
        kept_pipeline("builtin.module(canonicalize,cse)", module.context).run(module)
        return module


_KEPT = ("mir.fused", "mir.yield", "mir.constant")


class _Driver:
    """Applies rules to the ops of a block until none applies.

    An op is looked at again when what it may match has changed: an op that it reads, at most as far
    below it as a pattern is deep, or how often a value is used. Ops are known by their first
    result.
    """

    def __init__(
        self, block: ir.Block, applies: Callable[[str], bool], hit: Callable[[str], None]
    ) -> None:
        self.applies, self.hit = applies, hit
        self.rules: dict[str, list[tuple[str, Rewrite]]] = {}
        self.pending: OrderedDict[ir.Value, ir.Operation] = OrderedDict()
        ops = [view.operation for view in block.operations]
        self.known = {op.results[0] for op in ops if len(op.results)}
        for op in ops:
            self.push(op)
        self.count, self.limit = 0, 10 * max(len(ops), 16)
        self.last: deque[str] = deque(maxlen=8)

    def run(self) -> None:
        """Apply rules until nothing is left to look at; PassError where the rules do not come to an
        end."""
        while self.pending:
            _, op = self.pending.popitem(last=False)
            if _explicit(op):
                for v in op.operands:
                    self.made(v)
            for rule, apply in self.rules_for(op.name):
                value = apply(op)
                if value is not None:
                    self.bound(rule, op)
                    self.replace(op, value)
                    self.hit(rule)
                    break

    def rules_for(self, name: str) -> list[tuple[str, Rewrite]]:
        """The rules that are on and whose root is an op."""
        if name not in self.rules:
            self.rules[name] = [row for row in _rules_for(name) if self.applies(row[0])]
        return self.rules[name]

    def push(self, op: ir.Operation) -> None:
        """Look at an op, again or for the first time."""
        if len(op.results) and is_mir(op) and op.name not in _KEPT:
            self.pending[op.results[0]] = op

    def bound(self, rule: str, op: ir.Operation) -> None:
        """Count a rewrite."""
        self.count += 1
        self.last.append(rule)
        if self.count > self.limit:
            raise PassError(
                f"simplify does not come to an end: {self.limit} rewrites were not enough, and the"
                f" last rules were {', '.join(self.last)}. One of them makes what it matches, or"
                " what another one matches; --disable-rule leaves it out",
                place_of(op),
            )

    def replace(self, op: ir.Operation, value: ir.Value) -> None:
        """Replace an op by a value, and remove what only that op used."""
        self.made(value)
        above = [op.results[0]]
        for _ in range(_reach()):
            readers = [u for v in above for u in users(v)]
            for u in readers:
                self.push(u)
            above = [u.results[0] for u in readers if len(u.results)]
        op.results[0].replace_all_uses_with(value)
        unused = [op]
        while unused:
            gone = unused.pop()
            operands = list(gone.operands)
            self.known.discard(gone.results[0])
            self.pending.pop(gone.results[0], None)
            gone.erase()
            if _counted():
                for v in dict.fromkeys(operands):
                    self.recount(v)
            # One op may have made several of the operands.
            sources = {s.results[0]: s for s in map(producer, operands) if s is not None}
            unused += filter(_is_unused, sources.values())

    def recount(self, v: ir.Value) -> None:
        """Look at the readers of a value if they are now so few that a guard may hold."""
        left = users(v)
        for u in left if len(left) <= _counted() else ():
            self.push(u)

    def made(self, value: ir.Value) -> None:
        """Look at the ops that a rule has made for a value."""
        new = [value]
        while new:
            source = producer(new.pop())
            if source is not None and source.results[0] not in self.known:
                self.known.add(source.results[0])
                self.push(source)
                new += source.operands


def _is_unused(op: ir.Operation) -> bool:
    return op.name.startswith("mir.") and not any(True for r in op.results for _ in r.uses)


@cache
def _reach() -> int:
    """How far above an op a pattern may have its root."""
    return max(depth(r.before) for r in RULES) - 1


@cache
def _counted() -> int:
    """The largest number of uses that a guard asks for."""
    return max((n for r in RULES for n in r.guards.uses.values()), default=0)


def _make(
    op: ir.Operation,
    name: str,
    t: TensorType,
    operands: list[ir.Value],
    merged: Sequence[ir.Operation] = (),
    **attrs: ir.Attribute,
) -> ir.Value:
    """A new op before ``op``, in the place of it and of the ops that are ``merged`` with it."""
    loc = op.location
    if merged:
        loc = ir.Location.fused([*(o.location for o in reversed(merged)), loc])
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
        if not same_shape(t.shape, shape):
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
    if cls.meets:
        return None
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
    from rlx.ir.op import placeholders

    scalars = placeholders([v.type.with_shape(()) for v in node.present])
    return evaluate(node.with_operands(scalars), list(splats))[0]


def _is_constant(v: ir.Value) -> bool:
    source = producer(v)
    return source is not None and source.name == Constant.name


def _algebra(rule: Rule, op: ir.Operation) -> ir.Value | None:
    t = from_type(op.results[0].type)
    found = rule.match(op, t.dtype)
    return None if found is None else _build(op, rule.after, t, found)


def _build(op: ir.Operation, after: Pattern, t: TensorType, found: Match) -> ir.Value:
    if isinstance(after, str):
        return found.values[after]
    if isinstance(after, Call):
        operands = [_build(op, a, t, found) for a in after.args]
        attrs = {name: found.attrs[own] for name, own in after.attrs}
        return _make(op, f"mir.{after.op}", t, operands, found.below, **attrs)
    return _constant(
        op, np.broadcast_to(np.asarray(after).astype(t.dtype.numpy), t.static_shape), t
    )


def _transpose(op: ir.Operation) -> ir.Value | None:
    source = producer(op.operands[0])
    if source is None or source.name != Transpose.name:
        return None
    perm, first = (from_attr(o.attributes["perm"], "tuple[int, ...]") for o in (op, source))
    both = Transpose(node_of(source).present[0], tuple(first[p] for p in perm))
    return _make(
        op, Transpose.name, both.out.type, [source.operands[0]], [source], **attributes_of(both)
    )


def _in_order(op: ir.Operation) -> ir.Value | None:
    perm = from_attr(op.attributes["perm"], "tuple[int, ...]")
    return op.operands[0] if perm == tuple(range(len(perm))) else None


Rewrite = Callable[[ir.Operation], ir.Value | None]
"""The value that replaces an op's result, or None where the rule does not apply."""

_MOVEMENT: tuple[tuple[str, str, Rewrite], ...] = (
    (Transpose.name, "same-transpose", _in_order),
    (Transpose.name, "merge-transposes", _transpose),
)
"""Rules that are functions, by the op at their root: they compute with attributes."""


@cache
def _rules_for(name: str) -> tuple[tuple[str, Rewrite], ...]:
    """The rules whose root is an op, by name, in the order in which they are tried."""
    algebra = [(r.name, partial(_algebra, r)) for r in RULES if f"mir.{r.before.op}" == name]
    movement = [(rule, apply) for op, rule, apply in _MOVEMENT if op == name]
    return (("fold", _fold), *algebra, *movement)


Simplify.rules = ("fold", *(r.name for r in RULES), *(rule for _, rule, _ in _MOVEMENT))
