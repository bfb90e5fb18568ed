"""Products of tensors, and what else is made of matrices."""

from __future__ import annotations

from rlx.frontends.common.values import scalar
from rlx.frontends.onnx.node import Node, Rows
from rlx.frontends.onnx.rows.written_out import attended
from rlx.ir.value import Value
from rlx.ops.linalg.solve import Det
from rlx.ops.matmul.contraction import MatMul
from rlx.ops.matmul.einsum import einsum
from rlx.ops.matmul.quantized import matmul_integer

__all__ = ["ROWS"]


def matmul(n: Node) -> Value:
    whole = attended(n[0], n[1]) if n[0].rank == 4 else None
    return MatMul.build(n[0], n[1]) if whole is None else whole


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


def integers(n: Node) -> Value:
    return matmul_integer(n[0], n[1], n.zero_point(2), n.zero_point(3))


def sums(n: Node) -> Value:
    return einsum(n.need("equation"), *n.values())


def determinant(n: Node) -> Value:
    return Det.build(n[0])


ROWS: Rows = {
    "Det": determinant, "Einsum": sums, "Gemm": gemm, "MatMul": matmul, "MatMulInteger": integers,
}  # fmt: skip
