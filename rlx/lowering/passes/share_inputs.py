"""share-inputs: products of one tensor with several weights become one product.

    matmul(x, w1) + b1, matmul(x, w2) + b2
      --> slices of (matmul(x, concat(w1, w2)) + concat(b1, b2))

Casts join as well, if all of them are the same.

The weights must depend on params alone, so that the concatenation is done once, by packing each
into its part of the panels; one product reads x once and has more columns to share among threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from rlx._mlir import ir
from rlx.dialects.bridge import attributes_of, create, node_of, place_of
from rlx.dialects.convert import from_type, to_type
from rlx.ir.op import Op
from rlx.ir.value import Value
from rlx.lowering.compilation import Compilation
from rlx.lowering.functions import functions
from rlx.lowering.pass_base import Pass
from rlx.lowering.passes.hoist import static_values
from rlx.lowering.region import producer, sole_user, users
from rlx.lowering.report import MissedFusion
from rlx.lowering.select.storage_types import is_format
from rlx.ops.matmul.contraction import MatMul
from rlx.ops.movement.movement import Expand
from rlx.ops.movement.slicing import Concat, Slice
from rlx.ops.pointwise.binary import Add
from rlx.ops.pointwise.cast import Cast
from rlx.types import Dim, DType

__all__ = ["ShareInputs"]


@dataclass
class Member:
    """A product of the shared input, the addition of its bias if it has one, and the cast of the
    result if nothing else reads it."""

    product: ir.Operation
    add: ir.Operation | None
    bias: ir.Value | None
    cast: ir.Operation | None = None

    @property
    def last(self) -> ir.Operation:
        return self.cast or self.add or self.product

    def with_cast(self) -> Member:
        """The member with the cast that follows, if one does."""
        user = sole_user(self.last.results[0])
        takes = user is not None and user.name == Cast.name and not is_format(user)
        return replace(self, cast=user) if takes else self


class ShareInputs(Pass):
    """Merge products that share their left operand and have constant weights."""

    name = "share-inputs"

    def run(self, module: ir.Module, compilation: Compilation) -> ir.Module:
        options = compilation.options
        if options.dispatch == "common" or not options.fuse:
            return module
        main = functions(module)["main"]
        static = static_values(main)
        for members in self._groups(main, static, compilation):
            _merge(members)
            compilation.fusion.fused["shared-input matmuls"] += 1
            compilation.hit(self.name, "merge products")
        return module

    def _groups(
        self, main: ir.Operation, static: set[ir.Value], compilation: Compilation
    ) -> list[list[Member]]:
        by_input: dict[ir.Value, list[Member]] = {}
        for view in main.regions[0].blocks[0].operations:
            op = view.operation
            if op.name != MatMul.name or op.operands[1] not in static or op.operands[0] in static:
                continue
            if from_type(op.operands[1].type).rank == 2:
                by_input.setdefault(op.operands[0], []).append(_member(op, static))
        groups: list[list[Member]] = []
        for members in by_input.values():
            if len(members) < 2:
                continue
            kept: list[Member] = []
            for m in members:
                if not _returned(m):
                    kept.append(m)
                    continue
                reason = "its result is a graph output, which must be dense"
                miss = MissedFusion("shared-input matmuls", "matmul", place_of(m.product), reason)
                compilation.fusion.missed.append(miss)
            if len(kept) > 1:
                groups.append(kept)
        return groups


def _member(op: ir.Operation, static: set[ir.Value]) -> Member:
    user = sole_user(op.results[0])
    if user is not None and user.name == Add.name and user.operands[0] == op.results[0]:
        spread = producer(user.operands[1])
        if spread is not None and spread.name == Expand.name and spread.operands[0] in static:
            bias = from_type(spread.operands[0].type)
            if bias.shape == from_type(op.results[0].type).shape[-1:]:
                return Member(op, user, spread.operands[0])
    return Member(op, None, None)


def _returned(m: Member) -> bool:
    return any(u.name == "func.return" for u in users(m.last.results[0]))


def _merge(members: list[Member]) -> None:
    if any(m.bias is None for m in members):
        members = [Member(m.product, None, None) for m in members]
    members = _with_casts(members)
    anchor = members[0].product
    merged = [o for m in members for o in (m.product, m.add, m.cast) if o is not None]
    place = ir.Location.fused([o.location for o in merged])
    weights, to = _stored([m.product.operands[1] for m in members])
    biases = [m.bias for m in members if m.bias is not None]
    for v in [*weights, *biases]:
        _raise(v, anchor)
    env: dict[Value, ir.Value] = {}

    def leaf(v: ir.Value) -> Value:
        value = Value(from_type(v.type))
        env[value] = v
        return value

    def put(node: Op) -> Value:
        operands = [env[v] for v in node.present]
        types = [to_type(v.type) for v in node.results]
        at = ir.InsertionPoint(anchor)
        made = create(node.name, types, operands, attributes_of(node), loc=place, ip=at)
        env.update(zip(node.results, made.results, strict=True))
        return node.out

    x = leaf(anchor.operands[0])
    weight = _concat([leaf(w) for w in weights], 1, put)
    y = put(MatMul(x, put(Cast(weight, to, True)) if to else weight))
    if biases:
        bias = _concat([leaf(b) for b in biases], 0, put)
        y = put(Add(y, put(Expand(bias, y.shape))))
    if members[0].cast is not None:
        cast = node_of(members[0].cast)
        assert isinstance(cast, Cast)
        y = put(Cast(y, cast.to, cast.saturate))
    start: Dim = 0
    for m in members:
        shape = from_type(m.product.results[0].type).shape
        starts = (*([0] * (len(shape) - 1)), start)
        part = put(Slice(y, starts, shape, (1,) * len(shape)))
        m.last.results[0].replace_all_uses_with(env[part])
        start = start + shape[-1]
    _erase(members)


def _erase(members: list[Member]) -> None:
    """Remove members whose results are read no more."""
    for m in members:
        if m.cast is not None:
            m.cast.erase()
        if m.add is not None:
            spread = producer(m.add.operands[1])
            m.add.erase()
            if spread is not None and not users(spread.results[0]):
                spread.erase()
        m.product.erase()


def _with_casts(members: list[Member]) -> list[Member]:
    found = [m.with_cast() for m in members]
    attrs = [node_of(m.cast).attrs for m in found if m.cast]
    alike = len(attrs) == len(found) and all(a == attrs[0] for a in attrs)
    return found if alike else members


def _stored(weights: list[ir.Value]) -> tuple[list[ir.Value], DType | None]:
    """What lies below the casts of weights that are all stored in one type, and the type to which
    they are cast."""
    casts = [op for w in weights if (op := producer(w)) is not None and is_format(op)]
    below = [op.operands[0] for op in casts]
    if len(below) < len(weights) or len({from_type(v.type).dtype for v in below}) > 1:
        return weights, None
    return below, from_type(weights[0].type).dtype


def _concat(values: list[Value], axis: int, put: Callable[[Op], Value]) -> Value:
    """The values side by side, by halves: what lies in many is copied by each."""
    if len(values) == 1:
        return values[0]
    half = (len(values) + 1) // 2
    return put(Concat(_concat(values[:half], axis, put), _concat(values[half:], axis, put), axis))


def _raise(v: ir.Value, anchor: ir.Operation) -> None:
    """Move what defines a static value before ``anchor``, where it stands behind it."""
    op = producer(v)
    if op is None or op.is_before_in_block(anchor):
        return
    for operand in op.operands:
        _raise(operand, anchor)
    op.move_before(anchor)
