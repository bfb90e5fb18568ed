"""Functions of one element: arithmetic, comparisons, elementary and activation functions, casts."""

from __future__ import annotations

import math
from collections.abc import Callable

from rlx.frontends.common.special import erfc, normal_quantile
from rlx.frontends.common.values import full, scalar
from rlx.frontends.torch.node import Node, Number, Operand, Row, Rows
from rlx.ir.op import Op
from rlx.ir.value import Value
from rlx.ops.pointwise.activation import Erf, ErfInv, Gelu, GeluApprox, Sigmoid, Silu, Tanh
from rlx.ops.pointwise.bessel import BesselI0e, BesselI1e
from rlx.ops.pointwise.binary import Maximum, Minimum, Mul, Pow, Sub
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
from rlx.ops.pointwise.division import FloorDivide, Fmod, Remainder
from rlx.ops.pointwise.elementary import (
    Acos,
    Acosh,
    Asin,
    Asinh,
    Atanh,
    Ceil,
    Cosh,
    Exp2,
    Expm1,
    Log1p,
    Log2,
    Sinh,
)
from rlx.ops.pointwise.floats import Copysign, Nextafter
from rlx.ops.pointwise.gamma import Digamma, Lgamma
from rlx.ops.pointwise.rectifiers import HardSigmoid, HardSwish, Mish, Relu6, Selu, Softsign
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
    Rsqrt,
    Sin,
    Sqrt,
    Tan,
)
from rlx.ops.sugar import concat
from rlx.types import bool_, u8
from rlx.xp import elementwise as elementary

__all__ = ["ROWS"]


def unary(op: type[Op]) -> Row:
    """An op of ours on the operand in the type of the result."""
    return lambda n, x: op.build(n.cast(x))


def whole(op: type[Op]) -> Row:
    """A function that leaves integers as they are."""
    return lambda n, x: op.build(x) if x.dtype.is_float else x


def formula(function: Callable[[Value], Value]) -> Row:
    """The same by ops of ours."""
    return lambda n, x: function(n.cast(x))


def absolute(n: Node, x: Value) -> Value:
    return x if x.dtype is bool_ else Abs.build(x)


def rounded(n: Node, x: Value, decimals: int = 0) -> Value:
    if not x.dtype.is_float:
        return x
    if decimals == 0:
        return Round.build(x)
    factor = 10.0 ** abs(decimals)
    return Round.build(x * factor) / factor if decimals > 0 else Round.build(x / factor) * factor


def softplus(n: Node, x: Value, beta: float = 1, threshold: float = 20) -> Value:
    """Linear above the threshold, as torch has it."""
    scaled = x * beta
    return Where.build(scaled.gt(threshold), x, scaled.softplus() / beta)


def logical_not(n: Node, x: Value) -> Value:
    return LogicalNot.build(x) if x.dtype is bool_ else x.eq(scalar(0, x))


def bitwise_not(n: Node, x: Value) -> Value:
    return LogicalNot.build(x) if x.dtype is bool_ else BitwiseNot.build(x)


def sign_bit(n: Node, x: Value) -> Value:
    """That of -0.0 and nan is set too."""
    if not x.dtype.is_float:
        return x.lt(scalar(0, x)) if x.dtype is not bool_ else full(x.shape, False, bool_)
    return scalar(1, x).copysign(x).lt(scalar(0, x))


def polygamma(n: Node, order: int, x: Value) -> Value:
    x = n.cast(x)
    return x.digamma() if order == 0 else x.polygamma(order)


def heaviside(n: Node, x: Value, values: Value) -> Value:
    """0 and 1 on either side of 0, where it is what ``values`` say; nan stays."""
    step = Where.build(x.gt(scalar(0, x)), scalar(1, x), scalar(0, x))
    step = Where.build(IsNan.build(x), x, step) if x.dtype.is_float else step
    return Where.build(x.eq(scalar(0, x)), n.cast(values), step)


