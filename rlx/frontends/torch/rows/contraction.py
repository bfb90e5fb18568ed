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


def trilinear(
    n: Node, a: Value, b: Value, c: Value, expand1: Sequence[int], expand2: Sequence[int],
    expand3: Sequence[int], sumdim: Sequence[int], unroll_dim: Any = None,
) -> Value:  # fmt: skip
    """The product of three, each with axes of its own put in, summed over some."""
    for which, axes in enumerate((expand1, expand2, expand3)):
        for axis in sorted(axes):
            a, b, c = (v.unsqueeze(axis) if i == which else v for i, v in enumerate((a, b, c)))
    return (a * b * c).sum(list(sumdim))


ROWS: Rows = {
    **dict.fromkeys(("mm", "bmm", "matmul", "mv", "dot", "vdot"), product),
    **dict.fromkeys(("addmm", "addmv", "baddbmm"), plus_product),
    "addbmm": plus_sum_of_products, "addr": outer_sum, "linear": linear, "einsum": einstein,
    "_trilinear": trilinear,
    "outer": lambda n, a, b: a.unsqueeze(1) * b.unsqueeze(0),
}  # fmt: skip
