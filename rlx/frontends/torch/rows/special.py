"""Functions of two numbers: incomplete gamma functions, divisors."""

from __future__ import annotations

from collections.abc import Callable

from rlx.frontends.torch.node import Node, Rows
from rlx.ir.value import Value
from rlx.ops.control.builders import while_loop
from rlx.ops.pointwise.incomplete_gamma import Igamma, Igammac

__all__ = ["ROWS"]


def _incomplete(op: type[Igamma | Igammac]) -> Callable[..., Value]:
    return lambda n, a, x: n.cast(op.build(n.cast(a), n.cast(x)))


def divisor(n: Node, a: Value, b: Value) -> Value:
    """The greatest common divisor, by Euclid."""
    a, b = n.cast(a), n.cast(b)
    shape = list((a + b).shape)

    def step(a: Value, b: Value) -> tuple[Value, Value]:
        none = b.eq(b.zeros_like())
        return none.where(a, b), none.where(b, a.fmod(none.where(b.ones_like(), b)))

    found = while_loop(
        lambda a, b: b.ne(b.zeros_like()).any(), step, (a.expand(shape), b.expand(shape))
    )
    return found[0].abs()


def multiple(n: Node, a: Value, b: Value) -> Value:
    common = divisor(n, a, b)
    none = common.eq(common.zeros_like())
    whole = n.cast(a).div(none.where(common.ones_like(), common))
    return (whole * n.cast(b)).abs()


ROWS: Rows = {
    "igamma": _incomplete(Igamma), "igammac": _incomplete(Igammac),
    "special_gammainc": _incomplete(Igamma), "special_gammaincc": _incomplete(Igammac),
    "gcd": divisor, "lcm": multiple,
}  # fmt: skip
