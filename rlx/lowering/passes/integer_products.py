"""Products and convolutions of dequantised integers: ``dequantize(q) @ dequantize(w)`` becomes the
op that multiplies the integers, and scales their sums."""

from __future__ import annotations

from typing import Any, NamedTuple

from rlx._mlir import ir
from rlx.dialects.bridge import attributes_of, create, node_of
from rlx.dialects.convert import from_type, to_type
from rlx.ir.op import Op
from rlx.ir.value import Value
from rlx.lowering.region import producer, users
from rlx.ops.conv.conv import Conv
from rlx.ops.matmul.contraction import MatMul
from rlx.ops.movement.movement import Transpose
from rlx.ops.quant.affine import Dequantize
from rlx.ops.quant.integer import ScaledConv, ScaledMatMul
from rlx.types import f32, i8, u8

__all__ = ["join_integer_products"]


class _Codes(NamedTuple):
    """Integers, what they stand for, and the order of their axes."""

    q: ir.Value
    scale: ir.Value
    zero: ir.Value | None
    axis: tuple[int, ...]
    order: tuple[int, ...] | None


def join_integer_products(block: ir.Block) -> int:
    """Rewrite the products of a block in place; returns how many."""
    count = 0
    for view in list(block.operations):
        op = view.operation
        if op.name not in (MatMul.name, Conv.name):
            continue
        if from_type(op.results[0].type).dtype is not f32:
            continue
        x, w = (_codes(v) for v in op.operands)
        if x is not None and w is not None:
            count += _joined(op, x, w)
    return count


def _codes(v: ir.Value) -> _Codes | None:
    """The 8-bit integers of which a value is made, also through a transpose."""
    made, order = producer(v), None
    if made is not None and made.name == Transpose.name:
        turned = node_of(made)
        assert isinstance(turned, Transpose)
        order, made = turned.perm, producer(made.operands[0])
    if made is None or made.name != Dequantize.name:
        return None
    node = node_of(made)
    assert isinstance(node, Dequantize)
    if node.q.dtype not in (i8, u8):
        return None
    operands = list(made.operands)
    axis = node.axis if order is None else tuple(order.index(a) for a in node.axis)
    return _Codes(
        operands[0], operands[1], operands[2] if node.zero is not None else None, axis, order
    )


def _joined(op: ir.Operation, x: _Codes, w: _Codes) -> bool:
    """Whether a product was rewritten."""
    rank = from_type(op.operands[1].type).rank
    conv = op.name == Conv.name
    allowed = (0,) if conv else (rank - 1,)
    if x.axis or w.axis not in ((), allowed) or rank < 2 or from_type(op.operands[0].type).rank < 2:
        return False
    ip = ir.InsertionPoint(op)
    with op.location:
        a, b = (_turned(c, op, ip) for c in (x, w))
        parts = [a, b, x.scale, w.scale, x.zero, w.zero]
        values: list[Any] = [None if v is None else Value(from_type(v.type)) for v in parts]
        made: Op
        if conv:
            node = node_of(op)
            made = ScaledConv(*values, **node.attrs)
        else:
            made = ScaledMatMul(*values)
        there = [v for v in parts if v is not None]
        new = create(
            made.name, [op.results[0].type], there, attributes_of(made), loc=op.location, ip=ip
        )
    op.results[0].replace_all_uses_with(new.results[0])
    _drop([op, *(p for v in op.operands if (p := producer(v)) is not None)])
    return True


def _turned(c: _Codes, op: ir.Operation, ip: ir.InsertionPoint) -> ir.Value:
    """The integers in the order in which the product has them."""
    if c.order is None:
        return c.q
    node = Transpose(Value(from_type(c.q.type)), c.order)
    made = create(
        node.name, [to_type(node.out.type)], [c.q], attributes_of(node), loc=op.location, ip=ip
    )
    return made.results[0]


def _drop(ops: list[ir.Operation]) -> None:
    """Erase what nothing uses any more, with what it was made of."""
    while ops:
        op = ops.pop(0)
        if any(users(v) for v in op.results):
            continue
        ops += [p for v in op.operands if (p := producer(v)) is not None and p not in ops]
        ops = [o for o in ops if o != op]
        op.erase()
