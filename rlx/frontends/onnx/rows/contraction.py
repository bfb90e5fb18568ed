"""Products of tensors."""

from __future__ import annotations

from rlx.frontends.onnx.node import Node, Rows, scalar
from rlx.ops.contraction import MatMul
from rlx.ops.einsum import einsum
from rlx.ops.value import Value
from rlx.types import i32

__all__ = ["ROWS"]


def matmul(n: Node) -> Value:
    return MatMul.build(n[0], n[1])


def gemm(n: Node) -> Value:
    """alpha * A' B' + beta * C, where ' is a transposition if the attribute says so."""
    a, b, c = n[0], n[1], n.optional(2)
    out = MatMul.build(a.T if n.attr("transA", 0) else a, b.T if n.attr("transB", 0) else b)
    alpha, beta = n.attr("alpha", 1.0), n.attr("beta", 1.0)
    if alpha != 1:
        out = _scaled(out, alpha)
    if c is None or beta == 0:
        return out
    return out + (c if beta == 1 else _scaled(c, beta))


def _scaled(x: Value, factor: float) -> Value:
    """Integers are scaled in f64 and cut to whole numbers."""
    if x.dtype.is_float or factor.is_integer():
        return x * scalar(factor, x)
    return (x.cast("f64") * factor).cast(x.dtype)


def matmul_integer(n: Node) -> Value:
    """8-bit integers, less their zero points, multiplied and added up in i32."""
    parts: list[Value] = []
    for i in (0, 1):
        x, zero = n[i].cast(i32), n.optional(i + 2)
        if zero is not None:
            zero = zero.cast(i32)
            # One zero point a row of the left operand, a column of the right one.
            x = x - (
                zero.reshape([*zero.shape, 1])
                if i == 0 and zero.rank == 1 and zero.shape != (1,)
                else zero
            )
        parts.append(x)
    return MatMul.build(*parts)


def sums(n: Node) -> Value:
    return einsum(n.need("equation"), *n.values())


ROWS: Rows = {"Einsum": sums, "Gemm": gemm, "MatMul": matmul, "MatMulInteger": matmul_integer}
