"""Products of operands that are stored in fewer bits than they are multiplied in.

``matmul(cast(x: bf16 -> f32), cast(w: i8 -> f32))`` multiplies what f32 holds exactly: the cast is
how the product reads memory, and no work of its own. Such casts stay beside their products in main
and go into their regions, and the kernel reads what is below them. The element type of the product
says in what it sums.
"""

from __future__ import annotations

from collections.abc import Iterable

from rlx._mlir import ir
from rlx.dialects.convert import from_type
from rlx.ir.op import Op
from rlx.ir.value import Value
from rlx.lowering.region import iter_users
from rlx.ops.matmul.contraction import MatMul
from rlx.ops.pointwise.cast import Cast
from rlx.types import FLOAT8, DType, bf16, f16, f32, i8, i32, u8

__all__ = ["below", "is_format", "stored"]

_FORMATS: dict[DType, tuple[DType, ...]] = {f32: (bf16, f16, i8, u8, *FLOAT8), i32: (i8, u8)}
"""The types that operands of a product of each type may be stored in; all are exact."""


def _widens(source: DType, to: DType) -> bool:
    return source in _FORMATS.get(to, ())


def is_format(op: ir.Operation) -> bool:
    """Whether an op is a widening cast that a product reads; what else reads it has its own."""
    if op.name != Cast.name:
        return False
    if not _widens(from_type(op.operands[0].type).dtype, from_type(op.results[0].type).dtype):
        return False
    return any(u.name == MatMul.name for u in iter_users(op.results[0]))


def below(v: Value, product: Op) -> Value:
    """What a product reads of an operand: what lies below a widening cast, or the operand."""
    source = v.op
    if isinstance(product, MatMul) and isinstance(source, Cast):
        return source.x if _widens(source.x.dtype, v.dtype) else v
    return v


def stored(product: Op, inside: Iterable[Op]) -> set[Op]:
    """The widening casts among ``inside`` through which a product reads."""
    casts = [v.op for v in product.present if below(v, product) is not v]
    return {op for op in inside if op in casts}
