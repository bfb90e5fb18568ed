"""Functions of one element: arithmetic, comparisons, elementary and activation functions, casts."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from rlx.errors import UnsupportedError
from rlx.frontends.common.values import constant, scalar
from rlx.frontends.onnx.node import Node, Row, Rows
from rlx.frontends.onnx.tensors import dtype_of
from rlx.ir.op import Op
from rlx.ir.value import Value
from rlx.ops.control.builders import while_loop
from rlx.ops.pointwise.activation import Erf, Gelu, GeluApprox, Sigmoid, Tanh
from rlx.ops.pointwise.binary import Add, Div, Maximum, Minimum, Mul, Pow, Sub
from rlx.ops.pointwise.bits import (
    BitwiseAnd,
    BitwiseNot,
    BitwiseOr,
    BitwiseXor,
    LeftShift,
    RightShift,
)
from rlx.ops.pointwise.compare import (
    Eq,
    Ge,
    Gt,
    IsInf,
    IsNan,
    Le,
    LogicalAnd,
    LogicalNot,
    LogicalOr,
    LogicalXor,
    Lt,
    Ne,
    Where,
)
from rlx.ops.pointwise.division import Fmod, Remainder
from rlx.ops.pointwise.elementary import Acos, Acosh, Asin, Asinh, Atanh, Ceil, Cosh, Sinh
from rlx.ops.pointwise.rectifiers import (
    Celu,
    Elu,
    HardSigmoid,
    HardSwish,
    LeakyRelu,
    Mish,
    Softplus,
    Softsign,
)
from rlx.ops.pointwise.unary import (
    Abs,
    Atan,
    Cos,
    Exp,
    Floor,
    Log,
    Neg,
    Relu,
    Round,
    Sign,
    Sin,
    Sqrt,
    Tan,
)
from rlx.ops.reduction.reduce import ReduceMax
from rlx.types import DType, broadcast_shapes, f64

__all__ = ["ROWS"]

States = tuple[Value, ...]


def unary(op: type[Op]) -> Row:
    """An op of ours that is the op type."""
    return lambda n: op.build(n[0])


def binary(op: type[Op]) -> Row:
    """The same with two operands, which broadcast."""
    return lambda n: op.build(n[0], n[1])


def variadic(op: type[Op]) -> Row:
    """An op of two operands over any number of them."""
    return lambda n: reduce(op.build, n.values())


def formula(function: Callable[[Value], Value]) -> Row:
    """A formula of one operand."""
    return lambda n: function(n[0])


def mean(n: Node) -> Value:
    values = n.values()
    return reduce(Add.build, values) / len(values)


def clip(n: Node) -> Value:
    x = n[0]
    low, high = n.optional(1), n.optional(2)
    if n.version < 11:
        low, high = (scalar(n.need(a), x) if n.given(a) else None
                     for a in ("min", "max"))  # fmt: skip
    x = x if low is None else Maximum.build(x, low)
    return x if high is None else Minimum.build(x, high)


def cast(n: Node) -> Value:
    return _cast_to(n, dtype_of(n.need("to"), "its result"))


def _cast_to(n: Node, to: DType) -> Value:
    n.ignore("round_mode")  # of floats that are exponents alone, which there are none of here
    return n[0].cast(to, saturate=bool(n.attr("saturate", 1)))


def power(n: Node) -> Value:
    x, y = n[0], n[1]
    if x.dtype.is_float:
        return Pow.build(x, y.cast(x.dtype))
    if y.dtype.is_float:
        return Pow.build(x.cast(f64), y.cast(f64)).cast(x.dtype)
    return _whole_power(x, y)


def _whole_power(x: Value, y: Value) -> Value:
    """Integers by squaring, bit by bit of the exponent, so that the result is exact and wraps; a
    negative exponent gives the reciprocal, cut to a whole number."""
    shape = broadcast_shapes(x.shape, y.shape)
    if 0 in shape:
        return x.expand(shape)
    one, none = scalar(1, x), scalar(0, y)
    negative = Lt.build(y, none)

    def goes_on(result: Value, square: Value, left: Value) -> Value:
        return Gt.build(ReduceMax.build(left), none)

    def one_bit(result: Value, square: Value, left: Value) -> States:
        half = left / 2
        factor = Where.build(Eq.build(half * 2, left), one, square)
        return result * factor, square * square, half

    start = (one.expand(shape), x.expand(shape), Where.build(negative, none, y).expand(shape))
    result = while_loop(goes_on, one_bit, start)[0]
    odd = Ne.build(y / 2 * 2, y)
    sign = Where.build(LogicalAnd.build(Lt.build(x, scalar(0, x)), odd), scalar(0, x) - 1, one)
    small = Where.build(Eq.build(Abs.build(x), one), sign, scalar(0, x))
    return Where.build(negative, small, result)


def remainder(n: Node) -> Value:
    """Of the sign of the divisor, or with ``fmod`` of the dividend."""
    op = Fmod if n.attr("fmod", 0) else Remainder
    return op.build(n[0], n[1])


def shift(n: Node) -> Value:
    ops: dict[str, type[Op]] = {"LEFT": LeftShift, "RIGHT": RightShift}
    return ops[n.need("direction")].build(n[0], n[1])


def is_inf(n: Node) -> Value:
    x = n[0]
    ends = [s for s, name in ((1, "positive"), (-1, "negative")) if n.attr(f"detect_{name}", 1)]
    if len(ends) == 2:
        return IsInf.build(x)
    return Eq.build(x, scalar(ends[0] * np.inf, x)) if ends else constant(False).expand(x.shape)


def bent(op: type[Op], **defaults: float) -> Row:
    """An activation whose parameters are attributes of the same names."""
    return lambda n: op.build(n[0], **{k: n.attr(k, v) for k, v in defaults.items()})


def gelu(n: Node) -> Value:
    kind = n.attr("approximate", "none")
    kinds: dict[str, type[Op]] = {"none": Gelu, "tanh": GeluApprox}
    if kind not in kinds:
        raise UnsupportedError(f"its approximation is {kind!r}; there are 'none' and 'tanh'")
    return kinds[kind].build(n[0])


def cast_like(n: Node) -> Value:
    return _cast_to(n, n.edge(1).dtype)


def swish(n: Node) -> Value:
    x = n[0]
    return x * Sigmoid.build(x * scalar(n.attr("alpha", 1.0), x))


def _reciprocal(x: Value) -> Value:
    return scalar(1, x) / x


UNARY: dict[str, Any] = {
    "Abs": Abs, "Acos": Acos, "Acosh": Acosh, "Asin": Asin, "Asinh": Asinh, "Atan": Atan,
    "Atanh": Atanh, "BitwiseNot": BitwiseNot, "Ceil": Ceil, "Cosh": Cosh, "HardSwish": HardSwish,
    "IsNaN": IsNan, "Mish": Mish, "Sinh": Sinh, "Softplus": Softplus, "Softsign": Softsign,
    "Cos": Cos, "Erf": Erf, "Exp": Exp, "Floor": Floor, "Log": Log,
    "Neg": Neg, "Not": LogicalNot, "Relu": Relu, "Round": Round, "Sigmoid": Sigmoid, "Sign": Sign,
    "Sin": Sin, "Sqrt": Sqrt, "Tan": Tan, "Tanh": Tanh,
}  # fmt: skip
BINARY: dict[str, Any] = {
    "Add": Add, "And": LogicalAnd, "BitwiseAnd": BitwiseAnd, "BitwiseOr": BitwiseOr,
    "BitwiseXor": BitwiseXor, "Div": Div, "Equal": Eq, "Greater": Gt, "GreaterOrEqual": Ge,
    "Less": Lt, "LessOrEqual": Le, "Mul": Mul, "Or": LogicalOr, "Sub": Sub, "Xor": LogicalXor,
}  # fmt: skip

ROWS: Rows = {
    **{name: unary(op) for name, op in UNARY.items()},
    **{name: binary(op) for name, op in BINARY.items()},
    "BitShift": shift,
    "Cast": cast,
    "CastLike": cast_like,
    "Celu": bent(Celu, alpha=1.0),
    "Clip": clip,
    "Elu": bent(Elu, alpha=1.0),
    "Gelu": gelu,
    "HardSigmoid": bent(HardSigmoid, alpha=0.2, beta=0.5),
    "Identity": lambda n: n.edge(0),
    "IsInf": is_inf,
    "LeakyRelu": bent(LeakyRelu, alpha=0.01),
    "Max": variadic(Maximum),
    "Mean": mean,
    "Min": variadic(Minimum),
    "Mod": remainder,
    "Pow": power,
    "Reciprocal": formula(_reciprocal),
    "Sum": variadic(Add),
    "Swish": swish,
    "Where": lambda n: Where.build(n[0], n[1], n[2]),
}
