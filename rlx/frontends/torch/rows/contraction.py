"""Products of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.frontends.torch.node import Node, Number, Rows
from rlx.ir.value import Value
from rlx.ops.matmul.contraction import MatMul
from rlx.ops.matmul.einsum import einsum

__all__ = ["ROWS"]


def product(n: Node, a: Value, b: Value) -> Value:
    return MatMul.build(a, b)


def plus_product(
    n: Node, x: Value, a: Value, b: Value, beta: Number = 1, alpha: Number = 1
) -> Value:
    out = MatMul.build(a, b)
    out = out if alpha == 1 else out * n.cast(alpha)
    if beta == 0:
        return out
    return out + (x if beta == 1 else x * n.cast(beta))


def plus_sum_of_products(
    n: Node, x: Value, a: Value, b: Value, beta: Number = 1, alpha: Number = 1
) -> Value:
    out = MatMul.build(a, b).sum([0])
    out = out if alpha == 1 else out * n.cast(alpha)
    return out if beta == 0 else out + (x if beta == 1 else x * n.cast(beta))


def outer_sum(n: Node, x: Value, a: Value, b: Value, beta: Number = 1, alpha: Number = 1) -> Value:
    out = a.unsqueeze(1) * b.unsqueeze(0)
    out = out if alpha == 1 else out * n.cast(alpha)
    return out if beta == 0 else out + (x if beta == 1 else x * n.cast(beta))


def linear(n: Node, x: Value, weight: Value, bias: Value | None = None) -> Value:
    turned = weight.transpose([1, 0]) if weight.rank == 2 else weight
    out = MatMul.build(x, turned)
    return out if bias is None else out + bias


def einstein(n: Node, equation: str, tensors: Sequence[Value], path: Any = None) -> Value:
    return einsum(equation.replace(" ", ""), *tensors)


ROWS: Rows = {
    **dict.fromkeys(("mm", "bmm", "matmul", "mv", "dot", "vdot"), product),
    **dict.fromkeys(("addmm", "addmv", "baddbmm"), plus_product),
    "addbmm": plus_sum_of_products, "addr": outer_sum, "linear": linear, "einsum": einstein,
    "outer": lambda n, a, b: a.unsqueeze(1) * b.unsqueeze(0),
}  # fmt: skip