def distance(n: Node, a: Value, b: Value, p: float = 2) -> Value:
    """The p-norm of the difference, over all elements."""
    gap = Abs.build(n.cast(a) - n.cast(b)).reshape([-1])
    return gap.norm(p)


def sign(n: Node, x: Value) -> Value:
    return x if x.dtype is bool_ else x.sign()


def about_floats(op: type[Op]) -> Row:
    """What is asked of floats and holds for no integer."""

    def row(n: Node, x: Value) -> Value:
        if x.dtype.is_complex:
            return op.build(x.real()).logical_or(op.build(x.imag()))
        return op.build(x) if x.dtype.is_float else full(x.shape, False, bool_)

    return row


def gelu(n: Node, x: Value, approximate: str = "none") -> Value:
    return Gelu.build(x) if approximate == "none" else GeluApprox.build(x)


def elu(n: Node, x: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    return Where.build(x.gt(0), x * scale, (x * input_scale).expm1() * (alpha * scale))


def clamp(n: Node, x: Value, min: Operand | None = None, max: Operand | None = None) -> Value:
    y = n.cast(x)
    y = y if min is None else Maximum.build(y, n.cast(min))
    return y if max is None else Minimum.build(y, n.cast(max))


def clamp_min(n: Node, x: Value, min: Operand) -> Value:
    return clamp(n, x, min=min)


def clamp_max(n: Node, x: Value, max: Operand) -> Value:
    return clamp(n, x, max=max)


def hardtanh(n: Node, x: Value, min_val: float = -1, max_val: float = 1) -> Value:
    return clamp(n, x, min_val, max_val)


def leaky_relu(n: Node, x: Value, negative_slope: float = 0.01) -> Value:
    return x.leaky_relu(negative_slope)


def prelu(n: Node, x: Value, weight: Value) -> Value:
    """The weight broadcasts in the core op, and is one per channel in the composite."""
    if n.packet == "prelu" and weight.type.size != 1:
        weight = weight.reshape([weight.shape[0], *[1] * (x.rank - 2)])
    elif n.packet == "prelu":
        weight = weight.reshape([])
    return Where.build(x.gt(0), x, x * weight)


def threshold(n: Node, x: Value, threshold: Number, value: Number) -> Value:
    return Where.build(x.le(n.cast(threshold)), n.cast(value), x)


def logit(n: Node, x: Value, eps: float | None = None) -> Value:
    x = n.cast(x)
    x = x if eps is None else clamp(n, x, eps, 1 - eps)
    return Log.build(x / (1.0 - x))


# -- of two operands -----------------------------------------------------------------------


def binary(op: type[Op]) -> Row:
    """An op of ours on the operands in the type of the result."""
    return lambda n, a, b: op.build(n.cast(a), n.cast(b))


def added(n: Node, a: Operand, b: Operand, alpha: Number = 1) -> Value:
    if n.dtype is bool_:
        return LogicalOr.build(n.cast(a), n.cast(b))
    right = n.cast(b)
    return n.cast(a) + (right if alpha == 1 else right * n.cast(alpha))


def subtracted(n: Node, a: Operand, b: Operand, alpha: Number = 1) -> Value:
    right = n.cast(b)
    return Sub.build(n.cast(a), right if alpha == 1 else right * n.cast(alpha))


def subtracted_from(n: Node, a: Operand, b: Operand, alpha: Number = 1) -> Value:
    return subtracted(n, b, a, alpha)


def multiplied(n: Node, a: Operand, b: Operand) -> Value:
    op = LogicalAnd if n.dtype is bool_ else Mul
    return op.build(n.cast(a), n.cast(b))


def divided(n: Node, a: Operand, b: Operand, rounding_mode: str | None = None) -> Value:
    x, y = n.cast(a), n.cast(b)
    if rounding_mode == "floor":
        return FloorDivide.build(x, y)
    return (x / y).trunc() if rounding_mode == "trunc" and x.dtype.is_float else x / y


def power(n: Node, a: Operand, b: Operand) -> Value:
    if isinstance(b, int | float) and b in (0.5, 1, 2, 3, -0.5, -1) and n.dtype.is_float:
        return _constant_power(n.cast(a), b)
    if n.dtype.is_int:
        return _whole_power(n, n.cast(a), b)
    if n.dtype.is_complex and isinstance(b, int) and 0 <= b <= 64:
        return _repeated(n, n.cast(a), b)
    return Pow.build(n.cast(a), n.cast(b))


def _constant_power(x: Value, exponent: float) -> Value:
    if exponent in (2, 3):
        return x * x if exponent == 2 else x * x * x
    if exponent in (1, -1):
        return x if exponent == 1 else 1.0 / x
    return Sqrt.build(x) if exponent > 0 else Rsqrt.build(x)


def _whole_power(n: Node, x: Value, exponent: Operand) -> Value:
    if not isinstance(exponent, int) or not 0 <= exponent <= 64:
        n.refuse(f"a power of integers takes a constant exponent from 0 to 64, found {exponent}")
    return _repeated(n, x, exponent)


def _repeated(n: Node, x: Value, exponent: int) -> Value:
    out = n.full(1)
    square = x
    while exponent:
        out = out * square if exponent & 1 else out
        exponent >>= 1
        square = square * square if exponent else square
    return out


def compared(op: type[Op]) -> Row:
    """A comparison in the type to which torch promotes the operands."""

    def row(n: Node, a: Operand, b: Operand) -> Value:
        x, y = n.cast(a, n.promoted), n.cast(b, n.promoted)
        if x.dtype is bool_ and op not in (Eq, Ne):
            x, y = x.cast(u8), y.cast(u8)
        return op.build(x, y)

    return row


def logical(op: type[Op]) -> Row:
    """An op on the truth of the operands."""
    return lambda n, a, b: op.build(n.cast(a, bool_), n.cast(b, bool_))


def bits(op: type[Op], of_bools: type[Op] | None = None) -> Row:
    """An op on bits, that of bools a logical one."""

    def row(n: Node, a: Operand, b: Operand) -> Value:
        chosen = of_bools if n.dtype is bool_ and of_bools is not None else op
        return chosen.build(n.cast(a), n.cast(b))

    return row


def without_nan(op: type[Op]) -> Row:
    """An extreme that passes over nan."""

    def row(n: Node, a: Operand, b: Operand) -> Value:
        x, y = n.cast(a), n.cast(b)
        found = op.build(x, y)
        if not x.dtype.is_float:
            return found
        return Where.build(IsNan.build(x), y, Where.build(IsNan.build(y), x, found))

    return row


def x_log_y(op: type[Op]) -> Row:
    """``x * f(y)`` that is 0 where x is 0 and y is not nan."""

    def row(n: Node, a: Operand, b: Operand) -> Value:
        x, y = n.cast(a), n.cast(b)
        zero = x.eq(0.0).logical_and(IsNan.build(y).logical_not())
        return Where.build(zero, scalar(0, x), x * op.build(y))

    return row


def chosen(n: Node, condition: Value, a: Operand, b: Operand) -> Value:
    return Where.build(condition.cast(bool_), n.cast(a), n.cast(b))


def masked_fill(n: Node, x: Value, mask: Value, value: Operand) -> Value:
    return Where.build(mask, n.cast(value), x)


def lerp(n: Node, a: Value, b: Value, weight: Operand) -> Value:
    return a + (b - a) * n.cast(weight)


def plus_product(n: Node, x: Value, a: Value, b: Value, value: Number = 1) -> Value:
    product = n.cast(a) * n.cast(b)
    return n.cast(x) + (product if value == 1 else product * n.cast(value))


def product_plus(n: Node, a: Value, b: Value, x: Value) -> Value:
    """What torch writes some ops with, such as addcmul of a value in graphs of AOTAutograd.
    Here the product is rounded as well."""
    return n.cast(a) * n.cast(b) + n.cast(x)


def plus_quotient(n: Node, x: Value, a: Value, b: Value, value: Number = 1) -> Value:
    left = n.cast(a)
    return n.cast(x) + (left if value == 1 else left * n.cast(value)) / n.cast(b)


def log_add_exp(n: Node, a: Value, b: Value) -> Value:
    x, y = n.cast(a), n.cast(b)
    top = Maximum.build(x, y)
    gap = (x - y).abs()
    return Where.build(IsInf.build(top).logical_and(x.eq(y)), top, top + (-gap).exp().log1p())


# -- types and complex numbers -------------------------------------------------------------


def cast(n: Node, x: Value, dtype: object = None) -> Value:
    return n.cast(x)


def same(n: Node, x: Value) -> Value:
    return n.cast(x)


def copied(n: Node, x: Value, source: Value) -> Value:
    return n.cast(source).expand(n.shape)


def real(n: Node, x: Value) -> Value:
    return x.real() if x.dtype.is_complex else x


def conjugate(n: Node, x: Value) -> Value:
    return x.conj() if x.dtype.is_complex else x


def from_parts(n: Node, x: Value, y: Value) -> Value:
    return x.complex(y)


def angle(n: Node, x: Value) -> Value:
    """That of a real number is 0 or pi, and nan stays."""
    if x.dtype.is_complex:
        return x.angle()
    y = n.cast(x)
    found = Where.build(y.lt(scalar(0, y)), scalar(math.pi, y), scalar(0, y))
    return Where.build(IsNan.build(y), y, found)


def polar(n: Node, size: Value, angle: Value) -> Value:
    return (size * angle.cos()).complex(size * angle.sin())


def sinc(x: Value) -> Value:
    """Both branches are finite at 0, and so are their derivatives."""
    zero, turned = x.eq(0.0), x * math.pi
    one = scalar(1, x)
    return Where.build(zero, one, turned.sin() / Where.build(zero, one, turned))


ROWS: Rows = {
    **{name: unary(op) for name, op in {
        "acos": Acos, "acosh": Acosh, "asin": Asin, "asinh": Asinh, "atan": Atan, "atanh": Atanh,
        "cos": Cos, "cosh": Cosh, "erf": Erf, "exp": Exp, "log": Log, "neg": Neg, "relu": Relu,
        "rsqrt": Rsqrt, "sigmoid": Sigmoid, "sin": Sin, "sinh": Sinh, "sqrt": Sqrt, "tan": Tan,
        "tanh": Tanh, "silu": Silu, "mish": Mish, "hardswish": HardSwish,
        "hardsigmoid": HardSigmoid, "relu6": Relu6, "selu": Selu, "softsign": Softsign,
        "expm1": Expm1, "log1p": Log1p, "log2": Log2, "exp2": Exp2, "erfinv": ErfInv,
        "lgamma": Lgamma, "digamma": Digamma, "special_i0e": BesselI0e, "special_i1e": BesselI1e,
    }.items()},
    **{name: formula(function) for name, function in {
        "square": lambda x: x * x,
        "log10": lambda x: x.log() * (1 / math.log(10)), "erfc": erfc,
        "reciprocal": lambda x: 1.0 / x, "log_sigmoid": lambda x: -(-x).softplus(),
        "i0": lambda x: x.bessel_i0e() * x.abs().exp(),
        "special_i1": lambda x: x.bessel_i1e() * x.abs().exp(),
        "special_modified_bessel_i0": lambda x: x.bessel_i0e() * x.abs().exp(),
        "special_modified_bessel_i1": lambda x: x.bessel_i1e() * x.abs().exp(),
        "special_ndtri": normal_quantile,
        "deg2rad": lambda x: x * (math.pi / 180), "rad2deg": lambda x: x * (180 / math.pi),
        "sinc": sinc,
    }.items()},
    **{name: whole(op) for name, op in {"ceil": Ceil, "floor": Floor}.items()},
    "trunc": lambda n, x: x.trunc() if x.dtype.is_float else x,
    "fix": lambda n, x: x.trunc() if x.dtype.is_float else x,
    "frac": lambda n, x: x - x.trunc(),
    "abs": absolute, "round": rounded, "sign": sign, "sgn": sign, "softplus": softplus,
    "logical_not": logical_not, "bitwise_not": bitwise_not, "isnan": about_floats(IsNan),
    "isinf": about_floats(IsInf),
    "gelu": gelu, "elu": elu, "clamp": clamp, "clamp_min": clamp_min, "clamp_max": clamp_max,
    "hardtanh": hardtanh, "leaky_relu": leaky_relu, "prelu": prelu, "_prelu_kernel": prelu,
    "threshold": threshold, "logit": logit, "signbit": sign_bit,
    "polygamma": polygamma, "heaviside": heaviside, "dist": distance,
    "add": added, "sub": subtracted, "rsub": subtracted_from, "mul": multiplied, "div": divided,
    "pow": power, "float_power": power,
    **{name: binary(op) for name, op in {
        "maximum": Maximum, "minimum": Minimum, "fmod": Fmod, "remainder": Remainder,
        "floor_divide": FloorDivide, "copysign": Copysign, "nextafter": Nextafter,
    }.items()},
    "atan2": lambda n, a, b: n.cast(a).atan2(n.cast(b)),
    **{name: compared(op) for name, op in {
        "eq": Eq, "ne": Ne, "lt": Lt, "le": Le, "gt": Gt, "ge": Ge,
    }.items()},
    "max.other": binary(Maximum), "min.other": binary(Minimum),
    **{name: logical(op) for name, op in {
        "logical_and": LogicalAnd, "logical_or": LogicalOr, "logical_xor": LogicalXor,
    }.items()},
    "bitwise_and": bits(BitwiseAnd, LogicalAnd), "bitwise_or": bits(BitwiseOr, LogicalOr),
    "bitwise_xor": bits(BitwiseXor, LogicalXor),
    "__and__": bits(BitwiseAnd, LogicalAnd), "__or__": bits(BitwiseOr, LogicalOr),
    "bitwise_left_shift": bits(LeftShift), "bitwise_right_shift": bits(RightShift),
    "__lshift__": bits(LeftShift), "__rshift__": bits(RightShift),
    "fmax": without_nan(Maximum), "fmin": without_nan(Minimum),
    "xlogy": x_log_y(Log), "special_xlog1py": x_log_y(Log1p),
    "where": chosen, "masked_fill": masked_fill, "lerp": lerp, "addcmul": plus_product,
    "prims.fma": product_plus, "addcdiv": plus_quotient, "logaddexp": log_add_exp,
    "hypot": lambda n, a, b: elementary.hypot(n.cast(a), n.cast(b)),
    "ldexp": lambda n, a, b: n.cast(a) * n.cast(b).exp2(),
    "_to_copy": cast, "to": cast, "type_as": copied, "prims.convert_element_type": cast,
    **dict.fromkeys((
        "clone", "detach", "detach_", "detach_copy", "alias", "alias_copy", "lift_fresh_copy",
        "lift_fresh", "contiguous", "positive", "resolve_conj", "resolve_neg", "view_of",
    ), same),
    "copy": copied, "real": real, "imag": lambda n, x: x.imag(), "conj": conjugate,
    "_conj": conjugate, "_conj_physical": conjugate, "_conj_copy": conjugate,
    "complex": from_parts, "polar": polar, "angle": angle,
    "view_as_real": lambda n, x: _pair(x), "view_as_real_copy": lambda n, x: _pair(x),
    "view_as_complex": lambda n, x: x[..., 0].complex(x[..., 1]),
    "view_as_complex_copy": lambda n, x: x[..., 0].complex(x[..., 1]),
}  # fmt: skip


def _pair(x: Value) -> Value:
    """The parts of complex numbers along a new last axis."""
    return concat([x.real().unsqueeze(-1), x.imag().unsqueeze(-1)], -1)
