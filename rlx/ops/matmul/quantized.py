"""Products of 8-bit integers that stand for numbers with a zero point."""

from __future__ import annotations

from collections.abc import Sequence

from rlx.errors import DTypeError, ShapeError
from rlx.ir.value import Value
from rlx.ops.matmul.contraction import MatMul
from rlx.ops.reduction.reduce import ReduceSum
from rlx.types import Dim, i8, i32, u8

__all__ = ["matmul_integer"]


def matmul_integer(
    a: Value, b: Value, a_zero: Value | None = None, b_zero: Value | None = None
) -> Value:
    """``(a - a_zero) @ (b - b_zero)`` of 8-bit integers, signed or not, in i32, as ONNX's
    MatMulInteger: exact, but what leaves 32 bits wraps.

    a is ``[..., M, K]`` and b ``[..., K, N]``, or either a vector, as of ``matmul``. A zero point
    has its operand's type: one number, one a row of a (``[M]`` or ``[..., M, 1]``), one a column of
    b (``[N]`` or ``[..., 1, N]``). The product itself is of 8-bit integers, without zero points;
    sums of rows and columns correct it.
    """
    for v, name in ((a, "a"), (b, "b")):
        if v.dtype not in (i8, u8):
            raise DTypeError(f"matmul_integer takes i8 and u8, found {name} of {v.dtype}")
    row, column = a.rank == 1, b.rank == 1
    a = a.reshape([1, *a.shape]) if row else a
    b = b.reshape([*b.shape, 1]) if column else b
    wide_a, wide_b = a.cast(i32), b.cast(i32)
    out = MatMul(wide_a, wide_b).out
    rows = _zeros(a_zero, a, "a_zero", [a.shape[-2], 1])
    columns = _zeros(b_zero, b, "b_zero", [1, b.shape[-1]])
    if rows is not None:
        left = wide_b if columns is None else wide_b - columns
        out = out - rows * ReduceSum.build(left, axes=-2, keepdims=True)
    if columns is not None:
        out = out - ReduceSum.build(wide_a, axes=-1, keepdims=True) * columns
    drop = {out.rank - 2} if row else set[int]()
    drop |= {out.rank - 1} if column else set()
    return out.reshape([d for i, d in enumerate(out.shape) if i not in drop]) if drop else out


def _zeros(v: Value | None, like: Value, name: str, shape: Sequence[Dim]) -> Value | None:
    """A zero point in i32, to meet the rows of a or the columns of b."""
    if v is None:
        return None
    if v.dtype is not like.dtype:
        raise DTypeError(f"matmul_integer: {name} is {v.dtype}, and its operand {like.dtype}")
    wide = v.cast(i32)
    if v.rank == 0 or v.shape == (1,):
        return wide.reshape([])
    if v.rank == 1:
        wide = wide.reshape(shape) if v.shape[0] in shape else wide
    ends = wide.shape[-2:]
    if len(ends) < 2 or any(n not in (d, 1) for n, d in zip(ends, shape, strict=True)):
        raise ShapeError(f"matmul_integer: {name} is {v.type}, expected one number or {shape}")
    return wide
